//! Schedule of the lease's periodic work: at each check of the owners, with a pause after a failure; the
//! number of rows changed at once; and the interval at which the same problem is logged again.

use std::time::Duration;

use tokio::time::Instant;

use super::registry::{Registry, RequestFailure};
use super::take_back::STUCK_FOR;

/// Minimum pause after a transient error, such as a deadlock. Work that took long has delayed a
/// heartbeat: then the pause is as long as the work.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of rows changed at once. It is halved after each failure, since a cluster may refuse a
/// transaction that is too large for it.
const ROWS_MAX: u32 = 5000;

/// Interval at which the same problem is logged again.
const LOG_EVERY: Duration = STUCK_FOR;

/// State of the periodic work.
#[derive(Debug)]
pub(super) struct Cleanup {
    not_before: Option<Instant>,
    rows: u32,
    last_logged: Option<(Instant, String)>,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            not_before: None,
            rows: ROWS_MAX,
            last_logged: None,
        }
    }
}

impl Cleanup {
    /// Does the work over that connection, if it is due. Only an error of the connection is returned: if
    /// any other ended the session, others would take this source for dead.
    pub(super) async fn run<R: Registry>(
        &mut self,
        connection: &mut R,
    ) -> Result<(), RequestFailure> {
        let began = Instant::now();
        if self.not_before.is_some_and(|then| began < then) {
            return Ok(());
        }
        self.not_before = None;
        match connection.clean_up(self.rows).await {
            Err(failure) if failure.ends_the_connection => return Err(failure),
            Err(failure) => self.failed(failure, began),
            Ok(wrong) => {
                self.rows = ROWS_MAX.min(self.rows * 2);
                if let Some(problem) = wrong
                    && self.is_new(&problem)
                {
                    tracing::error!(problem, "published rows were not delivered");
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, failure: RequestFailure, began: Instant) {
        self.rows = (self.rows / 2).max(1);
        let pause = match failure.fault.is_permanent {
            true => STUCK_FOR,
            false => began.elapsed().max(RETRY),
        };
        self.not_before = Some(Instant::now() + pause);
        let problem = failure.fault.problem;
        if self.is_new(&problem) {
            tracing::error!(
                problem,
                "expired unique keys can't be released; retried later"
            );
        }
    }

    fn is_new(&mut self, problem: &str) -> bool {
        let known = self.last_logged.as_ref();
        if known.is_some_and(|(at, last_logged)| last_logged == problem && at.elapsed() < LOG_EVERY)
        {
            return false;
        }
        self.last_logged = Some((Instant::now(), problem.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::table::Fault;

    fn failure(is_permanent: bool) -> RequestFailure {
        let problem = "no".to_owned();
        RequestFailure {
            fault: Fault {
                is_permanent,
                ..Fault::transient(problem)
            },
            ends_the_connection: false,
        }
    }

    fn is_due(cleanup: &Cleanup) -> bool {
        cleanup.not_before.is_none_or(|then| Instant::now() >= then)
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_over_by_itself_is_tried_again_after_a_second_and_all_else_later() {
        let mut cleanup = Cleanup::default();
        cleanup.failed(failure(false), Instant::now());
        assert!(!is_due(&cleanup));
        advance(RETRY).await;
        assert!(is_due(&cleanup));
        let began = Instant::now();
        advance(Duration::from_secs(5)).await;
        cleanup.failed(failure(false), began);
        advance(Duration::from_secs(4)).await;
        assert!(!is_due(&cleanup));
        advance(Duration::from_secs(1)).await;
        assert!(is_due(&cleanup));
        cleanup.failed(failure(true), Instant::now());
        advance(STUCK_FOR / 2).await;
        assert!(!is_due(&cleanup));
        advance(STUCK_FOR / 2).await;
        assert!(is_due(&cleanup));
    }

    #[tokio::test(start_paused = true)]
    async fn after_each_failure_it_is_half_as_many_rows() {
        let mut cleanup = Cleanup::default();
        cleanup.failed(failure(false), Instant::now());
        assert_eq!(cleanup.rows, ROWS_MAX / 2);
        for _ in 0..20 {
            cleanup.failed(failure(false), Instant::now());
        }
        assert_eq!(cleanup.rows, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_problem_is_logged_seldom() {
        let mut cleanup = Cleanup::default();
        assert!(cleanup.is_new("a"));
        assert!(!cleanup.is_new("a"));
        assert!(cleanup.is_new("b"));
        advance(LOG_EVERY / 2).await;
        assert!(!cleanup.is_new("b"));
        advance(LOG_EVERY / 2).await;
        assert!(cleanup.is_new("b"));
    }
}
