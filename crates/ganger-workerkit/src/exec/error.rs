//! Errors that end the worker.

use std::io;
use std::path::PathBuf;

use ganger_protocol::{DecodeError, FrameError};

/// Error that ends the worker.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The program does not exist, or is not executable.
    #[error("{0}")]
    Program(String),
    /// It was not started by a daemon.
    #[error(
        "stdin must be a pipe on which a daemon writes where to connect: `ganger exec` is a pool's \
         command"
    )]
    NoDaemon,
    /// A resource that every message needs is unavailable.
    #[error("{what}: {cause}")]
    System {
        /// The resource.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The daemon's pipe can't be opened.
    #[error("connecting to the daemon failed: {cause}: `{}`", path.display())]
    Connect {
        /// The path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The daemon's pipe broke.
    #[error("the pipe to the daemon broke: {0}")]
    Broken(io::Error),
    /// A frame of the daemon has an impossible length.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame of the daemon can't be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The program could be started before and can no longer be started.
    #[error("the program can no longer be started: {0}")]
    Unstartable(String),
    /// The guard of the programs' process groups has ended.
    #[error("the guard of the programs' process groups has ended")]
    Unguarded,
}

impl ExecError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}
