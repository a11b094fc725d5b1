//! The table queue on a server: one store for all databases that are reached over a connection. The SQL
//! is in the [`Dialect`].

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::dialect::{Aborted, Dialect, StatementError, Terms};
use super::lasting::{ANSWERS_WITHIN, Lasting, Silent};
use super::lease::{Lease, Tenant};
use super::patience::Patience;
use super::poll_plan::PollPlan;
use super::registry::Endpoint;
use super::seldom::Seldom;
use super::turns::{WriterQueue, in_turn};
use crate::rejected_rows::RejectedRows;
use crate::rules;
use crate::store::{TableStore, Writing, WritingTurn};
use crate::table::finished::Scope;
use crate::table::{Claim, Fault, LookReason, Outlook, Stop, Waiting, Work, Written};
use ganger_config::model::{PoolConfig, TableSource};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;

/// Number of times that a transaction is retried at once after a conflict with others.
pub(super) const CLASHES_MAX: u32 = 5;

/// Parameters with which a source opens its store.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) pool: &'a str,
    scope: Scope,
    lease: Duration,
    poll_interval: Duration,
    /// Queue of the daemon's sources that write to that server.
    turns: WriterQueue,
}

impl<'a> Opening<'a> {
    pub(crate) fn of(config: &TableSource, pool: &'a PoolConfig, turns: WriterQueue) -> Self {
        Self {
            pool: &pool.name,
            scope: Scope::of(pool),
            lease: config.lease,
            poll_interval: config.poll_interval,
            turns,
        }
    }
}

/// A connection that claims and settles the rows of one queue, and another that keeps the lease and
/// listens.
#[derive(Debug)]
pub(crate) struct ServerStore<D: Dialect> {
    pool: String,
    scope: Scope,
    lease: Lease,
    connection: Lasting<D>,
    /// Claims of transactions whose outcome is unknown, since the connection was lost during the commit.
    /// Their rows are not handed out, so they are released.
    doubtful: Vec<Claim>,
    rejected: RejectedRows,
    patience: Patience,
    plan: PollPlan,
    seldom: Seldom,
    turns: WriterQueue,
}

impl<D: Dialect> ServerStore<D> {
    /// Enters this source among the owners; waits for that only if the server was reached. `first` is
    /// the connection that keeps the lease.
    pub(crate) async fn begin(
        place: D::Place,
        first: Option<<D::Place as Endpoint>::Line>,
        opening: Opening<'_>,
    ) -> Self {
        let is_there = first.is_some();
        let tenant = Tenant {
            place: place.clone(),
            pool: opening.pool.to_owned(),
            queue: Arc::clone(&opening.scope.queue),
            lease: opening.lease,
        };
        let mut lease = Lease::begin(tenant, first);
        if is_there {
            lease.entered().await;
        }
        Self {
            pool: opening.pool.to_owned(),
            scope: opening.scope,
            lease,
            connection: Lasting::new(place, None),
            doubtful: Vec::new(),
            rejected: RejectedRows::default(),
            patience: Patience::default(),
            plan: PollPlan::new(D::POLLING, opening.poll_interval),
            seldom: Seldom::unknown(),
            turns: opening.turns,
        }
    }

    /// Does all of the work in one transaction, or none of it.
    async fn write_now(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        D::check_sizes(sizes(work))?;
        Box::pin(self.resolve_doubt()).await?;
        let mut clashes = 0;
        loop {
            let owner = match (&work.ask, self.lease.owner()) {
                (Some(_), Err(problem)) => return Err(Fault::passing(problem)),
                (None, Err(_)) => None,
                (_, Ok(owner)) => Some(owner),
            };
            let terms = Terms {
                pool: &self.pool,
                scope: &self.scope,
                owner,
                rejected: self.rejected.rows(),
                limit: self.patience.statement(),
                searched: self.seldom.searched(),
            };
            let within = self.patience.whole();
            let connection = self.connection.get().await?;
            let write = Box::pin(connection.write(terms, work, &mut self.doubtful));
            let error = match timeout(within, write).await {
                Ok(Ok(written)) => {
                    self.learn_from(work, &written);
                    return Ok(written);
                }
                Ok(Err(Aborted::NotAnOwner)) => {
                    self.lease.doubt();
                    let problem = "others took this source for dead; it enters itself again";
                    return Err(Fault::passing(problem));
                }
                Ok(Err(Aborted::Server(error))) if error.is_a_clash() && clashes < CLASHES_MAX => {
                    clashes += 1;
                    continue;
                }
                Ok(Err(Aborted::Server(error))) => {
                    if let Some(ask) = &work.ask
                        && error.fault().is_permanent
                        && Box::pin(self.pass_over(ask.limits)).await?
                    {
                        continue;
                    }
                    if error.is_out_of_time() {
                        self.patience.grow();
                    }
                    Ok(error)
                }
                Err(_) => {
                    self.patience.grow();
                    Err(Silent(within))
                }
            };
            return self.connection.heard(error.map(Err));
        }
    }

