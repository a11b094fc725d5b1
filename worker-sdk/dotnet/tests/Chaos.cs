using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker.Tests
{
    /// <summary>
    /// The worker of ganger's own tests of this library: real daemon, real queue, workers killed. Arguments: the
    /// concurrency, the version. What it does is in the file $RECORD.
    /// </summary>
    internal static class Chaos
    {
        // O_WRONLY, O_CREAT and O_APPEND of Linux: several processes write one file, and .NET has no name for that.
        private const int Append = 0x1 | 0x40 | 0x400;

        private static int record;

        internal static int Run(int concurrency, string version)
        {
            Environment.SetEnvironmentVariable("GANGER_PROTOCOL", version);
            string path = Environment.GetEnvironmentVariable("RECORD");
            record = open(path, Append, 0x1a4);
            Expect.That(record >= 0, "the record can't be opened: " + path);
            try
            {
                GangerWorker.RunAsync(Handle, new WorkerOptions { Concurrency = concurrency }).GetAwaiter().GetResult();
                return 0;
            }
            catch (Exception error)
            {
                Console.Error.WriteLine(error);
                return 1;
            }
        }

        private static async Task<MessageOutputTask> Handle(MessageInputTask task, CancellationToken token)
        {
            Note("began", task);
            await Task.Delay(2);
            MessageOutputTask output = chaos(task);
            Note("done", task);
            return output;
        }

        private static MessageOutputTask chaos(MessageInputTask task)
        {
            string text = task.Message;
            if (!Utf8.IsValid(task.Body))
            {
                return MessageOutputTask.Reply(task.Body);
            }

            if (text.StartsWith("shout: ", StringComparison.Ordinal))
            {
                MessageOutputTask reply = MessageOutputTask.Reply(text.ToUpperInvariant());
                reply.Headers = new Dictionary<string, string> { { "colour", task.Headers["colour"] } };
                return reply;
            }

            if (text == "raise")
            {
                throw new InvalidOperationException("no good");
            }

            if (text == "retry" && task.Attempt == 1)
            {
                return MessageOutputTask.Retry("later", TimeSpan.FromMilliseconds(10));
            }

            if (text == "emit")
            {
                task.Emit("parts", "part", new Dictionary<string, string> { { "n", "1" } });
            }
            else if (text == "log")
            {
                task.Log("warn", "it is hot", new Dictionary<string, object> { { "degrees", 90 } });
                task.Progress("half way");
            }

            return MessageOutputTask.Done();
        }

        private static void Note(string what, MessageInputTask task)
        {
            string body = Utf8.IsValid(task.Body) ? task.Message : "bytes";
            int end = Math.Min(body.Length, 100);
            if (end < body.Length && char.IsHighSurrogate(body[end - 1]))
            {
                end--;
            }

            string attempt = task.Attempt.HasValue ? task.Attempt.ToString() : "-";
            long micros = (DateTime.UtcNow - new DateTime(1970, 1, 1, 0, 0, 0, DateTimeKind.Utc)).Ticks / 10;
            string line = string.Join(
                "\t", what, body.Substring(0, end), Process.GetCurrentProcess().Id.ToString(), attempt, micros.ToString());
            byte[] bytes = Encoding.UTF8.GetBytes(line + "\n");
            Expect.Same((int)write(record, bytes, (IntPtr)bytes.Length), bytes.Length, "written");
        }

        [DllImport("libc")]
        private static extern int open(string path, int flags, int mode);

        [DllImport("libc")]
        private static extern IntPtr write(int file, byte[] bytes, IntPtr count);
    }
}
