//! The project's goals: those that apply to every source, and the display of any goal.

use serde::Serialize;

use super::show::{megabytes, milliseconds, percent};

/// A goal, and whether it is met.
#[derive(Debug, Serialize)]
pub(crate) struct Goal {
    what: String,
    goal: String,
    measured: String,
    met: bool,
}

impl Goal {
    pub(crate) fn new(
        what: impl Into<String>,
        goal: impl Into<String>,
        measured: String,
        met: bool,
    ) -> Self {
        Self {
            what: what.into(),
            goal: goal.into(),
            measured,
            met,
        }
    }

    /// Makes a goal for a share of another throughput.
    pub(crate) fn share(what: impl Into<String>, least: f64, ratio: f64) -> Self {
        let goal = format!("≥ {}", percent(least));
        Self::new(what, goal, percent(ratio), ratio >= least)
    }

    /// Makes the goal for the latency from an idle queue to a worker's handler.
    pub(crate) fn latency(way: &str, p99_ms: f64) -> Self {
        let what = format!("idle queue to handler, p99, {way}");
        Self::new(what, "≤ 2 ms", milliseconds(p99_ms), p99_ms <= 2.0)
    }

    /// Makes the goal for the daemon's memory, if the pool size has one.
    pub(crate) fn memory(workers: usize, resident_kib: u64) -> Option<Self> {
        let (goal, most_kib) = match workers {
            4 => ("≤ 25 MB", 25_000_000 / 1024),
            100 => ("≤ 40 MB", 40_000_000 / 1024),
            _ => return None,
        };
        let what = format!("resident memory, {workers} workers");
        let met = resident_kib <= most_kib;
        Some(Self::new(what, goal, megabytes(resident_kib), met))
    }

    /// Makes the goal for the time from the daemon's start to its first message done.
    pub(crate) fn start(p50_ms: f64) -> Self {
        let what = "start to first message done, p50";
        Self::new(what, "≤ 50 ms", milliseconds(p50_ms), p50_ms <= 50.0)
    }

    pub(crate) const HEADER: &[&str] = &["goal", "wanted", "measured", "met"];

    pub(crate) fn row(&self) -> Vec<String> {
        let met = if self.met { "yes" } else { "NO" };
        vec![
            self.what.clone(),
            self.goal.clone(),
            self.measured.clone(),
            met.to_owned(),
        ]
    }
}
