using System;
using System.Collections.Generic;

namespace Ganger.Worker
{
    /// <summary>
    /// What a handler says became of its message: made by <see cref="Done"/>, <see cref="Reply(string)"/>,
    /// <see cref="Retry"/>, <see cref="Reject"/> or <see cref="Requeue"/>, or by hand.
    /// </summary>
    public class MessageOutputTask
    {
        /// <summary>The reply, or the reason of a failure.</summary>
        public string Message { get; set; }

        /// <summary>The same as bytes, which need not be text; null where <see cref="Message"/> counts.</summary>
        public byte[] Body { get; set; }

        /// <summary>
        /// What became of it. It must be set; a number that is none of these may have a meaning in the
        /// pool's configuration ([pools.statuses]).
        /// </summary>
        public MessageStatus Status { get; set; }

        /// <summary>Headers of a reply; null for none.</summary>
        public IDictionary<string, string> Headers { get; set; }

        /// <summary>Where a reply goes, if not to the message's own reply-to.</summary>
        public string ReplyQueueName { get; set; }

        /// <summary>How long a retry is to wait; null for the pool's own wait.</summary>
        public TimeSpan? RetryAfter { get; set; }

        /// <summary>The message leaves its queue.</summary>
        public static MessageOutputTask Done()
        {
            return new MessageOutputTask { Status = MessageStatus.MESSAGE_DONE };
        }

        /// <summary>
        /// The work is done, and this is its result. It is published to the message's reply-to, or to where
        /// <see cref="ReplyQueueName"/> says, before the message leaves its queue. To the message's own
        /// <see cref="MessageInputTask.OriginalQueueName"/> a long task hands on what is left.
        /// </summary>
        public static MessageOutputTask Reply(string message)
        {
            return new MessageOutputTask { Status = MessageStatus.MESSAGE_DONE_WITH_REPLY, Message = message };
        }

        /// <summary>The same with bytes, which need not be text.</summary>
        public static MessageOutputTask Reply(byte[] body)
        {
            return new MessageOutputTask { Status = MessageStatus.MESSAGE_DONE_WITH_REPLY, Body = body };
        }

        /// <summary>
        /// It failed for now, and is tried again after the pool's own wait or after this one. An attempt is
        /// charged; after the last one the message is a dead letter with this reason.
        /// </summary>
        public static MessageOutputTask Retry(string reason, TimeSpan? after = null)
        {
            return new MessageOutputTask { Status = MessageStatus.RETRY, Message = reason, RetryAfter = after };
        }

        /// <summary>It can never work. The message becomes a dead letter with this reason, now.</summary>
        public static MessageOutputTask Reject(string reason)
        {
            return new MessageOutputTask { Status = MessageStatus.REJECT, Message = reason };
        }

        /// <summary>Not here, not now. It is handed out again after a short wait; no attempt is charged.</summary>
        public static MessageOutputTask Requeue(string reason)
        {
            return new MessageOutputTask { Status = MessageStatus.REQUEUE, Message = reason };
        }
    }
}
