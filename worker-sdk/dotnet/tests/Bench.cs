using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker.Tests
{
    /// <summary>
    /// What the library costs: tasks that do nothing, beside a loop written by hand, in one run. It prints, for one
    /// message at a time and for 64, the median of the rounds' ratios of the processor time that a message takes:
    /// library / by hand. The two take turns.
    /// </summary>
    internal static class Bench
    {
        private const int Messages = 100000;

        internal static int Run(string[] args)
        {
            if (args.Length == 3)
            {
                Work(args[1], int.Parse(args[2]));
                return 0;
            }

            int rounds = args.Length > 1 ? int.Parse(args[1]) : 5;
            foreach (int ahead in new[] { 1, 64 })
            {
                var library = new List<double>();
                var byHand = new List<double>();
                for (int round = 0; round < rounds; round++)
                {
                    foreach (bool first in new[] { true, false })
                    {
                        bool isLibrary = first == (round % 2 == 0);
                        (isLibrary ? library : byHand).Add(Measure(isLibrary ? "library" : "by-hand", ahead));
                    }
                }

                List<double> ratios = library.Zip(byHand, (one, other) => one / other).ToList();
                Console.WriteLine(string.Format(
                    CultureInfo.InvariantCulture,
                    "{0} at once: library {1:0.00} µs, by hand {2:0.00} µs, ratio {3:0.00}",
                    ahead,
                    Median(library),
                    Median(byHand),
                    Median(ratios)));
            }

            return 0;
        }

        private static double Median(List<double> numbers)
        {
            return numbers.OrderBy(number => number).ElementAt(numbers.Count / 2);
        }

        // -- workers --

        private static void Work(string way, int concurrency)
        {
            if (way == "library")
            {
                Task<MessageOutputTask> nothing = Task.FromResult<MessageOutputTask>(null);
                var options = new WorkerOptions { Concurrency = concurrency };
                GangerWorker.RunAsync((task, token) => nothing, options).GetAwaiter().GetResult();
                return;
            }

            ByHand(concurrency);
        }

        /// <summary>As one writes it: a stream with a buffer, the values by name, a task of the pool for each message.</summary>
        private static void ByHand(int concurrency)
        {
            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
            socket.Connect(new UnixDomainSocketEndPoint(Environment.GetEnvironmentVariable("GANGER_PIPE")));
            var pipe = new BufferedStream(new NetworkStream(socket), 1 << 16);
            var headers = new Dictionary<string, string>
            {
                { "sdk", "none" }, { "version", "0" }, { "concurrency", concurrency.ToString() },
            };
            var gate = new object();
            Action<Output> send = output =>
            {
                var to = new Bytes();
                Wire.Append(to, output, int.MaxValue);
                lock (gate)
                {
                    socket.Send(to.Array, 0, to.Count, SocketFlags.None);
                }
            };
            send(new Output { Status = Wire.Hello, Headers = headers });
            Action<byte[]> work = frame =>
            {
                object id = null;
                object found = Input.DecodeAny(new ArraySegment<byte>(frame));
                foreach (KeyValuePair<object, object> pair in (KeyValuePair<object, object>[])found)
                {
                    id = (string)pair.Key == "4" ? pair.Value : id;
                }

                send(new Output { Status = 200, Id = (ulong)(long)id });
            };
            byte[] next;
            while ((next = ReadFrame(pipe)) != null)
            {
                byte[] frame = next;
                if (concurrency == 1)
                {
                    work(frame);
                }
                else
                {
                    ThreadPool.QueueUserWorkItem(_ => work(frame));
                }
            }
        }

        private static byte[] ReadFrame(Stream from)
        {
            var length = new byte[4];
            if (!ReadFully(from, length))
            {
                return null;
            }

            var frame = new byte[(length[0] << 24) | (length[1] << 16) | (length[2] << 8) | length[3]];
            return ReadFully(from, frame) ? frame : null;
        }

        private static bool ReadFully(Stream from, byte[] into)
        {
            for (int done = 0; done < into.Length;)
            {
                int count = from.Read(into, done, into.Length - done);
                if (count == 0)
                {
                    return false;
                }

                done += count;
            }

            return true;
        }

        // -- the daemon's side --

        private static double Measure(string way, int ahead)
        {
            string path = Path.Combine(Path.GetTempPath(), "noop-" + Guid.NewGuid().ToString("N"));
            using (var listener = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified))
            {
                listener.Bind(new UnixDomainSocketEndPoint(path));
                listener.Listen(1);
                using (Process process = Peer.Spawn("bench " + way + " " + ahead, path))
                {
                    process.StandardInput.WriteLine("pipe");
                    process.StandardInput.Flush();
                    using (Socket pipe = listener.Accept())
                    {
                        File.Delete(path);
                        var frames = new Frames(Wire.FrameBytesMax);
                        Exchange(pipe, frames, 20000, ahead); // until what is hot is compiled well
                        long before = ProcessorNanos(process.Id);
                        Exchange(pipe, frames, Messages, ahead);
                        long used = ProcessorNanos(process.Id) - before;
                        pipe.Shutdown(SocketShutdown.Send);
                        process.StandardInput.Close();
                        process.WaitForExit();
                        return used / 1000.0 / Messages;
                    }
                }
            }
        }

        /// <summary>That of all threads, which have a clock finer than ticks.</summary>
        private static long ProcessorNanos(int pid)
        {
            long sum = 0;
            foreach (string thread in Directory.GetDirectories("/proc/" + pid + "/task"))
            {
                string text = File.ReadAllText(Path.Combine(thread, "schedstat"));
                sum += long.Parse(text.Split(' ')[0], CultureInfo.InvariantCulture);
            }

            return sum;
        }

        private static void Exchange(Socket pipe, Frames frames, int count, int ahead)
        {
            int sent = 0;
            int answered = 0;
            while (answered < count)
            {
                var heap = new MemoryStream();
                while (sent < count && sent < answered + ahead)
                {
                    byte[] frame = new Message("hello", (ulong)sent++) { Property = new byte[] { 49 } }.Frame();
                    heap.Write(frame, 0, frame.Length);
                }

                byte[] bytes = heap.ToArray();
                for (int done = 0; done < bytes.Length;)
                {
                    done += pipe.Send(bytes, done, bytes.Length - done, SocketFlags.None);
                }

                ArraySegment<byte> space = frames.Space();
                int received = pipe.Receive(space.Array, space.Offset, space.Count, SocketFlags.None);
                Expect.That(received > 0, "the worker has left");
                frames.Filled(received);
                ArraySegment<byte> answer;
                while (frames.Next(out answer))
                {
                    // The HELLO is longer than an answer.
                    answered += answer.Count < 30 ? 1 : 0;
                }
            }
        }
    }
}
