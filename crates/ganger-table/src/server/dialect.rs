//! The SQL of a database as the stores of messages and of finished messages use it, over one connection.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use super::poll_plan::Polling;
use super::rare_rows::Searched;
use super::reconnecting::Openable;
use super::registry::{self, RequestFailure};
use crate::table::finished::{Entry, Found, Scope};
use crate::table::{
    Claim, ClaimRequest, Fault, PeekResult, Settled, Stop, WaitingRows, Work, WriteResult,
};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Identity, Outcome};

/// Error of a statement.
pub(crate) trait StatementError: Debug + Into<RequestFailure> {
    fn fault(&self) -> Fault;

    /// Returns whether other transactions were in the way: a retry may succeed at once.
    fn is_conflict(&self) -> bool;

    /// Returns whether the server ended the statement because it took too long.
    fn is_timeout(&self) -> bool;

    /// Returns whether the server refuses the statement, and would again: its content, or because a table, a
    /// column or a right is missing.
    fn is_refusal(&self) -> bool;
}

/// Reason that a transaction was rolled back.
#[derive(Debug)]
pub(crate) enum Aborted<E> {
    Server(E),
    /// Others have removed this source from the owners.
    NotAnOwner,
}

impl<E> From<E> for Aborted<E> {
    fn from(error: E) -> Self {
        Self::Server(error)
    }
}

/// Conditions of a transaction, and the source for which it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteContext<'a> {
    pub(crate) pool: &'a str,
    pub(crate) scope: &'a Scope,
    /// Owner of new claims; none if nothing is claimed.
    pub(crate) owner: Option<i64>,
    /// Rows that must not be claimed.
    pub(crate) rejected: &'a [i64],
    /// Maximum duration of a statement, if it is not the usual one.
    pub(crate) limit: Option<Duration>,
    pub(crate) searched: Searched,
}

impl WriteContext<'_> {
    /// Corrects the reason that a claim ended, by the rows that it left.
    pub(crate) fn stop(self, stop: Stop, ask: &ClaimRequest<'_>, left: &PeekResult) -> Stop {
        match stop {
            Stop::Empty if self.searched.has_missed(left) => Stop::Long,
            // The rest did not fit.
            Stop::Empty if left.ready => {
                ask.share.deny();
                Stop::Full
            }
            // There were no more rows than the limit.
            Stop::Full if !left.ready => Stop::Empty,
            stop => stop,
        }
    }
}

/// Returns the settlements to apply once their entries are written, and the claims of repetitions: those
/// that had an earlier entry.
pub(crate) fn after_entering(settled: &[Settled], first: Found) -> (Vec<Settled>, Vec<Claim>) {
    let mut first = first.into_iter();
    let mut repeated = Vec::new();
    let after = |one: &Settled| {
        let first = one.entry().and_then(|_| first.next().flatten());
        if first.is_some() {
            repeated.push(one.claim);
        }
        one.after(first).into_owned()
    };
    let settled = settled.iter().map(after).collect();
    (settled, repeated)
}

/// Returns settlements that release these claims uncharged.
pub(crate) fn given_back(claims: &[Claim]) -> Vec<Settled> {
    let back = |claim: &Claim| Settled {
        claim: *claim,
        outcome: Outcome::Return { suspect: false },
        span: None,
        finished: None,
        occurrence: None,
        recorded: None,
    };
    claims.iter().map(back).collect()
}

/// A connection to a database, with the SQL that claims, settles and reads its queues.
pub(crate) trait Dialect:
    Openable<Target: registry::Endpoint + Clone, Error: StatementError> + Debug + Send + 'static
{
    /// Times at which a queue is polled.
    const POLLING: Polling;

    /// Rejects messages of these sizes, in bytes, if no statement can hold one of them.
    fn check_sizes(_bytes: impl Iterator<Item = usize>) -> Result<(), Fault> {
        Ok(())
    }

    /// Does the work in one transaction. Its claims are in `unconfirmed` while its outcome is unknown.
    async fn write(
        &mut self,
        context: WriteContext<'_>,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<Self::Error>>;

    /// Releases those of these claims that took effect after all. Returns the number released.
    async fn give_back(&mut self, claims: &[Claim]) -> Result<usize, Self::Error>;

    /// Finds rows, in addition to the known ones, that the database refuses to have claimed or
    /// dead-lettered.
    async fn refused(
        &mut self,
        queue: &str,
        limits: Limits,
        known: &[i64],
    ) -> Result<Vec<i64>, Self::Error>;

    /// Checks without a lock whether the queue has rows to claim, except the rejected ones.
    async fn peek(
        &mut self,
        queue: &str,
        limits: Limits,
        rejected: &[i64],
    ) -> Result<PeekResult, Self::Error>;

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, Self::Error>;

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Self::Error>;

    async fn count_delayed(&mut self, queue: &str, most: u32) -> Result<u64, Self::Error>;

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Self::Error>;

    /// Returns the size of the tables, in bytes.
    async fn bytes(&mut self) -> Result<u64, Self::Error>;

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Self::Error>;

    /// Releases the owner's remaining claims, with the attempt charged, and removes the owner.
    async fn leave(&mut self, owner: i64) -> Result<(), Self::Error>;

    /// Writes entries of finished messages in a transaction of its own. Returns the earlier entries,
    /// which stay unchanged.
    async fn enter(&mut self, scope: &Scope, entries: &[Entry<'_>]) -> Result<Found, Self::Error>;

    async fn find(&mut self, scope: &Scope, identities: &[&Identity])
    -> Result<Found, Self::Error>;

    /// Removes at most `most` expired entries. Returns their number.
    async fn expire(&mut self, most: u32) -> Result<u64, Self::Error>;
}
