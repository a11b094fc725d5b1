//! Health problems of a source that reads from RabbitMQ.

use ganger_queue::health;

/// Health of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// Kinds of problems, each tracked separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// There is no connection.
    Connection,
    /// The broker accepts nothing from this connection: it is short of memory or disk.
    Blocked,
    /// There is no connection for publishing.
    PublishConnection,
    /// Too many publications wait.
    Backlog,
    /// The queues do not match the configuration, or can't be consumed.
    Queues,
    /// A queue does not accept publications.
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
