using System;
using System.Collections.Generic;
using System.IO;
using System.IO.Pipes;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker.Testing
{
    /// <summary>What the handler is given.</summary>
    public class TestMessage
    {
        /// <summary>A message of that body.</summary>
        public TestMessage(string body)
        {
            Body = Encoding.UTF8.GetBytes(body);
        }

        /// <summary>A message of those bytes; they are sent as such unless they are UTF-8.</summary>
        public TestMessage(byte[] body)
        {
            Body = body;
        }

        /// <summary>Its body.</summary>
        public byte[] Body { get; set; }

        /// <summary>Empty unless set.</summary>
        public string CorrelationId { get; set; } = "";

        /// <summary>"test" unless set.</summary>
        public string OriginalQueueName { get; set; } = "test";

        /// <summary>None unless set.</summary>
        public IDictionary<string, string> Headers { get; set; } = new Dictionary<string, string>();

        /// <summary>1 unless set.</summary>
        public ulong Attempt { get; set; } = 1;

        /// <summary>Null for never.</summary>
        public ulong? MillisecondsLeft { get; set; }

        /// <summary>What a source knows, as texts.</summary>
        public IDictionary<string, string> Properties { get; set; } = new Dictionary<string, string>();

        /// <summary>Asks the handler to abandon it, so long after it was handed out; null for never.</summary>
        public TimeSpan? CancelAfter { get; set; }

        internal Bytes Frame(ulong id)
        {
            var to = new Bytes();
            to.Number(0, 4);
            to.MapHead(8);
            to.Text("0");
            to.TextOrBytes(Body);
            to.Text("1");
            to.Text(CorrelationId);
            to.Text("2");
            to.Text(OriginalQueueName);
            to.Text("3");
            Texts(to, Headers);
            to.Text("4");
            to.Unsigned(id);
            to.Text("5");
            to.Unsigned(Attempt);
            to.Text("6");
            if (MillisecondsLeft.HasValue)
            {
                to.Unsigned(MillisecondsLeft.Value);
            }
            else
            {
                to.TextOrNil(null);
            }

            to.Text("7");
            Texts(to, Properties);
            to.SetLength(0, to.Count - 4);
            return to;
        }

        private static void Texts(Bytes to, IDictionary<string, string> texts)
        {
            to.MapHead(texts.Count);
            foreach (KeyValuePair<string, string> pair in texts)
            {
                to.Text(pair.Key);
                to.TextOrNil(pair.Value);
            }
        }
    }

    /// <summary>An emit or a log record.</summary>
    public class TestNote
    {
        /// <summary>What it says.</summary>
        public string Message { get; internal set; } = "";

        /// <summary>The same as bytes.</summary>
        public byte[] Body { get; internal set; } = Array.Empty<byte>();

        /// <summary>Its headers; none if there are none.</summary>
        public IDictionary<string, string> Headers { get; internal set; } = new Dictionary<string, string>();

        /// <summary>Where an emit or a reply goes; null if that is not said.</summary>
        public string Queue { get; internal set; }
    }

    /// <summary>What became of one message, and what its handler sent meanwhile.</summary>
    public class TestResult : TestNote
    {
        /// <summary>What became of it.</summary>
        public MessageStatus Status { get; internal set; }

        /// <summary>How long a retry is to wait; null if that is not said.</summary>
        public TimeSpan? RetryAfter { get; internal set; }

        /// <summary>Published meanwhile.</summary>
        public IList<TestNote> Emits { get; } = new List<TestNote>();

        /// <summary>Logged meanwhile.</summary>
        public IList<TestNote> Logs { get; } = new List<TestNote>();

        /// <summary>Shown meanwhile.</summary>
        public IList<string> Progress { get; } = new List<string>();
    }

    /// <summary>
    /// Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a real socket,
    /// in this process.
    /// </summary>
    public static class TestBench
    {
        /// <summary>How long the worker may say nothing.</summary>
        private const int SilenceMs = 60000;

        /// <summary>The results, in the order of the messages; what the worker itself throws is thrown here.</summary>
        public static IList<TestResult> Work(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler, params TestMessage[] messages)
        {
            return Work(handler, null, 2, messages);
        }

        /// <summary>The same with options (null for the usual ones), in that version of the protocol.</summary>
        public static IList<TestResult> Work(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler,
            WorkerOptions options,
            int version,
            params TestMessage[] messages)
        {
            options = GangerWorker.Checked(handler, options);
            if (version != 1 && version != 2)
            {
                throw new ArgumentOutOfRangeException(nameof(version), "the version must be 1 or 2: " + version);
            }

            Socket theirs;
            using (Socket ours = Pair(out theirs))
            using (var controlled = new AnonymousPipeServerStream(PipeDirection.Out))
            {
                var control = new AnonymousPipeClientStream(PipeDirection.In, controlled.ClientSafePipeHandle);
                var connection = new Connection(
                    handler, options.Concurrency, options.FrameBytesMax, theirs, control, version);
                Task worker = GangerWorker.OnItsOwnThread(() => connection.Run(CancellationToken.None));
                ours.ReceiveTimeout = SilenceMs;
                var peer = new TestPeer(ours, controlled, messages, version > 1 ? options.Concurrency : 1);
                try
                {
                    peer.Exchange();
                }
                catch (EndOfStreamException)
                {
                    // What the worker has thrown is why it has left.
                    worker.GetAwaiter().GetResult();
                    throw;
                }

                ours.Shutdown(SocketShutdown.Send);
                worker.GetAwaiter().GetResult();
                return peer.Results;
            }
        }

        private static Socket Pair(out Socket theirs)
        {
            string path = Path.Combine(Path.GetTempPath(), "ganger-" + Guid.NewGuid().ToString("N"));
            using (var listener = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified))
            {
                listener.Bind(new UnixDomainSocketEndPoint(path));
                try
                {
                    listener.Listen(1);
                    theirs = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
                    theirs.Connect(new UnixDomainSocketEndPoint(path));
                    return listener.Accept();
                }
                finally
                {
                    File.Delete(path);
                }
            }
        }
    }

    /// <summary>The daemon's side.</summary>
    internal sealed class TestPeer
    {
        private readonly Socket pipe;
        private readonly Stream control;
        private readonly TestMessage[] messages;
        private readonly List<int> inFlight = new List<int>();
        private readonly int room;
        private int sent;

        internal TestPeer(Socket pipe, Stream control, TestMessage[] messages, int room)
        {
            this.pipe = pipe;
            this.control = control;
            this.messages = messages;
            this.room = room;
            Results = new TestResult[messages.Length];
            for (int n = 0; n < messages.Length; n++)
            {
                Results[n] = new TestResult();
            }
        }

        internal TestResult[] Results { get; }

        internal void Exchange()
        {
            var frames = new Frames(Wire.FrameBytesMax);
            while (sent < messages.Length || inFlight.Count > 0)
            {
                while (sent < messages.Length && inFlight.Count < room)
                {
                    Send();
                }

                ArraySegment<byte> frame;
                if (frames.Next(out frame))
                {
                    Take(Heard.Decode(frame));
                    continue;
                }

                ArraySegment<byte> space = frames.Space();
                int count = pipe.Receive(space.Array, space.Offset, space.Count, SocketFlags.None);
                if (count == 0)
                {
                    throw new EndOfStreamException(
                        "the worker has left with " + inFlight.Count + " messages in hand");
                }

                frames.Filled(count);
            }
        }

        private void Send()
        {
            int number = sent++;
            TestMessage message = messages[number];
            Bytes frame = message.Frame((ulong)number);
            for (int done = 0; done < frame.Count;)
            {
                done += pipe.Send(frame.Array, done, frame.Count - done, SocketFlags.None);
            }

            inFlight.Add(number);
            if (message.CancelAfter.HasValue)
            {
                byte[] line = Encoding.UTF8.GetBytes("__cancel__ " + number + "\n");
                Task.Delay(message.CancelAfter.Value).ContinueWith(_ => Tell(line), TaskScheduler.Default);
            }
        }

        private void Tell(byte[] line)
        {
            try
            {
                control.Write(line, 0, line.Length);
                control.Flush();
            }
            catch (Exception error) when (error is IOException || error is ObjectDisposedException)
            {
                // A worker that has left hears nothing.
            }
        }

        private void Take(Heard heard)
        {
            if (heard.Status == Wire.Hello)
            {
                return;
            }

            int place = heard.Id.HasValue ? inFlight.IndexOf((int)heard.Id.Value) : 0;
            if (place < 0 || place >= inFlight.Count)
            {
                throw new ProtocolException("the worker speaks of a message that is not in flight");
            }

            TestResult result = Results[inFlight[place]];
            if (heard.Status == Wire.Progress || heard.Status == (int)MessageStatus.IGNORE_MESSAGE)
            {
                result.Progress.Add(heard.Note.Message);
            }
            else if (heard.Status == Wire.LogRecord)
            {
                result.Logs.Add(heard.Note);
            }
            else if (heard.Status == Wire.Emit)
            {
                result.Emits.Add(heard.Note);
            }
            else
            {
                result.Status = (MessageStatus)heard.Status;
                result.Message = heard.Note.Message;
                result.Body = heard.Note.Body;
                result.Headers = heard.Note.Headers;
                result.Queue = heard.Note.Queue;
                result.RetryAfter = heard.RetryAfter;
                inFlight.RemoveAt(place);
            }
        }
    }

    /// <summary>A frame from the worker.</summary>
    internal sealed class Heard
    {
        internal int Status { get; private set; }

        internal ulong? Id { get; private set; }

        internal TimeSpan? RetryAfter { get; private set; }

        internal TestNote Note { get; } = new TestNote();

        internal static Heard Decode(ArraySegment<byte> frame)
        {
            var pairs = Input.DecodeAny(frame) as KeyValuePair<object, object>[];
            if (pairs == null)
            {
                throw new ProtocolException("an output must be a map");
            }

            var heard = new Heard();
            foreach (KeyValuePair<object, object> pair in pairs)
            {
                heard.Set(pair.Key as string, pair.Value);
            }

            return heard;
        }

        private void Set(string key, object value)
        {
            if (key == "0")
            {
                Note.Body = value as byte[] ?? Encoding.UTF8.GetBytes(value as string ?? "");
                Note.Message = Encoding.UTF8.GetString(Note.Body);
            }
            else if (key == "1")
            {
                Status = (int)(long)value;
            }
            else if (key == "2")
            {
                foreach (KeyValuePair<object, object> header in (KeyValuePair<object, object>[])value)
                {
                    Note.Headers[(string)header.Key] = (string)header.Value;
                }
            }
            else if (key == "3")
            {
                Note.Queue = (string)value;
            }
            else if (key == "4")
            {
                Id = Unsigned(value);
            }
            else if (key == "5")
            {
                RetryAfter = TimeSpan.FromMilliseconds(Unsigned(value));
            }
        }

        private static ulong Unsigned(object value)
        {
            return value is ulong ? (ulong)value : (ulong)(long)value;
        }
    }
}
