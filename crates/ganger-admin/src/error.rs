//! Why the admin side can't be started.

use std::io;
use std::net::SocketAddr;

/// Why the admin side can't be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is another's, or not ours.
    #[error("`{key}` can't be listened on: {address}: {source}")]
    Listen {
        /// The key of the configuration.
        key: &'static str,
        /// Where.
        address: SocketAddr,
        /// The system's word.
        source: io::Error,
    },
    /// The socket can't be made.
    #[error("`admin.socket` can't be made: {path}: {source}")]
    Socket {
        /// Where.
        path: String,
        /// The system's word.
        source: io::Error,
    },
    /// The operating system gave no thread or event loop.
    #[error("no thread for the admin API: {0}")]
    Thread(#[from] io::Error),
}
