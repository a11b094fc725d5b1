//! Status that a pool publishes to other threads: a copy, renewed soon after a change and otherwise
//! once a second. Reading it waits for no pool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::status::PoolStatus;

/// Minimum time between two publications after a change.
const SOON: Duration = Duration::from_millis(100);
/// Interval of renewal without changes, so that ages and rates stay correct.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// Time over which a rate is measured.
const RATE_OVER: Duration = Duration::from_secs(10);

/// Publishes a pool's status.
#[derive(Debug)]
pub(super) struct Showcase {
    to: watch::Sender<Arc<PoolStatus>>,
    at: Option<Instant>,
    /// True if something may have happened since the last publication.
    changed: bool,
    rate: Rate,
}

impl Showcase {
    pub(super) fn new(to: watch::Sender<Arc<PoolStatus>>) -> Self {
        Self {
            to,
            at: None,
            changed: true,
            rate: Rate::default(),
        }
    }

    /// Records that something may have happened. Returns whether it is time to publish the status.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.changed = true;
        self.at.is_none_or(|at| now >= at + SOON)
    }

    /// Returns the time of the next publication if nothing happens before.
    pub(super) fn next(&self) -> Option<Instant> {
        let wait = if self.changed { SOON } else { AT_LEAST_EVERY };
        Some(self.at? + wait)
    }

    /// Publishes the status, with the rate added.
    pub(super) fn show(&mut self, mut status: PoolStatus, now: Instant) -> Arc<PoolStatus> {
        status.done_per_second = self.rate.after(status.counts.done, now);
        let status = Arc::new(status);
        self.to.send_replace(status.clone());
        self.at = Some(now);
        self.changed = false;
        status
    }
}

/// Rate per second over the last seconds.
#[derive(Debug, Default)]
struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Records the total so far and returns the rate.
    fn after(&mut self, count: u64, now: Instant) -> f64 {
        let apart = |(last, _): &(Instant, u64)| now - *last >= AT_LEAST_EVERY;
        if self.samples.back().is_none_or(apart) {
            self.samples.push_back((now, count));
        }
        // The oldest remaining sample is at least that old, so that the time is covered.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| now - *at >= RATE_OVER)
        {
            self.samples.pop_front();
        }
        let Some((since, before)) = self.samples.front() else {
            return 0.0;
        };
        let seconds = (now - *since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = (count - before) as f64 / seconds;
        if seconds > 0.0 { rate } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds_whoever_asks() {
        let start = Instant::now();
        let mut rate = Rate::default();
        assert!(rate.after(0, start).abs() < f64::EPSILON);
        for tenth in 1_u32..=600 {
            let now = start + SOON * tenth;
            let told = rate.after(u64::from(tenth) * 10, now);
            assert!((99.0..101.0).contains(&told), "{told} after {tenth}");
            assert!(rate.samples.len() <= 13);
        }
        let later = start + SOON * 600 + 3 * RATE_OVER;
        assert!(rate.after(6000, later) < 30.0);
        assert!(rate.after(6000, later + 2 * RATE_OVER).abs() < f64::EPSILON);
    }

    #[test]
    fn changes_are_shown_soon_and_not_too_often() {
        let (to, seen) = watch::channel(Arc::default());
        let mut shown = Showcase::new(to);
        let now = Instant::now();
        assert!(shown.is_due(now));
        shown.show(PoolStatus::default(), now);
        assert!(seen.has_changed().unwrap());
        assert_eq!(shown.next(), Some(now + AT_LEAST_EVERY));
        let just_after = now + Duration::from_millis(1);
        assert!(!shown.is_due(just_after));
        assert_eq!(shown.next(), Some(now + SOON));
        assert!(shown.is_due(now + SOON));
    }
}
