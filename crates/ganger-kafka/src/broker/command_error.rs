//! Why a command could not do all that it was asked to.

use std::time::Duration;

use super::parts::Torn;

/// Why a command could not do all that it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A topic that no pool reads, and that is not there.
    #[error("there is no topic `{topic}`, or we may not see it")]
    NoTopic {
        /// Which.
        topic: String,
    },
    /// Nowhere to wait.
    #[error(
        "no tier of topic `{topic}` holds a message for a delay of {delay:?}: the pool's \
         `retry.max` says how long the longest is"
    )]
    NoTier {
        /// The topic that the message is for.
        topic: String,
        /// How long it should wait.
        delay: Duration,
    },
    /// The brokers will never take a message.
    #[error("a message for topic `{topic}` is refused: {why}")]
    Refused {
        /// Where it was to go.
        topic: String,
        /// Why.
        why: String,
    },
    /// Nothing was heard of what was sent.
    #[error("the brokers have confirmed nothing for {within:?}: {why}")]
    Unconfirmed {
        /// How long was waited.
        within: Duration,
        /// What was wrong last.
        why: String,
    },
    /// What is there does not come.
    #[error("topic `{topic}` could not be read to its end: {why}")]
    Unread {
        /// Which.
        topic: String,
        /// What was wrong last.
        why: String,
    },
    /// A dead letter can't be sent back.
    #[error(
        "the dead letter {id} can't be sent back: {why}: name the topic with `--to` (in the API `to`)"
    )]
    NoWayBack {
        /// Which.
        id: String,
        /// Why not.
        why: String,
    },
    /// A dead letter of which not all is there.
    #[error("the dead letter {id} can't be sent back: {torn}")]
    Torn {
        /// Which.
        id: String,
        /// What is wrong with it.
        torn: Torn,
    },
    /// A dead letter that we did not write.
    #[error("the dead letter {id} has no key, and so can't be deleted")]
    Keyless {
        /// Which.
        id: String,
    },
}
