//! The benchmark of the dashboard: `cargo bench --bench dashboard`.
//!
//! # Measurements
//! The real daemon, with workers that do nothing, on a database that is filled by SQL (`fill.rs`): occurrences and
//! dead letters of a year, schedules, logs, changes.
//!
//! - `pages`: each page is asked for again and again, every time for something else, over the daemon's socket. The
//!   time is that from the request to the end of the answer; the daemon's processor time is shown as well, since
//!   it is the same when others use the machine. Sizes are those of the document, plain and as it is sent
//!   to a browser that accepts gzip.
//! - `streams`: as many pages are followed as the daemon has places for (`connections.rs` of `ganger-admin`); the
//!   daemon's processor time beside that without them.
//! - `busy`: a queue is emptied with and without a reader of pages, in turn.
//!
//! `--quick` has a hundredth of the rows and a tenth of the workers; `--smoke` only shows that it works, which is also
//! what happens without `--bench`. `--keep PATH` keeps the SQLite file, and uses it again: to fill it takes minutes.

mod busy;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other benchmarks measure more of a daemon")]
mod common;
mod fill;
mod http;
mod pages;
mod place;
#[path = "../../tests/servers/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "shared with the tests, which fail by a panic"
)]
#[expect(dead_code, reason = "tests ask more of a server")]
mod servers;
mod site;
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use busy::Busy;
use common::goal::Goal;
use common::machine::Machine;
use common::noop_worker;
use common::show::{self, line, milliseconds, note, percent, table};
use fill::Amounts;
use pages::Timed;
use place::Place;
use site::Site;
use streams::Streams;

/// The speed of the dashboard among many rows
#[derive(Debug, Parser)]
struct Args {
    /// The database: the file of SQLite, or a private PostgreSQL
    #[arg(long, value_enum, default_value_t = Kind::Sqlite)]
    on: Kind,
    /// A hundredth of the rows
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Only see that it works
    #[arg(long)]
    smoke: bool,
    /// Measure only pages whose name contains this
    #[arg(long, value_name = "TEXT")]
    page: Option<String>,
    /// Directory that keeps the SQLite file, or already has it
    #[arg(long, value_name = "PATH")]
    keep: Option<PathBuf>,
    /// File for the figures
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("dashboard"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Sqlite,
    Postgres,
}

/// Amounts of a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    name: &'static str,
    amounts: Amounts,
    workers: usize,
    /// Number of times that each page is asked for.
    asked: u64,
    /// Time for which pages are followed.
    followed_for: Duration,
    /// Number of rounds in which the queue is emptied, and of its messages.
    rounds: usize,
    messages: u64,
}

impl Plan {
    fn of(args: &Args) -> Self {
        let full = Self {
            name: "full",
            amounts: Amounts {
                occurrences: 10_000_000,
                dead_letters: 1_000_000,
                waiting: 100_000,
                schedules: 500,
            },
            workers: 400,
            asked: 100,
            followed_for: Duration::from_secs(50),
            rounds: 5,
            messages: 500_000,
        };
        match (args.quick, args.bench && !args.smoke) {
            (true, _) => Self {
                name: "quick",
                amounts: full.amounts.divided_by(100),
                workers: 40,
                asked: 30,
                followed_for: Duration::from_secs(20),
                rounds: 3,
                messages: 100_000,
            },
            (false, true) => full,
            (false, false) => Self {
                name: "smoke",
                amounts: full.amounts.divided_by(10_000),
                workers: 4,
                asked: 2,
                followed_for: Duration::from_secs(2),
                rounds: 1,
                messages: 1000,
            },
        }
    }
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    plan: &'static str,
    on: Kind,
    amounts: Amounts,
    workers: usize,
    pages: Vec<Timed>,
    streams: Option<Streams>,
    busy: Option<Busy>,
    goals: Vec<Goal>,
}

fn main() -> miette::Result<()> {
    if let Some(done) = noop_worker::run_if_asked() {
        return done;
    }
    let args = Args::parse_from(common::arguments());
    let plan = Plan::of(&args);
    let place = Place::open(args.on, args.keep.as_deref())?;
    let filled = fill::fill(&place, plan.amounts)?;
    let site = Site::start(&place, plan.workers)?;
    note("pages");
    let mut report = Report {
        machine: Machine::this(),
        plan: plan.name,
        on: args.on,
        amounts: plan.amounts,
        workers: plan.workers,
        pages: pages::measure(&site, &filled, plan.asked, args.page.as_deref())?,
        streams: None,
        busy: None,
        goals: Vec::new(),
    };
    if args.page.is_none() {
        note("followed pages");
        report.streams = Some(streams::measure(&site, &filled, plan.followed_for)?);
        note("a busy queue");
        report.busy = Some(busy::measure(&site, &filled, plan.rounds, plan.messages)?);
    }
    site.stop()?;
    if plan.name != "smoke" {
        report.goals = report.goals();
    }
    report.show();
    show::write(&report, &args.json)
}

impl Report {
    fn show(&self) {
        line(self.machine.describe());
        let rows = self.pages.iter().map(Timed::row);
        table("pages", Timed::HEADER, rows);
        let rows = self.streams.iter().map(Streams::row);
        table("followed pages", Streams::HEADER, rows);
        let rows = self.busy.iter().map(Busy::row);
        table("a queue that is emptied", Busy::HEADER, rows);
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
    }

    fn goals(&self) -> Vec<Goal> {
        let pages = self.pages.iter().map(|page| {
            let (what, p99) = (format!("{}, p99", page.name), page.p99_ms());
            Goal::new(what, "≤ 200 ms", milliseconds(p99), p99 <= 200.0)
        });
        let streams = self.streams.iter().map(|streams| {
            let what = format!("of a core for {} followed pages", streams.followed);
            let share = streams.share();
            Goal::new(
                what,
                "≤ 2 %",
                format!("{:.1} %", share * 100.0),
                share <= 0.02,
            )
        });
        let busy = self.busy.iter().map(|busy| {
            let what = "throughput beside a reader, relative to none";
            let ratio = busy.ratio();
            Goal::new(what, "≥ 95 %", percent(ratio), ratio >= 0.95)
        });
        pages.chain(streams).chain(busy).collect()
    }
}
