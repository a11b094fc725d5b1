//! Schedule of the lease's periodic work: at each check of the owners, with a pause after a failure; the
//! number of rows changed at once; and the interval at which the same problem is logged again.

use std::time::Duration;

use tokio::time::Instant;

use super::registry::{Registry, Undone};
use super::take_back::STUCK_FOR;

/// Minimum pause after a transient error, such as a deadlock. Work that took long has delayed a
/// heartbeat: then the pause is as long as the work.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of rows changed at once. It is halved after each failure, since a cluster may refuse a
/// transaction that is too large for it.
const ROWS_MAX: u32 = 5000;

/// Interval at which the same problem is logged again.
const TOLD_EVERY: Duration = STUCK_FOR;

/// State of the periodic work.
#[derive(Debug)]
pub(super) struct Tidying {
    not_before: Option<Instant>,
    rows: u32,
    told: Option<(Instant, String)>,
}

impl Default for Tidying {
    fn default() -> Self {
        Self {
            not_before: None,
            rows: ROWS_MAX,
            told: None,
        }
    }
}

impl Tidying {
    /// Does the work over that connection, if it is due. Only an error of the connection is returned: if
    /// any other ended the session, others would take this source for dead.
    pub(super) async fn by<R: Registry>(&mut self, line: &mut R) -> Result<(), Undone> {
        let began = Instant::now();
        if self.not_before.is_some_and(|then| began < then) {
            return Ok(());
        }
        self.not_before = None;
        match line.tidy_up(self.rows).await {
            Err(undone) if undone.ends_the_connection => return Err(undone),
            Err(undone) => self.failed(undone, began),
            Ok(wrong) => {
                self.rows = ROWS_MAX.min(self.rows * 2);
                if let Some(problem) = wrong
                    && self.is_news(&problem)
                {
                    tracing::error!(problem, "not all that was published has become messages");
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, undone: Undone, began: Instant) {
        self.rows = (self.rows / 2).max(1);
        let pause = match undone.fault.is_permanent {
            true => STUCK_FOR,
            false => began.elapsed().max(RETRY),
        };
        self.not_before = Some(Instant::now() + pause);
        let problem = undone.fault.problem;
        if self.is_news(&problem) {
            tracing::error!(
                problem,
                "unique keys whose time is over can't be let go; it is tried again after a while"
            );
        }
    }

    fn is_news(&mut self, problem: &str) -> bool {
        let known = self.told.as_ref();
        if known.is_some_and(|(at, told)| told == problem && at.elapsed() < TOLD_EVERY) {
            return false;
        }
        self.told = Some((Instant::now(), problem.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::table::Fault;

    fn undone(is_permanent: bool) -> Undone {
        let problem = "no".to_owned();
        Undone {
            fault: Fault {
                is_permanent,
                ..Fault::passing(problem)
            },
            ends_the_connection: false,
        }
    }

    fn is_due(tidying: &Tidying) -> bool {
        tidying.not_before.is_none_or(|then| Instant::now() >= then)
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_over_by_itself_is_tried_again_after_a_second_and_all_else_later() {
        let mut tidying = Tidying::default();
        tidying.failed(undone(false), Instant::now());
        assert!(!is_due(&tidying));
        advance(RETRY).await;
        assert!(is_due(&tidying));
        let began = Instant::now();
        advance(Duration::from_secs(5)).await;
        tidying.failed(undone(false), began);
        advance(Duration::from_secs(4)).await;
        assert!(!is_due(&tidying));
        advance(Duration::from_secs(1)).await;
        assert!(is_due(&tidying));
        tidying.failed(undone(true), Instant::now());
        advance(STUCK_FOR / 2).await;
        assert!(!is_due(&tidying));
        advance(STUCK_FOR / 2).await;
        assert!(is_due(&tidying));
    }

    #[tokio::test(start_paused = true)]
    async fn after_each_failure_it_is_half_as_many_rows() {
        let mut tidying = Tidying::default();
        tidying.failed(undone(false), Instant::now());
        assert_eq!(tidying.rows, ROWS_MAX / 2);
        for _ in 0..20 {
            tidying.failed(undone(false), Instant::now());
        }
        assert_eq!(tidying.rows, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_seldom() {
        let mut tidying = Tidying::default();
        assert!(tidying.is_news("a"));
        assert!(!tidying.is_news("a"));
        assert!(tidying.is_news("b"));
        advance(TOLD_EVERY / 2).await;
        assert!(!tidying.is_news("b"));
        advance(TOLD_EVERY / 2).await;
        assert!(tidying.is_news("b"));
    }
}
