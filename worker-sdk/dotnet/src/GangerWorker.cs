using System;
using System.Threading;
using System.Threading.Tasks;

namespace Ganger.Worker
{
    /// <summary>Runs a handler as a worker of ganger.</summary>
    public static class GangerWorker
    {
        /// <summary>
        /// Connects to the daemon that has started this process, and works until it asks to leave: the task ends
        /// when all that is in hand is answered. With a concurrency above 1 the handler is called from the thread
        /// pool, which is given as many threads. Its token is cancelled when the message is to be abandoned: it
        /// took too long, or the daemon wants it back. What the handler answers then counts; an
        /// OperationCanceledException answers a retry, with the limit and the stack. Null is the same as
        /// <see cref="MessageOutputTask.Done"/>; a handler that throws has failed, the message is tried again by the
        /// pool's rules, and the worker goes on. From then on nothing is to be read from stdin: the daemon's lines come
        /// there.
        /// </summary>
        /// <param name="handler">What is done with each message.</param>
        /// <param name="options">Null for the usual ones.</param>
        /// <param name="stopping">
        /// When it is cancelled the worker begins no more messages, and ends when all that is in hand is answered: such
        /// as the ApplicationStopping of a host. What comes meanwhile is given back, uncharged.
        /// </param>
        /// <exception cref="ProtocolException">What comes through the pipe is against the protocol.</exception>
        public static Task RunAsync(
            Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> handler,
            WorkerOptions options = null,
            CancellationToken stopping = default(CancellationToken))
        {
            WorkerOptions checkedOptions = Checked(handler, options);
            return OnItsOwnThread(() => Start.Connect(handler, checkedOptions).Run(stopping));
        }

        /// <summary>
        /// The same for a handler that blocks; it returns when the daemon has asked to leave and all that is in hand
        /// is answered.
        /// </summary>
        public static void Run(
            Func<MessageInputTask, CancellationToken, MessageOutputTask> handler,
            WorkerOptions options = null,
            CancellationToken stopping = default(CancellationToken))
        {
            WorkerOptions checkedOptions = Checked(handler, options);
            Start.Connect(Blocking(handler), checkedOptions).Run(stopping);
        }

        internal static WorkerOptions Checked(Delegate handler, WorkerOptions options)
        {
            if (handler == null)
            {
                throw new ArgumentNullException(nameof(handler));
            }

            WorkerOptions found = options ?? new WorkerOptions();
            found.Check();
            return found;
        }

        internal static Func<MessageInputTask, CancellationToken, Task<MessageOutputTask>> Blocking(
            Func<MessageInputTask, CancellationToken, MessageOutputTask> handler)
        {
            return (task, token) => Task.FromResult(handler(task, token));
        }

        internal static Task OnItsOwnThread(Action work)
        {
            return Task.Factory.StartNew(
                work, CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
        }
    }
}
