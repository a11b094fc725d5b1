//! The SQL of MySQL and MariaDB as the stores of messages and of finished messages use it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::Client;
use super::connect::ConnectTarget;
use super::error::{CallError, MysqlError};
use super::transaction::{Transaction, give_back};
use super::{claim, finished, owners, rejected, settle, waiting};
use crate::server::dialect::{Aborted, Dialect, WriteContext};
use crate::server::poll_interval::Pace;
use crate::server::poll_plan::Polling;
use crate::server::reconnecting::Openable;
use crate::table::finished::{Entry, Found, Scope};
use crate::table::{Claim, PeekResult, WaitingRows, Work, WriteResult};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::Identity;

const BYTES: &str = "
SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN (?, ?)";

impl Openable for Client {
    type Target = ConnectTarget;
    type Refusal = MysqlError;
    type Error = CallError;

    async fn open(target: &ConnectTarget) -> Result<Self, MysqlError> {
        target.connect().await
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn abort(self) {
        self.abort();
    }
}

impl Dialect for Client {
    const POLLING: Polling = Polling {
        pace: Pace {
            shortest: Duration::from_millis(5),
            lasts: Duration::from_secs(1),
        },
        notifies: false,
    };

    async fn write(
        &mut self,
        context: WriteContext<'_>,
        work: &Work<'_>,
        unconfirmed: &mut Vec<Claim>,
    ) -> Result<WriteResult, Aborted<CallError>> {
        let client = self;
        Transaction { client, context }
            .write(work, unconfirmed)
            .await
    }

    async fn give_back(&mut self, claims: &[Claim]) -> Result<usize, CallError> {
        give_back(self, claims).await
    }

    async fn refused(
        &mut self,
        queue: &str,
        limits: Limits,
        known: &[i64],
    ) -> Result<Vec<i64>, CallError> {
        rejected::refused(self, queue, limits, known).await
    }

    async fn peek(
        &mut self,
        queue: &str,
        limits: Limits,
        rejected: &[i64],
    ) -> Result<PeekResult, CallError> {
        let mut script = self.script();
        let look = claim::peek(&mut script, queue, rejected);
        let answers = self.run(script).await?;
        claim::outlook(&answers[look], limits)
    }

    async fn waiting(&mut self, queue: &str, most: u32) -> Result<WaitingRows, CallError> {
        waiting::waiting(self, queue, most).await
    }

    async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, CallError> {
        waiting::queues(self, most).await
    }

    async fn count_delayed(&mut self, queue: &str, most: u32) -> Result<u64, CallError> {
        waiting::count_delayed(self, queue, most).await
    }

    async fn is_paused(&mut self, queue: &str) -> Result<bool, CallError> {
        claim::is_paused(self, queue).await
    }

    async fn bytes(&mut self) -> Result<u64, CallError> {
        let tables = ["consumer_messages", "poisoned_messages"].map(|table| self.table_name(table));
        let tables = tables.each_ref().map(Into::into);
        self.query_one(BYTES, &tables).await?.get(0)
    }

    async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, CallError> {
        settle::locked(self, rows).await
    }

    async fn leave(&mut self, owner: i64) -> Result<(), CallError> {
        owners::leave(self, owner).await
    }

    async fn enter(&mut self, scope: &Scope, entries: &[Entry<'_>]) -> Result<Found, CallError> {
        let enter = async |client: &mut Self| finished::enter(client, scope, entries).await;
        self.in_a_transaction(enter).await
    }

    async fn find(&mut self, scope: &Scope, identities: &[&Identity]) -> Result<Found, CallError> {
        finished::find(self, scope, identities).await
    }

    async fn expire(&mut self, most: u32) -> Result<u64, CallError> {
        self.execute(finished::EXPIRE, &[most.into()]).await
    }
}
