//! Why there is no worker: what could not be done for it, or not by it before it became the program.

use std::path::PathBuf;
use std::{fmt, io};

use nix::errno::Errno;

/// Why a worker process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The user database does not know the configured user.
    #[error("the worker's user must exist: `{name}`")]
    UnknownUser {
        /// The configured name.
        name: String,
    },
    /// The user database could not be asked.
    #[error("looking up the worker's user failed: {cause}: `{name}`")]
    UserLookup {
        /// The configured name.
        name: String,
        /// The system's word.
        cause: Errno,
    },
    /// The pipe could not be made.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The program, an argument or the directory can't be told to the kernel.
    #[error("a command must not contain NUL bytes: `{program}`")]
    Nul {
        /// The configured program.
        program: String,
    },
    /// The child could not be put under its limits, its user or its directory.
    #[error("{step} failed: {}: `{value}`", explain(*.cause))]
    Confine {
        /// What was tried.
        step: Step,
        /// The configured value.
        value: String,
        /// The system's word.
        cause: Errno,
    },
    /// The program could not be executed.
    #[error("starting a worker failed: {cause} (looked {place}): `{program}`")]
    Program {
        /// The configured program.
        program: String,
        /// Where it was looked for.
        place: String,
        /// The system's word.
        cause: io::Error,
    },
    /// What the program needs to be executed is not there.
    #[error("starting a worker failed: {why}: `{program}`")]
    Incomplete {
        /// The configured program.
        program: String,
        /// What is missing.
        why: String,
    },
    /// It could not be had, or was started and can't be watched; then it was killed.
    #[error("starting and watching a worker failed: {cause}: `{program}`")]
    Watch {
        /// The configured program.
        program: String,
        /// The system's word.
        cause: io::Error,
    },
}

/// An error of the system, with what it means for the configuration.
fn explain(cause: Errno) -> String {
    match cause {
        Errno::EPERM | Errno::EACCES => {
            format!("{}, the privileges are missing", cause.desc())
        }
        _ => cause.desc().to_owned(),
    }
}

/// A step of the child before it becomes the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// Limits its memory.
    Memory = 1,
    /// Limits its open files.
    OpenFiles = 2,
    /// Sets its niceness.
    Niceness = 3,
    /// Becomes its user, with that user's groups.
    User = 4,
    /// Goes to its directory.
    Directory = 5,
    /// Asks the kernel to die with the thread that started it.
    DeathSignal = 6,
    /// Checks that this thread's process was not already gone.
    Orphaned = 7,
    /// Tells who guards its process group.
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

    /// An error of the child reaches the parent as one number and nothing else, so the step is
    /// packed in above the system's error number, which is less than 4096.
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

/// Why there is no pipe.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    /// The system gave no random bytes for a name.
    #[error("making a random name for a worker's pipe failed: {0}")]
    Random(getrandom::Error),
    /// The socket could not be made.
    #[error("making a worker's pipe failed: {cause}: `{path}`")]
    Create {
        /// Where it was to be.
        path: PathBuf,
        /// The system's word.
        cause: io::Error,
    },
    /// The socket could not be given to the worker's user.
    #[error("giving a worker's pipe to its user failed: {}: `{uid}`", explain(*.cause))]
    Chown {
        /// The worker's user.
        uid: u32,
        /// The system's word.
        cause: Errno,
    },
    /// No connection could be taken.
    #[error("waiting for a worker to connect failed: {cause}: `{path}`")]
    Accept {
        /// Where it listens.
        path: PathBuf,
        /// The system's word.
        cause: io::Error,
    },
    /// There was a connection already.
    #[error("a worker's pipe takes one connection and had it: `{path}`")]
    Taken {
        /// Where it listened.
        path: PathBuf,
    },
}
