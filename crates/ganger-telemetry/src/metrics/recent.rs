//! Recent durations: quantiles of the last minutes, so that they describe now and not the day.

use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Half of the longest period considered: durations are forgotten by halves.
const HALF: Duration = Duration::from_secs(150);
/// Significant digits: one percent is precise enough, and keeps a histogram at 30 KB.
const DIGITS: u8 = 2;
/// Maximum duration, in microseconds: a day. Longer ones count as this.
const LONGEST_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// Durations of the last two and a half to five minutes.
#[derive(Debug)]
pub(super) struct Recent {
    newer: Histogram<u64>,
    older: Histogram<u64>,
    /// Time at which the newer half began.
    since: Instant,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            newer: histogram(),
            older: histogram(),
            since: Instant::now(),
        }
    }

    pub(super) fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.newer.saturating_record(micros);
    }

    /// Returns the median and the 99th percentile at that moment, in milliseconds; 0 if there are no
    /// durations.
    pub(super) fn p50_and_p99(&mut self, now: Instant) -> (f64, f64) {
        let age = now.duration_since(self.since);
        if age >= HALF {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.reset();
            if age >= 2 * HALF {
                self.older.reset();
            }
            self.since = now;
        }
        let mut all = self.older.clone();
        all += &self.newer;
        // A thousandth of it, without the digits that a product would bring.
        let quantile = |q| Duration::from_millis(all.value_at_quantile(q)).as_secs_f64();
        (quantile(0.5), quantile(0.99))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_MICROS, DIGITS)
        .expect("the bounds are at least 1 and a factor of 2 apart, the digits at most 5")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_minutes_count() {
        let mut recent = Recent::new();
        let start = recent.since;
        recent.add(Duration::from_secs(1));
        assert!(recent.p50_and_p99(start).0 > 990.0);
        let later = start + HALF;
        assert!(recent.p50_and_p99(later).0 > 990.0, "it is half as old");
        for _ in 0..99 {
            recent.add(Duration::from_millis(10));
        }
        let (p50, p99) = recent.p50_and_p99(later);
        assert!((9.0..11.0).contains(&p50) && p99 < 11.0, "{p50} {p99}");
        recent.add(Duration::from_secs(1));
        assert!(recent.p50_and_p99(later).1 > 990.0);
        let (p50, p99) = recent.p50_and_p99(later + HALF);
        assert!((9.0..11.0).contains(&p50) && p99 > 9.0, "{p50} {p99}");
        assert_eq!(recent.p50_and_p99(later + 3 * HALF), (0.0, 0.0));
    }
}
