//! Why a command could not do all that it was asked to.

use std::time::Duration;

/// Why a command could not do all that it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A message came back.
    #[error("there is no queue `{queue}`")]
    NoQueue {
        /// Where it was to go.
        queue: String,
    },
    /// A queue takes nothing just now.
    #[error("the queue `{queue}` is full and takes no more")]
    Full {
        /// Which.
        queue: String,
    },
    /// What was read could not be put back.
    #[error(
        "the queue `{queue}` has no room for {count} of the letters that were read; they come back by \
         themselves, which the broker counts and may have a limit for: make room before you look again"
    )]
    NoRoom {
        /// Which.
        queue: String,
        /// How many.
        count: usize,
    },
    /// The broker will never take a message.
    #[error("a message for `{queue}` is refused: {why}")]
    Refused {
        /// Where it was to go.
        queue: String,
        /// The broker's word.
        why: String,
    },
    /// AMQP can't express a message.
    #[error("a message for `{queue}` can't be sent: {why}")]
    Message {
        /// Where it was to go.
        queue: String,
        /// What there is no room for.
        why: String,
    },
    /// Nothing was heard of what was sent.
    #[error("the broker has confirmed nothing for {within:?}: it may be out of memory or disk")]
    Unconfirmed {
        /// How long was waited.
        within: Duration,
    },
    /// Dead letters can't be put back, so none is taken.
    #[error("the letters in `{queue}` can't be read, since each must be put back: {why}")]
    NoWayIn {
        /// Which queue.
        queue: String,
        /// What became of an attempt to publish.
        why: String,
    },
    /// Someone else is at the dead letters.
    #[error("another command is at the dead letters in `{queue}`, and still was after {within:?}")]
    Busy {
        /// Which queue.
        queue: String,
        /// How long was waited.
        within: Duration,
    },
    /// The broker does not hand out what is there.
    #[error("the broker hands out no more of `{queue}`, though {left} are to come")]
    Stuck {
        /// Which queue.
        queue: String,
        /// How many were expected yet.
        left: u64,
    },
    /// A dead letter can't be sent back.
    #[error("the dead letter {id} can't be sent back: {why}")]
    NoWayBack {
        /// Which.
        id: String,
        /// Why not.
        why: String,
    },
}
