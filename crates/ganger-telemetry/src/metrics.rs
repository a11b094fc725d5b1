//! What is counted, and the log record that goes with it: one function an event, so that a count
//! and its record never part. Names and labels live here only.

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

/// All that a pool counts, one line each, for whoever makes something of every counter: a new one is
/// counted from zero, is part of the counts at any moment and stands in the status report.
#[macro_export]
macro_rules! for_each_counter {
    ($then:ident) => {
        $then! {
            /// Messages taken in from the source.
            taken
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
            /// Emits that the broker has taken.
            emitted
            /// Workers that ended unasked.
            restarts
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What a pool has done since it started. It lives on the pool's thread.
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

        /// The counts at one moment.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
            /// The median time from a message's turn at a worker to its answer, in milliseconds, over the
            /// last minutes, five at most.
            pub p50_ms: f64,
            /// The 99th percentile of it, likewise.
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

/// How a worker ended, as far as it is counted. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerEnd {
    /// It exited by itself.
    Exited,
    /// A signal ended it that was not ours.
    Killed,
    /// The kernel killed it for want of memory.
    OutOfMemory,
    /// We killed it over a message's time.
    TimedOut,
    /// We killed it because it was silent.
    Stalled,
    /// It broke the protocol, or closed its pipe and lived on.
    ProtocolError,
    /// It never connected.
    NotStarted,
    /// It had been there for its time.
    Recycled,
    /// It was asked to leave: a smaller pool, a rolling restart, a stop.
    Asked,
    /// A bug: what drives it is gone.
    Lost,
}

impl WorkerEnd {
    /// All of them, in the order of their numbers.
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

    /// The name that metrics show.
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

/// How long a message took, from being taken in to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// From its turn at the worker to the answer.
    pub task: Duration,
    /// From being taken in to its turn.
    pub wait: Duration,
    /// From being put into the pipe to the answer.
    pub roundtrip: Duration,
}

impl Took {
    /// Of a message that was taken in, put into the pipe, begun and answered at these moments.
    pub fn between(taken: Option<Instant>, piped: Instant, begun: Instant, now: Instant) -> Self {
        Self {
            task: now - begun,
            wait: begun - taken.unwrap_or(begun),
            roundtrip: now - piped,
        }
    }
}

/// What is counted by kind, and how durations are spread, at one moment. Every kind is there, with
/// zero too, so that a series begins before its first event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Details {
    /// Failed attempts, by reason; those that were a message's last included.
    pub failed: BTreeMap<String, u64>,
    /// Messages dead-lettered, by reason.
    pub dead: BTreeMap<String, u64>,
    /// Ends of workers, by how they ended.
    pub worker_ends: BTreeMap<String, u64>,
    /// From a message's turn at a worker to its answer.
    #[schema(value_type = Object)]
    pub task_duration: Spread,
    /// From being taken in to the turn at a worker.
    #[schema(value_type = Object)]
    pub queue_wait: Spread,
    /// From being put into a worker's pipe to the answer.
    #[schema(value_type = Object)]
    pub pipe_roundtrip: Spread,
}

impl Counters {
    /// For the pool of that name.
    pub fn new(pool: &str) -> Self {
        Self::of(pool)
    }

    /// A message has been settled.
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

    /// Messages have been taken in from the source.
    pub fn taken(&self, count: usize) {
        self.taken.set(self.taken.get() + count as u64);
    }

    /// Messages that no worker had were given back, or went down with what held them.
    pub fn given_back(&self, count: usize) {
        self.returned.set(self.returned.get() + count as u64);
    }

    /// The broker has taken an emit.
    pub fn emitted(&self) {
        add(&self.emitted);
    }

    /// A worker answered.
    pub fn answered(&self, took: Took) {
        self.recent.borrow_mut().add(took.task);
        self.task_duration.add(took.task);
        self.queue_wait.add(took.wait);
        self.pipe_roundtrip.add(took.roundtrip);
    }

    /// A frame came that means nothing to us.
    pub fn note(&self, status: i64) {
        add(&self.notes);
        tracing::debug!(pool = self.pool, status, "frame ignored");
    }

    /// A worker ended.
    pub fn worker_ended(&self, how: WorkerEnd) {
        add(&self.ends[how as usize]);
    }

    /// It ended unasked.
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
        self.task_duration.count()
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        let (p50_ms, p99_ms) = self.recent.borrow_mut().p50_and_p99(Instant::now());
        self.with(p50_ms, p99_ms)
    }
}

impl Counters {
    /// What is counted by kind, now.
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

/// Tells what became of a message that is not done.
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
            "message given back"
        ),
        Outcome::ReturnAfter { delay } => tracing::debug!(
            pool,
            correlation_id,
            message_name,
            ?delay,
            "message given back for later"
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

/// A message is given up: by its pool, which counts it, or by its source, over its head.
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

/// A message comes again that is done: it is acknowledged without being worked on.
pub fn repetition(pool: &str, key: &str, correlation_id: &str, facts: &SourceFacts) {
    facts.note(|figures| *figures.repetitions.get_or_insert_default() += 1);
    tracing::info!(
        pool,
        key,
        correlation_id,
        "a repetition: acknowledged without being worked on"
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
            counters.answered(Took {
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
        };
        for outcome in &outcomes {
            counters.settled(&message, outcome);
        }
        counters.note(150);
        counters.worker_lost(0, None, "gone", &[]);
        let task = Duration::from_millis(5);
        counters.answered(Took {
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
