namespace Ganger.Worker
{
    /// <summary>What became of a message. Those of MessageWorkerPool have its names and numbers.</summary>
    public enum MessageStatus : short
    {
        /// <summary>Feedback, no answer: see <see cref="MessageInputTask.Progress"/>.</summary>
        IGNORE_MESSAGE = -1,

        /// <summary>The message leaves its queue.</summary>
        MESSAGE_DONE = 200,

        /// <summary>The same, once the reply is stored.</summary>
        MESSAGE_DONE_WITH_REPLY = 201,

        /// <summary>Handed out again after a short wait; no attempt is charged.</summary>
        REQUEUE = 300,

        /// <summary>A dead letter at once.</summary>
        REJECT = 400,

        /// <summary>Tried again later; an attempt is charged.</summary>
        RETRY = 429,

        /// <summary>A failure: tried again by the pool's rules.</summary>
        UNKNOWN_ERROR = 500,
    }
}
