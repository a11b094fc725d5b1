//! The table queue in PostgreSQL: a connection that claims and settles, another that keeps the lease
//! and listens, and everything that is PostgreSQL's own behind them. The source task above knows none
//! of this.

mod claim;
pub(crate) mod client;
pub(crate) mod columns;
pub(crate) mod error;
pub(crate) mod finished;
mod front;
pub(crate) mod line;
pub(crate) mod owners;
mod passed_over;
pub(crate) mod pooler;
pub(crate) mod row;
pub(crate) mod schema;
mod session;
pub(crate) mod settle;
mod slumber;
mod tls;
pub(crate) mod topics;
mod transaction;
pub(crate) mod unique;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::Error;

use super::table::finished::Scope;
use super::table::lease::{Lease, Tenant};
use super::table::passed_over::PassedOver;
use super::table::patience::Patience;
use super::table::{Claim, Fault, LookReason, Outlook, Stop, Work, Written};
use crate::config::model::PostgresDatabase;
use crate::delivery::DatabaseFigures;
use crate::rules::{self, Limits};
pub use error::PostgresError;
use error::{
    CLASHES_MAX, ends_the_connection, fault, is_a_clash, is_out_of_time, lost, passing, silent,
};
use front::Front;
use line::{ANSWERS_WITHIN, Place};
use session::Session;
use slumber::Slumber;
use transaction::{Transaction, Undone, give_back};

/// What claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) struct Store {
    place: Place,
    pool: String,
    scope: Scope,
    lease: Lease,
    session: Option<Session>,
    /// Claims of which nobody knows whether they were made: the connection was lost while the
    /// transaction ended. Nobody has them, so they must not stay with us.
    doubtful: Vec<Claim>,
    passed_over: PassedOver,
    front: Front,
    patience: Patience,
    slumber: Slumber,
}

impl Store {
    /// Connects, and enters this source among the owners. A server that can't be reached is waited
    /// for later.
    pub(crate) async fn open(
        database: &PostgresDatabase,
        pool: &str,
        scope: Scope,
        (lease, poll_interval): (Duration, Duration),
    ) -> Result<Self, PostgresError> {
        let place = Place::of(database, &format!("ganger {pool}"))?;
        let first = match place.connect().await {
            Ok(line) => Some(line),
            Err(error) if error.is_passing() => None,
            Err(error) => return Err(error),
        };
        if let Some(line) = &first {
            pooler::refuse(&place, line).await?;
        }
        if place.is_pooled {
            tracing::info!(
                pool,
                "behind a pooler: new messages are found by poll_interval, and daemons that died known by their lease"
            );
        }
        let is_there = first.is_some();
        let tenant = Tenant {
            place: place.clone(),
            pool: pool.to_owned(),
            queue: Arc::clone(&scope.queue),
            lease,
        };
        let mut lease = Lease::begin(tenant, first);
        if is_there {
            lease.entered().await;
        }
        Ok(Self {
            place,
            pool: pool.to_owned(),
            scope,
            lease,
            session: None,
            doubtful: Vec::new(),
            passed_over: PassedOver::default(),
            front: Front::default(),
            patience: Patience::default(),
            slumber: Slumber::new(poll_interval),
        })
    }

