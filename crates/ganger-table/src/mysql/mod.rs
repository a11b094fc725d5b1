//! The table queue in MySQL and MariaDB: a connection that claims and settles, another that keeps the
//! lease, and everything that is theirs alone behind them. The source task above knows none of this.

pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod columns;
pub(crate) mod error;
pub(crate) mod finished;
pub(crate) mod line;
mod owners;
mod passed_over;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod settle;
mod tidy;
mod tls;
pub(crate) mod topics;
mod transaction;
pub(crate) mod unique;
pub(crate) mod value;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::table::finished::Scope;
use super::table::{Claim, Fault, LookReason, Outlook, Waiting, Work, Written};
use crate::on_server::lasting::{ANSWERS_WITHIN, Lasting, Openable, Silent};
use crate::on_server::lease::{Lease, Tenant};
use crate::on_server::passed_over::PassedOver;
use crate::on_server::patience::Patience;
use crate::on_server::rhythm::{Pace, Rhythm};
use crate::on_server::seldom::Seldom;
use crate::on_server::turns::{Line, in_turn};
use crate::store::{TableStore, Writing, WritingTurn};
use client::Client;
pub(crate) use error::MysqlError;
use error::{CLASHES_MAX, CallError, fault, is_a_clash, is_out_of_time};
use ganger_config::model::MysqlDatabase;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;
use line::Place;
use transaction::{Transaction, Undone, give_back};

/// How often is looked for what nobody tells of.
const PACE: Pace = Pace {
    shortest: Duration::from_millis(5),
    lasts: Duration::from_secs(1),
};

/// What claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) struct Store {
    pool: String,
    scope: Scope,
    lease: Lease,
    client: Lasting<Client>,
    /// Claims of which nobody knows whether they were made: the connection was lost while the
    /// transaction ended. Nobody has them, so they must not stay with us.
    doubtful: Vec<Claim>,
    passed_over: PassedOver,
    patience: Patience,
    rhythm: Rhythm,
    seldom: Seldom,
    /// Where it waits for its turn to write.
    turns: Line,
}

impl Store {
    /// Connects, and enters this source among the owners. A server that can't be reached is waited
    /// for later.
    pub(crate) async fn open(
        database: &MysqlDatabase,
        pool: &str,
        scope: Scope,
        (lease, poll_interval): (Duration, Duration),
        turns: Line,
    ) -> Result<Self, MysqlError> {
        let place = Place::of(database, &format!("ganger {pool}"))?;
        let first = match place.connect().await {
            Ok(line) => Some(line),
            Err(error) if error.is_passing() => None,
            Err(error) => return Err(error),
        };
        if first.as_ref().is_some_and(|client| !client.has_locks()) {
            tracing::info!(
                pool,
                "in a cluster of Galera's: daemons that died are known by their lease"
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
            client: Lasting::new(place, None),
            doubtful: Vec::new(),
            passed_over: PassedOver::default(),
            patience: Patience::default(),
            rhythm: Rhythm::new(PACE, poll_interval),
            seldom: Seldom::unknown(),
            turns,
        })
    }

