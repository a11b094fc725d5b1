//! When the rows that wait are counted, for a pool whose number of workers follows that: now and
//! then, and seldom where it takes long.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::model::Workers;

/// Beyond so many rows it makes no difference how many more there are.
pub(super) const COUNTED_MAX: u32 = 20_000;
/// Of the time no more than such a part is spent on counting.
const PART_OF_TIME: u32 = 200;

/// When the rows are counted next.
#[derive(Debug, Default)]
pub(super) struct Depth {
    /// None while the pool does not want to know.
    next: Option<Instant>,
}

impl Depth {
    /// When they are to be counted next, if the pool wants to know.
    pub(super) fn next(&self, workers: &Workers) -> Option<Instant> {
        workers.range()?;
        Some(self.next.unwrap_or_else(Instant::now))
    }

    /// Whether they are to be counted now.
    pub(super) fn is_due(&self, workers: &Workers, now: Instant) -> bool {
        workers.range().is_some() && self.next.is_none_or(|next| next <= now)
    }

    /// They have been counted, which took so long.
    pub(super) fn counted(&mut self, workers: &Workers, now: Instant, took: Duration) {
        let every = workers.range().map(|range| range.look_every());
        self.next = every.map(|every| now + every.max(PART_OF_TIME * took));
    }

    /// Whether the pool wants to know no more, and that is news.
    pub(super) fn ceases(&mut self, workers: &Workers) -> bool {
        workers.range().is_none() && self.next.take().is_some()
    }
}
