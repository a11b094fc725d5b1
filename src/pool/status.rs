//! What a pool tells of itself: for the status report, the admin side and the demo. Plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::metrics::Counts;

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
        let counts = &self.counts;
        tracing::info!(
            pool = self.name,
            state = self.state.as_str(),
            workers = self.workers.len(),
            workers_wanted = self.workers_wanted,
            out = self.out,
            done = counts.done,
            done_per_second = format!("{:.1}", self.done_per_second),
            retried = counts.retried,
            requeued = counts.requeued,
            returned = counts.returned,
            dead = counts.dead,
            restarts = counts.restarts,
            likely_duplicates = self.likely_duplicates,
            lag = (!self.lag.is_empty()).then(|| self.lag.values().sum::<u64>()),
            p50_ms = counts.p50_ms,
            p99_ms = counts.p99_ms,
            source_problem = self.source_problem,
            waits_for = self.waits_for,
            breaker_error = self.breaker_error,
            "status of the pool"
        );
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
