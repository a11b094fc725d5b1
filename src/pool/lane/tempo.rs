//! How fast a worker answers, taken from the moments at which its answers come. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::blame::Version;
use crate::config::model::PoolConfig;
use crate::pool::window;
use crate::pool::window::Pace;

/// How many messages a worker wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wants {
    /// So many it may have.
    pub(super) window: usize,
    /// So many are to be fetched for it.
    pub(super) prefetch: usize,
    /// So many it works on at once.
    pub(super) at_once: usize,
}

/// A worker's pace.
#[derive(Debug)]
pub(super) struct Tempo {
    pace: Pace,
    /// Answers that the pace does not know of yet.
    unpaced: u32,
    /// Since when the worker has been busy without an answer.
    busy_since: Instant,
}

impl Tempo {
    /// Of a worker that has not answered yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pace: Pace::default(),
            unpaced: 0,
            busy_since: now,
        }
    }

    /// It had nothing in hand, and has something now.
    pub(super) fn begins(&mut self, now: Instant) {
        self.busy_since = now;
    }

    /// It has answered once more.
    pub(super) fn answered(&mut self) {
        self.unpaced += 1;
    }

    /// All answers that are there have been taken in.
    pub(super) fn caught_up(&mut self, now: Instant) {
        if self.unpaced > 0 {
            self.pace.record(self.unpaced, now - self.busy_since);
            self.unpaced = 0;
            self.busy_since = now;
        }
    }

    /// How many messages it wants from a source that takes such turns.
    pub(super) fn wants(&self, version: Version, policy: &PoolConfig, turn: Duration) -> Wants {
        let (window, at_once) = match version {
            Version::Unknown => (1, 1),
            Version::One => (window::version1(policy.pipeline, &self.pace), 1),
            Version::Two { concurrency } => (concurrency, concurrency),
        };
        let prefetch = window::prefetch(policy.prefetch, window, &self.pace, turn);
        Wants {
            window,
            prefetch,
            at_once,
        }
    }
}
