//! Errors of commands that could not be carried out completely.

use std::time::Duration;

use super::parts::Torn;

/// Reason why a command could not be carried out completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A topic that no pool reads and that does not exist.
    #[error("topic `{topic}` does not exist, or access to it is denied")]
    NoTopic {
        /// Name of the topic.
        topic: String,
    },
    /// No tier can hold the message for its delay.
    #[error(
        "no tier of topic `{topic}` holds a message for a delay of {delay:?}: the longest is the \
         pool's `retry.max`"
    )]
    NoTier {
        /// Topic of the message.
        topic: String,
        /// Delay of the message.
        delay: Duration,
    },
    /// The brokers permanently reject a message.
    #[error("the brokers rejected a message for topic `{topic}`: {why}")]
    Refused {
        /// Destination topic.
        topic: String,
        /// Reason for the rejection.
        why: String,
    },
    /// The brokers did not confirm the messages that were sent.
    #[error("the brokers have confirmed nothing for {within:?}: {why}")]
    Unconfirmed {
        /// Time waited.
        within: Duration,
        /// Last error.
        why: String,
    },
    /// Existing records do not arrive.
    #[error("topic `{topic}` could not be read to its end: {why}")]
    Unread {
        /// Name of the topic.
        topic: String,
        /// Last error.
        why: String,
    },
    /// A dead letter cannot be sent back.
    #[error(
        "the dead letter {id} can't be sent back: {why}: name the topic with `--to` (in the API `to`)"
    )]
    CannotSendBack {
        /// Id of the dead letter.
        id: String,
        /// Reason.
        why: String,
    },
    /// A dead letter of which records are missing or wrong.
    #[error("the dead letter {id} can't be sent back: {torn}")]
    Torn {
        /// Id of the dead letter.
        id: String,
        /// Defect of its parts.
        torn: Torn,
    },
    /// A dead letter that this program did not write.
    #[error("the dead letter {id} has no key, and so can't be deleted")]
    Keyless {
        /// Id of the dead letter.
        id: String,
    },
}
