//! Events of the pools: the feed that keeps the last ones for listeners, and the events of each
//! pool so far. Writing waits for no reader.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::watch;

use super::status::{PoolState, unix_seconds};

/// Maximum number of events kept for listeners that reconnect.
const KEPT_MAX: usize = 4096;

/// An event of a pool or of the feed.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
#[schema(as = Event)]
pub enum PoolEvent {
    /// A pool has started.
    PoolStarted {
        /// Name of the pool.
        pool: String,
    },
    /// A pool has ended.
    PoolEnded {
        /// Name of the pool.
        pool: String,
    },
    /// The state of a pool has changed.
    PoolState {
        /// Name of the pool.
        pool: String,
        /// The new state.
        state: PoolState,
        /// The previous state.
        before: PoolState,
        /// The cause, if known.
        reason: Option<String>,
    },
    /// The target number of workers of a pool has changed.
    Scaled {
        /// Name of the pool.
        pool: String,
        /// The new target.
        workers: usize,
        /// The previous target.
        before: usize,
    },
    /// A worker's process was started.
    WorkerStarted {
        /// Name of the pool.
        pool: String,
        /// The worker's slot.
        slot: usize,
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker's process has ended, or could not be started.
    WorkerEnded {
        /// Name of the pool.
        pool: String,
        /// The worker's slot.
        slot: usize,
        /// Process ID of the worker; null if no process could be started.
        pid: Option<u32>,
        /// Cause of the end.
        cause: String,
    },
    /// Messages were dead-lettered.
    DeadLetters {
        /// Name of the pool.
        pool: String,
        /// Number of messages since the last such event of the pool.
        count: u64,
    },
    /// Events are missing here: the listener was disconnected for too long or reads too slowly.
    Missed {
        /// Number of missing events; null if they were events of another daemon.
        count: Option<u64>,
    },
}

impl PoolEvent {
    /// Returns the pool; none for an event of the feed itself.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::PoolStarted { pool }
            | Self::PoolEnded { pool }
            | Self::PoolState { pool, .. }
            | Self::Scaled { pool, .. }
            | Self::WorkerStarted { pool, .. }
            | Self::WorkerEnded { pool, .. }
            | Self::DeadLetters { pool, .. } => Some(pool),
            Self::Missed { .. } => None,
        }
    }

    /// Returns the kind, as streams name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PoolStarted { .. } => "pool_started",
            Self::PoolEnded { .. } => "pool_ended",
            Self::PoolState { .. } => "pool_state",
            Self::Scaled { .. } => "scaled",
            Self::WorkerStarted { .. } => "worker_started",
            Self::WorkerEnded { .. } => "worker_ended",
            Self::DeadLetters { .. } => "dead_letters",
            Self::Missed { .. } => "missed",
        }
    }
}

/// An event with its number and its time.
#[derive(Debug, Clone, Serialize)]
pub struct FeedEntry {
    /// Identifier: the daemon's start and the number.
    pub id: String,
    /// Time of the event, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    at: SystemTime,
    /// The event.
    #[serde(flatten)]
    pub event: PoolEvent,
    /// Number, counted from 1 since the daemon's start.
    #[serde(skip)]
    pub number: u64,
}

/// The last events of all pools. Clones share them.
#[derive(Debug, Clone)]
pub struct EventFeed {
    /// Milliseconds since 1970 at the daemon's start, which distinguish its events from another
    /// daemon's.
    start: u128,
    kept: Arc<Mutex<VecDeque<Arc<FeedEntry>>>>,
    last: watch::Sender<u64>,
}

