//! The configuration as the rest of the house sees it: validated, with every default filled in and
//! every duration and size in its unit. Nothing here reads a file or reports a problem.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::redact::redact;
use crate::backoff::Backoff;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What concerns the daemon itself.
    pub daemon: Daemon,
    /// The connections, by name.
    pub sources: BTreeMap<String, Source>,
    /// The worker pools, in the order of the file.
    pub pools: Vec<Arc<Pool>>,
}

/// `[daemon]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Daemon {
    /// How long work in flight may take to finish when the daemon is asked to stop.
    pub drain_timeout: Duration,
    /// Which log records are kept, in the syntax of tracing's `EnvFilter`.
    pub log_level: String,
    /// How log records look.
    pub log_format: LogFormat,
}

/// How log records look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON else.
    Auto,
    /// A line of text each.
    Text,
    /// A JSON object each.
    Json,
}

/// `[sources.NAME]`: a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A database table.
    Table(TableSource),
}

/// A table queue.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSource {
    /// Where the database is.
    pub database: Database,
    /// The longest time between two looks at the table when nothing else woke us.
    pub poll_interval: Duration,
    /// How long a daemon's heartbeat may stand still before the others take its messages.
    pub lease: Duration,
}

/// Which database holds the table.
#[derive(Debug, Clone, PartialEq)]
pub enum Database {
    /// SQLite, embedded: the path of its file.
    Sqlite(PathBuf),
}

/// `[[pools]]`: workers of one kind on one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name, unique.
    pub name: String,
    /// The name of the connection it reads from.
    pub source: String,
    /// The queue it reads.
    pub queue: Arc<str>,
    /// How many worker processes it keeps.
    pub workers: usize,
    /// How a worker is started.
    pub command: Command,
    /// How many messages are fetched per worker, those it works on included.
    pub prefetch: Prefetch,
    /// How many frames may be in a version 1 worker's pipe.
    pub pipeline: Pipeline,
    /// The longest frame in either direction, in bytes, the length not counted.
    pub frame_bytes_max: usize,
    /// When a worker is asked to stop working on a message; none for never.
    pub timeout: Option<Duration>,
    /// How much later it is killed.
    pub timeout_grace: Duration,
    /// How long a busy worker may be silent; none for as long as it likes.
    pub stall_timeout: Option<Duration>,
    /// From the start of the process until it has connected.
    pub start_timeout: Duration,
    /// From `__quit__` to SIGTERM, and from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// A message that killed so many workers is dead, attempts left or not.
    pub crashes_max: u32,
    /// What becomes of a message whose attempt failed.
    pub retry: Retry,
    /// When a healthy worker is replaced by a fresh one.
    pub recycle: Recycle,
    /// How long a crashed worker's place stays empty.
    pub restart: Backoff,
    /// Statuses that mean something else in this pool.
    pub statuses: BTreeMap<i64, StatusMeaning>,
}

/// How a worker process is started. Its `Debug` shows the names of its variables, not their
/// values: those may be secrets.
#[derive(Clone, PartialEq)]
pub struct Command {
    /// The program: a path, or a name looked up in the worker's `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The whole environment, resolved: what is inherited, then what the file sets. The
    /// variables that tell the worker about its pool come on top when it is started.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in; none for the daemon's own.
    pub cwd: Option<PathBuf>,
    /// The user it runs as; none for the daemon's own.
    pub user: Option<String>,
    /// What the kernel holds it to.
    pub limits: Limits,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field(
                "args",
                &self.args.iter().map(|arg| redact(arg)).collect::<Vec<_>>(),
            )
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("user", &self.user)
            .field("limits", &self.limits)
            .finish()
    }
}

/// What the kernel holds a worker to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most private memory, in bytes (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// The most open files (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// The niceness, -20 to 19.
    pub cpu_nice: Option<i32>,
}

/// `prefetch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// By the worker's window: enough that the next batch is there when this one is done.
    Auto,
    /// So many, but never fewer than the worker's window.
    PerWorker(usize),
}

/// `pipeline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// As many as the worker empties in about a millisecond; 1 for slow tasks.
    Auto,
    /// So many.
    Fixed(usize),
}

/// `retry`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How many attempts a message has, the first included.
    pub attempts: u32,
    /// How long it waits between them. Its `max` also bounds what a worker may ask for.
    pub backoff: Backoff,
}

/// `recycle`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recycle {
    /// After so many messages.
    pub tasks: Option<u64>,
    /// At such an age.
    pub age: Option<Duration>,
    /// At such a resident size, in bytes.
    pub memory_bytes: Option<u64>,
    /// The share of `tasks` and `age` that chance takes off, 0 to 1, so that workers that were
    /// started together do not leave together.
    pub jitter: f64,
}

/// What `[pools.statuses]` may make of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMeaning {
    /// As 200.
    Done,
    /// As 201.
    Reply,
    /// As 300.
    Requeue,
    /// As 503.
    Retry,
    /// As 400.
    Reject,
}
