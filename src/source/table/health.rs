//! How a source is doing: the pause after trouble, and telling of it once when it begins and once
//! when it ends. What is tried again is the task's business.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::broker::table::{Claim, Fault, Settled};
use crate::delivery::{Failure, SourceEnd};

/// The pauses between tries while the database can't be written to.
const RETRY: Backoff = Backoff {
    initial: Duration::from_millis(50),
    factor: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.2,
};

/// The standing of one source.
#[derive(Debug)]
pub(super) struct Health {
    pool: String,
    failures: u32,
    retry_at: Option<Instant>,
    /// What to say of settlements that are kept since they are refused.
    kept: Option<String>,
}

impl Health {
    /// Of a source that was just opened, and so is well.
    pub(super) fn new(pool: &str, end: &SourceEnd) -> Self {
        end.state.send_modify(|state| state.healthy = true);
        Self {
            pool: pool.to_owned(),
            failures: 0,
            retry_at: None,
            kept: None,
        }
    }

    /// Something failed and has not succeeded since.
    pub(super) fn is_troubled(&self) -> bool {
        self.failures > 0
    }

    /// The pause is not over.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now < retry_at)
    }

    /// When to wake up: then, or when the pause is over if there is one.
    pub(super) fn timer(&self, when: Instant) -> Instant {
        self.retry_at.unwrap_or(when)
    }

    /// Takes down that something failed, and begins a longer pause than the last.
    pub(super) fn trouble(&mut self, end: &SourceEnd, fault: &Fault, now: Instant) {
        if self.is_waiting(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + RETRY.wait(self.failures, fastrand::f64()));
        let Fault { problem, .. } = fault;
        let pool = self.pool.as_str();
        if self.failures == 1 {
            tracing::error!(pool, problem, "the table can't be used; intake pauses");
        } else {
            tracing::debug!(
                pool,
                problem,
                failures = self.failures,
                "the table still can't be used"
            );
        }
        end.state.send_if_modified(|state| {
            let news = state.healthy || state.problem.as_deref() != Some(problem);
            state.healthy = false;
            state.problem = Some(problem.clone());
            news
        });
    }

    /// Takes down that a transaction took effect.
    pub(super) fn recovered(&mut self, end: &SourceEnd) {
        if !self.is_troubled() {
            return;
        }
        tracing::info!(
            pool = self.pool,
            failures = self.failures,
            "the table can be used again"
        );
        self.failures = 0;
        self.retry_at = None;
        end.state.send_modify(|state| {
            state.healthy = true;
            state.problem.clone_from(&self.kept);
        });
    }

    /// Counts settlements that came too late.
    pub(super) fn lost(&self, end: &SourceEnd, claims: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        for claim in claims {
            tracing::warn!(
                pool = self.pool,
                row = claim.row,
                "settled too late: the claim was taken back, so the message may run twice"
            );
        }
        let count = claims.len() as u64;
        end.state
            .send_modify(|state| state.likely_duplicates += count);
    }

    /// Tells of messages that were given up without being handed out.
    pub(super) fn buried(&self, buried: &[(i64, Failure)]) {
        for (row, failure) in buried {
            tracing::warn!(
                pool = self.pool,
                row,
                error = failure.error,
                "a message went to the dead letters without being handed out"
            );
        }
    }

    /// Tells of a settlement that the database refuses for good.
    pub(super) fn set_aside(&self, settled: &Settled, fault: &Fault) {
        tracing::error!(
            pool = self.pool,
            row = settled.claim.row,
            problem = fault.problem,
            "a settlement is refused for good; it is kept, and tried again every minute"
        );
    }

    /// Tells how many settlements are kept.
    pub(super) fn kept(&mut self, end: &SourceEnd, count: usize, fault: &Fault) {
        let problem = &fault.problem;
        self.tell_kept(
            end,
            Some(format!("{count} settlements are refused: {problem}")),
        );
    }

    /// Tells that no settlement is kept any more.
    pub(super) fn none_kept(&mut self, end: &SourceEnd) {
        self.tell_kept(end, None);
    }

    fn tell_kept(&mut self, end: &SourceEnd, kept: Option<String>) {
        self.kept = kept;
        end.state.send_if_modified(|state| {
            let news = state.healthy && state.problem != self.kept;
            if news {
                state.problem.clone_from(&self.kept);
            }
            news
        });
    }

    /// Tells of settlements that are lost with us.
    pub(super) fn given_up<'a>(&self, given_up: impl IntoIterator<Item = &'a Settled>) {
        for settled in given_up {
            tracing::error!(
                pool = self.pool,
                row = settled.claim.row,
                "a refused settlement is given up; its message comes again when the daemon has ended"
            );
        }
    }
}
