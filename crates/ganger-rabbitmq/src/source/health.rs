//! What can be wrong with a source that reads from RabbitMQ.

use ganger_queue::health;

/// The standing of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// What can be wrong, each by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// There is no connection.
    Connection,
    /// The broker takes nothing from us: it is short of memory or disk.
    Blocked,
    /// There is no connection to publish over.
    Line,
    /// Too much waits to be published.
    Backlog,
    /// The queues are not as they should be, or can't be consumed.
    Queues,
    /// A queue does not take what we publish.
    Publishing,
    /// What there is to publish for some messages will never be taken.
    Aside,
}

impl health::Issue for HealthIssue {
    fn what(self) -> &'static str {
        match self {
            Self::Connection => "not connected to the broker",
            Self::Blocked => "the broker takes nothing that is published",
            Self::Line => "not connected for publishing",
            Self::Backlog => "too much waits to be published; intake pauses",
            Self::Queues => "the queue can't be consumed",
            Self::Publishing => "a queue does not take what is published",
            Self::Aside => "messages are set aside until the connection ends",
        }
    }
}
