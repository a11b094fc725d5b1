//! Causes of a failed start of a worker: steps that failed in the daemon, or in the child before it executed
//! the program.

use std::path::PathBuf;
use std::{fmt, io};

use nix::errno::Errno;

/// Reason that a worker process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The user database does not know the configured user.
    #[error("the worker's user must exist: `{name}`")]
    UnknownUser {
        /// Configured name.
        name: String,
    },
    /// The user database could not be queried.
    #[error("looking up the worker's user failed: {cause}: `{name}`")]
    UserLookup {
        /// Configured name.
        name: String,
        /// Error of the system.
        cause: Errno,
    },
    /// The pipe could not be made.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The program, an argument or the directory can't be passed to the kernel.
    #[error("a command must not contain NUL bytes: `{program}`")]
    Nul {
        /// Configured program.
        program: String,
    },
    /// The child could not be put under its limits, its user or its directory.
    #[error("{step} failed: {}: `{value}`", explain(*.cause))]
    Confine {
        /// Step that failed.
        step: Step,
        /// Configured value.
        value: String,
        /// Error of the system.
        cause: Errno,
    },
    /// The program could not be executed.
    #[error("starting a worker failed: {cause} (looked {place}): `{program}`")]
    Program {
        /// Configured program.
        program: String,
        /// Path or `PATH` that was searched.
        place: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// A part that the program needs to be executed is missing.
    #[error("starting a worker failed: {why}: `{program}`")]
    Incomplete {
        /// Configured program.
        program: String,
        /// Missing part.
        why: String,
    },
    /// The worker could not be obtained, or was started but can't be watched, and was killed.
    #[error("starting and watching a worker failed: {cause}: `{program}`")]
    Watch {
        /// Configured program.
        program: String,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Describes an error of the system, with its meaning for the configuration.
fn explain(cause: Errno) -> String {
    match cause {
        Errno::EPERM | Errno::EACCES => {
            format!("{}, the privileges are missing", cause.desc())
        }
        _ => cause.desc().to_owned(),
    }
}

/// A step of the child before it executes the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// Limits its memory.
    Memory = 1,
    /// Limits its open files.
    OpenFiles = 2,
    /// Sets its niceness.
    Niceness = 3,
    /// Changes to its user, with that user's groups.
    User = 4,
    /// Changes to its directory.
    Directory = 5,
    /// Asks the kernel to kill it when the thread that started it ends.
    DeathSignal = 6,
    /// Checks that this thread's process had not already ended.
    Orphaned = 7,
    /// Reports the process group to its guard.
    Guard = 8,
    /// Leaves the daemon's session and its terminal.
    Session = 9,
}

impl Step {
    pub(super) const ALL: [Self; 9] = [
        Self::Memory,
        Self::OpenFiles,
        Self::Niceness,
        Self::User,
        Self::Directory,
        Self::DeathSignal,
        Self::Orphaned,
        Self::Guard,
        Self::Session,
    ];

    /// Packs the step above the system's error number, which is less than 4096: the parent gets one number
    /// for an error of the child, and nothing else.
    pub(super) fn failed(self, cause: Errno) -> io::Error {
        io::Error::from_raw_os_error((self as i32) << STEP_SHIFT | cause as i32)
    }

    pub(super) fn unpack(error: &io::Error) -> Option<(Self, Errno)> {
        let packed = error.raw_os_error()?;
        let step = Self::ALL
            .into_iter()
            .find(|step| *step as i32 == packed >> STEP_SHIFT)?;
        Some((step, Errno::from_raw(packed & ((1 << STEP_SHIFT) - 1))))
    }
}

const STEP_SHIFT: u32 = 16;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "limiting a worker's memory",
            Self::OpenFiles => "limiting a worker's open files",
            Self::Niceness => "setting a worker's niceness",
            Self::User => "changing to a worker's user",
            Self::Directory => "entering a worker's directory",
            Self::DeathSignal => "tying a worker's life to the daemon's",
            Self::Orphaned => "checking that the daemon still lives",
            Self::Guard => "telling the guard of a process group",
            Self::Session => "giving a worker a session of its own",
        })
    }
}

/// Reason that there is no pipe.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// The system gave no random bytes for a name.
    #[error("making a random name for a worker's pipe failed: {0}")]
    Random(getrandom::Error),
    /// The socket could not be made.
    #[error("making a worker's pipe failed: {cause}: `{path}`")]
    Create {
        /// Intended path.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The socket could not be given to the worker's user.
    #[error("giving a worker's pipe to its user failed: {}: `{uid}`", explain(*.cause))]
    Chown {
        /// The worker's user.
        uid: u32,
        /// Error of the system.
        cause: Errno,
    },
    /// No connection could be accepted.
    #[error("waiting for a worker to connect failed: {cause}: `{path}`")]
    Accept {
        /// Path at which it listens.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// There was already a connection.
    #[error("a worker's pipe accepts one connection and has had it: `{path}`")]
    Taken {
        /// Path at which it listened.
        path: PathBuf,
    },
}
