//! The wall clock, needed for `available_after` and for times that people read. Nothing else in this
//! directory may use it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Clock in Unix time, in milliseconds. Tests set their own.
#[derive(Clone)]
pub(crate) struct WallClock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({})", self.now_ms())
    }
}

impl WallClock {
    /// Returns the system's clock.
    pub(crate) fn system() -> Self {
        Self(Arc::new(|| {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, millis)
        }))
    }

    /// Returns a clock that a test sets.
    #[cfg(test)]
    pub(crate) fn of(now_ms: &Arc<std::sync::atomic::AtomicI64>) -> Self {
        let now_ms = Arc::clone(now_ms);
        Self(Arc::new(move || {
            now_ms.load(std::sync::atomic::Ordering::SeqCst)
        }))
    }

    /// Now.
    pub(crate) fn now_ms(&self) -> i64 {
        (self.0)()
    }

    /// Returns the value of `available_after` for that delay: 0 for none, so that a clock that is set
    /// back hides no message that was never delayed.
    pub(crate) fn available_after(&self, delay: Duration) -> i64 {
        if delay.is_zero() {
            return 0;
        }
        // Rounded up, so that it is never early.
        let delay = millis(delay.saturating_add(Duration::from_nanos(999_999)));
        self.now_ms().saturating_add(delay).max(1)
    }

    /// Returns the time left until `at_ms`; zero if it has passed.
    pub(crate) fn until(&self, at_ms: i64) -> Duration {
        let left = at_ms.saturating_sub(self.now_ms());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    #[test]
    fn no_delay_is_zero_and_a_delay_is_never_early() {
        let clock = WallClock::of(&Arc::new(AtomicI64::new(1_000)));
        let table = [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1_001),
            (Duration::from_millis(5), 1_005),
            (Duration::from_micros(5_001), 1_006),
            (Duration::MAX, i64::MAX),
        ];
        for (delay, expected) in table {
            assert_eq!(clock.available_after(delay), expected, "{delay:?}");
        }
        assert_eq!(clock.until(1_007), Duration::from_millis(7));
        assert_eq!(clock.until(3), Duration::ZERO);
    }
}
