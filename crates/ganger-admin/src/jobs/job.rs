//! A job: its definition, its state and its figures.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use ganger_queue::client::{Criteria, DeadChange, DeadFilter, Step};

/// Longest error that is kept, in characters.
pub(super) const ERROR_CHARS_MAX: usize = 1000;

/// A change of many dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobChange {
    /// They are sent back to the queue they came from, with a clean count.
    Retry,
    /// They are deleted.
    Drop,
}

impl JobChange {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Drop => "drop",
        }
    }

    pub(crate) fn of_source(self) -> DeadChange {
        match self {
            Self::Retry => DeadChange::Retry,
            Self::Drop => DeadChange::Drop,
        }
    }
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobState {
    /// It begins once the jobs of its source before it have ended.
    Queued,
    /// It is in progress.
    Running,
    /// Its source failed: it is tried again.
    Waiting,
    /// It has ended: no dead letter matches that could be changed.
    Completed,
    /// An operator has ended it.
    Cancelled,
    /// It has ended because it can't be done.
    Failed,
}

impl JobState {
    /// Returns whether it has ended.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting => false,
            Self::Completed | Self::Cancelled | Self::Failed => true,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// A change of many dead letters in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Job {
    /// Its id.
    pub(crate) id: String,
    pub(crate) change: JobChange,
    /// Name of the source.
    pub(crate) source: String,
    /// Only dead letters of this pool.
    pub(crate) pool: Option<String>,
    /// Only dead letters whose error contains this text.
    pub(crate) error: Option<String>,
    /// Only dead letters with this reason.
    pub(crate) reason: Option<String>,
    /// Only the dead letters of the message with this id.
    pub(crate) message_id: Option<String>,
    /// Only dead letters that last failed at or after this time.
    pub(crate) since: Option<String>,
    /// Only dead letters that last failed before this time; at the latest that of the request.
    pub(crate) before: String,
    /// Maximum number of dead letters per second; null for as many as the source takes.
    pub(crate) rate: Option<u32>,
    pub(crate) state: JobState,
    /// Caller who has started it.
    pub(crate) by: String,
    /// Time of the request.
    pub(crate) started_at: String,
    /// Time of its end; null until then.
    pub(crate) ended_at: Option<String>,
    /// Caller who has cancelled it.
    pub(crate) cancelled_by: Option<String>,
    /// Number of dead letters that a preview has found; null if unknown.
    pub(crate) expected: Option<u64>,
    /// Number of dead letters that were sent back or deleted. After a crash of the daemon it may lack those of one step.
    pub(crate) changed: u64,
    /// Number of dead letters that stay because another message has their unique key.
    pub(crate) held: u64,
    /// Number of dead letters that stay because they could not be changed.
    pub(crate) failed: u64,
    /// Number of dead letters that are left; null if unknown.
    pub(crate) left: Option<u64>,
    /// Last error: of the source, or of a dead letter that could not be changed.
    pub(crate) last_error: Option<String>,
    /// True if the next daemon continues it; false if the file of jobs can't be written.
    pub(crate) outlasts_restart: bool,
}

impl Job {
    pub(crate) fn filter(&self) -> DeadFilter {
        // They were read before they were written.
        let time = |text: &String| text.parse::<Timestamp>().ok();
        DeadFilter {
            ids: None,
            pool: self.pool.clone(),
            criteria: Criteria {
                error: self.error.clone(),
                message_id: self.message_id.clone(),
                reason: self.reason.clone(),
                since: self.since.as_ref().and_then(time),
                before: time(&self.before),
            },
        }
    }

    /// Returns whether it changes the same dead letters in the same way.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        (self.change, &self.source) == (other.change, &other.source)
            && self.filter() == other.filter()
    }

    pub(crate) fn add(&mut self, step: &Step) {
        self.changed += step.changed as u64;
        self.held += step.held as u64;
        self.failed += step.failed as u64;
        if let Some(error) = &step.error {
            self.fail_with(error);
        }
        let settled = self.changed + self.held + self.failed;
        self.left = self.expected.map(|all| all.saturating_sub(settled));
    }

    pub(crate) fn fail_with(&mut self, error: &str) {
        self.last_error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
    }

    pub(crate) fn end(&mut self, state: JobState) {
        self.state = state;
        self.ended_at = Some(Timestamp::now().to_string());
        if state == JobState::Completed {
            self.left = self.expected.map(|_| 0);
        }
    }

    pub(crate) fn log(&self, what: &str) {
        tracing::info!(
            job = self.id,
            change = self.change.as_str(),
            source = self.source,
            pool = self.pool,
            rate = self.rate,
            by = self.by,
            cancelled_by = self.cancelled_by,
            changed = self.changed,
            held = self.held,
            failed = self.failed,
            last_error = self.last_error,
            "job {what}"
        );
    }
}
