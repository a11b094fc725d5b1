//! What ends a worker, and what a handler gets when something can't be sent.

use std::{fmt, io};

/// What went wrong in a worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// This process was not started by ganger, or an option is out of its range.
    Start(String),
    /// The pipe can't be opened.
    Io(io::Error),
    /// What the daemon, or what pretends to be one, has sent is against the protocol.
    Protocol(String),
    /// This can't be sent: it is too large, say, or its message is over.
    Output(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(reason) | Self::Protocol(reason) | Self::Output(reason) => {
                f.write_str(reason)
            }
            Self::Io(error) => write!(f, "the pipe can't be opened: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Start(_) | Self::Protocol(_) | Self::Output(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Given up because the daemon asks for it: see [`Task::check`](crate::Task::check). A handler that
/// returns it answers a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {}
