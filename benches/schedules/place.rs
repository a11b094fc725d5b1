//! A database for a ledger, and the ledger in it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use ganger_config::model::{Config, LedgerConfig, ScheduleConfig};
use ganger_queue::client::Client;
use ganger_table::ledger::{Ledger, Occurrence, OccurrenceFilter};
use jiff::{SignedDuration, Timestamp};
use miette::{IntoDiagnostic, bail, miette};
use serde::Serialize;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::common::quoted;
use crate::servers::mariadb::Mariadb;
use crate::servers::postgres::Cluster;

/// Kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Mariadb,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
        }
    }
}

/// The server, or the directory of files.
enum Host {
    Directory(TempDir),
    Postgres(Cluster),
    Mariadb(Mariadb),
}

/// As durable as a server with default settings: a commit that it reports is on the disk. Peers' messages have
/// no other time of their commits than that which the server keeps.
const POSTGRES: &[&str] = &["fsync=on", "track_commit_timestamp=on"];
const MARIADB: &[&str] = &[
    "innodb-flush-log-at-trx-commit=1",
    "innodb-flush-method=O_DIRECT",
    "skip-log-bin",
];

/// An empty database.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
}

/// Place of databases.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    host: Host,
    databases: Cell<u32>,
}

impl Place {
    /// Starts the server, if the kind has one.
    pub(crate) fn start(kind: Kind) -> Self {
        let host = match kind {
            Kind::Sqlite => {
                let directory = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
                Host::Directory(directory.unwrap_or_else(|error| panic!("{error}")))
            }
            Kind::Postgres => Host::Postgres(Cluster::start(POSTGRES)),
            Kind::Mariadb => Host::Mariadb(Mariadb::start(MARIADB)),
        };
        Self {
            kind,
            host,
            databases: Cell::new(0),
        }
    }

    /// Runs a query in a database on PostgreSQL. Returns a line for each row, with `|` between columns.
    pub(crate) fn rows(&self, database: &Database, query: &str) -> miette::Result<String> {
        let Host::Postgres(cluster) = &self.host else {
            bail!("{} is not PostgreSQL", self.kind.name());
        };
        let rows = cluster.try_psql(&database.name, query);
        rows.map_err(|error| miette!("{query}: {error}"))
    }

    /// Makes an empty database.
    pub(crate) fn database(&self) -> Database {
        self.databases.set(self.databases.get() + 1);
        let name = format!("bench{}", self.databases.get());
        let url = match &self.host {
            Host::Directory(directory) => {
                let path = quoted(&directory.path().join(&name));
                format!("sqlite:{}", path.trim_matches('"'))
            }
            Host::Postgres(cluster) => {
                cluster.create_database(&name);
                cluster.url(&name)
            }
            Host::Mariadb(server) => {
                server.create_database(&name);
                server.url(&name)
            }
        };
        Database { name, url }
    }

    /// Opens the ledger in an empty database, with these schedules of queue `q`.
    pub(crate) fn ledger(
        &self,
        schedules: impl Iterator<Item = String>,
    ) -> miette::Result<Scheduled> {
        let url = self.database().url;
        let text = format!(
            "[sources.main]\nkind = \"table\"\nurl = \"{url}\"\n[ledger]\n\
             [[pools]]\nname = \"q\"\nqueue = \"q\"\ncommand = \"true\"\n"
        );
        let environment = ganger_config::Environment::new();
        let config: Config = ganger_config::parse(&text, "bench.toml", &environment)?;
        let source = config
            .sources
            .get("main")
            .ok_or_else(|| miette!("no source"))?;
        let client = ganger::kinds::client("main", source, &[]).into_diagnostic()?;
        let ledger = config.ledger.ok_or_else(|| miette!("no ledger"))?;
        let zones = ganger_schedule::zone::Zones::load();
        let schedule = |(number, definition): (usize, String)| {
            let name = format!("s{number}");
            ganger_config::stored_schedule(&name, &definition, &zones)
        };
        let schedules = schedules.enumerate().map(schedule);
        let schedules: Vec<ScheduleConfig> = schedules.collect::<Result<_, _>>()?;
        Scheduled::open(&ledger, client, schedules)
    }
}

/// A ledger whose schedules are entered and wait for their first slots.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    config: LedgerConfig,
    /// By name.
    schedules: BTreeMap<String, ScheduleConfig>,
}

impl Scheduled {
    /// Opens the ledger once more, as another daemon does.
    pub(crate) fn another_ledger(&self) -> miette::Result<Ledger> {
        let mut ledger = Ledger::open(&self.config, false).into_diagnostic()?;
        ledger.dispatch().into_diagnostic()?;
        Ok(ledger)
    }

    fn open(
        config: &LedgerConfig,
        client: Client,
        schedules: Vec<ScheduleConfig>,
    ) -> miette::Result<Self> {
        let mut ledger = Ledger::open(config, false).into_diagnostic()?;
        ledger.sync(&schedules).into_diagnostic()?;
        while ledger.dispatch().into_diagnostic()?.wait == Some(Duration::ZERO) {}
        let schedules = schedules.into_iter();
        Ok(Self {
            ledger,
            client,
            config: config.clone(),
            schedules: schedules.map(|one| (one.name().to_owned(), one)).collect(),
        })
    }

    /// Runs the daemon's loop for that long. Returns when each message was in its queue, in their order.
    pub(crate) fn dispatch_for(&mut self, time: Duration) -> miette::Result<Vec<Timestamp>> {
        let begun = Instant::now();
        let mut queued = Vec::new();
        while begun.elapsed() < time {
            let dispatched = self.ledger.dispatch().into_diagnostic()?;
            let sent = usize::try_from(dispatched.sent).into_diagnostic()?;
            queued.extend(std::iter::repeat_n(Timestamp::now(), sent));
            std::thread::park_timeout(dispatched.wait.unwrap_or_default());
        }
        Ok(queued)
    }

    /// Returns the slots of the last messages, which were in their queue at these times.
    pub(crate) fn sent(&mut self, queued: &[Timestamp]) -> miette::Result<Vec<Sent>> {
        // Occurrences have the order in which they were dispatched.
        let due = self.due(queued.len())?;
        let pairs = due.into_iter().zip(queued.iter().copied());
        let sent = pairs.map(|(due, queued)| Sent { due, queued });
        Ok(sent.collect())
    }

    /// Returns when the slots of the last occurrences were due, the oldest first.
    fn due(&mut self, count: usize) -> miette::Result<Vec<Timestamp>> {
        let filter = OccurrenceFilter {
            limit: u32::try_from(count).into_diagnostic()?,
            ..OccurrenceFilter::default()
        };
        let newest = self.ledger.occurrences(&filter).into_diagnostic()?;
        let due = |one: &Occurrence| {
            let slot = one.slot?;
            let spec = &self.schedules.get(&one.schedule)?.spec;
            let found = spec.next(slot - SignedDuration::from_nanos(1)).ok()??;
            Some(found.due)
        };
        let due = newest.iter().rev().map(due).collect::<Option<_>>();
        due.ok_or_else(|| miette!("an occurrence has no slot of its schedule"))
    }
}

/// A slot whose message was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) due: Timestamp,
    /// When the message was in its queue.
    pub(crate) queued: Timestamp,
}

impl Sent {
    /// Returns the time from the slot to the message, in milliseconds.
    pub(crate) fn late_ms(&self) -> f64 {
        self.queued.duration_since(self.due).as_secs_f64() * 1000.0
    }
}
