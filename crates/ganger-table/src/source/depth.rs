//! Schedule for counting the waiting rows: regularly, and rarely where counting takes long.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::table::WaitingRows;
use ganger_config::model::Workers;
use ganger_queue::backlog::Oldest;
use ganger_queue::delivery::Backlog;

/// Limit of the count: beyond it the exact number makes no difference.
pub(super) const COUNTED_MAX: u32 = 100_000;
/// Interval between counts for display; a pool that scales with the load asks for shorter ones.
const EVERY: Duration = Duration::from_secs(10);
/// Divisor of the share of time that is spent on counting. It sets the pause after a count, up to
/// `PAUSE_MAX`.
const PART_OF_TIME: u32 = 200;
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time of the next count, and time since which rows have waited.
#[derive(Debug)]
pub(super) struct Depth {
    next: Instant,
    oldest: Oldest,
}

impl Depth {
    /// Makes a schedule whose first count is at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            oldest: Oldest::default(),
        }
    }

    /// Returns the time of the next count.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Records a count that took `took`, and plans the next.
    pub(super) fn counted(&mut self, workers: &Workers, now: Instant, took: Duration) {
        let every = workers.range().map_or(EVERY, |range| range.look_every());
        let pause = (PART_OF_TIME * took).min(PAUSE_MAX);
        self.next = now + every.min(EVERY).max(pause);
    }

    /// Records that a claim found no row that could be claimed.
    pub(super) fn record_empty(&mut self) {
        self.oldest.is_empty(SystemTime::now());
    }

    /// Returns the backlog to report for a count.
    pub(super) fn backlog(&mut self, waiting: WaitingRows) -> Backlog {
        let now = SystemTime::now();
        let sent = waiting.oldest.and_then(|age| now.checked_sub(age));
        Backlog {
            depth: waiting.count,
            is_limit: waiting.is_limit,
            oldest: self.oldest.since(waiting.count, sent, now),
        }
    }

    /// Plans the next count at once, for new rules.
    pub(super) fn count_now(&mut self, now: Instant) {
        self.next = now;
    }
}
