//! Errors at the start of the admin API.

use std::io;
use std::net::SocketAddr;

/// Error at the start of the admin API.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is in use, or not available on this machine.
    #[error("listening on `{key}` failed: {address}: {source}")]
    Listen {
        /// The key of the configuration.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The socket can't be created.
    #[error("creating `admin.socket` failed: {path}: {source}")]
    Socket {
        /// The path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system gave no thread or event loop.
    #[error("spawning the admin API's thread failed: {0}")]
    Thread(#[from] io::Error),
}
