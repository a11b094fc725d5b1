//! When a source has itself told of new messages, and when it looks for them. Whoever sends pays for
//! telling: the server lets the commits that notify through one at a time, each until it is on the disk. So
//! a source sleeps, and is told, only while its queue is quiet; as soon as messages come quickly one after
//! the other, or more of them wait than it takes, it looks every few milliseconds instead. Pure, but for the
//! clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::on_server::rhythm::{Pace, Rhythm};

/// How often is looked for what nobody tells of.
const PACE: Pace = Pace {
    shortest: Duration::from_millis(5),
    lasts: QUIET,
};

/// A queue in which nothing was found for so long is quiet.
const QUIET: Duration = Duration::from_millis(100);

/// The most of that, where much is told of, but others are always first.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// What is told of so often within [`QUIET`] is looked for instead. Few enough that a slow disk, which lets
/// a hundred commits through in a second, one after the other, comes to it.
const OFTEN: u32 = 5;

/// Whether a source sleeps, or wants to.
#[derive(Debug)]
pub(super) struct Slumber {
    rhythm: Rhythm,
    is_wanted: bool,
    /// When something was found last, or it was woken.
    stirred: Instant,
    /// For how long it has to be quiet this time.
    quiet: Duration,
    /// Nothing was found since it last wanted to sleep.
    in_vain: bool,
    /// Since when it was told of something how often.
    told: (Instant, u32),
    /// Since when it has had no use for news, if it has none.
    full: Option<Instant>,
}

impl Slumber {
    /// Of a source that looks at least that often by itself.
    pub(super) fn new(longest: Duration) -> Self {
        let now = Instant::now();
        Self {
            rhythm: Rhythm::new(PACE, longest),
            is_wanted: true,
            stirred: now,
            quiet: QUIET,
            in_vain: true,
            told: (now, 0),
            full: None,
        }
    }

    /// Whether it wants to be told.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// When to look next where nobody tells, if that is before the source's own look.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.rhythm.next()
    }

    /// That look was had.
    pub(super) fn looked(&mut self) {
        self.rhythm.looked();
    }

    /// It was told of something.
    pub(super) fn told(&mut self) {
        let now = Instant::now();
        let (since, times) = self.told;
        self.told = match now < since + QUIET {
            true => (since, times + 1),
            false => (now, 1),
        };
        if self.told.1 >= OFTEN {
            self.quiet = match self.in_vain {
                true => (self.quiet * 2).min(QUIET_MAX),
                false => QUIET,
            };
            self.wake();
        }
    }

    /// Something was found.
    pub(super) fn found(&mut self) {
        self.rhythm.news();
        self.stirred = Instant::now();
        self.quiet = QUIET;
        self.in_vain = false;
    }

    /// Nothing was found.
    pub(super) fn found_nothing(&mut self) {
        if !self.is_wanted && Instant::now() >= self.stirred + self.quiet {
            self.is_wanted = true;
            self.in_vain = true;
        }
    }

    /// There is more than it takes, or can take.
    pub(super) fn wake(&mut self) {
        if self.is_wanted {
            self.is_wanted = false;
            self.stirred = Instant::now();
            self.told.1 = 0;
            self.rhythm.news();
        }
    }

    /// It has use for news, or none. Returns when that has lasted so long that it wakes, if it has none.
    pub(super) fn uses(&mut self, news: bool) -> Option<Instant> {
        if news {
            self.full = None;
            return None;
        }
        let since = *self.full.get_or_insert_with(Instant::now);
        self.is_wanted.then(|| since + QUIET)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    async fn told(slumber: &mut Slumber, times: u32, every: Duration) {
        for _ in 0..times {
            advance(every).await;
            slumber.told();
        }
    }

    /// So long it takes until it wants to sleep again, if nothing is found.
    async fn wakes_for(slumber: &mut Slumber) -> Duration {
        let since = Instant::now();
        while !slumber.is_wanted() {
            advance(Duration::from_millis(1)).await;
            slumber.found_nothing();
        }
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_sleeps_while_few_messages_come() {
        let mut slumber = Slumber::new(POLL);
        for _ in 0..20 {
            told(&mut slumber, 4, QUIET / 4).await;
            slumber.found();
            slumber.found_nothing();
            assert!(slumber.is_wanted());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_when_many_come_and_sleeps_when_it_is_quiet() {
        let mut slumber = Slumber::new(POLL);
        for _ in 0..3 {
            slumber.found();
            told(&mut slumber, OFTEN, QUIET / 10).await;
            assert!(!slumber.is_wanted());
            advance(QUIET / 2).await;
            slumber.found();
            assert_eq!(wakes_for(&mut slumber).await, QUIET);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stays_awake_for_longer_where_others_are_always_first() {
        let mut slumber = Slumber::new(POLL);
        for times in [2, 4, 8, 16, 20, 20] {
            told(&mut slumber, OFTEN, Duration::ZERO).await;
            assert_eq!(wakes_for(&mut slumber).await, QUIET * times);
        }
        slumber.found();
        told(&mut slumber, OFTEN, Duration::ZERO).await;
        assert_eq!(wakes_for(&mut slumber).await, QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn awake_it_looks_every_few_milliseconds() {
        let mut slumber = Slumber::new(POLL);
        advance(QUIET).await;
        slumber.wake();
        slumber.looked();
        for _ in 0..5 {
            let next = slumber.next_look().unwrap();
            assert_eq!(next.duration_since(Instant::now()), PACE.shortest);
            advance(PACE.shortest).await;
            slumber.looked();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_use_for_news_it_is_told_for_a_while_only() {
        let mut slumber = Slumber::new(POLL);
        let full = Instant::now();
        assert_eq!(slumber.uses(false), Some(full + QUIET));
        advance(QUIET / 2).await;
        assert_eq!(slumber.uses(false), Some(full + QUIET));
        assert_eq!(slumber.uses(true), None);
        assert_eq!(slumber.uses(false), Some(Instant::now() + QUIET));
        slumber.wake();
        assert_eq!(slumber.uses(false), None);
    }
}
