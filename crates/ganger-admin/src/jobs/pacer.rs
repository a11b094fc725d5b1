//! The rate of a job.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of dead letters of a step.
pub(super) const STEP_MAX: usize = 1000;

/// Keeps a rate: each step takes at least the time of its dead letters. Pure.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Dead letters per second; none for no limit.
    rate: Option<u32>,
    /// Time at which the step in progress was to begin.
    began: Instant,
}

impl Pacer {
    pub(super) fn new(rate: Option<u32>, now: Instant) -> Self {
        Self { rate, began: now }
    }

    /// Returns the maximum number of dead letters of a step: those of a quarter of a second.
    pub(super) fn step_max(&self) -> usize {
        let of_rate = self.rate.map(|rate| rate as usize / 4);
        of_rate.map_or(STEP_MAX, |most| most.clamp(1, STEP_MAX))
    }

    /// Returns the pause after a step of so many dead letters.
    pub(super) fn pause(&mut self, done: usize, now: Instant) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let share = done as f64 / f64::from(rate.max(1));
        let next = self.began + Duration::from_secs_f64(share);
        self.began = next.max(now);
        next.saturating_duration_since(now)
    }
}
