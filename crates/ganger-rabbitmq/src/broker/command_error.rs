//! Reasons why a command could not be carried out completely.

use std::time::Duration;

/// Reason why a command could not be carried out completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A message was returned.
    #[error("there is no queue `{queue}`")]
    NoQueue {
        /// Queue that the message was published to.
        queue: String,
    },
    /// A message was returned by an exchange.
    #[error("the exchange `{exchange}` routes a message with the key `{key}` to no queue")]
    NoRoute {
        /// Exchange that the message was published to.
        exchange: String,
        /// Its routing key.
        key: String,
    },
    /// A queue accepts no message at the moment.
    #[error("the queue `{queue}` is full and accepts no more messages")]
    Full {
        /// Name of the queue.
        queue: String,
    },
    /// Dead letters that were read could not be put back.
    #[error(
        "the queue `{queue}` has no room for {count} of the dead letters that were read; the \
         broker redelivers them, counts that and may limit it: make room in the queue before \
         reading them again"
    )]
    NoRoom {
        /// Name of the queue.
        queue: String,
        /// Number of dead letters.
        count: usize,
    },
    /// The broker permanently rejects a message.
    #[error("the broker rejected a message for `{queue}`: {why}")]
    Refused {
        /// Queue that the message was published to.
        queue: String,
        /// Reason given by the broker.
        why: String,
    },
    /// AMQP can't express a message.
    #[error("a message for `{queue}` can't be sent: {why}")]
    Message {
        /// Queue that the message was published to.
        queue: String,
        /// Part of the message that AMQP can't represent.
        why: String,
    },
    /// The broker confirmed none of the messages.
    #[error("the broker has confirmed nothing for {within:?}: it may be out of memory or disk")]
    Unconfirmed {
        /// Time waited.
        within: Duration,
    },
    /// Dead letters can't be put back, so none is taken.
    #[error(
        "the dead letters in `{queue}` can't be read, because they could not be put back: {why}"
    )]
    CannotPutBack {
        /// Name of the queue.
        queue: String,
        /// Result of an attempt to publish.
        why: String,
    },
    /// Another command is reading the dead letters.
    #[error(
        "another command is using the dead letters in `{queue}` and has not finished within \
         {within:?}"
    )]
    Busy {
        /// Name of the queue.
        queue: String,
        /// Time waited.
        within: Duration,
    },
    /// The broker does not deliver the messages that are in the queue.
    #[error("the broker delivers no more messages of `{queue}`, although {left} are left")]
    Stuck {
        /// Name of the queue.
        queue: String,
        /// Number of messages still expected.
        left: u64,
    },
    /// A dead letter can't be sent back.
    #[error("the dead letter {id} can't be sent back: {why}")]
    CannotSendBack {
        /// Id of the dead letter.
        id: String,
        /// Reason.
        why: String,
    },
}

impl CommandError {
    /// Returns whether others than this message may be sent.
    pub(crate) fn is_of_one_message(&self) -> bool {
        matches!(
            self,
            Self::NoRoute { .. } | Self::Full { .. } | Self::Refused { .. } | Self::Message { .. }
        )
    }
}
