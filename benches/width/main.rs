//! The benchmark of many pools: `cargo bench --bench width`.
//!
//! # Measurements
//! The real `ganger run`, as a process of its own, has 1, 30 and 100 pools with one worker each on one source: a
//! SQLite file, or a private PostgreSQL, MariaDB, RabbitMQ or Kafka. Nothing is sent. For each number:
//!
//! - `up`: the time from the start until all workers have connected, with the declaration of the queues;
//! - `resident`, `threads`, `files`, `connections`: of the daemon's process, without its workers. Connections are
//!   those over TCP;
//! - `idle`: the share of a core that the daemon uses;
//! - `status`: the time of `GET /v1/status` over the socket, the median of twenty;
//! - `reload`: the time from SIGHUP with one pool more in the file until its worker has connected.
//!
//! Memory, threads, files and connections do not depend on the load of the machine; times do.
//!
//! `--quick` measures 1 and 30 pools; `--smoke` only shows that it works, which is also what happens without
//! `--bench`. `tests/run` installs the servers.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other benchmarks measure work")]
mod common;
mod place;
mod process;
#[path = "../../tests/servers/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "shared with the tests, which fail by a panic"
)]
#[expect(dead_code, reason = "tests ask more of a server")]
mod servers;
mod site;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use common::machine::Machine;
use common::noop_worker;
use common::show::{self, megabytes, milliseconds, note, table};
use place::{Kind, Place};
use site::{Figures, Site};

/// What many pools cost beside one
#[derive(Debug, Parser)]
struct Args {
    /// Only this kind of source
    #[arg(long, value_enum)]
    only: Option<Kind>,
    /// Only 1 and 30 pools
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Only see that it works
    #[arg(long)]
    smoke: bool,
    /// Another build of the daemon
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// File for the figures
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("width"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Amounts of a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    pools: &'static [usize],
    /// Time before the daemon is idle.
    settle: Duration,
    watched_for: Duration,
}

impl Plan {
    fn of(args: &Args) -> Self {
        let (pools, seconds): (&[usize], _) = match (args.quick, args.bench && !args.smoke) {
            (true, _) => (&[1, 30], (12, 10)),
            (false, true) => (&[1, 30, 100], (12, 30)),
            (false, false) => (&[1, 2], (0, 1)),
        };
        Self {
            pools,
            settle: Duration::from_secs(seconds.0),
            watched_for: Duration::from_secs(seconds.1),
        }
    }
}

/// Figures of a number of pools.
#[derive(Debug, Serialize)]
struct Row {
    kind: Kind,
    pools: usize,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rows: Vec<Row>,
}

fn main() -> miette::Result<()> {
    if let Some(worked) = noop_worker::run_if_asked() {
        return worked;
    }
    let args = Args::parse_from(common::arguments());
    let plan = Plan::of(&args);
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        if args.only.is_some_and(|only| only != kind) {
            continue;
        }
        let place = Place::start(kind)?;
        for pools in plan.pools {
            note(format!("{}, {pools} pools", kind.name()));
            let site = Site::start(&place, *pools, args.program.as_deref())?;
            let figures = site.measure(plan.settle, plan.watched_for)?;
            rows.push(Row {
                kind,
                pools: *pools,
                figures,
            });
        }
    }
    let report = Report {
        machine: Machine::this(),
        rows,
    };
    show::line(report.machine.describe());
    table(
        "idle pools of one worker",
        Row::HEADER,
        report.rows.iter().map(Row::row),
    );
    show::write(&report, &args.json)
}

impl Row {
    const HEADER: &[&str] = &[
        "source",
        "pools",
        "up",
        "resident",
        "threads",
        "files",
        "connections",
        "idle",
        "status",
        "reload",
    ];

    fn row(&self) -> Vec<String> {
        let figures = &self.figures;
        vec![
            self.kind.name().to_owned(),
            self.pools.to_string(),
            format!("{:.2} s", figures.up_seconds),
            megabytes(figures.resident_kib),
            figures.threads.to_string(),
            figures.files.to_string(),
            figures.connections.to_string(),
            format!("{:.2} %", figures.idle_share * 100.0),
            milliseconds(figures.status_ms),
            milliseconds(figures.reload_ms),
        ]
    }
}
