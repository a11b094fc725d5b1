//! Time for which all tasks of a pool have been quick: after a long streak they may be given out in runs. A
//! message in a pipe can't be called back, so one slow task ends the streak.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Number of quick answers that make a long streak.
const LONG: u64 = 10_000;
/// Duration from which answers recorded together count as slow.
const SLOW: Duration = Duration::from_millis(20);
/// Length of a pause after which past answers predict nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// Consecutive quick answers of a pool's workers.
#[derive(Debug)]
pub struct Streak {
    answers: Cell<u64>,
    last: Cell<Instant>,
}

impl Streak {
    /// Creates an empty streak.
    pub fn new(now: Instant) -> Self {
        Self {
            answers: Cell::default(),
            last: now.into(),
        }
    }

    /// Records that `answers` answers took this time together.
    pub fn takes_in(&self, answers: u32, time: Duration, now: Instant) {
        let before = if self.has_paused(now) {
            0
        } else {
            self.answers.get()
        };
        let is_quick = time < SLOW;
        self.answers.set(if is_quick {
            before + u64::from(answers)
        } else {
            0
        });
        self.last.set(now);
    }

    /// Returns whether the streak is long enough to expect that the next answers are quick as well.
    pub fn is_long(&self, now: Instant) -> bool {
        self.answers.get() >= LONG && !self.has_paused(now)
    }

    fn has_paused(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last.get()) > PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slow_answer_or_a_pause_ends_it() {
        let begun = Instant::now();
        let streak = Streak::new(begun);
        streak.takes_in(9_999, MS * 19, begun);
        assert!(!streak.is_long(begun));
        streak.takes_in(1, MS, begun + MS * 1000);
        assert!(streak.is_long(begun + MS * 2000));
        assert!(!streak.is_long(begun + MS * 2001), "nothing for a second");
        streak.takes_in(1, MS, begun + MS * 2001);
        assert!(!streak.is_long(begun + MS * 2001), "it begins anew");
        streak.takes_in(10_000, MS, begun + MS * 2002);
        assert!(streak.is_long(begun + MS * 2002));
        streak.takes_in(1, MS * 20, begun + MS * 2003);
        assert!(!streak.is_long(begun + MS * 2003), "a slow one");
    }
}
