//! The table queue on a server: one store for all databases that are reached over a connection. The SQL
//! is in the [`Dialect`].

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::dialect::{Aborted, Dialect, StatementError, WriteContext};
use super::lease::{Lease, LeaseConfig};
use super::poll_plan::PollPlan;
use super::rare_rows::RareRows;
use super::reconnecting::{ANSWERS_WITHIN, NoAnswer, Reconnecting};
use super::registry::Endpoint;
use super::time_limits::TimeLimits;
use super::writer_queue::{WriterQueue, in_turn};
use crate::rejected_rows::RejectedRows;
use crate::rules;
use crate::store::{TableStore, Writing, WritingTurn};
use crate::table::finished::Scope;
use crate::table::{Claim, Fault, PeekResult, Stop, WaitingRows, WakeReason, Work, WriteResult};
use ganger_config::model::{PoolConfig, TableSource};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;

/// Number of times that a transaction is retried at once after a conflict with others.
pub(super) const CONFLICTS_MAX: u32 = 5;

/// Parameters with which a source opens its store.
#[derive(Debug)]
pub(crate) struct StoreParams<'a> {
    pub(crate) pool: &'a str,
    scope: Scope,
    lease: Duration,
    poll_interval: Duration,
    /// Queue of the daemon's sources that write to that server.
    turns: WriterQueue,
}

impl<'a> StoreParams<'a> {
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
    connection: Reconnecting<D>,
    /// Claims of transactions whose outcome is unknown, since the connection was lost during the commit.
    /// Their rows are not handed out, so they are released.
    unconfirmed: Vec<Claim>,
    rejected: RejectedRows,
    time_limits: TimeLimits,
    plan: PollPlan,
    rare_rows: RareRows,
    turns: WriterQueue,
}

impl<D: Dialect> ServerStore<D> {
    /// Enters this source among the owners; waits for that only if the server was reached. `first` is
    /// the connection that keeps the lease.
    pub(crate) async fn begin(
        target: D::Target,
        first: Option<<D::Target as Endpoint>::Connection>,
        params: StoreParams<'_>,
    ) -> Self {
        let is_there = first.is_some();
        let config = LeaseConfig {
            target: target.clone(),
            pool: params.pool.to_owned(),
            queue: Arc::clone(&params.scope.queue),
            lease: params.lease,
        };
        let mut lease = Lease::begin(config, first);
        if is_there {
            lease.entered().await;
        }
        Self {
            pool: params.pool.to_owned(),
            scope: params.scope,
            lease,
            connection: Reconnecting::new(target, None),
            unconfirmed: Vec::new(),
            rejected: RejectedRows::default(),
            time_limits: TimeLimits::default(),
            plan: PollPlan::new(D::POLLING, params.poll_interval),
            rare_rows: RareRows::unknown(),
            turns: params.turns,
        }
    }

    /// Does all of the work in one transaction, or none of it.
    async fn write_now(&mut self, work: &Work<'_>) -> Result<WriteResult, Fault> {
        D::check_sizes(sizes(work))?;
        Box::pin(self.release_unconfirmed()).await?;
        let mut conflicts = 0;
        loop {
            let owner = match (&work.ask, self.lease.owner()) {
                (Some(_), Err(problem)) => return Err(Fault::transient(problem)),
                (None, Err(_)) => None,
                (_, Ok(owner)) => Some(owner),
            };
            let context = WriteContext {
                pool: &self.pool,
                scope: &self.scope,
                owner,
                rejected: self.rejected.rows(),
                limit: self.time_limits.statement(),
                searched: self.rare_rows.searched(),
            };
            let within = self.time_limits.transaction();
            let connection = self.connection.get().await?;
            let write = Box::pin(connection.write(context, work, &mut self.unconfirmed));
            let error = match timeout(within, write).await {
                Ok(Ok(written)) => {
                    self.record_result(work, &written);
                    return Ok(written);
                }
                Ok(Err(Aborted::NotAnOwner)) => {
                    self.lease.request_heartbeat();
                    let problem = "other daemons took this source for dead; it registers again";
                    return Err(Fault::transient(problem));
                }
                Ok(Err(Aborted::Server(error)))
                    if error.is_conflict() && conflicts < CONFLICTS_MAX =>
                {
                    conflicts += 1;
                    continue;
                }
                Ok(Err(Aborted::Server(error))) => {
                    if let Some(ask) = &work.ask
                        && error.fault().is_permanent
                        && Box::pin(self.exclude_rejected(ask.limits)).await?
                    {
                        continue;
                    }
                    if error.is_timeout() {
                        self.time_limits.grow();
                    }
                    Ok(error)
                }
                Err(_) => {
                    self.time_limits.grow();
                    Err(NoAnswer(within))
                }
            };
            return self.connection.check_answer(error.map(Err));
        }
    }

