using System;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker
{
    /// <summary>
    /// The worker's side as MessageWorkerPool's client has it: with this class and its namespace such a client runs
    /// as it is. <see cref="GangerWorker"/> does the same in one call.
    /// </summary>
    public class MessageProcessor
    {
        private readonly WorkerOptions options;
        private Start.Pipe pipe;

        /// <summary>A worker that takes one message at a time.</summary>
        public MessageProcessor()
            : this(null)
        {
        }

        /// <summary>A worker with those options; null for the usual ones.</summary>
        public MessageProcessor(WorkerOptions options)
        {
            this.options = options ?? new WorkerOptions();
            this.options.Check();
        }

        /// <summary>Connects to the daemon that has started this process.</summary>
        public Task InitialAsync()
        {
            return Task.Run(() => pipe = Start.Open(options));
        }

        /// <summary>
        /// Works until the daemon asks to leave: see <see cref="GangerWorker.RunAsync"/>.
        /// </summary>
        public Task DoWorkAsync(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> process,
            CancellationToken stopping = default(CancellationToken))
        {
            GangerWorker.Checked(process, options);
            return GangerWorker.OnItsOwnThread(() => Connected(process).Run(stopping));
        }

        /// <summary>The same for a handler that blocks.</summary>
        public void DoWork(
            Func<MessageInputTask, CancellationToken, MessageOutputTask> process,
            CancellationToken stopping = default(CancellationToken))
        {
            GangerWorker.Checked(process, options);
            Connected(GangerWorker.Blocking(process)).Run(stopping);
        }

        private Connection Connected(Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> process)
        {
            if (pipe == null)
            {
                throw new InvalidOperationException("InitialAsync must have ended before the work begins");
            }

            return Start.Connected(process, options, pipe);
        }
    }
}
