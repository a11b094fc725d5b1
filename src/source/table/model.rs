//! The words between the source task and the database behind it. Nothing here knows SQL, and
//! times are durations from now: the wall clock stays in the adapter.

use std::time::Duration;

use crate::delivery::{Failure, History, Message, Outcome, Publish};
use crate::source::Limits;
use crate::source::budget::{Hold, Share};

/// A row in our hands: its id, and the claim without which no settlement of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) row: i64,
    pub(super) token: i64,
}

impl Claim {
    /// The number by which the pool settles it.
    pub(super) fn number(self) -> u64 {
        self.token.unsigned_abs()
    }
}

/// What became of a claimed row.
#[derive(Debug, Clone)]
pub(super) struct Settled {
    pub(super) claim: Claim,
    pub(super) outcome: Outcome,
}

/// One row claimed.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) claim: Claim,
    /// It is suspected of taking the daemon down.
    pub(super) suspect: bool,
    pub(super) hold: Hold,
    pub(super) message: Message,
    pub(super) history: History,
}

/// What is to be written in one transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work<'a> {
    pub(super) publishes: &'a [Publish],
    pub(super) settled: &'a [Settled],
    /// Rows to be claimed after that.
    pub(super) ask: Option<Ask<'a>>,
    /// Write something whatever else there is, to learn whether the database takes it.
    pub(super) probe: bool,
}

/// How much may be claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    /// At most so many rows.
    pub(super) rows: usize,
    /// And as many as it has room for.
    pub(super) share: &'a Share,
    /// One of them may be a suspect; whether there is room for it or not.
    pub(super) suspect: bool,
    pub(super) limits: Limits,
}

/// What a transaction did.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The settlements that found their row no longer ours.
    pub(super) lost: Vec<Claim>,
    pub(super) claimed: Vec<Claimed>,
    /// Rows that went to the dead letters instead.
    pub(super) buried: Vec<(i64, Failure)>,
    /// Why the claim ended; none if there was none.
    pub(super) stop: Option<Stop>,
    /// Suspects are left that are ready.
    pub(super) suspects_wait: bool,
    /// Until the next delayed row of the queue falls due, if one waits.
    pub(super) due_in: Option<Duration>,
}

/// Why a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// No row was left.
    Empty,
    /// As much as was asked for.
    Full,
    /// A transaction should not get longer; there may be more.
    Long,
}

/// What a look at the queue found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outlook {
    /// A row is ready or due that need not wait for its turn.
    pub(super) ready: bool,
    /// Suspects are ready.
    pub(super) suspects_wait: bool,
    /// Until the next delayed row falls due, if one waits.
    pub(super) due_in: Option<Duration>,
}

/// What woke us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// Another connection has written.
    Data,
    /// A process with a lock file has closed it.
    Owners,
}

/// Why the database did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is wrong, in a sentence.
    pub(super) problem: String,
    /// It's what was to be written that it refuses, and it would refuse it tomorrow. Otherwise it
    /// is the database or its surroundings, and the same may succeed later.
    pub(super) for_good: bool,
}
