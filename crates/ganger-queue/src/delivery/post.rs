//! A message that someone sends, and under which key there is to be only one of its kind.

use std::time::Duration;

use ganger_core::message::Outgoing;

/// A message, and what its sender wishes beside that.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Post {
    /// What is sent.
    pub message: Outgoing,
    /// There is to be no other one.
    pub unique: Option<Unique>,
    /// Its queue is a topic, whose queues each get a message; none for a queue.
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

/// What becomes of a message to whose topic no queue is subscribed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfUnsubscribed {
    /// It is refused.
    #[default]
    Fail,
    /// It is dropped.
    Drop,
}

impl IfUnsubscribed {
    /// As the tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Drop => "drop",
        }
    }
}

/// A key that one message of a queue has at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Unique {
    /// The key.
    pub key: String,
    /// How long the message has it.
    pub scope: UniqueScope,
    /// What becomes of a message that comes while another one has it.
    pub taken: IfTaken,
}

/// How long a message keeps its key from others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UniqueScope {
    /// Until a daemon has it in hand for the first time.
    #[default]
    Waiting,
    /// Until it is finished or given up.
    WaitingOrRunning,
    /// Likewise, but no longer than so long from now.
    For(Duration),
}

impl UniqueScope {
    /// As the tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::WaitingOrRunning => "waiting_or_running",
            Self::For(_) => "until",
        }
    }
}

/// What becomes of a message whose key another one has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfTaken {
    /// It is dropped.
    #[default]
    Keep,
    /// The one that waits says from now on what this one says.
    Replace,
    /// Likewise, and falls due when this one does.
    Debounce {
        /// But no later than so long after it was sent itself.
        longest: Duration,
    },
}
