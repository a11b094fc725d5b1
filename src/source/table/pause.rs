//! The pause after trouble: nothing is tried again before it is over. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// The pauses between tries while the database can't be written to.
const RETRY: Backoff = Backoff {
    initial: Duration::from_millis(50),
    factor: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.2,
};

/// How long nothing is tried.
#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    /// Something failed and has not succeeded since.
    pub(super) fn is_troubled(&self) -> bool {
        self.failures > 0
    }

    /// The pause is not over.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When to wake up: then, or when the pause is over if there is one.
    pub(super) fn timer(&self, when: Instant) -> Instant {
        self.until.unwrap_or(when)
    }

    /// Something failed: begins a longer pause than the last.
    pub(super) fn begin(&mut self, now: Instant, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + RETRY.wait(self.failures, chance));
    }

    /// Something succeeded.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_until_something_succeeds() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        assert!(!pause.is_troubled() && !pause.is_on(now) && pause.timer(now) == now);
        for millis in [50, 100, 200] {
            pause.begin(now, 0.5);
            let over = now + Duration::from_millis(millis);
            assert_eq!(pause.timer(now), over);
            assert!(pause.is_troubled() && pause.is_on(now) && !pause.is_on(over));
        }
        pause.end();
        assert!(!pause.is_troubled() && !pause.is_on(now));
        pause.begin(now, 0.5);
        assert_eq!(pause.timer(now), now + RETRY.initial);
    }
}
