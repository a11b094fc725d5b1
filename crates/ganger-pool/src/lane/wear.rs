//! Limits at which a worker is recycled: number of messages, age, size. Pure; they are drawn anew
//! after a reload.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use ganger_config::model::{PoolConfig, Recycle};

/// Interval of the check of a worker's memory, where it is limited.
const MEMORY_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Limits at which a worker is recycled.
#[derive(Debug)]
pub(super) struct Wear {
    connected_at: Instant,
    /// Rules that the limits below were drawn by.
    drawn_by: Arc<PoolConfig>,
    answers_max: Option<u64>,
    old_at: Option<Instant>,
    memory_check_at: Option<Instant>,
}

impl Wear {
    /// Draws the limits at which a worker is replaced by a fresh one. `chance` is from 0 to 1.
    pub(super) fn draw(connected_at: Instant, policy: Arc<PoolConfig>, chance: f64) -> Self {
        let Recycle {
            tasks,
            age,
            memory_bytes,
            jitter,
        } = policy.recycle;
        let share = 1.0 - jitter * chance;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count of messages; exactness is not wanted"
        )]
        let some_of = |tasks: u64| ((tasks as f64 * share) as u64).max(1);
        Self {
            connected_at,
            drawn_by: policy,
            answers_max: tasks.map(some_of),
            old_at: age.map(|age| connected_at + age.mul_f64(share)),
            memory_check_at: memory_bytes.map(|_| connected_at + MEMORY_CHECK_EVERY),
        }
    }

    /// Returns whether it was drawn by these rules.
    pub(super) fn is_by(&self, policy: &Arc<PoolConfig>) -> bool {
        Arc::ptr_eq(&self.drawn_by, policy)
    }

    /// Draws all limits again, after a reload.
    pub(super) fn redraw(&mut self, policy: Arc<PoolConfig>, chance: f64) {
        *self = Self::draw(self.connected_at, policy, chance);
    }

    /// Returns whether a worker with that many answers has to be replaced. Checks its memory when that is
    /// due.
    pub(super) fn is_over(
        &mut self,
        answered: u64,
        now: Instant,
        resident_bytes: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let worn = self.answers_max.is_some_and(|most| answered >= most);
        let old = self.old_at.is_some_and(|at| at <= now);
        worn || old || self.is_bloated(now, resident_bytes)
    }

    fn is_bloated(&mut self, now: Instant, resident: impl FnOnce() -> Option<u64>) -> bool {
        if self.memory_check_at.is_none_or(|at| at > now) {
            return false;
        }
        self.memory_check_at = Some(now + MEMORY_CHECK_EVERY);
        let limit = self.drawn_by.recycle.memory_bytes;
        let over = |(limit, resident)| resident > limit;
        limit.zip(resident()).is_some_and(over)
    }

    /// Drops the timed limits: the worker exits as soon as it can, so it need not be replaced.
    pub(super) fn forget(&mut self) {
        self.old_at = None;
        self.memory_check_at = None;
    }

    /// Returns the next time at which [`Wear::is_over`] may have something new to report.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.old_at, self.memory_check_at]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::sample::policy;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn drawn(recycle: Recycle, chance: f64) -> (Instant, Wear) {
        let policy = PoolConfig {
            recycle,
            ..policy()
        };
        let now = Instant::now();
        (now, Wear::draw(now, policy.into(), chance))
    }

    fn none() -> Recycle {
        Recycle {
            tasks: None,
            age: None,
            memory_bytes: None,
            jitter: 0.0,
        }
    }

    #[test]
    fn each_limit_replaces_a_worker_by_itself() {
        let (now, mut wear) = drawn(none(), 0.5);
        assert!(!wear.is_over(u64::MAX, now + 1_000_000 * SECOND, || Some(u64::MAX)));
        assert_eq!(wear.next(), None);

        let (now, mut wear) = drawn(
            Recycle {
                tasks: Some(10),
                jitter: 0.5,
                ..none()
            },
            1.0,
        );
        assert!(!wear.is_over(4, now, || None) && wear.is_over(5, now, || None));

        let age = Some(10 * SECOND);
        let (now, mut wear) = drawn(Recycle { age, ..none() }, 0.5);
        assert_eq!(wear.next(), Some(now + 10 * SECOND));
        assert!(!wear.is_over(0, now + 9 * SECOND, || None));
        assert!(wear.is_over(0, now + 10 * SECOND, || None));
        wear.forget();
        assert_eq!(wear.next(), None);
    }

    #[test]
    fn memory_is_looked_at_once_a_second() {
        let memory_bytes = Some(100);
        let (now, mut wear) = drawn(
            Recycle {
                memory_bytes,
                ..none()
            },
            0.5,
        );
        let never = || -> Option<u64> { unreachable!("it is not due") };
        assert!(!wear.is_over(0, now, never));
        assert!(!wear.is_over(0, now + SECOND, || Some(100)));
        assert!(!wear.is_over(0, now + SECOND, never));
        assert_eq!(wear.next(), Some(now + 2 * SECOND));
        assert!(!wear.is_over(0, now + 2 * SECOND, || None), "it has ended");
        assert!(wear.is_over(0, now + 3 * SECOND, || Some(101)));
    }

    proptest! {
        #[test]
        fn chance_takes_off_its_share_and_no_more(tasks in 1u64..1_000_000, jitter in 0.0..=1.0, chance in 0.0..=1.0) {
            let (now, wear) = drawn(Recycle { tasks: Some(tasks), age: Some(SECOND), jitter, ..none() }, chance);
            let most = wear.answers_max.unwrap_or_default();
            prop_assert!((1..=tasks).contains(&most));
            prop_assert!(wear.next() >= Some(now) && wear.next() <= Some(now + SECOND));
        }
    }
}
