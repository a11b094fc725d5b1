//! The product on a topic of Kafka.

use std::path::Path;

use miette::IntoDiagnostic;
use tempfile::TempDir;

use super::flow::Order;
use super::topic::Topic;
use crate::common::machine::monotonic_nanos;
use crate::common::process::Daemon;
use crate::common::tally::Tally;
use crate::pool::{Pool, Workers};
use crate::watch::{Watch, Watched, seconds};

/// The group of every daemon; each has a topic of its own.
const GROUP: &str = "ganger";

/// A daemon that reads the topic with so many workers.
pub(crate) struct Running {
    daemon: Daemon,
    pub(crate) tally: Tally,
    _directory: TempDir,
}

impl Running {
    /// Starts it, and waits until every worker has connected and the first load has been worked off.
    pub(crate) fn start(topic: &Topic<'_>, order: Order, workers: Workers) -> miette::Result<Self> {
        let tally = Tally::open()?;
        let directory = directory()?;
        let config = config(topic, order, workers, &tally.path())?;
        let daemon = Daemon::start(directory.path(), &config, workers.count)?;
        topic.fill(workers.warm_up())?;
        tally.wait_for(workers.warm_up())?;
        Ok(Self {
            daemon,
            tally,
            _directory: directory,
        })
    }
}

/// Measures how fast so many messages are worked off.
pub(crate) fn measure(
    topic: &Topic<'_>,
    order: Order,
    workers: Workers,
    messages: usize,
) -> miette::Result<Watched> {
    let running = Running::start(topic, order, workers)?;
    let Running { daemon, tally, .. } = &running;
    daemon.pause()?;
    topic.fill(messages)?;
    let watch = Watch::begin(|| daemon.cpu_seconds(), || topic.broker_seconds())?;
    daemon.resume()?;
    let last_nanos = tally.wait_for(messages)?;
    let watched = watch.end(messages, last_nanos)?;
    running.daemon.stop()?;
    topic.ensure_committed(GROUP)?;
    Ok(watched)
}

/// How long it takes from the daemon's start until a worker has the message that waits.
pub(crate) fn start_seconds(topic: &Topic<'_>) -> miette::Result<f64> {
    let (tally, directory) = (Tally::open()?, directory()?);
    let config = config(topic, Order::Key, Workers::rust(1), &tally.path())?;
    topic.fill(1)?;
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
    topic: &Topic<'_>,
    order: Order,
    workers: Workers,
    tally: &Path,
) -> miette::Result<String> {
    let pool = Pool {
        queue: topic.name.clone(),
        workers,
        prefetch: None,
        tally: tally.into(),
        keys: format!("order = \"{}\"\n", order.describe()),
    };
    let source = format!(
        "[sources.bench]\nkind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"{GROUP}\"\n\
         consumer = {{ \"auto.offset.reset\" = \"earliest\" }}\n",
        topic.address()
    );
    Ok(format!("{source}\n{}", pool.toml()?))
}
