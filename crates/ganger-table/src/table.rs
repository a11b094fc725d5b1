//! The words between the source task and the database behind it. Nothing here knows SQL, and
//! times are durations from now: the wall clock stays in the adapter.

pub(crate) mod finished;
pub(crate) mod headers;

use std::time::Duration;

use ganger_core::budget::{Hold, Share};
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Failure, Finished, History, Message, Outcome, Publish};

/// A row in our hands: its id, and the claim without which no settlement of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) row: i64,
    pub(crate) token: i64,
}

impl Claim {
    /// The number by which the pool settles it.
    pub(crate) fn number(self) -> u64 {
        self.token.unsigned_abs()
    }
}

/// What became of a claimed row.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub(crate) claim: Claim,
    pub(crate) outcome: Outcome,
    /// The span of the attempt, if it was recorded.
    pub(crate) span: Option<SpanContext>,
    /// What is to be entered with it, in the same transaction.
    pub(crate) finished: Option<Box<Finished>>,
}

/// One row claimed.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) claim: Claim,
    /// It is suspected of taking the daemon down.
    pub(crate) suspect: bool,
    pub(crate) hold: Hold,
    pub(crate) message: Message,
    pub(crate) history: History,
}

/// What is to be written in one transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work<'a> {
    pub(crate) publishes: &'a [Publish],
    pub(crate) settled: &'a [Settled],
    /// Rows to be claimed after that.
    pub(crate) ask: Option<Ask<'a>>,
    /// Write something whatever else there is, to learn whether the database takes it.
    pub(crate) probe: bool,
}

/// How much may be claimed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// At most so many rows.
    pub(crate) rows: usize,
    /// And as many as it has room for.
    pub(crate) share: &'a Share,
    /// One of them may be a suspect; whether there is room for it or not.
    pub(crate) suspect: bool,
    pub(crate) limits: Limits,
}

/// A row that went to the dead letters without being handed out.
#[derive(Debug)]
pub(crate) struct Buried {
    pub(crate) row: i64,
    /// Empty where it has none.
    pub(crate) correlation_id: String,
    pub(crate) failure: Failure,
}

/// What a transaction did.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The settlements of work that found their row no longer ours.
    pub(crate) lost: Vec<Claim>,
    /// The settlements of work of which an entry says that it was done before.
    pub(crate) repeated: Vec<Claim>,
    pub(crate) claimed: Vec<Claimed>,
    /// Rows that went to the dead letters instead.
    pub(crate) buried: Vec<Buried>,
    /// Why the claim ended; none if there was none.
    pub(crate) stop: Option<Stop>,
    /// Suspects are left that are ready.
    pub(crate) suspects_wait: bool,
    /// Until the next delayed row of the queue falls due, if one waits.
    pub(crate) due_in: Option<Duration>,
}

/// Why a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No row was left.
    Empty,
    /// As much as was asked for.
    Full,
    /// A transaction should not get longer; there may be more.
    Long,
}

/// What a look at the queue found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// A row is ready or due that need not wait for its turn.
    pub(crate) ready: bool,
    /// Suspects are ready.
    pub(crate) suspects_wait: bool,
    /// Until the next delayed row falls due, if one waits.
    pub(crate) due_in: Option<Duration>,
}

/// Rows of a queue that could be claimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Number of rows, up to a limit.
    pub(crate) count: u64,
    /// The limit was reached: there may be more.
    pub(crate) is_limit: bool,
    /// Age of the oldest of those that have not been delayed, or time since the first of the others fell
    /// due, whichever is longer.
    pub(crate) oldest: Option<Duration>,
}

/// So many priorities of a queue are looked at for the oldest row.
pub(crate) const PRIORITIES_MAX: usize = 16;

impl Waiting {
    /// The numbers of ready and of due rows, each counted up to `most`; the first due one fell due so many
    /// milliseconds ago.
    pub(crate) fn new(ready: u64, due: u64, most: u32, due_for_ms: Option<i64>) -> Self {
        let mut waiting = Self {
            count: (ready + due).min(u64::from(most)),
            is_limit: ready + due >= u64::from(most),
            oldest: None,
        };
        if due > 0
            && let Some(ms) = due_for_ms
        {
            waiting.is_for(ms);
        }
        waiting
    }

    /// One of the rows has waited for so many milliseconds.
    pub(crate) fn is_for(&mut self, ms: i64) {
        let age = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        self.oldest = self.oldest.max(Some(age));
    }
}

/// What woke us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookReason {
    /// Another connection has written.
    Data,
    /// A process with a lock file has closed it.
    Owners,
}

/// Why the database did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What is wrong, in a sentence.
    pub(crate) problem: String,
    /// It's what was to be written that it refuses, and it would refuse it tomorrow. Otherwise it
    /// is the database or its surroundings, and the same may succeed later.
    pub(crate) for_good: bool,
    /// Another program had locked something, and did not let go in time.
    pub(crate) is_of_a_lock: bool,
}

impl Fault {
    /// It is waited for.
    pub(crate) fn passing(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            for_good: false,
            is_of_a_lock: false,
        }
    }
}

/// The name by which log records call the message of a row, as far as its dead letter knows that.
pub(crate) fn message_name(queue: &str, row: Option<i64>) -> Option<String> {
    row.map(|row| format!("{queue}:{row}"))
}
