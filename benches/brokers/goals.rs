//! The project's goals, compared with the results. A goal is compared only where it is measured, and skipped
//! if it was not.

use crate::common::goal::Goal;
use crate::common::show::tenths;
use crate::kafka::{self, Kafka, Order};
use crate::peers::Peer;
use crate::pool::Language;
use crate::rabbit::{self, Rabbit};
use crate::report::Report;

/// Returns the goals for which there are results.
pub(crate) fn compare(report: &Report) -> Vec<Goal> {
    let rabbitmq = report.rabbitmq.iter().flat_map(rabbitmq);
    let kafka = report.kafka.iter().flat_map(kafka);
    rabbitmq.chain(kafka).collect()
}

fn rabbitmq(found: &Rabbit) -> Vec<Goal> {
    let mut goals = Vec::new();
    let flows = found.throughput.iter();
    let compiled = flows.filter(|flow| flow.cell.workers.language == Language::Rust);
    goals.extend(compiled.flat_map(compiled_workers));
    goals.extend(found.peers.iter().filter_map(peer));
    let ours = found.latency.iter().filter(|latency| latency.is_ours);
    goals.extend(ours.map(|latency| Goal::latency(&latency.way, latency.p99_ms)));
    let memory = found.memory.iter();
    goals.extend(memory.filter_map(|memory| Goal::memory(memory.workers, memory.resident_kib)));
    goals.push(Goal::start(found.start.p50_ms));
    goals
}

fn compiled_workers(flow: &rabbit::Flow) -> [Goal; 2] {
    let cell = flow.cell;
    let what = format!(
        "{} queue, prefetch {}, {} workers",
        cell.kind.describe(),
        cell.prefetch,
        cell.workers.count
    );
    let micros = flow.daemon.cpu_micros();
    let against = format!("{what}, against raw coalesced");
    let cpu = format!("{what}, daemon CPU a message");
    [
        Goal::share(against, 0.95, flow.daemon_to_raw_coalesced),
        Goal::new(
            cpu,
            "≤ 12 µs",
            format!("{} µs", tenths(micros)),
            micros <= 12.0,
        ),
    ]
}

fn peer(peer: &Peer) -> Option<Goal> {
    let (times, least) = (peer.ganger_to_it?, peer.goal?);
    let what = format!("Python workers, against {}", peer.name);
    let goal = format!("≥ {least:.0} ×");
    Some(Goal::new(
        what,
        goal,
        format!("{times:.1} ×"),
        times >= least,
    ))
}

fn kafka(found: &Kafka) -> Vec<Goal> {
    let flows = found.throughput.iter();
    let compiled = flows.filter(|flow| flow.cell.workers.language == Language::Rust);
    let against_raw = compiled.filter_map(against_raw);
    against_raw.chain(with_more_workers(found)).collect()
}

fn against_raw(flow: &kafka::Flow) -> Option<Goal> {
    let kafka::Cell { order, workers, .. } = flow.cell;
    let measured = matches!(order, Order::None | Order::Key) && workers.count == 2;
    measured.then(|| {
        let what = format!("Kafka, order {}, 2 workers, against raw", order.describe());
        Goal::share(what, 0.35, flow.daemon_to_raw)
    })
}

fn with_more_workers(found: &Kafka) -> Option<Goal> {
    let with = |count| {
        let flows = found.throughput.iter();
        let mut compiled = flows.filter(|flow| flow.cell.workers.language == Language::Rust);
        compiled.find(|flow| flow.cell.order == Order::Key && flow.cell.workers.count == count)
    };
    let share = with(8)?.daemon.per_second() / with(2)?.daemon.per_second();
    Some(Goal::share(
        "Kafka, order key, 8 workers against 2".to_owned(),
        0.9,
        share,
    ))
}
