//! What is counted, and the log record that goes with it: one function an event, so that a count
//! and its record never part. Names and labels live here only.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::delivery::{Failure, Outcome};

/// All that a pool counts, one line each, for whoever makes something of every counter: a new one is
/// counted from zero, is part of the counts at any moment and stands in the status report.
macro_rules! for_each_counter {
    ($then:ident) => {
        $then! {
            /// Messages done, those with a reply included.
            done
            /// Messages done with a reply.
            replied
            /// Messages that a worker asked to see again.
            requeued
            /// Messages given back uncharged.
            returned
            /// Failed attempts that are followed by another.
            retried
            /// Messages dead-lettered.
            dead
            /// Frames that were neither an answer nor known: a newer worker's notes, records that
            /// came after their message was settled.
            notes
            /// Workers that ended unasked.
            restarts
        }
    };
}
pub(crate) use for_each_counter;

macro_rules! define {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What a pool has done since it started. It lives on the pool's thread.
        #[derive(Debug)]
        pub struct Counters {
            pool: String,
            $($name: Cell<u64>,)*
            durations: RefCell<Histogram<u64>>,
        }

        /// The counts at one moment.
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
            /// The median time from a message's turn at a worker to its answer, in milliseconds.
            pub p50_ms: f64,
            /// The 99th percentile of it, in milliseconds.
            pub p99_ms: f64,
        }

        impl Counters {
            fn of(pool: &str, durations: Histogram<u64>) -> Self {
                Self {
                    pool: pool.to_owned(),
                    $($name: Cell::default(),)*
                    durations: RefCell::new(durations),
                }
            }

            fn with(&self, p50_ms: f64, p99_ms: f64) -> Counts {
                Counts {
                    $($name: self.$name.get(),)*
                    p50_ms,
                    p99_ms,
                }
            }
        }
    };
}
for_each_counter!(define);

/// A percent is as exact as anyone reads, and keeps a histogram at 30 KB.
const DIGITS: u8 = 2;
/// Longer durations, in microseconds, count as this one: a day.
const LONGEST_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

impl Counters {
    /// For the pool of that name.
    pub fn new(pool: &str) -> Self {
        let durations = Histogram::new_with_bounds(1, LONGEST_MICROS, DIGITS)
            .expect("the bounds are at least 1 and a factor of 2 apart, the digits at most 5");
        Self::of(pool, durations)
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
        self.with(quantile(0.5), quantile(0.99))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted_under_its_name() {
        let counters = Counters::new("p");
        assert_eq!(counters.counts(), Counts::default());
        let outcomes = [
            Outcome::Done,
            Outcome::Reply(Box::default()),
            Outcome::Requeue {
                after: Duration::ZERO,
            },
            Outcome::Return { suspect: false },
            Outcome::ReturnAfter {
                delay: Duration::ZERO,
            },
            Outcome::RetryAfter {
                delay: Duration::ZERO,
                failure: Box::default(),
            },
            Outcome::DeadLetter(Box::default()),
        ];
        for outcome in &outcomes {
            counters.settled("c", outcome);
        }
        counters.note(150);
        counters.worker_lost(0, None, "gone", &[]);
        counters.answered(Duration::from_millis(5));
        let counts = counters.counts();
        let expected = Counts {
            done: 2,
            replied: 1,
            requeued: 1,
            returned: 2,
            retried: 1,
            dead: 1,
            notes: 1,
            restarts: 1,
            ..counts
        };
        assert_eq!(counts, expected);
        assert!((4.9..5.1).contains(&counts.p50_ms), "{}", counts.p50_ms);
        assert_eq!(counters.answers(), 1);
    }
}
