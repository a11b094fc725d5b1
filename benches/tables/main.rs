//! The benchmark of tables on servers: `cargo bench --bench tables`.
//!
//! # What is measured
//! The product is the real `ganger run` as a process of its own, on a private PostgreSQL and then on a
//! private MariaDB that are started here (`tests/servers`) and stopped afterwards. A server is as durable as
//! with its default settings: a commit that it reports is on the disk. Its files are in the directory for
//! temporary files (`TMPDIR`), which should be on a disk. Workers do nothing: they are this same binary,
//! started again. `--server` selects one server, `--only` one part:
//!
//! - `throughput`: messages per second and processor time per message, of the daemon and of all the server's
//!   processes, compared with raw loops (`raw.rs`).
//! - `latency`: from an idle queue to the worker's handler, compared with a raw loop.
//! - `queues`: the cost of a message as the number of queues grows, with the same number of workers in total.
//! - `inserts`: the duration of a producer's inserts, alone and beside eight sources or raw loops, in step
//!   with it or flat out.
//! - `load`: a long load with a producer beside it, and the size of the table; `--messages` sets its length.
//! - `crowd`: many sources on one server.
//! - `idempotency`: the cost of remembering finished messages.
//! - `peers`: graphile-worker and Procrastinate, on PostgreSQL. Only with `--only peers`: it needs npm and
//!   pip.
//!
//! # Method
//! A round measures, one after the other, all contenders, each on a database of its own, and the next round
//! measures them again. The load on a machine changes by the minute, so only neighbours are compared: a ratio
//! is computed within each round, and the median of the rounds is shown. The interval of a run begins with a
//! full queue, and ends when the last row is gone.
//!
//! # Meaning of the ratios
//! - The daemon against the *raw loop* in ganger's own table: the share of the server's throughput that is
//!   left when each message also goes to a worker and back. Both have one connection for it, and the loop has
//!   as many messages in flight as the daemon's maximum: `prefetch`, or 256 for each worker. On few cores the
//!   server, the workers and the daemon compete for them.
//! - The same loop with batches of 50, as it is commonly written; and in a table with only the columns that
//!   it needs, which shows the cost of ganger's columns and indexes.
//!
//! `--quick` measures a little of everything in some minutes. `--smoke` measures next to nothing, only to
//! check that the benchmark works; that is also the behaviour without `--bench`, as in `cargo test
//! --all-targets`.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "other benchmarks have other goals")]
mod common;
mod crowd;
mod daemon;
mod flow;
mod goals;
mod idempotency;
mod inserts;
#[path = "../brokers/latency.rs"]
mod latency;
mod load;
mod loops;
mod peers;
mod plan;
mod raw;
mod report;
mod scaling;
mod server;
#[path = "../../tests/servers/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "shared with the tests, which fail by a panic"
)]
#[expect(dead_code, reason = "tests ask more of a server")]
mod servers;
#[path = "../throughput/setup.rs"]
#[expect(dead_code, reason = "a bare loop asks for more")]
mod setup;
#[path = "../brokers/watch.rs"]
mod watch;
mod ways;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use miette::ensure;

use common::noop_worker;
use common::show::note;
use plan::Plan;
use report::{Found, Report};
use server::{Kind, Server};

/// How fast ganger is on PostgreSQL and MariaDB, beside raw loops
#[derive(Debug, Parser)]
struct Args {
    /// Only on this server
    #[arg(long, value_enum)]
    server: Option<Kind>,
    /// Less of each, in some minutes
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Next to nothing: only to see that it works
    #[arg(long)]
    smoke: bool,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How often each figure is taken
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// How many messages the long load has
    #[arg(long, value_name = "N")]
    messages: Option<NonZeroUsize>,
    /// Where the figures are written to
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("tables"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Throughput,
    Latency,
    Queues,
    Inserts,
    Load,
    Crowd,
    Idempotency,
    Peers,
}

impl Part {
    /// Returns whether the part is selected. Without a selection all parts are, except the one that needs the
    /// tools of other languages.
    fn is_wanted(self, only: Option<Self>) -> bool {
        only.map_or(self != Self::Peers, |only| only == self)
    }

    fn is_for(self, kind: Kind) -> bool {
        self != Self::Peers || kind == Kind::Postgres
    }
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
    if let Some(messages) = args.messages {
        plan.load_messages = messages.get();
    }
    let kinds = Kind::value_variants().iter().copied();
    let kinds = kinds.filter(|kind| args.server.is_none_or(|only| only == *kind));
    let mut found = Vec::new();
    for kind in kinds {
        let parts = Part::value_variants().iter().copied();
        let parts = parts.filter(|part| part.is_wanted(args.only) && part.is_for(kind));
        let parts: Vec<Part> = parts.collect();
        if !parts.is_empty() {
            found.push(measure_on(kind, &parts, &plan)?);
        }
    }
    ensure!(!found.is_empty(), "peers are on PostgreSQL only");
    Report::of(found, &plan).publish(&args.json)
}

fn measure_on(kind: Kind, parts: &[Part], plan: &Plan) -> miette::Result<Found> {
    let server = Server::start(kind);
    let mut found = Found::on(&server);
    for part in parts {
        note(format_args!("{}: {part:?}", server.words().name));
        match part {
            Part::Throughput => found.throughput = flow::measure(&server, plan)?,
            Part::Latency => found.latency = ways::measure(&server, plan)?,
            Part::Queues => found.scaling = scaling::measure(&server, plan)?,
            Part::Inserts => found.inserts = inserts::measure(&server, plan)?,
            Part::Load => found.load = Some(load::measure(&server, plan)?),
            Part::Crowd => found.crowd = crowd::measure(&server, plan)?,
            Part::Idempotency => found.idempotency = idempotency::measure(&server, plan)?,
            Part::Peers => found.peers = peers::measure(&server, plan)?,
        }
    }
    if plan.judged {
        found.judge(&server);
    }
    Ok(found)
}
