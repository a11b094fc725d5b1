//! The table queue in PostgreSQL: a connection that claims and settles, another that keeps the lease
//! and listens, and everything that is PostgreSQL's own behind them. The source task above knows none
//! of this.

pub(crate) mod claim;
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
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::table::finished::Scope;
use super::table::{Claim, Fault, LookReason, Outlook, Stop, Waiting, Work, Written};
use crate::on_server::lasting::{ANSWERS_WITHIN, Lasting, Silent};
use crate::on_server::lease::{Lease, Tenant};
use crate::on_server::passed_over::PassedOver;
use crate::on_server::patience::Patience;
use crate::on_server::seldom::Seldom;
use crate::on_server::turns::{Line, in_turn};
use crate::rules;
use crate::store::{TableStore, Writing, WritingTurn};
pub(crate) use error::PostgresError;
use error::{CLASHES_MAX, fault, is_a_clash, is_out_of_time};
use front::Front;
use ganger_config::model::PostgresDatabase;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;
use line::Place;
use session::Session;
use slumber::Slumber;
use transaction::{Transaction, Undone, give_back};

/// What claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) struct Store {
    pool: String,
    scope: Scope,
    lease: Lease,
    session: Lasting<Session>,
    /// Claims of which nobody knows whether they were made: the connection was lost while the
    /// transaction ended. Nobody has them, so they must not stay with us.
    doubtful: Vec<Claim>,
    passed_over: PassedOver,
    front: Front,
    patience: Patience,
    slumber: Slumber,
    seldom: Seldom,
    /// Where it waits for its turn to write.
    turns: Line,
}

