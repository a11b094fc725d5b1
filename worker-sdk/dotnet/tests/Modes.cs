using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker.Tests
{
    /// <summary>The worker of the process tests: it does what a body's first word says.</summary>
    internal static class Modes
    {
        internal static readonly string[] BuiltIns =
        {
            "constructor", "__proto__", "toString", "length", "hasOwnProperty", "",
        };

        private static readonly CancellationTokenSource Stopping = new CancellationTokenSource();

        private static Barrier together;
        private static MessageInputTask last;

        internal static int Run(int concurrency, int frameBytesMax)
        {
            together = new Barrier(concurrency);
            Trace.Listeners.Clear();
            Trace.Listeners.Add(new GangerTraceListener());
            try
            {
                var options = new WorkerOptions
                {
                    Concurrency = concurrency, FrameBytesMax = frameBytesMax, WarmUp = WarmUp,
                };
                GangerWorker.RunAsync(Handle, options, Stopping.Token).GetAwaiter().GetResult();
                return 0;
            }
            catch (Exception error)
            {
                Console.Error.WriteLine(error.Message);
                return 1;
            }
        }

        /// <summary>Ends as the environment says.</summary>
        private static async Task WarmUp()
        {
            await Task.Yield();
            string why = Environment.GetEnvironmentVariable("GANGER_TEST_COLD");
            if (why != null)
            {
                throw new InvalidOperationException(why);
            }
        }

        internal static Task<MessageOutputTask> Shout(MessageInputTask task, CancellationToken token)
        {
            return Task.FromResult(MessageOutputTask.Reply(task.Message.ToUpperInvariant() + "!"));
        }

        private static async Task<MessageOutputTask> Handle(MessageInputTask task, CancellationToken token)
        {
            Expect.That(MessageInputTask.Current == task, "another task is the current one");
            string[] words = task.Message.Split(new[] { ' ' }, 2);
            string rest = words.Length > 1 ? words[1] : "";
            MessageOutputTask simple = Simple(task, words[0], rest);
            if (simple != null)
            {
                return simple;
            }

            if (words[0] == "together")
            {
                together.SignalAndWait(token);
            }
            else if (words[0] == "sleep")
            {
                await Task.Delay(int.Parse(rest));
            }
            else if (words[0] == "stuck")
            {
                task.Progress("begun");
                try
                {
                    await Task.Delay(Timeout.Infinite, token);
                }
                catch (OperationCanceledException)
                {
                    return MessageOutputTask.Retry("gave up");
                }
            }
            else if (words[0] == "uncaught")
            {
                await Task.Delay(int.Parse("0" + rest));
                task.Progress("begun");
                await Task.Delay(Timeout.Infinite, token);
            }
            else if (words[0] == "late")
            {
                await Task.Yield();
                Expect.That(MessageInputTask.Current == task, "another task is the current one");
                throw new InvalidOperationException("no good, later");
            }
            else if (words[0] == "emit")
            {
                for (int n = 0; n < int.Parse(rest); n++)
                {
                    task.Emit("parts", "part " + n, new Dictionary<string, string> { { "n", n.ToString() } });
                }
            }
            else if (words[0] == "null")
            {
                return null;
            }
            else
            {
                return MessageOutputTask.Reply(task.Body);
            }

            return MessageOutputTask.Done();
        }

        private static MessageOutputTask Simple(MessageInputTask task, string verb, string rest)
        {
            switch (verb)
            {
                case "":
                case "done":
                    return MessageOutputTask.Done();
                case "echo":
                    return MessageOutputTask.Reply(rest);
                case "headers":
                    MessageOutputTask reply = MessageOutputTask.Reply(
                        string.Join(" ", task.Headers.OrderBy(header => header.Key).Select(header => header.Key + "=" + header.Value)));
                    reply.ReplyQueueName = rest;
                    reply.Headers = new Dictionary<string, string> { { "n", "7" }, { "ü", "é" } };
                    return reply;
                case "about":
                    return MessageOutputTask.Reply(
                        task.CorrelationId + " " + task.OriginalQueueName + " " + task.Attempt + " "
                        + task.MillisecondsLeft + " " + Expect.Show(task.Properties["key"]));
                case "retry":
                    return MessageOutputTask.Retry("later", TimeSpan.FromMilliseconds(1500));
                case "reject":
                    return MessageOutputTask.Reject("never");
                case "requeue":
                    return MessageOutputTask.Requeue("");
                case "status":
                    return new MessageOutputTask { Status = (MessageStatus)int.Parse(rest), Message = "odd" };
                case "throw":
                    throw new InvalidOperationException("no good: " + rest, new FormatException("the reason"));
                case "speechless":
                    throw new Speechless();
                case "unspeakable":
                    return Unspeakable(task, rest);
                case "names":
                    return Names(task);
                case "last":
                    last = task;
                    return MessageOutputTask.Done();
                case "too-late":
                    return MessageOutputTask.Reply(Late());
                case "child":
                    return MessageOutputTask.Reply(Child());
                case "exit":
                    Environment.Exit(7);
                    return null;
                case "stop":
                    Stopping.Cancel();
                    return MessageOutputTask.Done();
                case "large":
                    return MessageOutputTask.Reply(new string('x', int.Parse(rest)));
                case "progress":
                    task.Progress("1 of 2");
                    return MessageOutputTask.Done();
                case "log":
                    task.Log("debug", "noted", new Dictionary<string, object> { { "target", "tests" }, { "n", 1 } });
                    return MessageOutputTask.Done();
                case "trace":
                    new TraceSource("tests", SourceLevels.All) { Listeners = { new GangerTraceListener() } }
                        .TraceEvent(TraceEventType.Warning, 0, "hot {0}", "stuff");
                    return MessageOutputTask.Done();
                default:
                    return null;
            }
        }

        /// <summary>What can't be sent as it is.</summary>
        private static MessageOutputTask Unspeakable(MessageInputTask task, string what)
        {
            MessageOutputTask reply = MessageOutputTask.Reply(what == "text" ? "half: \ud83e" : "x");
            var headers = new Dictionary<string, string>();
            reply.Headers = headers;
            if (what == "name")
            {
                headers["\ud83e"] = "x";
            }
            else if (what == "value")
            {
                headers["x"] = "\ud83e";
            }
            else if (what == "queue")
            {
                reply.ReplyQueueName = "\ud83e";
            }
            else if (what == "emit")
            {
                task.Emit("parts", "\ud83e");
            }
            else if (what == "reason")
            {
                return MessageOutputTask.Reject("half: \ud83e");
            }
            else if (what == "many")
            {
                for (int n = 0; n < 10001; n++)
                {
                    headers["n" + n] = "x";
                }
            }

            return reply;
        }

        /// <summary>Headers and fields with names that are something else in other languages.</summary>
        private static MessageOutputTask Names(MessageInputTask task)
        {
            MessageOutputTask reply = MessageOutputTask.Reply("named");
            reply.Headers = new Dictionary<string, string>();
            foreach (string name in BuiltIns)
            {
                task.Log("info", "named\nand more", new Dictionary<string, object> { { name, task.Headers[name] } });
                reply.Headers[name] = task.Headers[name];
            }

            task.Log("info", "half: \ud83e", new Dictionary<string, object> { { "level", null } });
            return reply;
        }

        /// <summary>Says what can't be said any more.</summary>
        private static string Late()
        {
            last.Log("warn", "too late", new Dictionary<string, object> { { "n", 1 } });
            last.Progress("too late");
            return Expect.Throws<InvalidOperationException>(() => last.Emit("parts", "too late")).Message;
        }

        /// <summary>What a child reads that has this process' stdin.</summary>
        private static string Child()
        {
            var start = new ProcessStartInfo("/bin/cat") { UseShellExecute = false, RedirectStandardOutput = true };
            using (Process child = Process.Start(start))
            {
                return child.StandardOutput.ReadToEnd() + Console.In.ReadToEnd();
            }
        }

        /// <summary>An exception whose own text fails.</summary>
        private sealed class Speechless : Exception
        {
            public override string ToString()
            {
                throw new InvalidOperationException("without words");
            }
        }
    }
}
