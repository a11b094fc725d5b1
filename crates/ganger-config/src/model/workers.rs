//! Number of workers of a pool.

use std::time::Duration;

/// Maximum number of workers of a pool.
pub const WORKERS_MAX: usize = 1024;

/// `workers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workers {
    /// This number.
    Fixed(usize),
    /// By load, within bounds.
    Range(Autoscale),
}

/// `workers` as a range: the number of workers follows the backlog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Autoscale {
    /// Minimum.
    pub min: usize,
    /// Maximum.
    pub max: usize,
    /// Time within which the backlog should be cleared.
    pub clear_within: Duration,
    /// Shortest time between two changes.
    pub cooldown: Duration,
    /// Time for which fewer workers must have been enough before their number is reduced.
    pub shrink_after: Duration,
    /// Available memory of the machine, in bytes, below which no worker is added; none for no limit.
    pub memory_free_min: Option<u64>,
    /// Processor load of the machine, 0 to 1, above which no worker is added; none for no limit.
    pub cpu_max: Option<f64>,
}

impl Workers {
    /// Returns the minimum number of workers.
    pub fn min(&self) -> usize {
        match self {
            Self::Fixed(number) => *number,
            Self::Range(range) => range.min,
        }
    }

    /// Returns the maximum number of workers.
    pub fn max(&self) -> usize {
        match self {
            Self::Fixed(number) => *number,
            Self::Range(range) => range.max,
        }
    }

    /// Returns whether a pool with nothing to do has no worker.
    pub fn may_be_none(&self) -> bool {
        self.range().is_some_and(|range| range.min == 0)
    }

    /// Returns the scaling rules, if the number changes.
    pub fn range(&self) -> Option<&Autoscale> {
        match self {
            Self::Fixed(_) => None,
            Self::Range(range) => Some(range),
        }
    }
}

impl Autoscale {
    /// Returns the interval at which the load is checked: short enough to act after a cool-down, and one
    /// second at most.
    pub fn look_every(&self) -> Duration {
        self.cooldown
            .clamp(Duration::from_millis(100), Duration::from_secs(1))
    }
}
