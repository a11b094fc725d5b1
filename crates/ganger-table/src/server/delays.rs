//! Delays in the unit of the servers' clocks.

use std::time::Duration;

/// Longer than any delay in use, and far from an overflow.
const DELAY_MS_MAX: i64 = 1 << 52;

/// Returns a delay in milliseconds, rounded up, so that nothing is due early.
pub(crate) fn delay_ms(delay: Duration) -> i64 {
    let delay = delay.saturating_add(Duration::from_nanos(999_999));
    i64::try_from(delay.as_millis()).map_or(DELAY_MS_MAX, |delay| delay.min(DELAY_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_never_short_and_ends_some_day() {
        for (delay, expected) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(5), 5),
            (Duration::from_micros(5_001), 6),
            (Duration::MAX, DELAY_MS_MAX),
        ] {
            assert_eq!(delay_ms(delay), expected, "{delay:?}");
        }
    }
}
