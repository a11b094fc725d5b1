//! A database for a ledger, and the ledger in it.

use std::cell::Cell;
use std::collections::BTreeMap;

use clap::ValueEnum;
use ganger_config::model::{Config, LedgerConfig, ScheduleConfig};
use ganger_queue::client::Client;
use ganger_table::ledger::{Ledger, Occurrence, OccurrenceFilter};
use jiff::{SignedDuration, Timestamp};
use miette::{IntoDiagnostic, miette};
use serde::Serialize;
use tempfile::TempDir;

use crate::common::quoted;
use crate::servers::mariadb::Mariadb;
use crate::servers::postgres::Cluster;

/// Kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
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
            Kind::Postgres => Host::Postgres(Cluster::start(&[])),
            Kind::Mariadb => Host::Mariadb(Mariadb::start(&[])),
        };
        Self {
            kind,
            host,
            databases: Cell::new(0),
        }
    }

    /// Makes an empty database, and returns the source for it.
    fn source(&self) -> String {
        self.databases.set(self.databases.get() + 1);
        let name = format!("bench{}", self.databases.get());
        match &self.host {
            Host::Directory(directory) => {
                let path = directory.path().join(&name);
                let path = quoted(&path);
                format!("url = \"sqlite:{}\"", path.trim_matches('"'))
            }
            Host::Postgres(cluster) => {
                cluster.create_database(&name);
                format!("url = \"{}\"", cluster.url(&name))
            }
            Host::Mariadb(server) => {
                server.create_database(&name);
                format!("url = \"{}\"", server.url(&name))
            }
        }
    }

    /// Opens the ledger in an empty database, with these schedules of queue `q`.
    pub(crate) fn ledger(
        &self,
        schedules: impl Iterator<Item = String>,
    ) -> miette::Result<Scheduled> {
        let source = self.source();
        let text = format!(
            "[sources.main]\nkind = \"table\"\n{source}\n[ledger]\n\
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
    /// By name.
    schedules: BTreeMap<String, ScheduleConfig>,
}

impl Scheduled {
    fn open(
        config: &LedgerConfig,
        client: Client,
        schedules: Vec<ScheduleConfig>,
    ) -> miette::Result<Self> {
        let mut ledger = Ledger::open(config, false).into_diagnostic()?;
        ledger.sync(&schedules).into_diagnostic()?;
        let schedules = schedules.into_iter();
        Ok(Self {
            ledger,
            client,
            schedules: schedules.map(|one| (one.name().to_owned(), one)).collect(),
        })
    }

    /// Returns when the slots of the last occurrences were due, the oldest first.
    pub(crate) fn due(&mut self, count: usize) -> miette::Result<Vec<Timestamp>> {
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
