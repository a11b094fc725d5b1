//! Health problems of a source that reads from RabbitMQ.

use ganger_queue::health;

/// Health of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// Kinds of problems, each tracked on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// There is no connection.
    Connection,
    /// The broker accepts nothing from us: it is short of memory or disk.
    Blocked,
    /// There is no connection for publishing.
    PublishConnection,
    /// Too much waits to be published.
    Backlog,
    /// The queues are not as they should be, or can't be consumed.
    Queues,
    /// A queue does not accept what we publish.
    Publishing,
    /// Publications for some messages will never be accepted.
    Parked,
}

impl health::Issue for HealthIssue {
    fn description(self) -> &'static str {
        match self {
            Self::Connection => "not connected to the broker",
            Self::Blocked => "the broker accepts no publications",
            Self::PublishConnection => "no connection for publishing",
            Self::Backlog => "publish backlog is full; intake paused",
            Self::Queues => "the queue can't be consumed",
            Self::Publishing => "a queue does not accept publications",
            Self::Parked => "messages are parked until the connection ends",
        }
    }
}
