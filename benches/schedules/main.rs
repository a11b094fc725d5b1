//! The benchmark of schedules: `cargo bench --bench schedules`.
//!
//! # Measurements
//! The ledger is driven by the calls of the daemon's own loop, in this process, on a SQLite file and on a
//! private PostgreSQL and MariaDB with default durability. Nothing reads the queue.
//!
//! - `burst`: many schedules that fall due at one instant are dispatched. Each slot is an occurrence, an event
//!   of it, a message, and a new cursor.
//! - `lateness`: schedules with a slot each second, spread over it by `jitter`; the time from when a slot is due
//!   to the end of the transaction that dispatches it.
//!
//! # Ratios
//! The burst against the same number of messages *sent* with `Client::send`, a thousand in a call: the price of
//! a schedule beside a plain message in the same table. Both are measured in each round, since a machine's
//! speed changes by the minute; the median of the rounds is shown.
//!
//! `--quick` measures less, in two minutes; `--smoke` only shows that it works, which is also what happens
//! without `--bench`.

mod burst;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other benchmarks measure a daemon")]
mod common;
mod lateness;
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
use place::{Kind, Place};

/// The speed of schedules, beside messages that are sent
#[derive(Debug, Parser)]
struct Args {
    /// Only on this database
    #[arg(long, value_enum)]
    only: Option<Kind>,
    /// Measure less, in two minutes
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
}

impl Plan {
    fn of(args: &Args) -> Self {
        let (name, rounds, burst, each_second, seconds) = match (args.quick, args.bench) {
            (true, _) => ("quick", 3, 10_000, 1000, 10),
            (false, true) if !args.smoke => ("full", 5, 20_000, 1000, 30),
            (false, _) => ("smoke", 1, 200, 20, 1),
        };
        Self {
            name,
            rounds: args.rounds.map_or(rounds, NonZeroUsize::get),
            burst,
            each_second,
            watched_for: Duration::from_secs(seconds),
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
    goals: Vec<Goal>,
}

fn main() -> miette::Result<()> {
    let args = Args::parse_from(common::arguments());
    let plan = Plan::of(&args);
    let (mut bursts, mut lateness) = (Vec::new(), Vec::new());
    let kinds = Kind::value_variants().iter().copied();
    for kind in kinds.filter(|kind| args.only.is_none_or(|only| only == *kind)) {
        let place = Place::start(kind);
        bursts.push(burst::measure(&place, plan)?);
        lateness.push(lateness::measure(&place, plan)?);
    }
    let goals = match plan.name {
        "smoke" => Vec::new(),
        _ => goals(&bursts, &lateness),
    };
    let report = Report {
        machine: Machine::this(),
        plan: plan.name,
        rounds: plan.rounds,
        bursts,
        lateness,
        goals,
    };
    line(report.machine.describe());
    let rows = report.bursts.iter().map(Burst::row);
    table("schedules due at one instant", Burst::HEADER, rows);
    let rows = report.lateness.iter().map(Lateness::row);
    table("slot to commit", Lateness::HEADER, rows);
    table("goals", Goal::HEADER, report.goals.iter().map(Goal::row));
    show::write(&report, &args.json)
}

fn goals(bursts: &[Burst], lateness: &[Lateness]) -> Vec<Goal> {
    let bursts = bursts.iter().filter(|burst| burst.kind == Kind::Sqlite);
    let bursts = bursts.map(|burst| {
        let what = "schedules due at one instant, SQLite";
        let per_second = burst.per_second();
        let measured = format!("{}/s", number(per_second));
        Goal::new(what, "≥ 10 000/s", measured, per_second >= 10_000.0)
    });
    let lateness = lateness.iter().filter_map(|late| {
        let most = match late.kind {
            Kind::Sqlite => 25.0,
            Kind::Postgres => 50.0,
            Kind::Mariadb => return None,
        };
        let what = format!("slot to commit, p99, {}", late.kind.name());
        let goal = format!("≤ {}", milliseconds(most));
        Some(Goal::new(
            what,
            goal,
            milliseconds(late.p99_ms()),
            late.p99_ms() <= most,
        ))
    });
    bursts.chain(lateness).collect()
}
