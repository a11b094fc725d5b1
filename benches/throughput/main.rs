//! The benchmark: `cargo bench --bench throughput`.
//!
//! # What is measured
//! The product is the real `ganger run` as a process of its own, on a table queue in SQLite with `synchronous
//! = FULL` as in production, on the disk that the project is built on. Its workers are this same binary,
//! started again as a version 1 worker that answers at once.
//!
//! - `throughput`: messages per second and processor time per message, by workers, window and body.
//! - `latency`: from an idle queue to the worker's handler, sent by ganger's own client and by a plain SQL
//!   insert.
//! - `memory`: resident memory of the daemon, idle after some work.
//! - `start`: from the daemon's start to its first message done.
//! - `scaling`: the cost of a message as the number of workers and pools grows.
//! - `looks`: the cost of a message without observation, with metrics scraped and pushed, and with a
//!   hundredth and all of the attempts recorded.
//! - `languages`: the cost of a worker in each language; only with `--only languages`.
//! - `idle`: the cost of an idle daemon with a hundred workers, with everything enabled.
//!
//! # Method
//! In `throughput` a round measures, one after the other: the bare pipe, the pool fed from memory, the bare
//! table, and the daemon; the next round measures all of them again. The load on a machine changes by the
//! minute, so only neighbours are compared: a ratio is computed within each round, and the median of the
//! rounds is shown. The interval is from the first message to the last one settled; the start of processes
//! and a first load that lets automatic windows find their depth come before it (`daemon.rs`,
//! `memory_source.rs`). Processor time is that of the threads which drive the workers, without the workers
//! themselves.
//!
//! # Meaning of the ratios
//! - The daemon against the *bare table* (`bare_table.rs`): the share of SQLite's throughput that is left
//!   when each message also goes to a worker and back. 100 % would mean that workers cost nothing. On few
//!   cores the workers and the database compete for them.
//! - The pool fed from memory against the *bare pipe* (`bare_pipe.rs`): the share of the pipe's throughput
//!   that is left when a pool supervises it: windows, deadlines, settlements, decoded answers. For `auto` the
//!   bare loop has the deepest window that `auto` chooses.
//! - The daemon against the bare pipe: both together; the database limits it.
//!
//! `--quick` measures a few cells in a minute. `--smoke` measures next to nothing in ten seconds, only to
//! check that the benchmark works; that is also the behaviour without `--bench`, as in `cargo test
//! --all-targets`.

mod bare_pipe;
mod bare_table;
#[path = "../common/mod.rs"]
mod common;
mod daemon;
mod flow;
mod goals;
mod idle;
mod languages;
mod latency;
mod looks;
mod memory;
mod memory_source;
mod observed;
mod plan;
mod queue;
mod report;
mod scaling;
mod setup;
mod start;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use common::noop_worker;
use plan::Plan;
use report::Report;

/// How fast ganger is, beside two raw loops
#[derive(Debug, Parser)]
struct Args {
    /// A few cells, in about a minute
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Next to nothing, in about ten seconds: only to see that it works
    #[arg(long)]
    smoke: bool,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How often each figure is taken
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// Where the figures are written to
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("throughput"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Throughput,
    Latency,
    Memory,
    Start,
    Scaling,
    Looks,
    Idle,
    Languages,
}

fn main() -> miette::Result<()> {
    if let Some(worked) = noop_worker::run_if_asked() {
        return worked;
    }
    measure(Args::parse_from(common::arguments()))
}

fn measure(args: Args) -> miette::Result<()> {
    let mut plan = match (args.quick, args.smoke || !args.bench) {
        (true, _) => Plan::quick(),
        (false, true) => Plan::smoke(),
        (false, false) => Plan::full(),
    };
    if let Some(rounds) = args.rounds {
        plan.rounds = rounds.get();
    }
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let mut report = Report::new(&plan);
    if wanted(Part::Throughput) {
        report.throughput = flow::measure(&plan)?;
    }
    if wanted(Part::Latency) {
        report.latency = latency::measure(&plan)?;
    }
    if wanted(Part::Memory) {
        report.memory = memory::measure(&plan)?;
    }
    if wanted(Part::Start) {
        report.start = Some(start::measure(&plan)?);
    }
    if wanted(Part::Scaling) {
        report.scaling = Some(scaling::measure(&plan)?);
    }
    if wanted(Part::Looks) {
        report.looks = looks::measure(&plan)?;
    }
    if wanted(Part::Idle) {
        report.idle = Some(idle::measure(&plan)?);
    }
    // This part needs the tools of every language.
    if args.only == Some(Part::Languages) {
        report.languages = languages::measure(&plan)?;
    }
    if plan.judged {
        report.judge();
    }
    report.publish(&args.json)
}
