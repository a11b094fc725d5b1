//! One worker process: started in a session of its own under its limits and user, connected over the pipe
//! that version 1 workers expect, read on stdout and stderr, and distinguished from its neighbours when it
//! ends.
//!
//! Nothing here knows messages or their outcome; the lane drives it. Everything runs on the pool's own
//! thread, in a current-thread runtime inside a `LocalSet`, except for the start of processes, which has a
//! thread of its own.
//!
//! Linux 5.3 or later is required, for pidfds.

mod account;
pub mod autopsy;
pub mod connection;
pub mod error;
pub mod exit;
mod flood;
pub mod launch;
pub mod leader;
pub mod lines;
pub mod notes;
pub mod open_files;
pub mod orphans;
pub mod output;
mod peer;
pub mod pipe;
pub mod process;
pub mod run_queue;
pub mod spawner;
pub mod subject;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod usage;

use std::sync::Arc;

/// Identity of a worker, for its environment and the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The worker's slot in the pool, counted from 0.
    pub slot: usize,
}

/// Environment variables that a worker gets in addition to those of its pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Introduction {
    /// All variables that the protocol lists.
    #[default]
    Full,
    /// All of them, as from a daemon that supports version 1 only.
    Version1,
    /// None: it gets only the pipe's name on stdin.
    NameOnly,
}
