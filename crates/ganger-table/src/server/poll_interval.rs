//! Times of polls without notifications: often after a change, then ever more rarely, down to the
//! source's own interval. Pure, except for the clock.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum pause after a poll, as a multiple of its duration. A long poll has passed over rows that it
/// can't see yet, of a large open transaction, and that server is busy.
const PAUSE_FACTOR: u32 = 4;

/// Maximum of that pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Time of the next poll, and the current interval.
#[derive(Debug)]
pub(crate) struct PollInterval {
    pace: Pace,
    /// Interval at which the source polls by itself.
    longest: Duration,
    interval: Duration,
    last_change: Instant,
    next: Instant,
}

/// Shortest interval between polls, and the time after the last change for which it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) shortest: Duration,
    pub(crate) lasts: Duration,
}

impl PollInterval {
    pub(crate) fn new(pace: Pace, longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            pace,
            longest,
            interval: pace.shortest,
            last_change: now,
            next: now + pace.shortest,
        }
    }

    /// Records that something was found.
    pub(crate) fn record_change(&mut self) {
        self.last_change = Instant::now();
        self.interval = self.pace.shortest;
        self.next = self.next.min(self.last_change + self.interval);
    }

    /// Returns the time of the next poll, if it comes before the source's own.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.interval < self.longest).then_some(self.next)
    }

    /// Records a poll.
    pub(crate) fn polled(&mut self) {
        let now = Instant::now();
        if now >= self.last_change + self.pace.lasts {
            self.interval = self.interval.saturating_mul(2);
        }
        self.next = now + self.interval;
    }

    /// Records the duration of a poll.
    pub(crate) fn took(&mut self, look: Duration) {
        let rest = look.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
        self.next = self.next.max(Instant::now() + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the milliseconds from one poll to the next.
    async fn waited(interval: &mut PollInterval) -> Option<u128> {
        let before = Instant::now();
        tokio::time::sleep_until(interval.next()?).await;
        interval.polled();
        Some(before.elapsed().as_millis())
    }

    const PACE: Pace = Pace {
        shortest: Duration::from_millis(5),
        lasts: Duration::from_secs(1),
    };

    #[tokio::test(start_paused = true)]
    async fn looks_are_frequent_for_a_second_after_news_and_then_ever_rarer() {
        let mut interval = PollInterval::new(PACE, Duration::from_millis(50));
        for round in ["at first", "after a change"] {
            for _ in 0..200 {
                assert_eq!(waited(&mut interval).await, Some(5), "{round}");
            }
            for expected in [Some(10), Some(20), Some(40), None, None] {
                assert_eq!(waited(&mut interval).await, expected, "{round}");
            }
            interval.record_change();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_look_the_next_one_is_later_unless_there_are_news() {
        let mut interval = PollInterval::new(PACE, Duration::from_secs(1));
        for (look, rest) in [(1, 5), (5, 20), (100, 400), (60_000, 500)] {
            interval.polled();
            interval.took(Duration::from_millis(look));
            let next = interval.next().unwrap() - Instant::now();
            assert_eq!(next.as_millis(), rest, "after {look} ms");
        }
        interval.record_change();
        assert_eq!(waited(&mut interval).await, Some(5));
    }
}
