//! How a source is doing: told once when something goes wrong and once when it is over.

use std::collections::BTreeMap;

use crate::delivery::SourceEnd;

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

impl HealthIssue {
    fn as_str(self) -> &'static str {
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

/// The standing of one source.
#[derive(Debug)]
pub(super) struct Health {
    pool: String,
    troubles: BTreeMap<HealthIssue, String>,
}

impl Health {
    /// Of a source that has yet to show that it is well.
    pub(super) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            troubles: BTreeMap::new(),
        }
    }

    /// Takes down that something is wrong.
    pub(super) fn trouble(&mut self, end: &SourceEnd, trouble: HealthIssue, problem: String) {
        let pool = self.pool.as_str();
        match self.troubles.insert(trouble, problem.clone()) {
            None => tracing::error!(pool, problem, "{}", trouble.as_str()),
            Some(last) if last == problem => return,
            Some(_) => tracing::debug!(pool, problem, "still: {}", trouble.as_str()),
        }
        self.tell(end);
    }

    /// Takes down that it is over.
    pub(super) fn over(&mut self, end: &SourceEnd, trouble: HealthIssue) {
        if self.troubles.remove(&trouble).is_some() {
            let (pool, what) = (self.pool.as_str(), trouble.as_str());
            tracing::info!(pool, "over: {what}");
            self.tell(end);
        }
    }

    /// Says how things are.
    pub(super) fn tell(&self, end: &SourceEnd) {
        let problem = self.troubles.values().next().cloned();
        end.state.send_if_modified(|state| {
            let news = state.healthy != problem.is_none() || state.problem != problem;
            state.healthy = problem.is_none();
            state.problem = problem;
            news
        });
    }

    /// Whether this is wrong.
    pub(super) fn has(&self, trouble: HealthIssue) -> bool {
        self.troubles.contains_key(&trouble)
    }

    /// Counts messages that may run twice.
    pub(super) fn duplicates(&self, end: &SourceEnd, count: u64) {
        end.state
            .send_modify(|state| state.likely_duplicates += count);
    }
}
