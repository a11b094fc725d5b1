//! The benchmark of schedules: `cargo bench --bench schedules`.
//!
//! # Measurements
//! The ledger is driven by the calls of the daemon's own loop, in this process, on a SQLite file and on a
//! private PostgreSQL and MariaDB with default durability. Nothing reads the queue.
//!
//! - `burst`: many schedules that fall due at one instant are dispatched. Each slot is an occurrence, an event
//!   of it, a message, and a new cursor. On PostgreSQL also with four daemons.
//! - `lateness`: schedules with a slot each second, spread over it by `jitter`; the time from when a slot is due
//!   to the end of the transaction that dispatches it.
//! - `logs`: lines of the logs of ten runs are written, 200 of each in a transaction.
//! - `lists`: pages of 50 occurrences are read at any depth among many, which are recorded first.
//! - `peers`: the same for other schedulers and for ganger, with all slots due at one instant, and the share of
//!   the slots that were sent (`peers.rs`). It needs npm, pip and Go.
//!
//! # Ratios
//! The burst against the same number of messages *sent* with `Client::send`, a thousand in a call: the price of
//! a schedule beside a plain message in the same table. Both are measured in each round, since a machine's
//! speed changes by the minute; the median of the rounds is shown.
//!
//! `--quick` measures less, in three minutes; `--smoke` only shows that it works, which is also what happens
//! without `--bench`.

mod burst;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other benchmarks measure a daemon")]
mod common;
mod lateness;
mod lists;
mod logs;
mod peers;
mod place;
#[path = "../../tests/servers/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "shared with the tests, which fail by a panic"
)]
#[expect(dead_code, reason = "tests ask more of a server")]
mod servers;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use burst::Burst;
use common::goal::Goal;
use common::machine::Machine;
use common::show::{self, line, milliseconds, number, table};
use lateness::Lateness;
use lists::Lists;
use logs::Logs;
use peers::Peer;
use place::{Kind, Place};

/// Number of daemons that share a server.
const DAEMONS: usize = 4;

/// The speed of schedules, beside messages that are sent
#[derive(Debug, Parser)]
struct Args {
    /// Only this database, or only other schedulers beside ganger
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Measure less, in three minutes
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Only see that it works
    #[arg(long)]
    smoke: bool,
    /// Number of times that each figure is measured
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// File for the figures
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("schedules"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Sqlite,
    Postgres,
    Mariadb,
    Peers,
}

impl Part {
    /// Returns the database, if the part is one.
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Sqlite => Some(Kind::Sqlite),
            Self::Postgres => Some(Kind::Postgres),
            Self::Mariadb => Some(Kind::Mariadb),
            Self::Peers => None,
        }
    }
}

/// Amounts of a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    name: &'static str,
    rounds: usize,
    /// Schedules that fall due at once.
    burst: usize,
    /// Schedules that are due every second.
    each_second: usize,
    watched_for: Duration,
    /// Lines that are written to logs.
    log_lines: usize,
    /// Occurrences among which pages are read.
    listed: usize,
    /// Numbers of schedules with which peers are measured; none if they are left out.
    peer_schedules: &'static [usize],
}

impl Plan {
    fn of(args: &Args) -> Self {
        let (name, rounds, burst, each_second, seconds) = match (args.quick, args.bench) {
            (true, _) => ("quick", 3, 10_000, 1000, 10),
            (false, true) if !args.smoke => ("full", 5, 20_000, 1000, 30),
            (false, _) => ("smoke", 1, 200, 20, 1),
        };
        let (log_lines, listed, peer_schedules): (_, _, &[usize]) = match name {
            "quick" => (50_000, 200_000, &[1000]),
            "full" => (200_000, 10_000_000, &[100, 1000]),
            _ => (4000, 10_000, &[]),
        };
        Self {
            name,
            rounds: args.rounds.map_or(rounds, NonZeroUsize::get),
            burst,
            each_second,
            watched_for: Duration::from_secs(seconds),
            log_lines,
            listed,
            peer_schedules,
        }
    }
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    plan: &'static str,
    rounds: usize,
    bursts: Vec<Burst>,
    lateness: Vec<Lateness>,
    logs: Vec<Logs>,
    lists: Vec<Lists>,
    peers: Vec<Peer>,
    goals: Vec<Goal>,
}