    fn record_result(&mut self, work: &Work<'_>, written: &WriteResult) {
        self.time_limits = TimeLimits::default();
        if work.ask.is_some() {
            self.rare_rows = RareRows::after(written);
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
    async fn exclude_rejected(&mut self, limits: Limits) -> Result<bool, Fault> {
        let (queue, known) = (&self.scope.queue, self.rejected.rows());
        let refused = async |connection: &mut D| connection.refused(queue, limits, known).await;
        let refused = self.connection.ask(refused).await?;
        Ok(self.rejected.add(refused))
    }

    /// Releases the claims of transactions whose outcome is unknown. Their rows are locked until the
    /// transaction has ended one way or the other, so this waits for that.
    async fn release_unconfirmed(&mut self) -> Result<(), Fault> {
        if self.unconfirmed.is_empty() {
            return Ok(());
        }
        let unconfirmed = &self.unconfirmed;
        let freed = async |connection: &mut D| connection.give_back(unconfirmed).await;
        let freed = self.connection.ask(freed).await?;
        if freed > 0 {
            tracing::info!(
                pool = self.pool,
                rows = freed,
                "returned the messages that were being claimed when the connection was lost"
            );
        }
        self.unconfirmed.clear();
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
    async fn woken(&mut self, wants_data: bool) -> WakeReason {
        if let Some(enough) = self.plan.set_listening(wants_data) {
            sleep_until(enough).await;
            self.plan.poll();
        }
        self.lease
            .notifications()
            .want(self.plan.wants_notifications());
        if !wants_data {
            return std::future::pending().await;
        }
        let is_notified = self.lease.notifications().are_complete();
        let next = self.plan.next_poll().filter(|_| !is_notified);
        tokio::select! {
            () = self.lease.changed() => self.plan.notified(),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                self.plan.polled();
            }
        }
        WakeReason::Data
    }

    fn found_rows(&mut self) {
        self.plan.found();
    }

    fn losses(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease.losses())
    }

    async fn peek(&mut self, limits: Limits) -> Result<PeekResult, Fault> {
        self.rejected.expire();
        let (queue, known) = (&self.scope.queue, self.rejected.rows());
        let peek = async |connection: &mut D| connection.peek(queue, limits, known).await;
        let began = Instant::now();
        let outlook = self.connection.ask(peek).await;
        self.plan.took(began.elapsed());
        let outlook = outlook?;
        self.rare_rows = RareRows::of(&outlook);
        if !outlook.ready {
            self.plan.found_nothing();
        }
        Ok(outlook)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, Fault> {
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

    async fn write(
        &mut self,
        turn: WritingTurn<'_>,
        work: &Work<'_>,
    ) -> Result<WriteResult, Fault> {
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
            Box::pin(self.release_unconfirmed()).await?;
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
            Err(_) => "no answer from the server".to_owned(),
        };
        tracing::warn!(
            problem,
            "could not remove this daemon from the owners; others detect that by its free lock"
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
            occurrence: None,
            recorded: None,
        }];
        let work = Work {
            settled: &settled,
            ..Work::default()
        };
        assert!(sizes(&work).any(|bytes| bytes >= 300));
        assert_eq!(sizes(&Work::default()).count(), 0);
    }
}
