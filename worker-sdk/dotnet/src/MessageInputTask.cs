using System;
using System.Collections.Generic;
using System.Text;
using System.Threading;

namespace Ganger.Worker
{
    /// <summary>A message as its handler sees it.</summary>
    public class MessageInputTask
    {
        private static readonly AsyncLocal<MessageInputTask> CurrentTask = new AsyncLocal<MessageInputTask>();

        private string text;
        private byte[] body = Array.Empty<byte>();

        /// <summary>The message that this code is at work on; null outside of a handler.</summary>
        public static MessageInputTask Current
        {
            get { return CurrentTask.Value; }
            internal set { CurrentTask.Value = value; }
        }

        /// <summary>The body as text; what is not UTF-8 in it is replaced.</summary>
        public string Message
        {
            get
            {
                return text ?? (text = Encoding.UTF8.GetString(body));
            }

            set
            {
                text = value ?? "";
                body = Encoding.UTF8.GetBytes(text);
            }
        }

        /// <summary>The body as it came, text or not.</summary>
        public byte[] Body
        {
            get
            {
                return body;
            }

            set
            {
                text = null;
                body = value ?? Array.Empty<byte>();
            }
        }

        /// <summary>Empty if the message has none.</summary>
        public string CorrelationId { get; set; } = "";

        /// <summary>The queue or topic that it was read from.</summary>
        public string OriginalQueueName { get; set; } = "";

        /// <summary>Headers in their text form.</summary>
        public IDictionary<string, string> Headers { get; set; } = new Dictionary<string, string>();

        /// <summary>The daemon's number for it on this connection.</summary>
        public ulong? Id { get; set; }

        /// <summary>Which try this is, from 1; null if the daemon does not tell.</summary>
        public ulong? Attempt { get; set; }

        /// <summary>How long from its begin until this process is killed for taking too long; null for never.</summary>
        public ulong? MillisecondsLeft { get; set; }

        /// <summary>
        /// What the source knows of it: message id, content type, topic, offset and so on. A value is null, a
        /// bool, long, ulong, double, string, byte[], object[], KeyValuePair&lt;object, object&gt;[] or, for an
        /// extension, KeyValuePair&lt;sbyte, byte[]&gt;.
        /// </summary>
        public IDictionary<string, object> Properties { get; set; } = new Dictionary<string, object>();

        internal InHand InHand { get; set; }

        /// <summary>
        /// Publishes a message while the work goes on. This task is not done before it is stored; when it is
        /// tried again, it emits again, with the same header ganger-emit-id.
        /// </summary>
        /// <exception cref="InvalidOperationException">
        /// The queue has no name, the message is too large, no Unicode or answered already, or the daemon
        /// speaks version 1 only.
        /// </exception>
        public void Emit(string queue, string message, IDictionary<string, string> headers = null)
        {
            EmitAny(queue, new Output { Message = message }, headers);
        }

        /// <summary>The same with bytes, which need not be text.</summary>
        public void Emit(string queue, byte[] body, IDictionary<string, string> headers = null)
        {
            EmitAny(queue, new Output { Body = body }, headers);
        }

        private void EmitAny(string queue, Output output, IDictionary<string, string> headers)
        {
            if (string.IsNullOrEmpty(queue))
            {
                throw new InvalidOperationException("Emit needs the name of a queue: \"\"");
            }

            InHand inHand = Needed();
            if (inHand.Connection.Version == 1)
            {
                throw new InvalidOperationException("Emit needs version 2 of the protocol, which this daemon lacks");
            }

            output.Status = Wire.Emit;
            output.Queue = queue;
            output.Headers = headers;
            inHand.Note(output);
        }

        /// <summary>Shows how far it is; it also proves that the worker is alive (stall_timeout).</summary>
        public void Progress(string message)
        {
            InHand inHand = Needed();
            int status = inHand.Connection.Version == 1 ? (int)MessageStatus.IGNORE_MESSAGE : Wire.Progress;
            inHand.TryNote(new Output { Status = status, Message = Utf8.Mended(message) });
        }

        /// <summary>
        /// Writes a record of this message to the daemon's log. The level is trace, debug, info, warn or error; a
        /// field "target" names the origin. To a version 1 daemon it goes over stderr, and so does what can't be sent:
        /// the message is answered already, or the record is too large. See also
        /// <see cref="GangerTraceListener"/>.
        /// </summary>
        public void Log(string level, string message, IEnumerable<KeyValuePair<string, object>> fields = null)
        {
            Needed().Log(level, message, fields);
        }

        private InHand Needed()
        {
            if (InHand == null)
            {
                throw new InvalidOperationException("this task was made by hand: nobody hears what is said of it");
            }

            return InHand;
        }
    }
}
