//! Metrics and their log records: one function per event, so that count and record never diverge. Names
//! and labels live here only.

mod recent;
pub mod spread;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use ganger_queue::delivery::{Failure, LogName, Message, Outcome, Reason, SourceFacts};
use recent::Recent;
use spread::{Spread, SpreadCell};

/// All counters of a pool, one line each, for macros that build something of every counter: a new one is
/// counted from zero, is part of the counts at any moment and appears in the status report.
#[macro_export]
macro_rules! for_each_counter {
    ($then:ident) => {
        $then! {
            /// Number of messages taken in from the source.
            taken
            /// Number of finished messages, including those with a reply.
            done
            /// Number of messages finished with a reply.
            replied
            /// Number of times that a worker asked to see a message again.
            requeued
            /// Number of messages given back uncharged.
            returned
            /// Number of failed attempts that are followed by another.
            retried
            /// Number of dead-lettered messages.
            dead
            /// Number of frames that were neither an answer nor known: a newer worker's notes, records
            /// that came after their message was settled.
            notes
            /// Number of emits that the broker has confirmed.
            emitted
            /// Number of workers that ended unexpectedly.
            restarts
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counters of a pool since it started. They live on the pool's thread.
        #[derive(Debug)]
        pub struct Counters {
            pool: String,
            $($name: Cell<u64>,)*
            failed: [Cell<u64>; Reason::ALL.len()],
            dead_for: [Cell<u64>; Reason::ALL.len()],
            ends: [Cell<u64>; WorkerEnd::ALL.len()],
            recent: RefCell<Recent>,
            task_duration: SpreadCell,
            queue_wait: SpreadCell,
            pipe_roundtrip: SpreadCell,
        }

        /// Counts of a pool at one moment.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
            /// Median time from a message's turn at a worker to its answer, in milliseconds, over the
            /// last minutes, five at most.
            pub p50_ms: f64,
            /// 99th percentile of that time, in milliseconds, over the same minutes.
            pub p99_ms: f64,
        }

        impl Counters {
            fn of(pool: &str) -> Self {
                Self {
                    pool: pool.to_owned(),
                    $($name: Cell::default(),)*
                    failed: Default::default(),
                    dead_for: Default::default(),
                    ends: Default::default(),
                    recent: RefCell::new(Recent::new()),
                    task_duration: SpreadCell::default(),
                    queue_wait: SpreadCell::default(),
                    pipe_roundtrip: SpreadCell::default(),
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

/// End of a worker, as counted. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The worker exited by itself.
    Exited,
    /// A signal ended it that ganger did not send.
    Killed,
    /// The kernel killed it for lack of memory.
    OutOfMemory,
    /// Killed because a message timed out.
    TimedOut,
    /// Killed because it was silent.
    Stalled,
    /// It broke the protocol, or closed its pipe and stayed alive.
    ProtocolError,
    /// It never connected.
    NotStarted,
    /// Replaced by a fresh worker because it had reached its limits.
    Recycled,
    /// Stopped on request: a smaller pool, a rolling restart, a shutdown.
    Asked,
    /// A bug: the task that drives it is gone.
    Lost,
}

impl WorkerEnd {
    /// All ends, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Exited,
        Self::Killed,
        Self::OutOfMemory,
        Self::TimedOut,
        Self::Stalled,
        Self::ProtocolError,
        Self::NotStarted,
        Self::Recycled,
        Self::Asked,
        Self::Lost,
    ];

    /// Returns the name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::OutOfMemory => "out_of_memory",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::ProtocolError => "protocol_error",
            Self::NotStarted => "not_started",
            Self::Recycled => "recycled",
            Self::Asked => "asked",
            Self::Lost => "lost",
        }
    }
}

/// Durations of a message, from being taken in to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    /// From its turn at the worker to the answer.
    pub task: Duration,
    /// From being taken in to its turn.
    pub wait: Duration,
    /// From being put into the pipe to the answer.
    pub roundtrip: Duration,
}

impl Durations {
    /// Returns the durations of a message that was taken in, put into the pipe, begun and answered at
    /// these moments.
    pub fn between(taken: Option<Instant>, piped: Instant, begun: Instant, now: Instant) -> Self {
        Self {
            task: now - begun,
            wait: begun - taken.unwrap_or(begun),
            roundtrip: now - piped,
        }
    }
}

