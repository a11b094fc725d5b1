//! How many workers a pool has.

use std::time::Duration;

/// The most workers that a pool may have.
pub const WORKERS_MAX: usize = 1024;

/// `workers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workers {
    /// So many.
    Fixed(usize),
    /// As many as the load asks for, within bounds.
    Range(Autoscale),
}

/// `workers` as a range: how many there are follows what waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Autoscale {
    /// The fewest.
    pub min: usize,
    /// The most.
    pub max: usize,
    /// How soon what waits should be cleared.
    pub clear_within: Duration,
    /// The least time from one change to the next.
    pub cooldown: Duration,
    /// For how long fewer must have been enough before there are fewer.
    pub shrink_after: Duration,
    /// None is added when the machine has less memory to give, in bytes; none for whatever it has.
    pub memory_free_min: Option<u64>,
    /// None is added when the machine's processors are busier, 0 to 1; none for however busy.
    pub cpu_max: Option<f64>,
}

impl Workers {
    /// The fewest that there may be.
    pub fn min(&self) -> usize {
        match self {
            Self::Fixed(number) => *number,
            Self::Range(range) => range.min,
        }
    }

    /// The most that there may be.
    pub fn max(&self) -> usize {
        match self {
            Self::Fixed(number) => *number,
            Self::Range(range) => range.max,
        }
    }

    /// The rules by which their number changes, if it does.
    pub fn range(&self) -> Option<&Autoscale> {
        match self {
            Self::Fixed(_) => None,
            Self::Range(range) => Some(range),
        }
    }
}

impl Autoscale {
    /// How often the load is looked at: often enough to do something after a cool-down, and once a
    /// second at most.
    pub fn look_every(&self) -> Duration {
        self.cooldown
            .clamp(Duration::from_millis(100), Duration::from_secs(1))
    }
}
