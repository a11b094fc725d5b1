using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;
using System.Threading;

namespace Ganger.Worker
{
    /// <summary>One message from its begin to its answer.</summary>
    internal sealed class InHand
    {
        /// <summary>Of what a failure has to say; a dead letter keeps no more either.</summary>
        private const int ReasonCharsMax = 16000;

        private readonly CancellationTokenSource cancelled = new CancellationTokenSource();

        internal InHand(Connection connection, ulong? id)
        {
            Connection = connection;
            Id = id;
        }

        internal Connection Connection { get; }

        /// <summary>What an output names that is about this message; version 1 names nothing.</summary>
        internal ulong? Id { get; }

        /// <summary>Whether it is answered; under the lock of the outbox.</summary>
        internal bool Over { get; set; }

        internal CancellationToken Token
        {
            get { return cancelled.Token; }
        }

        /// <summary>Cancels it on another thread: what waits for that may take its time, and may throw.</summary>
        internal void Cancel()
        {
            ThreadPool.QueueUserWorkItem(_ => CancelNow());
        }

        internal void CancelNow()
        {
            try
            {
                cancelled.Cancel();
            }
            catch (ObjectDisposedException)
            {
                // It is answered.
            }
            catch (AggregateException error)
            {
                Console.Error.WriteLine("what waits for a cancellation has failed: " + error);
            }
        }

        internal void CancelAfter(TimeSpan time)
        {
            cancelled.CancelAfter(time);
        }

        internal void Dispose()
        {
            cancelled.Dispose();
        }

        // -- what is said about it --

        internal void Note(Output output)
        {
            output.Id = Id;
            Connection.Outbox.Send(output, this, false);
        }

        /// <summary>Sends what may be lost: it has come too late, or is too large.</summary>
        internal void TryNote(Output output)
        {
            try
            {
                Note(output);
            }
            catch (InvalidOperationException)
            {
                // As above.
            }
        }

        internal void Log(string level, string message, IEnumerable<KeyValuePair<string, object>> fields)
        {
            var headers = new List<KeyValuePair<string, string>>();
            if (Connection.Version > 1)
            {
                headers.Add(new KeyValuePair<string, string>("level", level));
            }

            if (fields != null)
            {
                foreach (KeyValuePair<string, object> field in fields)
                {
                    string text = Convert.ToString(field.Value, CultureInfo.InvariantCulture);
                    headers.Add(new KeyValuePair<string, string>(field.Key, text));
                }
            }

            if (Connection.Version > 1)
            {
                TryNote(new Output { Status = Wire.LogRecord, Message = message, Headers = headers });
                return;
            }

            var line = new StringBuilder(level + ": " + message);
            foreach (KeyValuePair<string, string> header in headers)
            {
                line.Append(" " + header.Key + "=" + header.Value);
            }

            Console.Error.WriteLine(line);
        }

        /// <summary>Answers what a handler has returned; what can't be sent is a failure that says so.</summary>
        internal void Answer(MessageOutputTask output)
        {
            try
            {
                Last(Meant(output ?? MessageOutputTask.Done()));
            }
            catch (Exception error)
            {
                Fail(error.Message);
            }
        }

        /// <summary>Answers what a handler has thrown.</summary>
        internal void Answer(Exception error)
        {
            if (error is OperationCanceledException && Token.IsCancellationRequested)
            {
                Answer(MessageOutputTask.Retry("cancelled"));
                return;
            }

            string text;
            try
            {
                text = error.ToString();
            }
            catch (Exception worse)
            {
                text = error.GetType() + ", whose text throws " + worse.GetType();
            }

            Fail(text);
        }

        private static Output Meant(MessageOutputTask output)
        {
            int status = (int)output.Status;
            if (status == 0 || status == (int)MessageStatus.IGNORE_MESSAGE || (status >= 100 && status < 200))
            {
                throw new InvalidOperationException(
                    "a MessageOutputTask's Status must be set to one that ends a message: " + status);
            }

            ulong? after = null;
            if (output.RetryAfter.HasValue)
            {
                after = (ulong)Math.Max(0.0, output.RetryAfter.Value.TotalMilliseconds);
            }

            return new Output
            {
                Message = output.Message,
                Body = output.Body,
                Status = status,
                Headers = output.Headers,
                Queue = output.ReplyQueueName,
                AfterMs = after,
            };
        }

        private void Last(Output output)
        {
            output.Id = Id;
            Connection.Outbox.Send(output, this, true);
        }

        private void Fail(string reason)
        {
            if (reason.Length > ReasonCharsMax)
            {
                reason = reason.Substring(0, ReasonCharsMax) + "…";
            }

            try
            {
                Last(new Output { Status = (int)MessageStatus.UNKNOWN_ERROR, Message = reason });
            }
            catch (InvalidOperationException)
            {
                // The pool's frames are shorter than what there is to say.
                Last(new Output { Status = (int)MessageStatus.UNKNOWN_ERROR });
            }
        }
    }
}
