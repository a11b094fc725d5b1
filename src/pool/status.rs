//! What a pool tells of itself: for the status report, the admin side and the demo. Plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::metrics::{Counts, for_each_counter};

/// A pool at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How it is doing.
    pub state: PoolState,
    /// How many workers it should have.
    pub workers_wanted: usize,
    /// What is wrong with its source, if anything.
    pub source_problem: Option<String>,
    /// What a message of its source that must wait waits for.
    pub waits_for: Option<String>,
    /// The error that most attempts had when the breaker opened, while it is open.
    pub breaker_error: Option<String>,
    /// Messages fetched and not settled.
    pub out: usize,
    /// What it has done since it started.
    pub counts: Counts,
    /// Messages done per second since the last report.
    pub done_per_second: f64,
    /// Messages that were settled too late, so that they may run twice.
    pub likely_duplicates: u64,
    /// Messages that are not done, by part of the queue, where the source knows: Kafka's
    /// partitions.
    pub lag: BTreeMap<String, u64>,
    /// Its workers, by slot.
    pub workers: Vec<WorkerStatus>,
}

/// How a pool is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// No worker is up yet.
    Starting,
    /// It works.
    Running,
    /// Its workers fail one after the other; nothing is pulled but a probe.
    Degraded,
    /// Nearly all attempts fail: what the workers depend on seems to be down. One message at a time
    /// is tried.
    Open,
    /// Its source can't be used; what is in hand goes on.
    SourceDown,
    /// It is stopping.
    Draining,
}

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Its place.
    pub slot: usize,
    /// Its process, once started.
    pub pid: Option<u32>,
    /// waiting, starting, idle, busy, or how far its stop has come.
    pub state: String,
    /// Messages in its hands.
    pub in_flight: usize,
    /// How many it may have.
    pub window: usize,
    /// For how long its current message has been worked on, in seconds.
    pub message_age: Option<f64>,
    /// Messages that it has answered.
    pub answered: u64,
    /// What it last said of its progress.
    pub progress: Option<String>,
}

impl PoolState {
    /// What logs call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Open => "open",
            Self::SourceDown => "source down",
            Self::Draining => "draining",
        }
    }
}

impl PoolStatus {
    /// Writes the report to the log: one record for the pool, one for each worker.
    pub fn log(&self) {
        let (status, counts) = (self, &self.counts);
        macro_rules! record {
            ($($(#[$doc:meta])* $counter:ident)*) => {
                tracing::info!(
                    pool = status.name,
                    state = status.state.as_str(),
                    workers = status.workers.len(),
                    workers_wanted = status.workers_wanted,
                    out = status.out,
                    $($counter = counts.$counter,)*
                    done_per_second = format!("{:.1}", status.done_per_second),
                    likely_duplicates = status.likely_duplicates,
                    lag = (!status.lag.is_empty()).then(|| status.lag.values().sum::<u64>()),
                    p50_ms = counts.p50_ms,
                    p99_ms = counts.p99_ms,
                    source_problem = status.source_problem,
                    waits_for = status.waits_for,
                    breaker_error = status.breaker_error,
                    "status of the pool"
                )
            };
        }
        for_each_counter!(record);
        for (partition, lag) in &self.lag {
            tracing::info!(pool = self.name, partition, lag, "status of the partition");
        }
        for worker in &self.workers {
            tracing::info!(
                pool = self.name,
                worker = worker.slot,
                pid = worker.pid,
                state = worker.state,
                in_flight = worker.in_flight,
                window = worker.window,
                message_age = worker
                    .message_age
                    .map(|age| format!("{:?}", Duration::from_secs_f64(age))),
                answered = worker.answered,
                progress = worker.progress,
                "status of the worker"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::logged;

    #[test]
    fn the_report_has_every_count() {
        let status = PoolStatus {
            name: "p".to_owned(),
            state: PoolState::SourceDown,
            workers_wanted: 3,
            source_problem: Some("gone".to_owned()),
            waits_for: None,
            breaker_error: None,
            out: 7,
            counts: Counts {
                done: 11,
                notes: 12,
                ..Counts::default()
            },
            done_per_second: 1.25,
            likely_duplicates: 13,
            lag: BTreeMap::from([("orders/0".to_owned(), 4), ("orders/1".to_owned(), 5)]),
            workers: Vec::new(),
        };
        let text = logged("info", || status.log());
        let report = text.lines().next().unwrap();
        let counts = serde_json::to_value(&status.counts).unwrap();
        for (name, count) in counts.as_object().unwrap() {
            let shown = format!(" {name}={count}");
            let whole = shown.strip_suffix(".0").unwrap_or(&shown);
            assert!(report.contains(whole), "{shown} in {report}");
        }
        assert!(report.contains(" state=\"source down\""), "{report}");
        assert!(report.contains(" lag=9"), "{report}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
