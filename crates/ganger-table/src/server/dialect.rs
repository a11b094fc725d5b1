//! The SQL of a database, as the store and the memory of a server ask for it: one connection's questions.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use super::lasting::Openable;
use super::poll_plan::Polling;
use super::registry::{self, Undone};
use super::seldom::Searched;
use crate::table::finished::{Entry, Found, Scope};
use crate::table::{Ask, Claim, Fault, Outlook, Settled, Stop, Waiting, Work, Written};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Identity, Outcome};

/// The error of a statement.
pub(crate) trait StatementError: Debug + Into<Undone> {
    fn fault(&self) -> Fault;

    /// Others were in the way: the same may succeed at once.
    fn is_a_clash(&self) -> bool;

    /// The server ended the statement because it took too long.
    fn is_out_of_time(&self) -> bool;
}

/// The reason for which a transaction was rolled back.
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

/// What a transaction keeps to, and on whose behalf it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) pool: &'a str,
    pub(crate) scope: &'a Scope,
    /// The owner of what is claimed; none where nothing is.
    pub(crate) owner: Option<i64>,
    /// Rows that are not claimed.
    pub(crate) rejected: &'a [i64],
    /// Longest duration of a statement, where it is not the usual one.
    pub(crate) limit: Option<Duration>,
    pub(crate) searched: Searched,
}

impl Terms<'_> {
    /// Judges why a claim has ended, by a look at what it has left.
    pub(crate) fn stop(self, stop: Stop, ask: &Ask<'_>, left: &Outlook) -> Stop {
        match stop {
            Stop::Empty if self.searched.has_missed(left) => Stop::Long,
            // What is left did not fit.
            Stop::Empty if left.ready => {
                ask.share.deny();
                Stop::Full
            }
            // There were not more than that.
            Stop::Full if !left.ready => Stop::Empty,
            stop => stop,
        }
    }
}

/// What is to be settled once its entries are made, and which of it is a repetition: there was an entry before.
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

/// Makes that of claims which gives them back as if they had not been made.
pub(crate) fn given_back(claims: &[Claim]) -> Vec<Settled> {
    let back = |claim: &Claim| Settled {
        claim: *claim,
        outcome: Outcome::Return { suspect: false },
        span: None,
        finished: None,
    };
    claims.iter().map(back).collect()
}

/// A connection to a database, with the SQL in which queues are claimed, settled and looked at there.
pub(crate) trait Dialect:
    Openable<Place: registry::Endpoint + Clone, Error: StatementError> + Debug + Send + 'static
{
    /// When a queue is looked at.
    const POLLING: Polling;

    /// Refuses messages of so many bytes where no statement can hold one of them.
    fn check_sizes(_bytes: impl Iterator<Item = usize>) -> Result<(), Fault> {
        Ok(())
    }

    /// Does the work in one transaction. Its claims are in `doubtful` for as long as its outcome is unknown.
    async fn write(
        &mut self,
        terms: Terms<'_>,
        work: &Work<'_>,
        doubtful: &mut Vec<Claim>,
    ) -> Result<Written, Aborted<Self::Error>>;

    /// Gives back those of these claims that were made after all. Returns their number.
    async fn give_back(&mut self, claims: &[Claim]) -> Result<usize, Self::Error>;

    /// Finds rows, beyond those that are known, that the database refuses to have claimed or buried.
    async fn refused(
        &mut self,
        queue: &str,
        limits: Limits,
        known: &[i64],
    ) -> Result<Vec<i64>, Self::Error>;

    /// Looks whether the queue has anything to claim but these rows, taking no lock.
    async fn peek(
        &mut self,
        queue: &str,
        limits: Limits,
        rejected: &[i64],
    ) -> Result<Outlook, Self::Error>;

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Self::Error>;

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Self::Error>;

    async fn count_delayed(&mut self, queue: &str, most: u32) -> Result<u64, Self::Error>;

    async fn is_paused(&mut self, queue: &str) -> Result<bool, Self::Error>;

    /// Bytes that the tables take.
    async fn bytes(&mut self) -> Result<u64, Self::Error>;

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Self::Error>;

    /// Gives back what the owner still has claimed, with the attempt charged, and removes it.
    async fn leave(&mut self, owner: i64) -> Result<(), Self::Error>;

    /// Enters what is finished in a transaction of its own. Returns what was entered before, where something was:
    /// that stays as it is.
    async fn enter(&mut self, scope: &Scope, entries: &[Entry<'_>]) -> Result<Found, Self::Error>;

    async fn find(&mut self, scope: &Scope, identities: &[&Identity])
    -> Result<Found, Self::Error>;

    /// Removes at most so many entries that are out of date. Returns their number.
    async fn expire(&mut self, most: u32) -> Result<u64, Self::Error>;
}
