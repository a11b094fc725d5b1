//! Times of looks without notifications: often after news, then ever more rarely, down to the source's
//! own interval. Pure, except for the clock.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum pause after a look, as a multiple of its duration. A long look has passed over rows that it
/// can't see yet, of a large open transaction, and that server is busy.
const RESTS: u32 = 4;

/// Maximum of that pause.
const RESTS_AT_MOST: Duration = Duration::from_millis(500);

/// Time of the next look, and the current interval.
#[derive(Debug)]
pub(crate) struct Rhythm {
    pace: Pace,
    /// Interval at which the source looks by itself.
    longest: Duration,
    interval: Duration,
    last_news: Instant,
    next: Instant,
}

/// Shortest interval between looks, and the time after the last news for which it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) shortest: Duration,
    pub(crate) lasts: Duration,
}

impl Rhythm {
    pub(crate) fn new(pace: Pace, longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            pace,
            longest,
            interval: pace.shortest,
            last_news: now,
            next: now + pace.shortest,
        }
    }

    /// Records news.
    pub(crate) fn news(&mut self) {
        self.last_news = Instant::now();
        self.interval = self.pace.shortest;
        self.next = self.next.min(self.last_news + self.interval);
    }

    /// Returns the time of the next look, if it comes before the source's own.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.interval < self.longest).then_some(self.next)
    }

    /// Records a look.
    pub(crate) fn looked(&mut self) {
        let now = Instant::now();
        if now >= self.last_news + self.pace.lasts {
            self.interval = self.interval.saturating_mul(2);
        }
        self.next = now + self.interval;
    }

    /// Records the duration of a look.
    pub(crate) fn took(&mut self, look: Duration) {
        let rest = look.saturating_mul(RESTS).min(RESTS_AT_MOST);
        self.next = self.next.max(Instant::now() + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the milliseconds from one look to the next.
    async fn waited(rhythm: &mut Rhythm) -> Option<u128> {
        let before = Instant::now();
        tokio::time::sleep_until(rhythm.next()?).await;
        rhythm.looked();
        Some(before.elapsed().as_millis())
    }

    const PACE: Pace = Pace {
        shortest: Duration::from_millis(5),
        lasts: Duration::from_secs(1),
    };

    #[tokio::test(start_paused = true)]
    async fn looks_are_frequent_for_a_second_after_news_and_then_ever_rarer() {
        let mut rhythm = Rhythm::new(PACE, Duration::from_millis(50));
        for round in ["at first", "after news"] {
            for _ in 0..200 {
                assert_eq!(waited(&mut rhythm).await, Some(5), "{round}");
            }
            for expected in [Some(10), Some(20), Some(40), None, None] {
                assert_eq!(waited(&mut rhythm).await, expected, "{round}");
            }
            rhythm.news();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_look_the_next_one_is_later_unless_there_are_news() {
        let mut rhythm = Rhythm::new(PACE, Duration::from_secs(1));
        for (look, rest) in [(1, 5), (5, 20), (100, 400), (60_000, 500)] {
            rhythm.looked();
            rhythm.took(Duration::from_millis(look));
            let next = rhythm.next().unwrap() - Instant::now();
            assert_eq!(next.as_millis(), rest, "after {look} ms");
        }
        rhythm.news();
        assert_eq!(waited(&mut rhythm).await, Some(5));
    }
}
