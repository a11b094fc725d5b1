//! The product on its queues. It is running, its workers are connected, and it has processed a first load, so
//! that one-time work is not in the figures. It is stopped by SIGSTOP while its queues are filled. The
//! interval begins with SIGCONT and ends when the last row is gone.

use miette::{IntoDiagnostic, WrapErr, miette};
use tempfile::TempDir;

use crate::common::machine::monotonic_nanos;
use crate::common::process;
use crate::common::tally::Tally;
use crate::server::{Database, LOOK_OFTEN, LOOK_SELDOM, Load, Server};
use crate::setup::Setup;
use crate::watch::{Watch, Watched};

/// Number of messages that is enough for each worker to be recognised as fast.
const FIRST_LOAD_EACH: usize = 200;

/// The daemon on a database, or several with the same configuration, which share its queues. On drop they are
/// killed.
pub(crate) struct Daemon {
    processes: Vec<process::Daemon>,
    /// Receives the workers' reports of received messages, if they make any.
    tally: Option<Tally>,
    setup: Setup,
    _directories: Vec<TempDir>,
}

impl Daemon {
    /// Starts the daemon, and waits until every worker has connected and a first load is done.
    pub(crate) fn start(database: &Database<'_>, setup: &Setup) -> miette::Result<Self> {
        Self::start_with(Some(Tally::open()?), database, setup, 1)
    }

    /// Starts `count` such daemons.
    pub(crate) fn start_several(
        database: &Database<'_>,
        setup: &Setup,
        count: usize,
    ) -> miette::Result<Self> {
        Self::start_with(None, database, setup, count)
    }

    /// Starts a daemon whose workers do not report received messages.
    pub(crate) fn start_silent(database: &Database<'_>, setup: &Setup) -> miette::Result<Self> {
        Self::start_several(database, setup, 1)
    }

    fn start_with(
        tally: Option<Tally>,
        database: &Database<'_>,
        setup: &Setup,
        count: usize,
    ) -> miette::Result<Self> {
        let setup = Setup {
            tally: tally.as_ref().map(Tally::path),
            ..setup.clone()
        };
        let config = setup.config(database.url())?;
        let workers = setup.workers_total();
        let directories = (0..count).map(|_| directory());
        let directories = directories.collect::<Result<Vec<_>, _>>()?;
        let processes = directories.iter().map(TempDir::path);
        let processes = processes.map(|at| process::Daemon::start(None, at, &config, workers));
        let daemon = Self {
            processes: processes.collect::<Result<_, _>>()?,
            tally,
            setup,
            _directories: directories,
        };
        let first = Load {
            messages: FIRST_LOAD_EACH * workers * count,
            body_bytes: 100,
        };
        database.fill(&daemon.setup.queues(), first)?;
        daemon.wait_until_done(database, first)?;
        Ok(daemon)
    }

    /// Measures the processing of a load.
    pub(crate) fn run(&self, database: &Database<'_>, load: Load) -> miette::Result<Measured> {
        self.pause()?;
        database.fill(&self.setup.queues(), load)?;
        let writes = database.writes()?;
        let watch = Watch::begin(|| self.cpu_seconds(), || database.server.cpu_seconds())?;
        self.resume()?;
        self.wait_until_done(database, load)?;
        let watched = watch.end(load.messages, monotonic_nanos())?;
        Ok(Measured {
            watched,
            messages_per_write: per_write(load, database.writes()? - writes),
        })
    }

    /// Waits until all messages are done. If the workers report received messages, the table is polled only
    /// once all have been received.
    fn wait_until_done(&self, database: &Database<'_>, load: Load) -> miette::Result<()> {
        if self.tally.is_none() {
            return database.wait_until_done(LOOK_SELDOM);
        }
        self.wait_for(load.messages)?;
        database.wait_until_done(LOOK_OFTEN)
    }

    /// Waits until the workers have received `messages` messages. Returns the time of the last one, in
    /// nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn wait_for(&self, messages: usize) -> miette::Result<i64> {
        let tally = self
            .tally
            .as_ref()
            .ok_or_else(|| miette!("they don't tell"))?;
        let received = tally.wait_for(messages);
        received.wrap_err_with(|| {
            let logs = self.processes.iter().map(process::Daemon::log);
            let logs: Vec<String> = logs.map(Result::unwrap_or_default).collect();
            format!("the daemon's log:\n{}", logs.concat())
        })
    }

    /// Returns the daemon's own processor time so far, without its workers.
    pub(crate) fn cpu_seconds(&self) -> miette::Result<f64> {
        self.processes
            .iter()
            .map(process::Daemon::cpu_seconds)
            .sum()
    }

    /// Returns the daemon's own resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> miette::Result<u64> {
        self.processes
            .iter()
            .map(process::Daemon::resident_kib)
            .sum()
    }

    /// Stops the processes by SIGSTOP.
    pub(crate) fn pause(&self) -> miette::Result<()> {
        self.processes.iter().try_for_each(process::Daemon::pause)
    }

    /// Continues the processes.
    pub(crate) fn resume(&self) -> miette::Result<()> {
        self.processes.iter().try_for_each(process::Daemon::resume)
    }

    /// Stops the daemon as a user would, and checks that it exits successfully.
    pub(crate) fn stop(self) -> miette::Result<()> {
        self.processes
            .into_iter()
            .try_for_each(process::Daemon::stop)
    }
}

/// Results of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) watched: Watched,
    /// Average number of messages per transaction.
    pub(crate) messages_per_write: f64,
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer of both")]
pub(crate) fn per_write(load: Load, writes: i64) -> f64 {
    load.messages as f64 / writes.max(1) as f64
}

/// Measures a load on a daemon and a database of its own.
pub(crate) fn measure(server: &Server, setup: &Setup, load: Load) -> miette::Result<Measured> {
    let database = server.database()?;
    let daemon = Daemon::start(&database, setup)?;
    let measured = daemon.run(&database, load)?;
    daemon.stop()?;
    Ok(measured)
}

/// Makes a directory on the disk that the project is built on.
fn directory() -> miette::Result<TempDir> {
    TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).into_diagnostic()
}
