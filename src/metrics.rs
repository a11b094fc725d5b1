//! What is counted, and the log record that goes with it: one function an event, so that a count
//! and its record never part. Names and labels live here only.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::delivery::{Failure, Outcome};

/// What a pool has done since it started. It lives on the pool's thread.
#[derive(Debug)]
pub struct Counters {
    pool: String,
    done: Cell<u64>,
    replied: Cell<u64>,
    requeued: Cell<u64>,
    returned: Cell<u64>,
    retried: Cell<u64>,
    dead: Cell<u64>,
    notes: Cell<u64>,
    restarts: Cell<u64>,
    durations: RefCell<Histogram<u64>>,
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Counts {
    /// Messages done, those with a reply included.
    pub done: u64,
    /// Messages done with a reply.
    pub replied: u64,
    /// Messages that a worker asked to see again.
    pub requeued: u64,
    /// Messages given back uncharged.
    pub returned: u64,
    /// Failed attempts that are followed by another.
    pub retried: u64,
    /// Messages dead-lettered.
    pub dead: u64,
    /// Frames that were neither an answer nor known: a newer worker's notes, records that came
    /// after their message was settled.
    pub notes: u64,
    /// Workers that ended unasked.
    pub restarts: u64,
    /// The median time from a message's turn at a worker to its answer, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of it, in milliseconds.
    pub p99_ms: f64,
}

/// A percent is as exact as anyone reads, and keeps a histogram at 30 KB.
const DIGITS: u8 = 2;
/// Longer durations, in microseconds, count as this one: a day.
const LONGEST_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

impl Counters {
    /// For the pool of that name.
    pub fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            done: Cell::default(),
            replied: Cell::default(),
            requeued: Cell::default(),
            returned: Cell::default(),
            retried: Cell::default(),
            dead: Cell::default(),
            notes: Cell::default(),
            restarts: Cell::default(),
            durations: RefCell::new(
                Histogram::new_with_bounds(1, LONGEST_MICROS, DIGITS).expect(
                    "the bounds are at least 1 and a factor of 2 apart, the digits at most 5",
                ),
            ),
        }
    }

    /// A message has been settled.
    pub fn settled(&self, correlation_id: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Done => add(&self.done),
            Outcome::Reply(_) => {
                add(&self.done);
                add(&self.replied);
            }
            Outcome::Requeue { after } => {
                add(&self.requeued);
                tracing::debug!(
                    pool = self.pool,
                    correlation_id,
                    ?after,
                    "message requeued by the worker"
                );
            }
            Outcome::Return { suspect } => {
                add(&self.returned);
                tracing::debug!(
                    pool = self.pool,
                    correlation_id,
                    suspect,
                    "message given back"
                );
            }
            Outcome::ReturnAfter { delay } => {
                add(&self.returned);
                tracing::debug!(
                    pool = self.pool,
                    correlation_id,
                    ?delay,
                    "message given back for later"
                );
            }
            Outcome::RetryAfter { delay, failure } => self.retried(correlation_id, *delay, failure),
            Outcome::DeadLetter(failure) => self.dead(correlation_id, failure),
        }
    }

    fn retried(&self, correlation_id: &str, delay: Duration, failure: &Failure) {
        add(&self.retried);
        let Failure { reason, error, .. } = failure;
        let reason = reason.as_str();
        tracing::warn!(
            pool = self.pool,
            correlation_id,
            reason,
            error,
            ?delay,
            "attempt failed"
        );
    }

    fn dead(&self, correlation_id: &str, failure: &Failure) {
        add(&self.dead);
        dead_lettered(&self.pool, correlation_id, failure);
    }

    /// A worker answered after `duration`, counted from the message's turn.
    pub fn answered(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.durations.borrow_mut().saturating_record(micros);
    }

    /// A frame came that means nothing to us.
    pub fn note(&self, status: i64) {
        add(&self.notes);
        tracing::debug!(pool = self.pool, status, "frame ignored");
    }

    /// A worker ended unasked.
    pub fn worker_lost(&self, slot: usize, pid: Option<u32>, cause: &str, stderr: &[String]) {
        add(&self.restarts);
        let stderr = stderr.join("\n");
        tracing::warn!(
            pool = self.pool,
            worker = slot,
            pid,
            cause,
            stderr,
            "worker lost"
        );
    }

    /// All messages that were answered so far, failures included.
    pub fn answers(&self) -> u64 {
        self.durations.borrow().len()
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        let durations = self.durations.borrow();
        let quantile =
            |q| Duration::from_micros(durations.value_at_quantile(q)).as_secs_f64() * 1e3;
        Counts {
            done: self.done.get(),
            replied: self.replied.get(),
            requeued: self.requeued.get(),
            returned: self.returned.get(),
            retried: self.retried.get(),
            dead: self.dead.get(),
            notes: self.notes.get(),
            restarts: self.restarts.get(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        }
    }
}

/// A message is given up: by its pool, which counts it, or by its source, over its head.
pub fn dead_lettered(pool: &str, correlation_id: &str, failure: &Failure) {
    let Failure { reason, error, .. } = failure;
    let reason = reason.as_str();
    tracing::error!(pool, correlation_id, reason, error, "message dead-lettered");
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
