//! A message to be sent, and the unique key that limits it to one of its kind.

use std::time::Duration;

use ganger_core::message::Outgoing;

/// A message, and its sender's options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Post {
    /// The message.
    pub message: Outgoing,
    /// Unique key, if it has one.
    pub unique: Option<Unique>,
    /// Treatment if no queue is subscribed; set if its queue is a topic, whose queues each get a message.
    pub topic: Option<IfUnsubscribed>,
}

impl From<Outgoing> for Post {
    fn from(message: Outgoing) -> Self {
        Self {
            message,
            unique: None,
            topic: None,
        }
    }
}

/// Treatment of a message to whose topic no queue is subscribed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfUnsubscribed {
    /// It is refused.
    #[default]
    Fail,
    /// It is dropped.
    Drop,
}

impl IfUnsubscribed {
    /// Returns its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Drop => "drop",
        }
    }
}

/// A key that only one message of a queue has at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Unique {
    /// The key.
    pub key: String,
    /// Time for which the message holds it.
    pub scope: UniqueScope,
    /// Treatment of a message that comes while another one holds it.
    pub taken: IfTaken,
}

/// Time for which a message holds its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UniqueScope {
    /// Until a daemon claims it for the first time.
    #[default]
    Waiting,
    /// Until it is finished or given up.
    WaitingOrRunning,
    /// Until it is finished or given up, but no longer than so long from now.
    For(Duration),
}

impl UniqueScope {
    /// Returns its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::WaitingOrRunning => "waiting_or_running",
            Self::For(_) => "until",
        }
    }
}

/// Treatment of a message whose key another one holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfTaken {
    /// The new message is dropped.
    #[default]
    Keep,
    /// The pending message takes the content of the new one.
    Replace,
    /// The pending message takes the content of the new one, and falls due when the new one does.
    Debounce {
        /// Longest time from its own sending until it falls due.
        longest: Duration,
    },
}
