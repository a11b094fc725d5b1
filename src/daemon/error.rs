//! Errors with which a daemon ends.

use ganger_queue::source::SourceError;

/// Error with which the daemon ends.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A source could not be opened.
    #[error("starting pool `{pool}` failed")]
    Start {
        /// The pool's name.
        pool: String,
        /// The cause.
        #[source]
        source: Box<SourceError>,
    },
    /// The operating system refused to create a thread.
    #[error("spawning a thread for pool `{pool}` failed")]
    Thread {
        /// The pool's name.
        pool: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A pool failed.
    #[error("pool `{pool}` failed: {why}")]
    Pool {
        /// The pool's name.
        pool: String,
        /// The cause.
        why: String,
    },
}

/// Formats an error with all its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