/// Counts by kind and distributions of durations, at one moment. Every kind is present, also with zero,
/// so that a series begins before its first event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Details {
    /// Number of failed attempts, by reason; including each message's last one.
    pub failed: BTreeMap<String, u64>,
    /// Number of dead-lettered messages, by reason.
    pub dead: BTreeMap<String, u64>,
    /// Number of workers that ended, by kind of end.
    pub worker_ends: BTreeMap<String, u64>,
    /// Time from a message's turn at a worker to its answer.
    #[schema(value_type = Object)]
    pub task_duration: Spread,
    /// Time from being taken in to the turn at a worker.
    #[schema(value_type = Object)]
    pub queue_wait: Spread,
    /// Time from being put into a worker's pipe to the answer.
    #[schema(value_type = Object)]
    pub pipe_roundtrip: Spread,
}

impl Counters {
    /// Makes the counters of the pool of that name.
    pub fn new(pool: &str) -> Self {
        Self::of(pool)
    }

    /// Counts a settled message.
    pub fn settled(&self, message: &Message, outcome: &Outcome) {
        match outcome {
            Outcome::Done => return add(&self.done),
            Outcome::Reply(_) => {
                add(&self.done);
                return add(&self.replied);
            }
            Outcome::Requeue { .. } => add(&self.requeued),
            Outcome::Return { .. } | Outcome::ReturnAfter { .. } => add(&self.returned),
            Outcome::RetryAfter { failure, .. } => {
                add(&self.retried);
                add(&self.failed[failure.reason as usize]);
            }
            Outcome::DeadLetter(failure) => {
                add(&self.dead);
                add(&self.failed[failure.reason as usize]);
                add(&self.dead_for[failure.reason as usize]);
            }
        }
        log_settled(&self.pool, &LogName::of(message), outcome);
    }

    /// Counts messages taken in from the source.
    pub fn taken(&self, count: usize) {
        self.taken.set(self.taken.get() + count as u64);
    }

    /// Counts messages that no worker had and that were given back, or lost with their holder.
    pub fn given_back(&self, count: usize) {
        self.returned.set(self.returned.get() + count as u64);
    }

    /// Counts an emit that the broker has confirmed.
    pub fn emitted(&self) {
        add(&self.emitted);
    }

    /// Counts an answer of a worker.
    pub fn answered(&self, took: Durations) {
        self.recent.borrow_mut().add(took.task);
        self.task_duration.add(took.task);
        self.queue_wait.add(took.wait);
        self.pipe_roundtrip.add(took.roundtrip);
    }

    /// Counts an unknown frame.
    pub fn note(&self, status: i64) {
        add(&self.notes);
        tracing::debug!(pool = self.pool, status, "frame ignored");
    }

    /// Counts the end of a worker.
    pub fn worker_ended(&self, how: WorkerEnd) {
        add(&self.ends[how as usize]);
    }

    /// Counts a worker that ended unexpectedly.
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

    /// Returns the number of messages answered so far, including failures.
    pub fn answers(&self) -> u64 {
        self.task_duration.count()
    }

    /// Returns the current counts.
    pub fn counts(&self) -> Counts {
        let (p50_ms, p99_ms) = self.recent.borrow_mut().p50_and_p99(Instant::now());
        self.with(p50_ms, p99_ms)
    }
}

impl Counters {
    /// Returns the current counts by kind.
    pub fn details(&self) -> Details {
        let reasons = |counts: &[Cell<u64>]| named(&Reason::ALL.map(Reason::as_str), counts);
        Details {
            failed: reasons(&self.failed),
            dead: reasons(&self.dead_for),
            worker_ends: named(&WorkerEnd::ALL.map(WorkerEnd::as_str), &self.ends),
            task_duration: self.task_duration.read(),
            queue_wait: self.queue_wait.read(),
            pipe_roundtrip: self.pipe_roundtrip.read(),
        }
    }
}

