//! How a source is doing: what is wrong, told once when it begins and once when it is over. What is
//! done about it is decided elsewhere.

use crate::delivery::SourceEnd;

/// What can be wrong at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

pub(super) const TROUBLES: [HealthIssue; 7] = [
    HealthIssue::Connection,
    HealthIssue::Blocked,
    HealthIssue::Line,
    HealthIssue::Backlog,
    HealthIssue::Queues,
    HealthIssue::Publishing,
    HealthIssue::Aside,
];

/// The standing of one source.
#[derive(Debug)]
pub(super) struct Health {
    pool: String,
    problems: [Option<String>; TROUBLES.len()],
}

impl Health {
    /// Of a source that has done nothing yet.
    pub(super) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            problems: Default::default(),
        }
    }

    /// Whether this is wrong now.
    pub(super) fn has(&self, trouble: HealthIssue) -> bool {
        self.problem(trouble).is_some()
    }

    fn problem(&self, trouble: HealthIssue) -> Option<&String> {
        let index = TROUBLES.iter().position(|other| *other == trouble)?;
        self.problems.get(index)?.as_ref()
    }

    /// Something is wrong, or is wrong in another way than before.
    pub(super) fn begin(&mut self, end: &SourceEnd, trouble: HealthIssue, problem: &str) {
        if self.problem(trouble).is_some_and(|known| known == problem) {
            return;
        }
        tracing::error!(pool = self.pool, problem, "{}", trouble.beginning());
        self.set(end, trouble, Some(problem.to_owned()));
    }

    /// It is over, if it was there.
    pub(super) fn over(&mut self, end: &SourceEnd, trouble: HealthIssue) {
        if self.has(trouble) {
            tracing::info!(pool = self.pool, "{}", trouble.end());
        }
        self.set(end, trouble, None);
    }

    fn set(&mut self, end: &SourceEnd, trouble: HealthIssue, problem: Option<String>) {
        for (other, known) in TROUBLES.iter().zip(&mut self.problems) {
            if *other == trouble {
                known.clone_from(&problem);
            }
        }
        let problem = self.problems.iter().flatten().next();
        end.state.send_if_modified(|state| {
            let news = state.healthy != problem.is_none() || state.problem.as_ref() != problem;
            state.healthy = problem.is_none();
            state.problem = problem.cloned();
            news
        });
    }

    /// Counts messages that were worked on and may be worked on again.
    pub(super) fn likely_duplicates(&self, end: &SourceEnd, count: u64, why: &str) {
        if count == 0 {
            return;
        }
        tracing::warn!(pool = self.pool, count, why, "messages may run twice");
        end.state
            .send_modify(|state| state.likely_duplicates += count);
    }
}

impl HealthIssue {
    fn beginning(self) -> &'static str {
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

    fn end(self) -> &'static str {
        match self {
            Self::Connection => "connected to the broker",
            Self::Blocked => "the broker takes what is published again",
            Self::Line => "connected for publishing again",
            Self::Backlog => "intake goes on",
            Self::Queues => "the queue is consumed again",
            Self::Publishing => "what is published is taken again",
            Self::Aside => "no message is set aside any more",
        }
    }
}
