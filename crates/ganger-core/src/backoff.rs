//! Back-off before a retry: pure arithmetic, without a clock and random numbers of its own.

use std::time::Duration;

/// An exponential back-off with jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first wait.
    pub initial: Duration,
    /// Factor by which each further wait is longer.
    pub factor: f64,
    /// The longest wait.
    pub max: Duration,
    /// Share of a wait that chance may subtract or add, 0 to 1.
    pub jitter: f64,
}

/// Back-off between tries to reach an unavailable dependency: a broker, a database. It returns for
/// all waiting clients at once, so chance spreads them.
pub const AWAY: Backoff = Backoff {
    initial: Duration::from_millis(100),
    factor: 2.0,
    max: Duration::from_secs(5),
    jitter: 0.5,
};

impl Backoff {
    /// Returns the wait before try `failures + 1`, for a `chance` between 0 and 1. Never longer
    /// than `max`; zero failures, no wait.
    pub fn wait(&self, failures: u32, chance: f64) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let exponent = i32::try_from(failures - 1).unwrap_or(i32::MAX);
        let base = self.initial.as_secs_f64() * self.factor.powi(exponent);
        let spread = 1.0 + self.jitter * (2.0 * chance - 1.0);
        let seconds = (base.min(self.max.as_secs_f64()) * spread).min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Backoff = Backoff {
        initial: Duration::from_secs(1),
        factor: 2.0,
        max: Duration::from_secs(10),
        jitter: 0.0,
    };

    #[test]
    fn doubles_up_to_the_longest() {
        let waits: Vec<u64> = (0..7).map(|n| SECOND.wait(n, 0.5).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 10, 10]);
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(failures in 1u32.., chance in 0.0..=1.0f64, jitter in 0.0..=1.0f64) {
            let wait = Backoff { jitter, ..SECOND }.wait(failures, chance);
            prop_assert!(wait <= SECOND.max);
            let least = SECOND.wait(failures, 0.5).mul_f64(1.0 - jitter);
            prop_assert!(wait + Duration::from_millis(1) >= least);
        }
    }
}