    fn learn_from(&mut self, work: &Work<'_>, written: &Written) {
        self.patience = Patience::default();
        if work.ask.is_some() {
            self.seldom = Seldom::after(written);
        }
        match written.stop {
            Some(Stop::Full | Stop::Long) => self.plan.poll(),
            Some(Stop::Empty) | None => {}
        }
        if !written.claimed.is_empty() {
            self.plan.found();
        }
    }

    /// Finds the rows that the database refuses to have claimed, after it has refused a claim, so that
    /// the same work can be tried without them. Returns whether there are new ones.
    async fn pass_over(&mut self, limits: Limits) -> Result<bool, Fault> {
        let (queue, known) = (&self.scope.queue, self.rejected.rows());
        let refused = async |connection: &mut D| connection.refused(queue, limits, known).await;
        let refused = self.connection.ask(refused).await?;
        Ok(self.rejected.add(refused))
    }

    /// Releases the claims of transactions whose outcome is unknown. Their rows are locked until the
    /// transaction has ended one way or the other, so this waits for that.
    async fn resolve_doubt(&mut self) -> Result<(), Fault> {
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let doubtful = &self.doubtful;
        let freed = async |connection: &mut D| connection.give_back(doubtful).await;
        let freed = self.connection.ask(freed).await?;
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

/// Returns the size of each message that is to be written, in bytes.
fn sizes(work: &Work<'_>) -> impl Iterator<Item = usize> {
    let publishes = work.publishes.iter();
    let publishes = publishes.map(|publish| publish.message.bytes());
    let settled = work.settled.iter();
    publishes.chain(settled.map(|settled| rules::bytes(&settled.outcome)))
}

#[async_trait(?Send)]
impl<D: Dialect> TableStore for ServerStore<D> {
    async fn woken(&mut self, news: bool) -> LookReason {
        if let Some(enough) = self.plan.uses(news) {
            sleep_until(enough).await;
            self.plan.poll();
        }
        self.lease.notifications().want(self.plan.wants_news());
        if !news {
            return std::future::pending().await;
        }
        let is_told = self.lease.notifications().are_complete();
        let next = self.plan.next_look().filter(|_| !is_told);
        tokio::select! {
            () = self.lease.news() => self.plan.notified(),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                self.plan.looked();
            }
        }
        LookReason::Data
    }

    fn was_fruitful(&mut self) {
        self.plan.found();
    }

    fn losses(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease.losses())
    }

    async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        self.rejected.expire();
        let (queue, known) = (&self.scope.queue, self.rejected.rows());
        let peek = async |connection: &mut D| connection.peek(queue, limits, known).await;
        let began = Instant::now();
        let outlook = self.connection.ask(peek).await;
        self.plan.took(began.elapsed());
        let outlook = outlook?;
        self.seldom = Seldom::of(&outlook);
        if !outlook.ready {
            self.plan.found_nothing();
        }
        Ok(outlook)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault> {
        let waiting = async |connection: &mut D| connection.waiting(queue, most).await;
        self.connection.ask(waiting).await
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        let queues = async |connection: &mut D| connection.queues(most).await;
        self.connection.ask(queues).await
    }

    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        let queue = &self.scope.queue;
        let count = async |connection: &mut D| connection.count_delayed(queue, most).await;
        self.connection.ask(count).await
    }

    async fn is_paused(&mut self) -> Result<bool, Fault> {
        let queue = &self.scope.queue;
        let look = async |connection: &mut D| connection.is_paused(queue).await;
        self.connection.ask(look).await
    }

    async fn sizes(&mut self) -> Option<DatabaseFigures> {
        let bytes = async |connection: &mut D| connection.bytes().await;
        Some(DatabaseFigures {
            file_bytes: self.connection.ask(bytes).await.ok()?,
            journal_bytes: 0,
        })
    }

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Fault> {
        let locked = async |connection: &mut D| connection.locked(rows).await;
        self.connection.ask(locked).await
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
        // The lease ends first: its next heartbeat would enter the row again.
        let owner = self.lease.last_owner();
        self.lease.end();
        let left = async {
            Box::pin(self.resolve_doubt()).await?;
            match owner {
                Some(owner) => {
                    let leave = async |connection: &mut D| connection.leave(owner).await;
                    self.connection.ask(leave).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Settled;
    use ganger_queue::delivery::{Outcome, Outgoing};

    #[test]
    fn the_size_of_all_that_is_written_is_judged() {
        let message = |bytes| Outgoing {
            body: vec![0; bytes].into(),
            ..Outgoing::default()
        };
        let settled = [Settled {
            claim: Claim { row: 1, token: 1 },
            outcome: Outcome::Reply(Box::new(message(300))),
            span: None,
            finished: None,
        }];
        let work = Work {
            settled: &settled,
            ..Work::default()
        };
        assert!(sizes(&work).any(|bytes| bytes >= 300));
        assert_eq!(sizes(&Work::default()).count(), 0);
    }
}