fn main() -> miette::Result<()> {
    let args = Args::parse_from(common::arguments());
    let plan = Plan::of(&args);
    let mut report = Report {
        machine: Machine::this(),
        plan: plan.name,
        rounds: plan.rounds,
        bursts: Vec::new(),
        lateness: Vec::new(),
        logs: Vec::new(),
        lists: Vec::new(),
        peers: Vec::new(),
        goals: Vec::new(),
    };
    let parts = Part::value_variants().iter().copied();
    for part in parts.filter(|part| args.only.is_none_or(|only| only == *part)) {
        match part.kind() {
            Some(kind) => report.measure(&Place::start(kind), plan)?,
            None => report.peers = peers::measure(plan)?,
        }
    }
    if plan.name != "smoke" {
        report.goals = report.goals();
    }
    report.show();
    show::write(&report, &args.json)
}

impl Report {
    fn measure(&mut self, place: &Place, plan: Plan) -> miette::Result<()> {
        let daemons: &[usize] = match place.kind {
            Kind::Postgres => &[1, DAEMONS],
            Kind::Sqlite | Kind::Mariadb => &[1],
        };
        for daemons in daemons {
            self.bursts.push(burst::measure(place, plan, *daemons)?);
        }
        self.lateness.push(lateness::measure(place, plan)?);
        self.logs.push(logs::measure(place, plan)?);
        self.lists.push(lists::measure(place, plan)?);
        Ok(())
    }

    fn show(&self) {
        line(self.machine.describe());
        let rows = self.bursts.iter().map(Burst::row);
        table("schedules due at one instant", Burst::HEADER, rows);
        let rows = self.lateness.iter().map(Lateness::row);
        table("slot to commit", Lateness::HEADER, rows);
        let rows = self.logs.iter().map(Logs::row);
        table("lines of logs", Logs::HEADER, rows);
        let rows = self.lists.iter().map(Lists::row);
        table("pages of occurrences", Lists::HEADER, rows);
        let rows = self.peers.iter().map(Peer::row);
        table("slot to queue, all due at one instant", Peer::HEADER, rows);
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
    }

    fn goals(&self) -> Vec<Goal> {
        let bursts = self.bursts.iter().filter_map(|burst| {
            let least = match (burst.kind, burst.daemons) {
                (Kind::Sqlite, 1) => 10_000.0,
                (Kind::Postgres, DAEMONS) => 20_000.0,
                _ => return None,
            };
            let name = burst.kind.name();
            let what = format!(
                "schedules due at one instant, {name}, {} daemon(s)",
                burst.daemons
            );
            Some(at_least(what, least, burst.per_second()))
        });
        let lateness = self.lateness.iter().filter_map(|late| {
            let most = match late.kind {
                Kind::Sqlite => 25.0,
                Kind::Postgres => 50.0,
                Kind::Mariadb => return None,
            };
            let what = format!("slot to commit, p99, {}", late.kind.name());
            Some(at_most(what, most, late.p99_ms()))
        });
        let logs = self.logs.iter().filter(|logs| logs.kind == Kind::Sqlite);
        let logs = logs.map(|logs| {
            let what = "lines of logs, SQLite".to_owned();
            at_least(what, 50_000.0, logs.per_second())
        });
        let lists = self.lists.iter().map(|lists| {
            let (name, count) = (lists.kind.name(), lists.occurrences);
            let what = format!("page among {count} occurrences, p99, {name}");
            at_most(what, 100.0, lists.p99_ms())
        });
        bursts.chain(lateness).chain(logs).chain(lists).collect()
    }
}

fn at_least(what: String, least: f64, per_second: f64) -> Goal {
    let goal = format!("≥ {}/s", number(least));
    let measured = format!("{}/s", number(per_second));
    Goal::new(what, goal, measured, per_second >= least)
}

fn at_most(what: String, most_ms: f64, ms: f64) -> Goal {
    let goal = format!("≤ {}", milliseconds(most_ms));
    Goal::new(what, goal, milliseconds(ms), ms <= most_ms)
}
