//! Why there is no source, or none any more.

use std::io;

use crate::fault::SourceFault;

/// Why a source could not be opened, or ended otherwise than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// What is at the other end can't be used.
    #[error(transparent)]
    Unusable(#[from] SourceFault),
    /// The operating system gave no thread.
    #[error("the thread for the source of pool `{pool}` could not be started: {error}")]
    Thread {
        /// The pool's name.
        pool: String,
        /// The system's word.
        error: io::Error,
    },
    /// A bug: the task died. Its claims are given back when the process ends.
    #[error("the source of pool `{pool}` panicked: {what}")]
    Panicked {
        /// The pool's name.
        pool: String,
        /// The panic's message.
        what: String,
    },
}
