//! The product at work on a queue. This file does not know the queue's broker.

use miette::{IntoDiagnostic, WrapErr};
use tempfile::TempDir;

use crate::common::machine::monotonic_nanos;
use crate::common::process::Daemon;
use crate::common::tally::Tally;
use crate::pool::Pool;
use crate::watch::{Watch, Watched, seconds};

/// A queue or topic for a daemon to read.
pub(crate) trait Queue {
    fn name(&self) -> &str;

    /// Returns the configuration of its source.
    fn source(&self) -> String;

    /// Sends `messages` messages. All are stored when this returns.
    fn fill(&self, messages: usize) -> miette::Result<()>;

    /// Returns the broker's processor time so far.
    fn broker_seconds(&self) -> miette::Result<f64>;

    /// Checks that the consumer has settled everything.
    fn ensure_settled(&self) -> miette::Result<()>;
}

/// A daemon that has done some work. On drop it is killed.
pub(crate) struct Running {
    daemon: Daemon,
    tally: Tally,
    _directory: TempDir,
}

impl Running {
    /// Starts the daemon, and waits until every worker has connected and a first load is done, so that
    /// automatic windows have found their depth.
    pub(crate) fn start(queue: &dyn Queue, pool: &Pool) -> miette::Result<Self> {
        let (tally, directory) = (Tally::open()?, directory()?);
        let config = config(queue, pool, &tally)?;
        let program = pool.program.as_deref();
        let running = Self {
            daemon: Daemon::start(program, directory.path(), &config, pool.workers.count)?,
            tally,
            _directory: directory,
        };
        let first_load = pool.workers.warm_up();
        queue.fill(first_load)?;
        running.wait_for(first_load)?;
        Ok(running)
    }

    /// Waits until the workers have received `messages` messages. Returns the time of the last one, in
    /// nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn wait_for(&self, messages: usize) -> miette::Result<i64> {
        wait_for(messages, &self.tally, &self.daemon)
    }

    /// Returns the daemon's own resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> miette::Result<u64> {
        self.daemon.resident_kib()
    }

    /// Stops the daemon as a user would, and checks that it exits successfully.
    pub(crate) fn stop(self) -> miette::Result<()> {
        self.daemon.stop()
    }
}

/// Measures the throughput of `messages` messages.
pub(crate) fn measure(queue: &dyn Queue, pool: &Pool, messages: usize) -> miette::Result<Watched> {
    let running = Running::start(queue, pool)?;
    let daemon = &running.daemon;
    daemon.pause()?;
    queue.fill(messages)?;
    let watch = Watch::begin(|| daemon.cpu_seconds(), || queue.broker_seconds())?;
    daemon.resume()?;
    let last_nanos = running.wait_for(messages)?;
    let watched = watch.end(messages, last_nanos)?;
    running.stop()?;
    queue.ensure_settled()?;
    Ok(watched)
}

/// Returns the time from the daemon's start until a worker has the waiting message.
pub(crate) fn start_seconds(queue: &dyn Queue, pool: &Pool) -> miette::Result<f64> {
    let (tally, directory) = (Tally::open()?, directory()?);
    let config = config(queue, pool, &tally)?;
    queue.fill(1)?;
    let begun = monotonic_nanos();
    let daemon = Daemon::spawn(pool.program.as_deref(), directory.path(), &config)?;
    let received = wait_for(1, &tally, &daemon)?;
    daemon.stop()?;
    Ok(seconds(received - begun))
}

fn wait_for(messages: usize, tally: &Tally, daemon: &Daemon) -> miette::Result<i64> {
    let received = tally.wait_for(messages);
    received.wrap_err_with(|| format!("the daemon's log:\n{}", daemon.log().unwrap_or_default()))
}

/// Makes a directory on the disk that the project is built on.
fn directory() -> miette::Result<TempDir> {
    TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).into_diagnostic()
}

/// Returns the configuration that a user would write.
fn config(queue: &dyn Queue, pool: &Pool, tally: &Tally) -> miette::Result<String> {
    let source = queue.source();
    let pool = pool.toml(queue.name(), &tally.path())?;
    Ok(format!("[sources.bench]\n{source}\n{pool}"))
}
