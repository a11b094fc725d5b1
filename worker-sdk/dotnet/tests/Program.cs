using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Reflection;
using System.Runtime.InteropServices;

namespace Ganger.Worker.Tests
{
    /// <summary>
    /// Runs all tests; with arguments it is one of the workers that they need, or the measurement.
    /// </summary>
    internal static class Program
    {
        private static int Main(string[] args)
        {
            int code = Run(args);
            if (Type.GetType("Mono.Runtime") != null)
            {
                // Mono 6.8 hangs at the end of one in some thousand processes, after Main as in Environment.Exit:
                // it waits for a thread that the pool has just started, or for a lock of one that it has stopped.
                _exit(code);
            }

            return code;
        }

        [DllImport("libc")]
        private static extern void _exit(int code);

        private static int Run(string[] args)
        {
            if (args.Length > 0 && args[0] == "modes")
            {
                return Modes.Run(int.Parse(args[1]), int.Parse(args[2]));
            }

            if (args.Length > 0 && args[0] == "chaos")
            {
                return Chaos.Run(int.Parse(args[1]), args[2]);
            }

            if (args.Length > 0 && args[0] == "bench")
            {
                return Bench.Run(args);
            }

            if (args.Length > 0 && args[0] == "processor")
            {
                // As a client of MessageWorkerPool has it.
                var processor = new MessageProcessor();
                processor.InitialAsync().GetAwaiter().GetResult();
                processor.DoWorkAsync(Modes.Shout).GetAwaiter().GetResult();
                return 0;
            }

            return RunTests();
        }

        private static int RunTests()
        {
            int passed = 0;
            int failed = 0;
            foreach (Type type in new[] { typeof(VectorTests), typeof(BenchTests), typeof(ProcessTests) })
            {
                foreach (MethodInfo test in type.GetMethods(BindingFlags.Static | BindingFlags.Public))
                {
                    Stopwatch watch = Stopwatch.StartNew();
                    try
                    {
                        test.Invoke(null, null);
                        passed++;
                        Console.WriteLine("ok      {0}.{1} ({2} ms)", type.Name, test.Name, watch.ElapsedMilliseconds);
                    }
                    catch (TargetInvocationException error)
                    {
                        failed++;
                        Console.WriteLine("FAILED  {0}.{1}: {2}", type.Name, test.Name, error.InnerException);
                    }
                }
            }

            Console.WriteLine("{0} passed, {1} failed", passed, failed);
            return failed == 0 && passed > 0 ? 0 : 1;
        }
    }

    /// <summary>What tests say of what they find.</summary>
    internal static class Expect
    {
        internal static void That(bool holds, string what)
        {
            if (!holds)
            {
                throw new InvalidOperationException(what);
            }
        }

        internal static void Same(object found, object wanted, string about = "")
        {
            That(Equals(found, wanted), about + ": " + Show(found) + ", not " + Show(wanted));
        }

        internal static void Contains(string text, string part)
        {
            That(text.Contains(part), "no \"" + part + "\" in " + text);
        }

        internal static T Throws<T>(Action work)
            where T : Exception
        {
            try
            {
                work();
            }
            catch (T error)
            {
                return error;
            }

            throw new InvalidOperationException("no " + typeof(T).Name);
        }

        internal static string Show(object value)
        {
            if (value == null)
            {
                return "null";
            }

            if (value is byte[])
            {
                return Hex.Of((byte[])value);
            }

            if (value is KeyValuePair<object, object>[])
            {
                var pairs = new List<string>();
                foreach (KeyValuePair<object, object> pair in (KeyValuePair<object, object>[])value)
                {
                    pairs.Add(Show(pair.Key) + "=" + Show(pair.Value));
                }

                return "{" + string.Join(" ", pairs) + "}";
            }

            if (value is KeyValuePair<sbyte, byte[]>)
            {
                var extension = (KeyValuePair<sbyte, byte[]>)value;
                return "extension " + extension.Key + " " + Show(extension.Value);
            }

            if (value is object[])
            {
                return "[" + string.Join(" ", Array.ConvertAll((object[])value, Show)) + "]";
            }

            return Convert.ToString(value, System.Globalization.CultureInfo.InvariantCulture);
        }
    }

    internal static class Hex
    {
        internal static string Of(byte[] bytes)
        {
            return BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();
        }

        internal static string Of(ArraySegment<byte> bytes)
        {
            return BitConverter.ToString(bytes.Array, bytes.Offset, bytes.Count).Replace("-", "").ToLowerInvariant();
        }

        internal static byte[] Read(string text)
        {
            var bytes = new byte[text.Length / 2];
            for (int n = 0; n < bytes.Length; n++)
            {
                bytes[n] = Convert.ToByte(text.Substring(2 * n, 2), 16);
            }

            return bytes;
        }
    }
}