fn named(names: &[&str], counts: &[Cell<u64>]) -> BTreeMap<String, u64> {
    let names = names.iter().map(|name| (*name).to_owned());
    names.zip(counts.iter().map(Cell::get)).collect()
}

/// Logs the outcome of a message that is not done.
fn log_settled(pool: &str, name: &LogName, outcome: &Outcome) {
    let (correlation_id, message_name) = (name.correlation_id(), name.message());
    match outcome {
        Outcome::Done | Outcome::Reply(_) => {}
        Outcome::Requeue { after } => tracing::debug!(
            pool,
            correlation_id,
            message_name,
            ?after,
            "message requeued by the worker"
        ),
        Outcome::Return { suspect } => tracing::debug!(
            pool,
            correlation_id,
            message_name,
            suspect,
            "message returned"
        ),
        Outcome::ReturnAfter { delay } => tracing::debug!(
            pool,
            correlation_id,
            message_name,
            ?delay,
            "message returned for later"
        ),
        Outcome::RetryAfter { delay, failure } => {
            let Failure { reason, error, .. } = &**failure;
            let reason = reason.as_str();
            tracing::warn!(
                pool,
                correlation_id,
                message_name,
                reason,
                error,
                ?delay,
                "attempt failed"
            );
        }
        Outcome::DeadLetter(failure) => dead_lettered(pool, name, failure),
    }
}

/// Logs a message that is given up: by its pool, which counts it, or by its source, without the pool.
pub fn dead_lettered(pool: &str, name: &LogName, failure: &Failure) {
    let (correlation_id, message_name) = (name.correlation_id(), name.message());
    let Failure { reason, error, .. } = failure;
    let reason = reason.as_str();
    tracing::error!(
        pool,
        correlation_id,
        message_name,
        reason,
        error,
        "message dead-lettered"
    );
}

/// Logs a repetition of a finished message: it is acknowledged without being worked on.
pub fn repetition(pool: &str, key: &str, correlation_id: &str, facts: &SourceFacts) {
    facts.note(|figures| *figures.repetitions.get_or_insert_default() += 1);
    tracing::info!(
        pool,
        key,
        correlation_id,
        "repetition acknowledged without being processed"
    );
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_no_digits_that_nobody_measured() {
        for (micros, millis) in [(1023, "1.023"), (839, "0.839"), (57, "0.057")] {
            let counters = Counters::new("p");
            let task = Duration::from_micros(micros);
            counters.answered(Durations {
                task,
                wait: task,
                roundtrip: task,
            });
            assert_eq!(counters.counts().p50_ms.to_string(), millis);
        }
    }

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
        let message = Message {
            queue: "q".into(),
            body: "x".into(),
            headers: Vec::new(),
            correlation_id: "c".into(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        };
        for outcome in &outcomes {
            counters.settled(&message, outcome);
        }
        counters.note(150);
        counters.worker_lost(0, None, "gone", &[]);
        let task = Duration::from_millis(5);
        counters.answered(Durations {
            task,
            wait: 2 * task,
            roundtrip: 3 * task,
        });
        counters.taken(9);
        counters.given_back(1);
        counters.emitted();
        counters.worker_ended(WorkerEnd::TimedOut);
        let counts = counters.counts();
        let expected = Counts {
            taken: 9,
            emitted: 1,
            done: 2,
            replied: 1,
            requeued: 1,
            returned: 3,
            retried: 1,
            dead: 1,
            notes: 1,
            restarts: 1,
            ..counts
        };
        assert_eq!(counts, expected);
        assert!((4.9..5.1).contains(&counts.p50_ms), "{}", counts.p50_ms);
        assert_eq!(counters.answers(), 1);
        let details = counters.details();
        assert_eq!((details.failed["failed"], details.dead["failed"]), (2, 1));
        assert_eq!(details.worker_ends["timed_out"], 1);
        assert_eq!(details.failed.len(), Reason::ALL.len());
        assert!((details.queue_wait.seconds - 0.01).abs() < 1e-9);
        assert!((details.pipe_roundtrip.seconds - 0.015).abs() < 1e-9);
    }

    #[test]
    fn each_kind_has_its_own_place() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
        for (number, end) in WorkerEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, number);
        }
    }
}
