//! When the rows that wait are counted: now and then, and seldom where it takes long.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::table::Waiting;
use ganger_config::model::Workers;
use ganger_queue::backlog::Oldest;
use ganger_queue::delivery::Backlog;

/// Beyond so many rows it makes no difference how many more there are.
pub(super) const COUNTED_MAX: u32 = 100_000;
/// How often rows are counted for people; a pool whose number of workers follows the load asks more often.
const EVERY: Duration = Duration::from_secs(10);
/// Of the time no more than such a part is spent on counting, as long as that comes to less than this pause.
const PART_OF_TIME: u32 = 200;
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// When the rows are counted next, and since when they wait.
#[derive(Debug)]
pub(super) struct Depth {
    next: Instant,
    oldest: Oldest,
}

impl Depth {
    /// Counted for the first time at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            oldest: Oldest::default(),
        }
    }

    /// When they are to be counted next.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// They have been counted, which took so long.
    pub(super) fn counted(&mut self, workers: &Workers, now: Instant, took: Duration) {
        let every = workers.range().map_or(EVERY, |range| range.look_every());
        let pause = (PART_OF_TIME * took).min(PAUSE_MAX);
        self.next = now + every.min(EVERY).max(pause);
    }

    /// A claim has found none that it could have.
    pub(super) fn none_waits(&mut self) {
        self.oldest.is_empty(SystemTime::now());
    }

    /// What is told of those that were counted.
    pub(super) fn backlog(&mut self, waiting: Waiting) -> Backlog {
        let now = SystemTime::now();
        let sent = waiting.oldest.and_then(|age| now.checked_sub(age));
        Backlog {
            depth: waiting.count,
            is_limit: waiting.is_limit,
            oldest: self.oldest.since(waiting.count, sent, now),
        }
    }

    /// They are counted at once, by new rules.
    pub(super) fn again(&mut self, now: Instant) {
        self.next = now;
    }
}