impl Store {
    /// Connects, and enters this source among the owners. A server that can't be reached is waited
    /// for later.
    pub(crate) async fn open(
        database: &PostgresDatabase,
        pool: &str,
        scope: Scope,
        (lease, poll_interval): (Duration, Duration),
        turns: Line,
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
            pool: pool.to_owned(),
            scope,
            lease,
            session: Lasting::new(place, None),
            doubtful: Vec::new(),
            passed_over: PassedOver::default(),
            front: Front::default(),
            patience: Patience::default(),
            slumber: Slumber::new(poll_interval),
            seldom: Seldom::unknown(),
            turns,
        })
    }

    /// Does all of the work in one transaction, or none of it.
    async fn write_now(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        too_large(work)?;
        Box::pin(self.resolve_doubt()).await?;
        let mut clashes = 0;
        loop {
            let owner = match (&work.ask, self.lease.owner()) {
                (Some(_), Err(problem)) => return Err(Fault::passing(problem)),
                (None, Err(_)) => None,
                (_, Ok(owner)) => Some(owner),
            };
            let transaction = Transaction {
                session: self.session.get().await?,
                pool: &self.pool,
                scope: &self.scope,
                owner,
                passed_over: self.passed_over.rows(),
                limit: self.patience.statement(),
                searched: self.seldom.searched(),
            };
            let (doubtful, front) = (&mut self.doubtful, &mut self.front);
            let within = self.patience.whole();
            let write = Box::pin(transaction.write(work, doubtful, front));
            let written = timeout(within, write).await;
            let error = match written {
                Ok(Ok(written)) => {
                    self.patience = Patience::default();
                    if work.ask.is_some() {
                        self.seldom = Seldom::after(&written);
                    }
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
                    return Err(Fault::passing(problem));
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
            return self.session.heard(error.map(Err));
        }
    }

    /// Finds the rows that the database refuses to have claimed, once it has refused something, to try
    /// the same without them. Returns whether that helps.
    async fn pass_over(&mut self, limits: Limits) -> Result<bool, Fault> {
        let (queue, known) = (&self.scope.queue, self.passed_over.rows());
        let refused = async |session: &mut Session| {
            let Session {
                line, statements, ..
            } = session;
            passed_over::refused(&line.client, statements, queue, limits, known).await
        };
        let refused = self.session.ask(refused).await?;
        Ok(self.passed_over.add(refused))
    }

    /// Gives back what may have been claimed by a transaction of which the end was not heard. Its
    /// rows are locked until it has ended, one way or the other, so that is waited for.
    async fn resolve_doubt(&mut self) -> Result<(), Fault> {
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let doubtful = &self.doubtful;
        let freed = async |session: &mut Session| give_back(session, doubtful).await;
        let freed = self.session.ask(freed).await?;
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
}

#[async_trait(?Send)]
impl TableStore for Store {
    async fn woken(&mut self, news: bool) -> LookReason {
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

    fn was_fruitful(&mut self) {
        self.slumber.found();
    }

    fn losses(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease.losses())
    }

    async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        self.passed_over.expire();
        let (front, passed_over) = (&mut self.front, self.passed_over.rows());
        let queue = &self.scope.queue;
        let look = async |session: &mut Session| {
            let beyond = front.beyond(Instant::now());
            session
                .look(front, queue, limits, passed_over, beyond)
                .await
        };
        let outlook = self.session.ask(look).await?;
        self.seldom = Seldom::of(&outlook);
        if !outlook.ready {
            self.slumber.found_nothing();
        }
        Ok(outlook)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault> {
        let count = async |session: &mut Session| {
            waiting::waiting(&session.line.client, &session.counts, queue, most).await
        };
        self.session.ask(count).await
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        let queues =
            async |session: &mut Session| waiting::queues(&session.line.client, most).await;
        self.session.ask(queues).await
    }

    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        let queue = &self.scope.queue;
        let count = async |session: &mut Session| {
            waiting::count_delayed(&session.line.client, &session.counts, queue, most).await
        };
        self.session.ask(count).await
    }

    async fn is_paused(&mut self) -> Result<bool, Fault> {
        let queue = &self.scope.queue;
        let look =
            async |session: &mut Session| claim::is_paused(&session.line.client, queue).await;
        self.session.ask(look).await
    }

    async fn sizes(&mut self) -> Option<DatabaseFigures> {
        let sizes = "SELECT coalesce(sum(pg_total_relation_size(name)), 0)::bigint
                     FROM (VALUES ('consumer_messages'::regclass), ('poisoned_messages')) AS t(name)";
        let sizes = async |session: &mut Session| {
            session.line.client.query_one(sizes, &[]).await?.try_get(0)
        };
        let bytes: i64 = self.session.ask(sizes).await.ok()?;
        Some(DatabaseFigures {
            file_bytes: bytes.unsigned_abs(),
            journal_bytes: 0,
        })
    }

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Fault> {
        let locked = async |session: &mut Session| settle::locked(&session.line.client, rows).await;
        self.session.ask(locked).await
    }

    fn writing(&self) -> Writing {
        Writing::Server(self.turns.clone())
    }

    async fn write(&mut self, turn: WritingTurn<'_>, work: &Work<'_>) -> Result<Written, Fault> {
        let turn = match turn {
            WritingTurn::Server(turn) => turn,
            WritingTurn::File(_) => None,
        };
        in_turn(turn, self.write_now(work)).await
    }

    async fn close(mut self: Box<Self>) {
        // The row would be entered again by the next heartbeat.
        let owner = self.lease.last_owner();
        self.lease.end();
        let left = async {
            Box::pin(self.resolve_doubt()).await?;
            match owner {
                Some(owner) => {
                    let leave = async |session: &mut Session| {
                        owners::leave(&session.line.client, owner).await
                    };
                    self.session.ask(leave).await
                }
                None => Ok(()),
            }
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

/// Refuses what no statement can hold.
fn too_large(work: &Work<'_>) -> Result<(), Fault> {
    let publishes = work.publishes.iter();
    let publishes = publishes.map(|publish| publish.message.bytes());
    let settled = work.settled.iter();
    let settled = settled.map(|settled| rules::bytes(&settled.outcome));
    error::too_large(publishes.chain(settled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Settled;
    use ganger_queue::delivery::{Outcome, Outgoing};

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
