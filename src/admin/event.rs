//! What may happen to the pools, as those who listen are told.

use serde::Serialize;

use crate::pool::status::PoolState;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// A pool is there.
    PoolStarted {
        /// The pool.
        pool: String,
    },
    /// A pool is gone.
    PoolEnded {
        /// The pool.
        pool: String,
    },
    /// A pool does otherwise.
    PoolState {
        /// The pool.
        pool: String,
        /// How it is now.
        state: PoolState,
        /// How it was.
        before: PoolState,
        /// Why, where that is known.
        reason: Option<String>,
    },
    /// A pool is to have another number of workers.
    Scaled {
        /// The pool.
        pool: String,
        /// So many.
        workers: usize,
        /// Instead of so many.
        before: usize,
    },
    /// A worker's process is there.
    WorkerStarted {
        /// The pool.
        pool: String,
        /// Its place.
        slot: usize,
        /// Its process.
        pid: u32,
    },
    /// A worker's process is gone.
    WorkerEnded {
        /// The pool.
        pool: String,
        /// Its place.
        slot: usize,
        /// Its process.
        pid: u32,
    },
    /// Messages were dead-lettered.
    DeadLetters {
        /// The pool.
        pool: String,
        /// How many since the last look.
        count: u64,
    },
}

impl Event {
    /// The kind, as the stream names it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::PoolStarted { .. } => "pool_started",
            Self::PoolEnded { .. } => "pool_ended",
            Self::PoolState { .. } => "pool_state",
            Self::Scaled { .. } => "scaled",
            Self::WorkerStarted { .. } => "worker_started",
            Self::WorkerEnded { .. } => "worker_ended",
            Self::DeadLetters { .. } => "dead_letters",
        }
    }
}