    /// Resolves when there may be something new. Loses nothing when it is dropped.
    pub(crate) async fn woken(&mut self, news: bool) -> LookReason {
        if let Some(enough) = self.slumber.uses(news) {
            sleep_until(enough).await;
            self.slumber.wake();
        }
        self.lease.sleep().want(self.slumber.is_wanted());
        if !news {
            return std::future::pending().await;
        }
        let is_told = self.lease.sleep().is_told();
        let next = self.slumber.next_look().filter(|_| !is_told);
        tokio::select! {
            () = self.lease.news() => self.slumber.told(),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                self.slumber.looked();
            }
        }
        LookReason::Data
    }

    /// The last news were of a row for us.
    pub(crate) fn was_fruitful(&mut self) {
        self.slumber.found();
    }

    /// How often it was that others may have had what is claimed here.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.lease.losses()
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(crate) async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        self.passed_over.expire();
        self.session().await?;
        let Some(session) = &self.session else {
            return Err(lost());
        };
        let (front, passed_over) = (&mut self.front, self.passed_over.rows());
        let beyond = front.beyond(Instant::now());
        let look = session.look(front, &self.scope.queue, limits, passed_over, beyond);
        let peeked = timeout(ANSWERS_WITHIN, look).await;
        let outlook = self.heard(peeked.map_err(|_| Silent(ANSWERS_WITHIN)))?;
        if !outlook.ready {
            self.slumber.found_nothing();
        }
        Ok(outlook)
    }

    /// Counts what the queue has to claim, as far as it goes, taking no lock.
    pub(crate) async fn count_ready(&mut self, most: u32) -> Result<u64, Fault> {
        let queue = Arc::clone(&self.scope.queue);
        let session = self.session().await?;
        let count = claim::count_ready(&session.line.client, &session.looks, &queue, most);
        let counted = timeout(ANSWERS_WITHIN, count).await;
        self.heard(counted.map_err(|_| Silent(ANSWERS_WITHIN)))
    }

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    pub(crate) async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        let queue = Arc::clone(&self.scope.queue);
        let session = self.session().await?;
        let count = claim::count_delayed(&session.line.client, &session.looks, &queue, most);
        let counted = timeout(ANSWERS_WITHIN, count).await;
        self.heard(counted.map_err(|_| Silent(ANSWERS_WITHIN)))
    }

    /// How large the tables are, as files with their indexes.
    pub(crate) async fn sizes(&mut self) -> Result<DatabaseFigures, Fault> {
        let session = self.session().await?;
        let sizes = "SELECT coalesce(sum(pg_total_relation_size(name)), 0)::bigint
                     FROM (VALUES ('consumer_messages'::regclass), ('poisoned_messages')) AS t(name)";
        let asked = timeout(ANSWERS_WITHIN, session.line.client.query_one(sizes, &[])).await;
        let row = self.heard(asked.map_err(|_| Silent(ANSWERS_WITHIN)))?;
        let bytes: i64 = row.get(0);
        Ok(DatabaseFigures {
            file_bytes: bytes.unsigned_abs(),
            journal_bytes: 0,
        })
    }

    /// Does all of the work in one transaction, or none of it.
    pub(crate) async fn write(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        too_large(work)?;
        Box::pin(self.resolve_doubt()).await?;
        let mut clashes = 0;
        loop {
            let owner = match (&work.ask, self.lease.owner()) {
                (Some(_), Err(problem)) => return Err(passing(problem)),
                (None, Err(_)) => None,
                (_, Ok(owner)) => Some(owner),
            };
            self.session().await?;
            let Some(session) = &self.session else {
                return Err(lost());
            };
            let transaction = Transaction {
                session,
                pool: &self.pool,
                scope: &self.scope,
                owner,
                passed_over: self.passed_over.rows(),
                limit: self.patience.statement(),
            };
            let (doubtful, front) = (&mut self.doubtful, &mut self.front);
            let within = self.patience.whole();
            let write = Box::pin(transaction.write(work, doubtful, front));
            let written = timeout(within, write).await;
            let error = match written {
                Ok(Ok(written)) => {
                    self.patience = Patience::default();
                    match written.stop {
                        Some(Stop::Full | Stop::Long) => self.slumber.wake(),
                        Some(Stop::Empty) | None => {}
                    }
                    if !written.claimed.is_empty() {
                        self.slumber.found();
                    }
                    return Ok(written);
                }
                Ok(Err(Undone::Unseated)) => {
                    self.lease.doubt();
                    let problem = "others took this source for dead; it enters itself again";
                    return Err(passing(problem.to_owned()));
                }
                Ok(Err(Undone::Server(error))) if is_a_clash(&error) && clashes < CLASHES_MAX => {
                    clashes += 1;
                    continue;
                }
                Ok(Err(Undone::Server(error))) => {
                    if let Some(ask) = &work.ask
                        && fault(&error).for_good
                        && Box::pin(self.pass_over(ask.limits)).await?
                    {
                        continue;
                    }
                    if is_out_of_time(&error) {
                        self.patience.grow();
                    }
                    Ok(error)
                }
                Err(_) => {
                    self.patience.grow();
                    Err(Silent(within))
                }
            };
            return self.heard(error.map(Err));
        }
    }

    /// Finds the rows that the database refuses to have claimed, once it has refused something, to try
    /// the same without them. Returns whether that helps.
    async fn pass_over(&mut self, limits: Limits) -> Result<bool, Fault> {
        let (queue, known) = (
            Arc::clone(&self.scope.queue),
            self.passed_over.rows().to_vec(),
        );
        let Session {
            line, statements, ..
        } = self.session().await?;
        let refused = passed_over::refused(&line.client, statements, &queue, limits, &known);
        let refused = timeout(ANSWERS_WITHIN, refused).await;
        let refused = self.heard(refused.map_err(|_| Silent(ANSWERS_WITHIN)))?;
        Ok(self.passed_over.add(refused))
    }

    /// Gives back what may have been claimed by a transaction of which the end was not heard. Its
    /// rows are locked until it has ended, one way or the other, so that is waited for.
    async fn resolve_doubt(&mut self) -> Result<(), Fault> {
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let doubtful = self.doubtful.clone();
        let session = self.session().await?;
        let freed = timeout(ANSWERS_WITHIN, give_back(session, &doubtful)).await;
        let freed = self.heard(freed.map_err(|_| Silent(ANSWERS_WITHIN)))?;
        if freed > 0 {
            tracing::info!(
                pool = self.pool,
                rows = freed,
                "gave back what was claimed just as the connection was lost"
            );
        }
        self.doubtful.clear();
        Ok(())
    }

    /// The connection, made anew where it was lost.
    async fn session(&mut self) -> Result<&Session, Fault> {
        let is_lost = |session: &Session| session.line.client.is_closed();
        if self.session.as_ref().is_some_and(is_lost) {
            self.session = None;
        }
        if self.session.is_none() {
            let opened = Box::pin(Session::open(&self.place)).await;
            self.session = Some(opened.map_err(|error| passing(error.to_string()))?);
        }
        let session = self.session.as_ref();
        session.ok_or_else(lost)
    }

    /// What was answered; without an answer, or after some of them, the connection is given up.
    fn heard<T>(&mut self, answer: Result<Result<T, Error>, Silent>) -> Result<T, Fault> {
        let (ends, fault) = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => (ends_the_connection(&error), fault(&error)),
            Err(Silent(waited)) => (true, silent(waited)),
        };
        if ends && let Some(session) = self.session.take() {
            session.line.hang_up();
        }
        Err(fault)
    }

    /// Leaves the owners and closes the connections.
    pub(crate) async fn close(mut self) {
        // The row would be entered again by the next heartbeat.
        let owner = self.lease.last_owner();
        self.lease.end();
        let left = async {
            Box::pin(self.resolve_doubt()).await?;
            let session = self.session().await?;
            if let Some(owner) = owner {
                let left = owners::leave(&session.line.client, owner).await;
                left.map_err(|error| fault(&error))?;
            }
            Ok::<_, Fault>(())
        };
        let problem = match timeout(ANSWERS_WITHIN, left).await {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault.problem,
            Err(_) => "the server is silent".to_owned(),
        };
        tracing::warn!(
            problem,
            "could not leave the owners; the free lock tells the others"
        );
    }
}

/// No answer has come for as long as one is waited for.
#[derive(Debug)]
struct Silent(Duration);

/// Refuses what no statement can hold.
fn too_large(work: &Work<'_>) -> Result<(), Fault> {
    let publishes = work.publishes.iter();
    let publishes = publishes.map(|publish| publish.message.bytes());
    let settled = work.settled.iter();
    let settled = settled.map(|settled| rules::table::bytes(&settled.outcome));
    error::too_large(publishes.chain(settled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::table::Settled;
    use crate::delivery::{Outcome, Outgoing};

    #[test]
    fn what_no_statement_can_hold_is_refused_for_good() {
        let of = |bytes| {
            let reply = Outgoing {
                body: vec![0; bytes].into(),
                ..Outgoing::default()
            };
            let settled = [Settled {
                claim: Claim { row: 1, token: 1 },
                outcome: Outcome::Reply(Box::new(reply)),
                span: None,
                finished: None,
            }];
            too_large(&Work {
                settled: &settled,
                ..Work::default()
            })
        };
        of(error::MESSAGE_BYTES_MAX).unwrap();
        assert!(of(error::MESSAGE_BYTES_MAX + 1).unwrap_err().for_good);
        too_large(&Work::default()).unwrap();
    }
}
