//! What the project aims for, beside what was found. Each goal is looked at where it says it is
//! measured, or not at all if that was not.

use serde::Serialize;

use crate::flow::Flow;
use crate::report::{Report, megabytes, milliseconds, percent};
use crate::setup::Window;

const KIB: usize = 1024;

/// A goal and whether it is met.
#[derive(Debug, Serialize)]
pub(crate) struct Goal {
    what: String,
    goal: &'static str,
    measured: String,
    met: bool,
}

impl Goal {
    fn new(what: impl Into<String>, goal: &'static str, measured: String, met: bool) -> Self {
        Self {
            what: what.into(),
            goal,
            measured,
            met,
        }
    }

    pub(crate) const HEADER: &[&str] = &["goal", "wanted", "measured", "met"];

    pub(crate) fn row(&self) -> Vec<String> {
        let met = if self.met { "yes" } else { "NO" };
        vec![
            self.what.clone(),
            self.goal.to_owned(),
            self.measured.clone(),
            met.to_owned(),
        ]
    }
}

/// Compares what there is.
pub(crate) fn compare(report: &Report) -> Vec<Goal> {
    let mut goals = Vec::new();
    goals.extend(report.throughput.iter().filter_map(table));
    goals.extend(report.throughput.iter().filter_map(pipe));
    for latency in &report.latency {
        let p99 = latency.committed_p99_ms;
        let what = format!("idle queue to handler, p99, {}", latency.sender);
        goals.push(Goal::new(what, "≤ 2 ms", milliseconds(p99), p99 <= 2.0));
    }
    for memory in &report.memory {
        let (goal, most_kib) = match memory.workers {
            4 => ("≤ 25 MB", 25_000_000 / 1024),
            100 => ("≤ 40 MB", 40_000_000 / 1024),
            _ => continue,
        };
        let what = format!("resident memory, {} workers", memory.workers);
        let met = memory.resident_kib <= most_kib;
        goals.push(Goal::new(what, goal, megabytes(memory.resident_kib), met));
    }
    if let Some(start) = &report.start {
        let what = "start to first message done, p50";
        let met = start.p50_ms <= 50.0;
        goals.push(Goal::new(what, "≤ 50 ms", milliseconds(start.p50_ms), met));
    }
    goals.extend(flat(report));
    goals
}

/// At the defaults, for messages of the usual size.
fn table(flow: &Flow) -> Option<Goal> {
    (flow.window == Window::Auto && flow.body_bytes == KIB).then(|| {
        let what = format!("table, {} workers, against the bare table", flow.workers);
        let ratio = flow.daemon_to_bare_table;
        Goal::new(what, "≥ 60 %", percent(ratio), ratio >= 0.6)
    })
}

fn pipe(flow: &Flow) -> Option<Goal> {
    let Window::Fixed(window @ (8 | 32)) = flow.window else {
        return None;
    };
    (flow.body_bytes == KIB).then(|| {
        let workers = flow.workers;
        let what = format!("pipe, {workers} workers, window {window}, against the bare pipe");
        let ratio = flow.pool_from_memory_to_bare_pipe;
        Goal::new(what, "≥ 80 %", percent(ratio), ratio >= 0.8)
    })
}

/// The cost at the largest size.
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
