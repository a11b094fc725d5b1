//! The benchmark of the brokers: `cargo bench --bench brokers`.
//!
//! # What is measured
//! The product is the real `ganger run` as a process of its own, on a private RabbitMQ and a private Kafka
//! that are started here (`tests/servers`) and stopped afterwards. Its workers do nothing: they are this same
//! binary, started again, or a few lines of Python (`noop_worker.py`).
//!
//! - RabbitMQ: messages per second and processor time per message, of the daemon and of the broker, on
//!   classic and quorum queues; latency from an idle queue to the worker's handler; resident memory of the
//!   daemon; time from the daemon's start to its first message. With `--peers` also Celery and dramatiq on
//!   the same broker.
//! - Kafka: the same by order, without memory and peers.
//!
//! # Method
//! A round measures, one after the other, a raw loop and the daemon, and the next round measures them again.
//! The load on a machine changes by the minute, so only neighbours are compared: a ratio is computed within
//! each round, and the median of the rounds is shown. Messages are 200 bytes and persistent. The daemon is
//! running, its workers are connected, and it has processed a first load, so that one-time work is not in the
//! figures. It is stopped while its queue is filled; the interval begins when it is continued, and ends when
//! a worker receives the last message (`common/tally.rs`). Processor time is taken until the last
//! acknowledgement, without the workers.
//!
//! # Meaning of the ratios
//! - The daemon against the *raw loop* (`rabbit/raw.rs`, `kafka/raw.rs`): the share of the client library's
//!   throughput that is left when each message also goes to a worker and back. 100 % would mean that workers
//!   cost nothing. The raw loop of RabbitMQ has the same prefetch as the whole pool. On few cores the broker,
//!   the workers and the daemon compete for them.
//! - The same against a loop *with workers* (`rabbit/by_hand.rs`): the cost of handling workers that die, are
//!   late or fail, and messages that are redelivered. The share of this loop in the throughput of the raw
//!   loop shows the cost of workers as such.
//! - A pool of Python workers against the *peers* (`peers.rs`): the same handler, the same number of
//!   processes, at-least-once delivery on both sides.
//!
//! `--against PROGRAM` only compares this build of the daemon with another, by its processor time per
//! message: with automatic prefetch, and with the maximum that automatic prefetch can reach.
//!
//! `--quick` measures a few cells in some minutes. `--smoke` measures next to nothing, only to check that the
//! benchmark works; that is also the behaviour without `--bench`, as in `cargo test --all-targets`.
//! `tests/run` installs the programs that it needs.

#[path = "../common/mod.rs"]
mod common;
mod goals;
mod kafka;
mod latency;
mod peers;
mod plan;
mod pool;
mod rabbit;
mod report;
mod running;
#[path = "../../tests/servers/mod.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "shared with the tests, which fail by a panic"
)]
#[expect(dead_code, reason = "tests ask more of a server")]
mod servers;
mod start;
#[expect(dead_code, reason = "shared with the benchmark of tables")]
mod watch;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use common::noop_worker;
use common::show::{self, table};
use plan::Plan;
use report::Report;

/// How fast ganger is on RabbitMQ and Kafka, beside raw loops
#[derive(Debug, Parser)]
struct Args {
    /// A few cells, in some minutes
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Next to nothing: only to see that it works
    #[arg(long)]
    smoke: bool,
    /// Only this broker
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Celery and dramatiq, too, which are installed with pip into the target directory
    #[arg(long)]
    peers: bool,
    /// How often each figure is taken
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// Only this: the processor time of the daemon on RabbitMQ beside that of another build
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["only", "peers"])]
    against: Option<PathBuf>,
    /// Where the figures are written to
    #[arg(long, value_name = "PATH", default_value_os_t = common::default_json("brokers"))]
    json: PathBuf,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Rabbitmq,
    Kafka,
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
    if let Some(other) = &args.against {
        let all = rabbit::compare(other, plan.rounds)?;
        let rows = all.iter().map(rabbit::Against::row);
        table("two builds, medians", rabbit::Against::HEADER, rows);
        return show::write(&all, &args.json);
    }
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let mut report = Report::new(&plan);
    if wanted(Part::Rabbitmq) {
        report.rabbitmq = Some(rabbit::measure(&plan, args.peers)?);
    }
    if wanted(Part::Kafka) {
        report.kafka = Some(kafka::measure(&plan)?);
    }
    if plan.judged {
        report.judge();
    }
    report.publish(&args.json)
}