impl EventFeed {
    /// Creates the feed of a daemon that was started at that time.
    pub fn new(started_at: SystemTime) -> Self {
        let since = started_at.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            start: since.unwrap_or_default().as_millis(),
            kept: Arc::default(),
            last: watch::channel(0).0,
        }
    }

    /// Adds an event.
    pub fn push(&self, event: PoolEvent) {
        // The number is taken under the lock, so that events are in order.
        let mut kept = self.kept();
        let number = self.last() + 1;
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Arc::new(self.entry(number, event)));
        self.last.send_replace(number);
    }

    /// Returns the event after that number, or the number of missing events before it.
    pub fn after(&self, number: u64) -> Option<Arc<FeedEntry>> {
        let kept = self.kept();
        let at = kept.partition_point(|entry| entry.number <= number);
        let next = kept.get(at)?;
        let missing = next.number - number - 1;
        Some(match missing {
            0 => Arc::clone(next),
            _ => {
                let event = PoolEvent::Missed {
                    count: Some(missing),
                };
                Arc::new(self.entry(next.number - 1, event))
            }
        })
    }

    /// Returns the newest events before that number that fit, the newest first, at most `limit` of them.
    pub fn newest(
        &self,
        before: u64,
        limit: usize,
        fits: impl Fn(&PoolEvent) -> bool,
    ) -> Vec<Arc<FeedEntry>> {
        let kept = self.kept();
        let end = kept.partition_point(|entry| entry.number < before);
        let fitting = kept.range(..end).rev().filter(|entry| fits(&entry.event));
        fitting.take(limit).cloned().collect()
    }

    /// Returns the entry that reports missing events of another daemon, and the number to continue from.
    pub fn after_another(&self) -> Arc<FeedEntry> {
        let event = PoolEvent::Missed { count: None };
        Arc::new(self.entry(self.before_oldest(), event))
    }

    /// Returns the number before the oldest event kept.
    pub fn before_oldest(&self) -> u64 {
        let kept = self.kept();
        kept.front().map_or(self.last(), |oldest| oldest.number - 1)
    }

    /// Returns the number in an identifier of this daemon; `None` for another daemon's.
    pub fn number(&self, id: &str) -> Option<u64> {
        let (start, number) = id.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        let is_ours = start.parse() == Ok(self.start) && number <= self.last();
        is_ours.then_some(number)
    }

    /// Returns the number of the last event.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Returns a receiver that changes at each event.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn entry(&self, number: u64, event: PoolEvent) -> FeedEntry {
        FeedEntry {
            id: format!("{}-{number}", self.start),
            at: SystemTime::now(),
            event,
            number,
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<FeedEntry>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of one pool and the values last reported in them.
#[derive(Debug)]
pub struct PoolEvents {
    feed: EventFeed,
    pool: String,
    state: Cell<PoolState>,
    workers: Cell<Option<usize>>,
    dead: Cell<u64>,
}

impl PoolEvents {
    /// Creates the events of a pool that has reported none.
    pub fn new(feed: EventFeed, pool: &str) -> Self {
        Self {
            feed,
            pool: pool.to_owned(),
            state: Cell::new(PoolState::Starting),
            workers: Cell::default(),
            dead: Cell::default(),
        }
    }

    /// Reports the state if it has changed.
    pub(super) fn state(&self, state: PoolState, reason: impl FnOnce() -> Option<String>) {
        let before = self.state.replace(state);
        if before != state {
            self.feed.push(PoolEvent::PoolState {
                pool: self.pool.clone(),
                state,
                before,
                reason: reason(),
            });
        }
    }

    /// Reports the target number of workers if it has changed. The first one is no change.
    pub(super) fn workers(&self, workers: usize) {
        let before = self.workers.replace(Some(workers));
        if let Some(before) = before.filter(|before| *before != workers) {
            self.feed.push(PoolEvent::Scaled {
                pool: self.pool.clone(),
                workers,
                before,
            });
        }
    }

    /// Reports new dead letters, given their total.
    pub(super) fn dead(&self, dead: u64) {
        let count = dead - self.dead.replace(dead);
        if count > 0 {
            let pool = self.pool.clone();
            self.feed.push(PoolEvent::DeadLetters { pool, count });
        }
    }

    /// Reports that a worker was started.
    pub(super) fn worker_started(&self, slot: usize, pid: u32) {
        let pool = self.pool.clone();
        self.feed.push(PoolEvent::WorkerStarted { pool, slot, pid });
    }

    /// Reports that a worker has ended.
    pub(super) fn worker_ended(&self, slot: usize, pid: Option<u32>, cause: &str) {
        self.feed.push(PoolEvent::WorkerEnded {
            pool: self.pool.clone(),
            slot,
            pid,
            cause: cause.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed() -> EventFeed {
        EventFeed::new(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1234))
    }

    fn ended() -> PoolEvent {
        PoolEvent::PoolEnded { pool: "p".into() }
    }

    #[test]
    fn only_so_many_are_kept_and_what_is_missing_is_told() {
        let feed = feed();
        assert!(feed.after(0).is_none());
        for _ in 0..KEPT_MAX + 10 {
            feed.push(ended());
        }
        assert_eq!(feed.kept().len(), KEPT_MAX);
        let missed = feed.after(3).unwrap();
        assert_eq!(missed.event, PoolEvent::Missed { count: Some(7) });
        let next = feed.after(missed.number).unwrap();
        assert_eq!((next.number, next.id.as_str()), (11, "1234-11"));
        assert_eq!(next.event, ended());
        assert_eq!(feed.before_oldest(), 10);
        assert!(feed.after(feed.last()).is_none());
    }

    #[test]
    fn the_newest_are_read_backwards_in_pages() {
        let feed = feed();
        for pool in ["p", "q", "p", "p"] {
            feed.push(PoolEvent::PoolEnded { pool: pool.into() });
        }
        let numbers = |before, limit| -> Vec<u64> {
            let of_p = |event: &PoolEvent| event.pool() == Some("p");
            let newest = feed.newest(before, limit, of_p);
            newest.iter().map(|entry| entry.number).collect()
        };
        assert_eq!(numbers(u64::MAX, 2), [4, 3]);
        assert_eq!(numbers(3, 2), [1]);
        assert_eq!(numbers(0, 2), [0; 0]);
    }

    #[test]
    fn an_identifier_is_of_one_daemon() {
        let feed = feed();
        feed.push(ended());
        assert_eq!(feed.number("1234-1"), Some(1));
        assert_eq!(feed.number("1234-0"), Some(0));
        for other in ["1233-1", "1234-2", "1", "", "1234-", "-1"] {
            assert_eq!(feed.number(other), None, "{other}");
        }
        assert_eq!(feed.after_another().id, "1234-0");
    }

    #[test]
    fn each_change_is_told_once() {
        let feed = feed();
        let pool = PoolEvents::new(feed.clone(), "p");
        let none = || None;
        pool.state(PoolState::Starting, none);
        pool.workers(2);
        pool.dead(0);
        assert_eq!(feed.last(), 0);
        pool.state(PoolState::Paused, none);
        pool.state(PoolState::Running, none);
        pool.state(PoolState::Running, none);
        pool.workers(3);
        pool.dead(5);
        pool.dead(7);
        pool.worker_started(0, 8);
        pool.worker_ended(0, Some(8), "killed");
        let told: Vec<_> = feed.kept().iter().cloned().collect();
        let names: Vec<_> = told.iter().map(|entry| entry.event.name()).collect();
        let expected = [
            "pool_state",
            "pool_state",
            "scaled",
            "dead_letters",
            "dead_letters",
            "worker_started",
            "worker_ended",
        ];
        assert_eq!(names, expected);
        for entry in told {
            let shown = serde_json::to_value(&*entry).unwrap();
            assert_eq!(shown["event"], entry.event.name());
            assert_eq!(
                (&shown["id"], &shown["pool"]),
                (&entry.id.as_str().into(), &"p".into())
            );
        }
    }
}
