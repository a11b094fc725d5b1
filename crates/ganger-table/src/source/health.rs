//! Health issues of a table source, and log records about single rows.

use crate::table::{Claim, Fault, Settled};
use ganger_queue::delivery::SourceEnd;
use ganger_queue::health;

/// Health of one source.
pub(super) type Health = health::Health<HealthIssue>;

/// Issues, independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HealthIssue {
    /// The database can't be read or written.
    Table,
    /// The database permanently rejects settlements.
    Parked,
    /// Another program has locked rows that are to be settled.
    Locked,
}

impl health::Issue for HealthIssue {
    fn description(self) -> &'static str {
        match self {
            Self::Table => "the table can't be used; intake pauses",
            Self::Parked => {
                "settlements are rejected; they are kept and retried, other messages are unaffected"
            }
            Self::Locked => {
                "rows are locked; their settlements wait, other messages are unaffected"
            }
        }
    }

    fn is_down(self) -> bool {
        match self {
            Self::Table => true,
            Self::Parked | Self::Locked => false,
        }
    }
}

/// Counts and logs settlements that came too late.
pub(super) fn lost(pool: &str, end: &SourceEnd, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    // Counted before it is logged: a reader of the log may query the figure.
    end.may_run_twice(claims.len() as u64);
    for claim in claims {
        tracing::warn!(
            pool,
            row = claim.row,
            "settled too late: the claim was taken back, so the message may run twice"
        );
    }
}

/// Counts and logs messages that turned out to be done already, after they were done again.
pub(super) fn repeated(pool: &str, end: &SourceEnd, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    // Counted before it is logged: a reader of the log may query the figure.
    end.may_run_twice(claims.len() as u64);
    for claim in claims {
        tracing::warn!(
            pool,
            row = claim.row,
            "message processed twice: another message with its key, or another daemon, finished first"
        );
    }
}

/// Logs a settlement that the database permanently rejects.
pub(super) fn rejected(pool: &str, settled: &Settled, fault: &Fault) {
    tracing::error!(
        pool,
        row = settled.claim.row,
        problem = fault.problem,
        "settlement permanently rejected; kept and retried every minute"
    );
}

/// Logs a finished message without an entry: a repetition of it would not be recognised.
pub(super) fn not_entered(pool: &str, settled: &Settled, fault: &Fault) {
    tracing::error!(
        pool,
        row = settled.claim.row,
        problem = fault.problem,
        "the database rejects the entry of a finished message: a repetition would be processed again"
    );
}

/// Logs a settlement that the ledger does not show.
pub(super) fn not_recorded(pool: &str, settled: &Settled, fault: &Fault) {
    tracing::error!(
        pool,
        row = settled.claim.row,
        problem = fault.problem,
        "the database rejects the end of an occurrence: the ledger does not show it"
    );
}

/// Logs settlements that are given up.
pub(super) fn given_up(pool: &str, given_up: impl IntoIterator<Item = Settled>) {
    for settled in given_up {
        tracing::error!(
            pool,
            row = settled.claim.row,
            "rejected settlement given up; its message is redelivered after the daemon has ended"
        );
    }
}
