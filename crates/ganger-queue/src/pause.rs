//! The pause after a failure: nothing is retried before it ends. Pure.

use tokio::time::Instant;

use ganger_core::backoff::AWAY;

/// Back-off during which nothing is retried.
#[derive(Debug, Default)]
pub struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    /// Returns whether something failed and has not succeeded since.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether the pause still lasts.
    pub fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns the time to wake up: `when`, or the end of the pause if there is one.
    pub fn timer(&self, when: Instant) -> Instant {
        self.until.unwrap_or(when)
    }

    /// Records a failure: begins a longer pause than the last.
    pub fn begin(&mut self, now: Instant, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + AWAY.wait(self.failures, chance));
    }

    /// Records a success.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pauses_get_longer_until_something_succeeds() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        assert!(!pause.is_failing() && !pause.is_on(now) && pause.timer(now) == now);
        for millis in [100, 200, 400] {
            pause.begin(now, 0.5);
            let over = now + Duration::from_millis(millis);
            assert_eq!(pause.timer(now), over);
            assert!(pause.is_failing() && pause.is_on(now) && !pause.is_on(over));
        }
        pause.end();
        assert!(!pause.is_failing() && !pause.is_on(now));
        pause.begin(now, 0.5);
        assert_eq!(pause.timer(now), now + AWAY.initial);
    }
}
