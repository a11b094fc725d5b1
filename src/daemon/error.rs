//! How a daemon ends that does not end as it should.

use ganger_queue::source::SourceError;

/// Why the daemon ended otherwise than it should.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A source could not be opened.
    #[error("pool `{pool}` can't be started")]
    Start {
        /// The pool's name.
        pool: String,
        /// Why.
        #[source]
        source: Box<SourceError>,
    },
    /// The operating system would not give us a thread.
    #[error("no thread for pool `{pool}`")]
    Thread {
        /// The pool's name.
        pool: String,
        /// Its word.
        #[source]
        source: std::io::Error,
    },
    /// A pool failed.
    #[error("pool `{pool}` failed: {why}")]
    Pool {
        /// The pool's name.
        pool: String,
        /// What happened.
        why: String,
    },
}

/// An error with all that caused it, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
