//! Types shared by the source task and the database behind it. This module knows no SQL. Times are
//! durations from now: only the adapters read the wall clock.

pub(crate) mod finished;
pub(crate) mod headers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use ganger_core::budget::{Hold, Share};
use ganger_core::trace_context::SpanContext;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{
    Begun, Failure, Finished, History, Message, MessageEnd, Outcome, Publish, RecordedEnd,
};

/// A claimed row: its id, and the claim's token, without which a settlement of the row has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) row: i64,
    pub(crate) token: i64,
}

impl Claim {
    /// Returns the number by which the pool settles it.
    pub(crate) fn number(self) -> u64 {
        self.token.unsigned_abs()
    }
}

/// Settlement of a claimed row.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub(crate) claim: Claim,
    pub(crate) outcome: Outcome,
    /// Span of the attempt, if it was recorded.
    pub(crate) span: Option<SpanContext>,
    /// Entry to be written in the same transaction.
    pub(crate) finished: Option<Box<Finished>>,
    /// Its occurrence in the ledger.
    pub(crate) occurrence: Option<OccurrenceRun>,
    /// Its end, if the ledger records that without an occurrence.
    pub(crate) recorded: Option<Box<RecordedEnd>>,
}

impl Settled {
    /// Returns whether the ledger shows its end.
    pub(crate) fn is_in_ledger(&self) -> bool {
        self.occurrence.is_some() || self.recorded.is_some()
    }

    /// Replaces the outcome, which the database does not take.
    pub(crate) fn settle_otherwise(&mut self, outcome: Outcome, wanted: &Self) {
        self.occurrence.clone_from(&wanted.occurrence);
        self.recorded.clone_from(&wanted.recorded);
        if let (Some(end), Some(failure)) = (&mut self.recorded, outcome.failure()) {
            end.end = MessageEnd::of(failure);
        }
        self.outcome = outcome;
    }
}

/// A run of an occurrence in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OccurrenceRun {
    pub(crate) id: Arc<str>,
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// Its beginning; none if no worker has got it.
    pub(crate) begun: Option<Begun>,
    /// Answer of the worker that has done it without a reply.
    pub(crate) result: Bytes,
}

/// A claimed row.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) claim: Claim,
    /// True if it is suspected of taking the daemon down.
    pub(crate) suspect: bool,
    pub(crate) hold: Hold,
    pub(crate) message: Message,
    pub(crate) history: History,
    /// Id of its occurrence in the ledger.
    pub(crate) occurrence: Option<Arc<str>>,
}

/// Work for one transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work<'a> {
    pub(crate) publishes: &'a [Publish],
    pub(crate) settled: &'a [Settled],
    /// Runs that have begun and are not settled yet, by the claims of their rows.
    pub(crate) begun: &'a [(Claim, OccurrenceRun)],
    /// Request for rows to claim after that.
    pub(crate) ask: Option<ClaimRequest<'a>>,
    /// Writes something even if there is nothing else to write, to find out whether the database accepts
    /// it.
    pub(crate) probe: bool,
}

/// Limits of one claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimRequest<'a> {
    /// Maximum number of rows.
    pub(crate) rows: usize,
    /// Memory budget that the rows have to fit into.
    pub(crate) share: &'a Share,
    /// One suspect may be claimed as well, even if the budget has no room for it.
    pub(crate) suspect: bool,
    pub(crate) limits: Limits,
}

/// A row that was moved to the dead letters without being handed out.
#[derive(Debug)]
pub(crate) struct Buried {
    pub(crate) row: i64,
    /// Empty if it has none.
    pub(crate) correlation_id: String,
    pub(crate) failure: Failure,
}

/// Result of a transaction.
#[derive(Debug, Default)]
pub(crate) struct WriteResult {
    /// Settlements of finished work whose row was no longer claimed by this daemon.
    pub(crate) lost: Vec<Claim>,
    /// Settlements of work that, by an existing entry, was already done.
    pub(crate) repeated: Vec<Claim>,
    pub(crate) claimed: Vec<Claimed>,
    /// Rows that were moved to the dead letters instead.
    pub(crate) buried: Vec<Buried>,
    /// Reason that the claim ended; none if nothing was to be claimed.
    pub(crate) stop: Option<Stop>,
    /// True if suspects that are ready remain.
    pub(crate) suspects_wait: bool,
    /// Time until the queue's next delayed row falls due, if there is one.
    pub(crate) due_in: Option<Duration>,
}

/// Reason that a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No row was left.
    Empty,
    /// As many rows were claimed as were asked for, or as fit into the memory budget.
    Full,
    /// The transaction reached its limit of rows; there may be more.
    Long,
}

/// Result of a peek at the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeekResult {
    /// True if a row is ready or due that need not wait for the turn for suspects.
    pub(crate) ready: bool,
    /// True if suspects are ready.
    pub(crate) suspects_wait: bool,
    /// Time until the next delayed row falls due, if there is one.
    pub(crate) due_in: Option<Duration>,
}

/// Rows of a queue that could be claimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitingRows {
    /// Number of rows, up to a limit.
    pub(crate) count: u64,
    /// True if the limit was reached: there may be more.
    pub(crate) is_limit: bool,
    /// Age of the oldest ready row, or time since the first due row fell due, whichever is longer.
    pub(crate) oldest: Option<Duration>,
}

/// Maximum number of a queue's priorities that are searched for the oldest row.
pub(crate) const PRIORITIES_MAX: usize = 16;

impl WaitingRows {
    /// Takes the numbers of ready and of due rows, each counted up to `most`, and the time since the
    /// first due row fell due, in milliseconds.
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

    /// Records that one of the rows has waited for `ms` milliseconds.
    pub(crate) fn is_for(&mut self, ms: i64) {
        let age = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        self.oldest = self.oldest.max(Some(age));
    }
}

/// Reason for the source to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Another connection has committed.
    Data,
    /// A process has closed its lock file.
    Owners,
}

/// Reason that a request to the database failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Description of the problem, in a sentence.
    pub(crate) problem: String,
    /// True if the database rejects the content itself, and would reject it again later. Otherwise the
    /// problem is the database or its environment, and the same may succeed later.
    pub(crate) is_permanent: bool,
    /// True if another program held a lock for longer than the statement waits.
    pub(crate) is_lock_timeout: bool,
}

impl Fault {
    /// Makes a transient fault.
    pub(crate) fn transient(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            is_permanent: false,
            is_lock_timeout: false,
        }
    }
}

/// Returns the name of a row's message in log records, if its dead letter knows the row.
pub(crate) fn message_name(queue: &str, row: Option<i64>) -> Option<String> {
    row.map(|row| row_name(queue, row))
}

/// Returns the name of a row's message in log records.
pub(crate) fn row_name(queue: &str, row: i64) -> String {
    format!("{queue}:{row}")
}
