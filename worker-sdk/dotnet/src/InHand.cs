using System;
using System.Collections.Generic;
using System.Diagnostics;
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
        private readonly Stopwatch since = Stopwatch.StartNew();
        private readonly TimeSpan? limit;

        /// <summary>Whether the daemon has asked; if it has not, the limit of version 1 has.</summary>
        private volatile bool asked;
        private volatile bool timedOut;

        internal InHand(Connection connection, ulong? id, TimeSpan? limit)
        {
            Connection = connection;
            Id = id;
            this.limit = limit;
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

        /// <summary>
        /// Cancels it on another thread: what waits for that may take its time, and may throw. The daemon's clock began a
        /// little before this one.
        /// </summary>
        internal void Cancel()
        {
            timedOut = limit.HasValue && since.Elapsed.Ticks >= limit.Value.Ticks - (limit.Value.Ticks / 10);
            asked = true;
            ThreadPool.QueueUserWorkItem(_ => CancelNow());
        }

        /// <summary>Cancels it before anybody waits for it.</summary>
        internal void CancelEarly()
        {
            asked = true;
            CancelNow();
        }

        /// <summary>Version 1 asks a worker to give up by itself.</summary>
        internal void CancelAtLimit()
        {
            if (limit.HasValue)
            {
                cancelled.CancelAfter(limit.Value);
            }
        }

        private void CancelNow()
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
        internal bool TryNote(Output output)
        {
            try
            {
                Note(output);
                return true;
            }
            catch (InvalidOperationException)
            {
                return false;
            }
        }

        internal void Log(string level, string message, IEnumerable<KeyValuePair<string, object>> fields)
        {
            var headers = new List<KeyValuePair<string, string>>
            {
                new KeyValuePair<string, string>("level", Utf8.Mended(level)),
            };
            if (fields != null)
            {
                foreach (KeyValuePair<string, object> field in fields)
                {
                    // The record's own level is another.
                    string name = field.Key == "level" ? "level_" : Utf8.Mended(field.Key);
                    string text = Convert.ToString(field.Value, CultureInfo.InvariantCulture);
                    headers.Add(new KeyValuePair<string, string>(name, Utf8.Mended(text)));
                }
            }

            var record = new Output { Status = Wire.LogRecord, Message = Utf8.Mended(message), Headers = headers };
            if (Connection.Version > 1 && TryNote(record))
            {
                return;
            }

            // A daemon of version 1 has no such records; others have no place for one that is late, or too large.
            var line = new StringBuilder(level + ": " + message);
            for (int n = 1; n < headers.Count; n++)
            {
                line.Append(" " + headers[n].Key + "=" + headers[n].Value);
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
            string text;
            try
            {
                text = error.ToString();
            }
            catch (Exception worse)
            {
                text = error.GetType() + ", whose text throws " + worse.GetType();
            }

            if (error is OperationCanceledException && Token.IsCancellationRequested)
            {
                GiveUp(text);
            }
            else
            {
                Fail(text);
            }
        }

        /// <summary>Answers for a handler that has obeyed, with why it was asked to and where it was.</summary>
        private void GiveUp(string text)
        {
            bool late = timedOut || !asked;
            string why = late ? "timed out: the limit is " + limit.Value.TotalMilliseconds + " ms" : "cancelled";
            Answer(MessageOutputTask.Retry(Cut(why + "\n" + text)));
        }

        private static string Cut(string reason)
        {
            return reason.Length > ReasonCharsMax ? reason.Substring(0, ReasonCharsMax) + "…" : reason;
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

            // A reply must be what it is; of a reason what can't be read is mended.
            bool isReason = status >= (int)MessageStatus.REQUEUE;
            return new Output
            {
                Message = isReason ? Utf8.Mended(output.Message) : output.Message,
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
            try
            {
                Last(new Output { Status = (int)MessageStatus.UNKNOWN_ERROR, Message = Utf8.Mended(Cut(reason)) });
            }
            catch (InvalidOperationException)
            {
                // The pool's frames are shorter than what there is to say.
                Last(new Output { Status = (int)MessageStatus.UNKNOWN_ERROR });
            }
        }
    }
}
