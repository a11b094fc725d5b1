//! Problems of a source that reads from Kafka.

use ganger_queue::health;

/// Health of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// A problem; each is tracked separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// No broker has answered yet, or the topics do not meet the requirements.
    Setup,
    /// No broker is connected.
    Brokers,
    /// A broker rejects this client.
    Refused,
    /// Access to the group is denied.
    NotAdmitted,
    /// The group rejects this member, or its decision cannot be carried out.
    Group,
    /// The group does not answer.
    Coordinator,
    /// A partition cannot be read.
    Partitions,
    /// Progress cannot be committed.
    Commits,
    /// Replies and copies are not accepted.
    Publishing,
    /// Dead letters are rejected.
    DeadLetters,
}

impl health::Issue for HealthIssue {
    fn description(self) -> &'static str {
        match self {
            Self::Setup => "Kafka can't be used yet",
            Self::Brokers => "Kafka can't be reached; intake pauses",
            Self::Refused => "a broker rejects this client",
            Self::NotAdmitted => "access to the consumer group is denied",
            Self::Group => "the consumer group reports an error",
            Self::Coordinator => "the consumer group does not answer",
            Self::Partitions => "a partition can't be read",
            Self::Commits => "progress can't be committed",
            Self::Publishing => "replies and copies can't be published",
            Self::DeadLetters => "dead letters are rejected; they are kept and sent again",
        }
    }
}
