using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Net.Sockets;
using System.Runtime.ExceptionServices;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker
{
    /// <summary>One connection to the daemon, worked off to its end by <see cref="Run"/>.</summary>
    internal sealed class Connection
    {
        private const string QuitLine = "__quit__";
        private const string YieldLine = "__context_switch__";
        private const string CancelLine = "__cancel__ ";
        private const string TimeoutHeader = "TimeoutMilliseconds";

        /// <summary>Of the cancellations that came before their messages so many are kept.</summary>
        private const int EarlyMax = 1000;

        private readonly Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler;
        private readonly Socket pipe;
        private readonly Stream control;
        private readonly int concurrency;
        private readonly int frameBytesMax;
        private readonly SemaphoreSlim room;
        private readonly object gate = new object();
        private readonly HashSet<InHand> inFlight = new HashSet<InHand>();
        private readonly Dictionary<ulong, InHand> byId = new Dictionary<ulong, InHand>();

        /// <summary>Cancelled before they came: stdin and the pipe have no common order.</summary>
        private readonly LinkedList<ulong> early = new LinkedList<ulong>();

        /// <summary>What came when nothing new was begun, by its number; version 1 has none and one message.</summary>
        private readonly Dictionary<ulong, InHand> held = new Dictionary<ulong, InHand>();

        /// <summary>Whether nothing new is begun.</summary>
        private bool ending;

        /// <summary>How many are begun and not answered.</summary>
        private int begun;

        private Exception broken;

        internal Connection(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler,
            int concurrency,
            int frameBytesMax,
            Socket pipe,
            Stream control,
            int version)
        {
            this.handler = handler;
            this.frameBytesMax = frameBytesMax;
            this.pipe = pipe;
            this.control = control;
            Version = version;

            // Version 1 has one message after the other.
            this.concurrency = version > 1 ? concurrency : 1;
            room = new SemaphoreSlim(this.concurrency, this.concurrency);
            Outbox = new Outbox(pipe, frameBytesMax);
        }

        internal int Version { get; }

        internal Outbox Outbox { get; }

        /// <summary>Until the daemon, or the program, has asked to leave and all that is in hand is answered.</summary>
        internal void Run(CancellationToken stopping)
        {
            using (stopping.Register(Stop))
            {
                WorkOff();
            }
        }

        private void WorkOff()
        {
            try
            {
                GiveThreads();
                if (Version > 1)
                {
                    Greet();
                }

                var listener = new Thread(Listen) { IsBackground = true, Name = "ganger-control" };
                listener.Start();
                try
                {
                    Read();
                }
                catch (ProtocolException error)
                {
                    Fail(error);
                }

                for (int n = 0; n < concurrency; n++)
                {
                    room.Wait();
                }

                GiveBackHeld();
                Outbox.Flushed();
            }
            finally
            {
                pipe.Dispose();
            }

            lock (gate)
            {
                if (broken != null)
                {
                    ExceptionDispatchInfo.Capture(broken).Throw();
                }
            }
        }

        /// <summary>
        /// The pool would come to as many threads by itself, but late: a handler that blocks must not make others wait.
        /// </summary>
        private void GiveThreads()
        {
            int threads;
            int completion;
            ThreadPool.GetMinThreads(out threads, out completion);
            if (concurrency > 1 && threads < concurrency + 1)
            {
                ThreadPool.SetMinThreads(concurrency + 1, completion);
            }
        }

        private void Greet()
        {
            var headers = new Dictionary<string, string>
            {
                { "sdk", "ganger-dotnet" },
                { "version", typeof(Connection).Assembly.GetName().Version.ToString(3) },
                { "concurrency", concurrency.ToString(CultureInfo.InvariantCulture) },
            };
            Outbox.Send(new Output { Status = Wire.Hello, Headers = headers }, null, false);
        }

        // -- reading --

        /// <summary>Takes what comes until the pipe ends, or is broken.</summary>
        private void Read()
        {
            var frames = new Frames(frameBytesMax);
            while (true)
            {
                ArraySegment<byte> frame;
                while (frames.Next(out frame))
                {
                    Take(Input.Decode(frame));
                }

                ArraySegment<byte> space = frames.Space();
                int count;
                try
                {
                    count = pipe.Receive(space.Array, space.Offset, space.Count, SocketFlags.None);
                }
                catch (SocketException)
                {
                    return; // a daemon that is gone needs this worker no more
                }

                if (count == 0)
                {
                    return;
                }

                frames.Filled(count);
            }
        }

        private void Take(MessageInputTask task)
        {
            room.Wait();
            if (concurrency == 1)
            {
                Work(task).GetAwaiter().GetResult();
            }
            else
            {
                Task.Run(() => Work(task));
            }
        }

        // -- working --

        /// <summary>Works on one message, and answers it; it never throws.</summary>
        private async Task Work(MessageInputTask task)
        {
            InHand inHand = Begin(task);
            if (inHand == null)
            {
                room.Release();
                return;
            }

            MessageInputTask.Current = task;
            Tracing trace = Tracing.Begin(task);
            MessageOutputTask output = null;
            Exception failed = null;
            try
            {
                Task<MessageOutputTask> working = handler(task, inHand.Token);
                if (working == null)
                {
                    throw new InvalidOperationException("a handler must return a Task: null");
                }

                output = await working.ConfigureAwait(false);
            }
            catch (Exception error)
            {
                failed = error;
            }

            Tracing.End(trace, failed);
            End(inHand);
            if (failed == null)
            {
                inHand.Answer(output);
            }
            else
            {
                inHand.Answer(failed);
            }

            inHand.Dispose();
            PutDown();
            room.Release();
        }

        /// <summary>
        /// Takes a message in hand, unless this worker is about to end: then it waits to be given back, until it is
        /// cancelled at the latest. The reading end stays open until nothing is in hand, for a daemon that can't write
        /// any more takes the worker for lost, with all that it works on.
        /// </summary>
        private InHand Begin(MessageInputTask task)
        {
            var inHand = new InHand(this, Version > 1 ? task.Id : null, Limit(task));
            task.InHand = inHand;
            bool cancelled;
            bool ended;
            lock (gate)
            {
                ended = ending;
                cancelled = inHand.Id.HasValue && early.Count > 0 && early.Remove(inHand.Id.Value);
                if (!ended)
                {
                    begun++;
                    inFlight.Add(inHand);
                    if (inHand.Id.HasValue)
                    {
                        byId[inHand.Id.Value] = inHand;
                    }

                    if (cancelled)
                    {
                        inHand.CancelEarly();
                    }
                }
                else if (!cancelled)
                {
                    held[inHand.Id ?? 0] = inHand;
                }
            }

            if (ended)
            {
                if (cancelled)
                {
                    GiveBack(inHand);
                }

                return null;
            }

            // Version 1 asks a worker to give up by itself; version 2 is told when it is so far.
            if (Version == 1)
            {
                inHand.CancelAtLimit();
            }

            return inHand;
        }

        private static TimeSpan? Limit(MessageInputTask task)
        {
            string text;
            int after;
            bool limited = task.Headers.TryGetValue(TimeoutHeader, out text)
                & int.TryParse(text, NumberStyles.Integer, CultureInfo.InvariantCulture, out after) && after >= 0;
            return limited ? TimeSpan.FromMilliseconds(after) : (TimeSpan?)null;
        }

        private void End(InHand inHand)
        {
            lock (gate)
            {
                inFlight.Remove(inHand);
                if (inHand.Id.HasValue)
                {
                    byId.Remove(inHand.Id.Value);
                }
            }
        }

        private void PutDown()
        {
            lock (gate)
            {
                begun--;
                LeaveIfOver();
            }
        }

        private static void GiveBack(InHand inHand)
        {
            inHand.Answer(MessageOutputTask.Requeue("the worker is about to end"));
            inHand.Dispose();
        }

        /// <summary>Gives back what is held, when nothing more comes.</summary>
        private void GiveBackHeld()
        {
            List<InHand> all;
            lock (gate)
            {
                all = new List<InHand>(held.Values);
                held.Clear();
            }

            all.ForEach(GiveBack);
        }

        // -- control lines --

        private void Listen()
        {
            string line;
            while ((line = Start.ReadLine(control)) != null)
            {
                Hear(line);
            }

            Leave();
        }

        private void Hear(string line)
        {
            ulong id;
            if (line == QuitLine)
            {
                Leave();
            }
            else if (line == YieldLine && Version == 1)
            {
                lock (gate)
                {
                    foreach (InHand inHand in inFlight)
                    {
                        inHand.Cancel();
                    }
                }
            }
            else if (line.StartsWith(CancelLine, StringComparison.Ordinal)
                && ulong.TryParse(
                    line.Substring(CancelLine.Length), NumberStyles.None, CultureInfo.InvariantCulture, out id))
            {
                Cancel(id);
            }
        }

        /// <summary>Cancels a message. One that is not in hand was answered, or is still in the pipe.</summary>
        private void Cancel(ulong id)
        {
            InHand inHand;
            lock (gate)
            {
                if (!held.TryGetValue(id, out inHand))
                {
                    CancelInHand(id);
                    return;
                }

                held.Remove(id);
            }

            GiveBack(inHand);
        }

        /// <summary>Under the gate.</summary>
        private void CancelInHand(ulong id)
        {
            InHand inHand;
            if (byId.TryGetValue(id, out inHand))
            {
                inHand.Cancel();
                return;
            }

            if (early.Count >= EarlyMax)
            {
                early.RemoveFirst();
            }

            early.AddLast(id);
        }

        /// <summary>Begins nothing new, and ends once all that is in hand is answered.</summary>
        private void Stop()
        {
            lock (gate)
            {
                ending = true;
                LeaveIfOver();
            }
        }

        /// <summary>Under the gate.</summary>
        private void LeaveIfOver()
        {
            if (ending && begun == 0)
            {
                Leave();
            }
        }

        /// <summary>What has arrived is still read and worked on, then the pipe ends. Writing goes on.</summary>
        private void Leave()
        {
            try
            {
                pipe.Shutdown(SocketShutdown.Receive);
            }
            catch (SocketException)
            {
                // It has ended.
            }
            catch (ObjectDisposedException)
            {
                // As above.
            }
        }

        /// <summary>Nothing more is read; what is in hand is finished.</summary>
        private void Fail(Exception error)
        {
            lock (gate)
            {
                broken = broken ?? error;
            }

            Leave();
        }
    }
}
