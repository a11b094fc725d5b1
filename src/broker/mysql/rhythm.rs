//! When to look for news where nobody tells of them: often while there are any, then ever more rarely,
//! down to what the source does by itself. Pure, but for the clock.

use std::time::Duration;

use tokio::time::Instant;

/// How often, for a while after the last news.
const SHORTEST: Duration = Duration::from_millis(5);
const FOR: Duration = Duration::from_secs(1);

/// When the next look is.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// The source itself looks that often.
    longest: Duration,
    interval: Duration,
    last_news: Instant,
    next: Instant,
}

impl Rhythm {
    pub(super) fn up_to(longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            longest,
            interval: SHORTEST,
            last_news: now,
            next: now + SHORTEST,
        }
    }

    /// There were some.
    pub(super) fn news(&mut self) {
        self.last_news = Instant::now();
        self.interval = SHORTEST;
        self.next = self.next.min(self.last_news + SHORTEST);
    }

    /// When the next look is, if it is before the source's own.
    pub(super) fn next(&self) -> Option<Instant> {
        (self.interval < self.longest).then_some(self.next)
    }

    /// It was had.
    pub(super) fn looked(&mut self) {
        let now = Instant::now();
        if now >= self.last_news + FOR {
            self.interval = self.interval.saturating_mul(2);
        }
        self.next = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many milliseconds from one look to the next.
    async fn waited(rhythm: &mut Rhythm) -> Option<u128> {
        let before = Instant::now();
        tokio::time::sleep_until(rhythm.next()?).await;
        rhythm.looked();
        Some(before.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn looks_are_frequent_for_a_second_after_news_and_then_ever_rarer() {
        let mut rhythm = Rhythm::up_to(Duration::from_millis(50));
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
}
