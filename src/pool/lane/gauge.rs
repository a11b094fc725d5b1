//! What the pool sees of a lane, and what the lanes of a pool share. All of it lives on the pool's
//! thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::unread::Unread;
use crate::config::model::PoolConfig;
use crate::delivery::Publish;
use crate::metrics::Counters;
use crate::pool::breaker::Breaker;
use crate::shutdown::Phase;
use crate::worker::spawner::Spawner;

/// What the lanes of a pool share. All of them run on the pool's thread.
#[derive(Debug)]
pub struct Shared {
    /// Starts the processes.
    pub spawner: Spawner,
    /// The pool's rules; a reload replaces them.
    pub policy: RefCell<Arc<PoolConfig>>,
    /// What is counted.
    pub counters: Counters,
    /// What their attempts tell of what the workers depend on.
    pub breaker: RefCell<Breaker>,
    /// How often the source has lost claims: each time lanes look which of their messages are void.
    pub losses: Cell<u64>,
    /// Wakes the pool when a lane has room again.
    pub room: Notify,
    /// The slots of the lanes that show something new.
    pub changed: RefCell<Vec<usize>>,
    /// What workers that left had not read.
    pub unread: RefCell<Unread>,
    /// Where emits go.
    pub publishes: mpsc::Sender<Publish>,
    /// Tells the pool that the lane in a slot has connected.
    pub connected: mpsc::Sender<usize>,
}

impl Shared {
    /// The lane in that slot shows something new.
    pub fn list(&self, slot: usize, gauge: &Gauge) {
        if !gauge.is_listed.replace(true) {
            self.changed.borrow_mut().push(slot);
        }
    }

    /// The pool's rules now.
    pub fn policy(&self) -> Arc<PoolConfig> {
        self.policy.borrow().clone()
    }
}

/// What the pool sees of a lane: how much it has and how much it may have.
#[derive(Debug, Default)]
pub struct Gauge {
    /// The pool has been told that it shows something new, and has not looked yet.
    pub is_listed: Cell<bool>,
    /// It takes messages.
    pub open: Cell<bool>,
    /// Messages given to it and not settled.
    pub load: Cell<usize>,
    /// Their bodies' size together, in bytes.
    pub bytes: Cell<usize>,
    /// How many it may have.
    pub window: Cell<usize>,
    /// How many are fetched for it.
    pub prefetch: Cell<usize>,
    /// It has a message that nothing may be added to.
    pub alone: Cell<bool>,
    /// Its process.
    pub pid: Cell<Option<u32>>,
    /// How far its stop has come.
    pub phase: Cell<Phase>,
    /// Since when its current message is worked on.
    pub busy_since: Cell<Option<Instant>>,
    /// Messages that it has answered.
    pub answered: Cell<u64>,
    /// Those that are no failure.
    pub succeeded: Cell<u64>,
    /// It is new in a rolling restart and has not shown yet that it works.
    pub on_trial: Cell<bool>,
    /// What its worker last said of its progress.
    pub progress: RefCell<Option<String>>,
}
