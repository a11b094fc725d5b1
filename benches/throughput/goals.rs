//! The project's goals, compared with the results. A goal is compared only where it is measured, and skipped
//! if it was not.

use crate::common::goal::Goal;
use crate::common::show::{megabytes, percent};
use crate::flow::Flow;
use crate::idle::Idle;
use crate::looks::{Look, Looked};
use crate::report::Report;
use crate::setup::Window;

const KIB: usize = 1024;

/// Returns the goals for which there are results.
pub(crate) fn compare(report: &Report) -> Vec<Goal> {
    let mut goals = Vec::new();
    goals.extend(report.throughput.iter().filter_map(table));
    goals.extend(report.throughput.iter().filter_map(pipe));
    let latencies = report.latency.iter();
    goals.extend(latencies.map(|latency| Goal::latency(latency.sender, latency.committed_p99_ms)));
    let memory = report.memory.iter();
    goals.extend(memory.filter_map(|memory| Goal::memory(memory.workers, memory.resident_kib)));
    let start = report.start.iter();
    goals.extend(start.map(|start| Goal::start(start.p50_ms)));
    goals.extend(flat(report));
    goals.extend(report.looks.iter().filter_map(look));
    goals.extend(report.idle.iter().flat_map(idle));
    goals
}

/// Makes the goal for the defaults, with messages of the usual size.
fn table(flow: &Flow) -> Option<Goal> {
    (flow.window == Window::Auto && flow.body_bytes == KIB).then(|| {
        let what = format!("table, {} workers, against the bare table", flow.workers);
        Goal::share(what, 0.6, flow.daemon_to_bare_table)
    })
}

fn pipe(flow: &Flow) -> Option<Goal> {
    let Window::Fixed(window @ (8 | 32)) = flow.window else {
        return None;
    };
    (flow.body_bytes == KIB).then(|| {
        let workers = flow.workers;
        let what = format!("pipe, {workers} workers, window {window}, against the bare pipe");
        Goal::share(what, 0.8, flow.pool_from_memory_to_bare_pipe)
    })
}

/// Makes the goal for the cost of observation.
fn look(looked: &Looked) -> Option<Goal> {
    let (what, most) = match looked.look {
        Look::Metrics => ("CPU per message, metrics scraped and pushed", 1.03),
        Look::TracesHundredth => ("CPU per message, traces of 1 %", 1.03),
        Look::Records => {
            let what = "throughput with a record of each message, against none".to_owned();
            return Some(Goal::share(what, 0.6, looked.speed));
        }
        Look::Off | Look::TracesAll => return None,
    };
    let goal = format!("≤ {}", percent(most));
    Some(Goal::new(
        what,
        goal,
        percent(looked.cost),
        looked.cost <= most,
    ))
}

fn idle(idle: &Idle) -> [Goal; 2] {
    let workers = idle.workers;
    let share = idle.core_share;
    let what = format!("idle with {workers} workers, everything on");
    let memory = idle.resident_kib;
    [
        Goal::new(
            format!("{what}: of a core"),
            "< 1 %",
            format!("{:.2} %", share * 100.0),
            share < 0.01,
        ),
        Goal::new(
            format!("{what}: resident"),
            "≤ 40 MiB",
            megabytes(memory),
            memory <= 40 * 1024,
        ),
    ]
}

/// Makes the goals for the cost at the largest size.
fn flat(report: &Report) -> Vec<Goal> {
    let Some(scaling) = &report.scaling else {
        return Vec::new();
    };
    let largest = [("workers", &scaling.workers), ("pools", &scaling.pools)];
    let largest = largest.into_iter().filter_map(|(what, sizes)| {
        let (first, last) = (sizes.first()?, sizes.last()?);
        let count = |size: &crate::scaling::Size| match what {
            "pools" => size.pools,
            _ => size.workers_per_pool,
        };
        let what = format!(
            "cost per message, {} to {} {what}",
            count(first),
            count(last)
        );
        let met = (0.8..=1.2).contains(&last.cost);
        Some(Goal::new(what, "flat within 20 %", percent(last.cost), met))
    });
    largest.collect()
}
