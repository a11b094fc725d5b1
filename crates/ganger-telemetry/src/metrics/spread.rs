//! Distributions of durations: the buckets from which monitoring systems compute quantiles.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper bounds of the buckets, in seconds; a last one has no bound. They range from the cost of a no-op
/// to longer than anyone waits, about three a decade.
pub const BOUNDS: [f64; 22] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0,
];

/// The bounds in microseconds, so that counting needs no division.
const BOUNDS_MICROS: [u64; BOUNDS.len()] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    14_400_000_000,
];

/// Counts durations; it lives on one thread.
#[derive(Debug, Default)]
pub(super) struct SpreadCell {
    counts: [Cell<u64>; BOUNDS.len() + 1],
    micros: Cell<u64>,
}

impl SpreadCell {
    pub(super) fn add(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        let count = &self.counts[bucket];
        count.set(count.get() + 1);
        self.micros.set(self.micros.get().saturating_add(micros));
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().map(Cell::get).sum()
    }

    pub(super) fn read(&self) -> Spread {
        Spread {
            counts: self.counts.iter().map(Cell::get).collect(),
            seconds: Duration::from_micros(self.micros.get()).as_secs_f64(),
        }
    }
}

/// Distribution of durations since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of durations in each bucket, not cumulative; one more entry than [`BOUNDS`], or none at
    /// all.
    pub counts: Vec<u64>,
    /// Sum of all durations, in seconds.
    pub seconds: f64,
}

impl Spread {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.counts.resize(BOUNDS.len() + 1, 0);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.counts[bucket] += 1;
        self.seconds += duration.as_secs_f64();
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_the_same_in_both_units() {
        for (seconds, micros) in BOUNDS.into_iter().zip(BOUNDS_MICROS) {
            assert_eq!(Duration::from_secs_f64(seconds).as_micros(), micros.into());
        }
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_duration_counts_up_to_its_bound() {
        let spread = SpreadCell::default();
        let bound = Duration::from_millis(1);
        for duration in [
            Duration::ZERO,
            bound,
            bound + Duration::from_micros(1),
            Duration::MAX,
        ] {
            spread.add(duration);
        }
        let Spread { counts, seconds } = spread.read();
        let filled = |at: &usize| counts[*at] > 0;
        let filled: Vec<usize> = (0..counts.len()).filter(filled).collect();
        assert_eq!(filled, [0, 3, 4, BOUNDS.len()]);
        assert!(seconds > 1e12, "{seconds}");
    }

    #[test]
    fn a_distribution_counts_as_a_cell_does() {
        let (cell, mut spread) = (SpreadCell::default(), Spread::default());
        for millis in [0, 1, 1500, 1_000_000] {
            let duration = Duration::from_millis(millis);
            cell.add(duration);
            spread.add(duration);
        }
        assert_eq!(spread, cell.read());
    }
}
