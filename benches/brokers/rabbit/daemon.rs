//! The product on a queue of RabbitMQ.

use std::path::Path;

use miette::IntoDiagnostic;
use tempfile::TempDir;

use super::place::{Kind, Place, QUEUE};
use crate::common::machine::monotonic_nanos;
use crate::common::process::Daemon;
use crate::common::tally::Tally;
use crate::pool::{Pool, Workers};
use crate::watch::{Watch, Watched, seconds};

/// A daemon that reads the queue with so many workers.
pub(crate) struct Running {
    pub(crate) daemon: Daemon,
    pub(crate) tally: Tally,
    _directory: TempDir,
}

impl Running {
    /// Starts it on a queue of its own, and waits until every worker has connected and the first
    /// load has been worked off.
    pub(crate) fn start(
        place: &Place<'_>,
        kind: Kind,
        workers: Workers,
        prefetch: Option<usize>,
    ) -> miette::Result<Self> {
        place.declare(kind)?;
        let tally = Tally::open()?;
        let directory = directory()?;
        let config = config(place, workers, prefetch, &tally.path())?;
        let daemon = Daemon::start(directory.path(), &config, workers.count)?;
        place.fill(workers.warm_up())?;
        tally.wait_for(workers.warm_up())?;
        Ok(Self {
            daemon,
            tally,
            _directory: directory,
        })
    }
}

/// Measures how fast so many messages are worked off on a queue of its own.
pub(crate) fn measure(
    place: &Place<'_>,
    kind: Kind,
    workers: Workers,
    prefetch: u16,
    messages: usize,
) -> miette::Result<Watched> {
    let running = Running::start(place, kind, workers, Some(prefetch.into()))?;
    let Running { daemon, tally, .. } = &running;
    daemon.pause()?;
    place.fill(messages)?;
    let watch = Watch::begin(|| daemon.cpu_seconds(), || place.broker_seconds())?;
    daemon.resume()?;
    let last_nanos = tally.wait_for(messages)?;
    let watched = watch.end(messages, last_nanos)?;
    running.daemon.stop()?;
    place.wait_until_empty()?;
    Ok(watched)
}

/// How long it takes from the daemon's start until a worker has the message that waits.
pub(crate) fn start_seconds(place: &Place<'_>) -> miette::Result<f64> {
    let (tally, directory) = (Tally::open()?, directory()?);
    let config = config(place, Workers::rust(1), None, &tally.path())?;
    place.fill(1)?;
    let begun = monotonic_nanos();
    let daemon = Daemon::spawn(directory.path(), &config)?;
    let received = tally.wait_for(1)?;
    daemon.stop()?;
    Ok(seconds(received - begun))
}

fn directory() -> miette::Result<TempDir> {
    TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).into_diagnostic()
}

fn config(
    place: &Place<'_>,
    workers: Workers,
    prefetch: Option<usize>,
    tally: &Path,
) -> miette::Result<String> {
    let pool = Pool {
        queue: QUEUE.into(),
        workers,
        prefetch,
        tally: tally.into(),
        keys: String::new(),
    };
    let source = format!(
        "[sources.bench]\nkind = \"rabbitmq\"\nurl = \"{}\"\n",
        place.url()
    );
    Ok(format!("{source}\n{}", pool.toml()?))
}
