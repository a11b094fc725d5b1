//! What can be wrong with a source that reads from Kafka.

use ganger_queue::health;

/// The standing of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// What can be wrong, each by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// No broker has answered yet, or the topics are not what they must be.
    Setup,
    /// No broker is connected.
    Brokers,
    /// A broker does not let us in.
    Refused,
    /// We may not use the group.
    NotAdmitted,
    /// The group does not take us, or what it decided can't be done.
    Group,
    /// The group does not answer.
    Coordinator,
    /// A partition can't be read.
    Partitions,
    /// What is done can't be committed.
    Commits,
    /// Replies and copies are not taken.
    Publishing,
    /// Dead letters are refused.
    Letters,
}

impl health::Issue for HealthIssue {
    fn what(self) -> &'static str {
        match self {
            Self::Setup => "Kafka can't be used yet",
            Self::Brokers => "Kafka can't be reached; intake pauses",
            Self::Refused => "a broker does not let us in",
            Self::NotAdmitted => "the consumer group does not let us in",
            Self::Group => "there is trouble with the consumer group",
            Self::Coordinator => "the consumer group does not answer",
            Self::Partitions => "a partition can't be read",
            Self::Commits => "what is done can't be committed",
            Self::Publishing => "replies and copies can't be published",
            Self::Letters => "dead letters are refused; they are kept and sent again",
        }
    }
}
