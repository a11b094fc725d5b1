//! Environment of the demo: a queue of its own, in a SQLite file or where the user wants it, and a daemon
//! with one pool on it.

use crate::kinds;
use std::any::Any;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use miette::{IntoDiagnostic, miette};
use tokio::sync::mpsc;

use super::super::common::{ConfigFile, environment};
use super::super::interfaces;
use super::worker::{CONCURRENCY, RECORD};
use crate::daemon::{Daemon, DaemonError};
use ganger_config as config;
use ganger_config::model::Config;
use ganger_pool::overview::Overview;
use ganger_pool::request::Request;
use ganger_pool::status::PoolStatus;
use ganger_queue::client::{Client, DeadFilter};
use ganger_queue::delivery::Outgoing;

/// Work of a message: the primes below numbers from here on, about a millisecond's work.
pub(super) const PRIMES_BELOW: u32 = 20_000;
/// Prefix of the names of the tables if they are not in a file of their own.
const PREFIX: &str = "ganger_demo_";
/// Number of messages that are sent in one transaction.
const SEND_BATCH: usize = 500;
/// Time without any progress after which the demo gives up.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Settings that differ between the demo's parts.
pub(super) struct Plan<'a> {
    pub(super) ground: &'a TableLocation,
    /// Name of the queue, unique to this run.
    pub(super) queue: &'a str,
    pub(super) workers: u32,
    /// The user's own worker; the built-in one if it is empty.
    pub(super) command: &'a [String],
    /// File in which the built-in worker records the messages it has done.
    pub(super) record: &'a Path,
    /// Number of messages that the built-in worker takes at once.
    pub(super) concurrency: u32,
    /// Schedules that send its messages; none if they are sent by the demo itself.
    pub(super) schedules: Option<Schedules>,
}

/// Schedules that are due each second until they have sent so many messages together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedules {
    pub(super) count: u32,
    pub(super) messages: u32,
}

impl Schedules {
    fn section(self, queue: &str) -> String {
        let Self { count, messages } = self;
        let schedule = |number: u32| {
            let limit = messages / count + u32::from(number < messages % count);
            format!(
                r#"
            [[schedules]]
            name = "{queue}-{number}"
            every = "1s"
            limit = {limit}
            overlap = "allow"
            misfire = {{ policy = "all" }}
            queue = "{queue}"
            body = "{PRIMES_BELOW}"
                "#
            )
        };
        (0..count).map(schedule).collect()
    }
}

/// Location of the demo's tables.
#[derive(Debug)]
pub(super) struct TableLocation {
    /// URL as in a configuration.
    pub(super) url: String,
}

impl TableLocation {
    /// Returns the location in a file of that directory.
    pub(super) fn in_file(directory: &Path) -> Self {
        let path = directory.join("demo.db");
        let url = format!("sqlite:{}", path.display());
        Self {
            url: url.replace('$', "$$"),
        }
    }

    fn keys(&self) -> String {
        let url = toml::Value::from(&*self.url);
        match self.url.starts_with("sqlite:") {
            true => format!("url = {url}"),
            false => format!("url = {url}\ntable_prefix = \"{PREFIX}\""),
        }
    }
}

/// A running daemon, and clients of its queue.
pub(super) struct Stage {
    queue: String,
    config: Config,
    client: Client,
    requests: mpsc::Sender<Request>,
    overview: Overview,
    daemon: JoinHandle<Result<(), DaemonError>>,
}

impl Plan<'_> {
    /// Returns the configuration that a user would write for this.
    pub(super) fn config(&self) -> miette::Result<Config> {
        let (program, arguments) = match self.command.split_first() {
            Some((program, arguments)) => (program.clone(), arguments.to_vec()),
            None => {
                let own = std::env::current_exe().into_diagnostic()?;
                let own = own.to_string_lossy().into_owned();
                (own, vec!["demo-worker".to_owned()])
            }
        };
        let quoted = |text: &str| toml::Value::from(text.replace('$', "$$")).to_string();
        let arguments: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        let text = format!(
            r#"
            [daemon]
            log_level = "off"
            drain_timeout = "10s"

            [sources.demo]
            kind = "table"
            {source}

            [[pools]]
            name = "{queue}"
            queue = "{queue}"
            workers = {workers}
            command = {program}
            args = [{arguments}]
            env = {{ {RECORD} = {record}, {CONCURRENCY} = "{concurrency}" }}
            crashes_max = 1000
            retry = {{ attempts = 1000, initial = "50ms", max = "1s" }}
            restart = {{ initial = "50ms", max = "1s" }}
            {schedules}
            "#,
            schedules = self
                .schedules
                .map_or_else(String::new, |schedules| schedules.section(self.queue)),
            source = self.ground.keys(),
            queue = self.queue,
            workers = self.workers,
            program = quoted(&program),
            arguments = arguments.join(", "),
            record = quoted(&self.record.to_string_lossy()),
            concurrency = self.concurrency,
        );
        Ok(config::parse(&text, "demo.toml", &environment())?)
    }
}