    /// Does all of the work in one transaction, or none of it.
    async fn write_now(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        Box::pin(self.resolve_doubt()).await?;
        let mut clashes = 0;
        loop {
            let owner = match (&work.ask, self.lease.owner()) {
                (Some(_), Err(problem)) => return Err(Fault::passing(problem)),
                (None, Err(_)) => None,
                (_, Ok(owner)) => Some(owner),
            };
            let transaction = Transaction {
                client: self.client.get().await?,
                pool: &self.pool,
                scope: &self.scope,
                owner,
                passed_over: self.passed_over.rows(),
                limit: self.patience.statement(),
                seldom: self.seldom,
            };
            let doubtful = &mut self.doubtful;
            let within = self.patience.whole();
            let written = timeout(within, Box::pin(transaction.write(work, doubtful))).await;
            let error = match written {
                Ok(Ok(written)) => {
                    self.patience = Patience::default();
                    if work.ask.is_some() {
                        self.seldom = Seldom::after(&written);
                    }
                    if !written.claimed.is_empty() {
                        self.rhythm.news();
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
            return self.client.heard(error.map(Err));
        }
    }

    /// Finds the rows that the database refuses to have claimed, once it has refused something, to try
    /// the same without them. Returns whether that helps.
    async fn pass_over(&mut self, limits: Limits) -> Result<bool, Fault> {
        let (queue, known) = (&self.scope.queue, self.passed_over.rows());
        let refused =
            async |client: &mut Client| passed_over::refused(client, queue, limits, known).await;
        let refused = self.client.ask(refused).await?;
        Ok(self.passed_over.add(refused))
    }

    /// Gives back what may have been claimed by a transaction of which the end was not heard. Its
    /// rows are locked until it has ended, one way or the other, so that is waited for.
    async fn resolve_doubt(&mut self) -> Result<(), Fault> {
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let doubtful = &self.doubtful;
        let freed = async |client: &mut Client| give_back(client, doubtful).await;
        let freed = self.client.ask(freed).await?;
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
        if !news {
            return std::future::pending().await;
        }
        let next = self.rhythm.next();
        tokio::select! {
            () = self.lease.news() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                self.rhythm.looked();
            }
        }
        LookReason::Data
    }

    fn was_fruitful(&mut self) {
        self.rhythm.news();
    }

    fn losses(&self) -> Option<watch::Receiver<u64>> {
        Some(self.lease.losses())
    }

    async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        self.passed_over.expire();
        let (queue, over) = (&self.scope.queue, self.passed_over.rows());
        let peek = async |client: &mut Client| {
            let mut script = client.script();
            let look = claim::peek(&mut script, queue, over);
            let answers = client.run(script).await?;
            claim::outlook(&answers[look], limits)
        };
        let began = Instant::now();
        let outlook = self.client.ask(peek).await;
        self.rhythm.took(began.elapsed());
        let outlook = outlook?;
        self.seldom = Seldom::of(&outlook);
        Ok(outlook)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault> {
        let count = async |client: &mut Client| waiting::waiting(client, queue, most).await;
        self.client.ask(count).await
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        let queues = async |client: &mut Client| waiting::queues(client, most).await;
        self.client.ask(queues).await
    }

    async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        let queue = &self.scope.queue;
        let count = async |client: &mut Client| waiting::count_delayed(client, queue, most).await;
        self.client.ask(count).await
    }

    async fn is_paused(&mut self) -> Result<bool, Fault> {
        let queue = &self.scope.queue;
        let look = async |client: &mut Client| claim::is_paused(client, queue).await;
        self.client.ask(look).await
    }

    async fn sizes(&mut self) -> Option<DatabaseFigures> {
        let sizes = async |client: &mut Client| {
            let tables =
                ["consumer_messages", "poisoned_messages"].map(|table| client.called(table));
            let sizes = "
                SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables
                WHERE table_schema = DATABASE() AND table_name IN (?, ?)";
            let tables = tables.each_ref().map(Into::into);
            client.query_one(sizes, &tables).await?.get::<u64>(0)
        };
        Some(DatabaseFigures {
            file_bytes: self.client.ask(sizes).await.ok()?,
            journal_bytes: 0,
        })
    }

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Fault> {
        let locked = async |client: &mut Client| settle::locked(client, rows).await;
        self.client.ask(locked).await
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
                    let leave = async |client: &mut Client| owners::leave(client, owner).await;
                    self.client.ask(leave).await
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

impl Openable for Client {
    type Place = Place;
    type Refusal = MysqlError;
    type Error = CallError;

    async fn open(place: &Place) -> Result<Self, MysqlError> {
        place.connect().await
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn hang_up(self) {
        self.hang_up();
    }
}
