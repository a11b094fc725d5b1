//! Reasons that a source can't be opened, or has ended.

use std::io;

use crate::fault::SourceFault;

/// Reason that a source could not be opened, or ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The other end can't be used.
    #[error(transparent)]
    Unusable(#[from] SourceFault),
    /// The operating system could not start a thread.
    #[error("the thread for the source of pool `{pool}` could not be started: {error}")]
    Thread {
        /// The pool's name.
        pool: String,
        /// The system's error.
        error: io::Error,
    },
    /// A bug: the task panicked. Its claims are given back when the process ends.
    #[error("the source of pool `{pool}` panicked: {message}")]
    Panicked {
        /// The pool's name.
        pool: String,
        /// The panic's message.
        message: String,
    },
}