impl Stage {
    /// Starts the daemon.
    pub(super) fn start(config: Config) -> miette::Result<Self> {
        let queue = queue_of(&config)?;
        let (requests_tx, requests) = mpsc::channel(16);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .into_diagnostic()?;
        let daemon = Daemon::new(config.clone());
        let overview = daemon.overview();
        let run = move || runtime.block_on(daemon.run(requests));
        let thread = std::thread::Builder::new().name("daemon".into());
        Ok(Self {
            queue,
            client: open_client(&config)?,
            daemon: thread.spawn(run).into_diagnostic()?,
            requests: requests_tx,
            overview,
            config,
        })
    }

    /// Opens the admin API of the daemon. Its socket beside that configuration is removed when the result is dropped.
    pub(super) fn open_interfaces(&self, file: &ConfigFile) -> miette::Result<Box<dyn Any>> {
        let (admin, telemetry) = (&self.config.admin, &self.config.telemetry);
        let config = self.config.clone();
        let own = move || Ok(config.clone());
        let opened = interfaces::open(
            (file, admin, telemetry),
            self.overview.clone(),
            self.requests.clone(),
            own.clone(),
            own,
        )?;
        Ok(Box::new(opened))
    }

    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns a client for another thread.
    pub(super) fn another_client(&self) -> miette::Result<Client> {
        open_client(&self.config)
    }

    /// Returns the filter for its dead letters.
    pub(super) fn dead(&self) -> DeadFilter {
        DeadFilter {
            pool: Some(self.queue.clone()),
            ..DeadFilter::default()
        }
    }

    /// Drops its dead letters: the queue is never used again.
    pub(super) fn tidy_up(&mut self) -> miette::Result<()> {
        let dead = self.dead();
        self.client.dead_drop(&dead).into_diagnostic()?;
        Ok(())
    }

    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the number of messages in the queue or in flight.
    pub(super) fn left(&mut self) -> miette::Result<u64> {
        Ok(self.client.depth(&self.queue).into_diagnostic()?.total())
    }

    /// Returns the pool's status; nothing once the daemon has failed.
    pub(super) fn status(&self) -> Option<PoolStatus> {
        self.overview.status().pools.into_iter().next()
    }

    /// Returns a function that returns the number of messages that schedules have sent; nothing once the daemon
    /// has ended.
    pub(super) fn dispatched(&self) -> impl Fn() -> Option<u64> + Send + 'static {
        let (requests, overview) = (self.requests.clone(), self.overview.clone());
        move || {
            let ledger = overview.status().ledger;
            let is_there = !requests.is_closed();
            is_there.then(|| ledger.map_or(0, |ledger| ledger.dispatched))
        }
    }

    /// Returns whether the daemon has failed; its thread gives the reason.
    pub(super) fn has_failed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Stops the daemon.
    pub(super) fn stop(self) -> miette::Result<()> {
        // One that has failed needs no stop.
        drop(self.requests.blocking_send(Request::Stop));
        let ended = self.daemon.join();
        ended
            .map_err(|_| miette!("the daemon panicked"))?
            .into_diagnostic()
    }
}

fn queue_of(config: &Config) -> miette::Result<String> {
    let pool = config.pools.first();
    let pool = pool.ok_or_else(|| miette!("the demo has no pool"))?;
    Ok(pool.queue.to_string())
}

pub(super) fn open_client(config: &Config) -> miette::Result<Client> {
    let (name, source) = config
        .sources
        .first_key_value()
        .ok_or_else(|| miette!("the demo has no source"))?;
    kinds::client(name, source, &config.pools).into_diagnostic()
}

/// Sends `messages` messages with the bodies that `body` makes from their numbers, and reports the number
/// sent after each batch.
pub(super) fn send(
    client: &mut Client,
    queue: &str,
    messages: u32,
    body: impl Fn(u32) -> String,
    sent: impl Fn(u64),
) -> miette::Result<()> {
    let numbers: Vec<u32> = (0..messages).collect();
    let mut count = 0;
    for batch in numbers.chunks(SEND_BATCH) {
        let messages: Vec<Outgoing> = batch
            .iter()
            .map(|number| Outgoing {
                queue: queue.to_owned(),
                body: Bytes::from(body(*number)),
                correlation_id: number.to_string(),
                ..Outgoing::default()
            })
            .collect();
        client.send(&messages).into_diagnostic()?;
        count += batch.len() as u64;
        sent(count);
    }
    Ok(())
}
