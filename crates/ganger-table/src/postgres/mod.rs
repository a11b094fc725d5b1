//! The table queue in PostgreSQL: connections, SQL and errors. The stores of messages and of finished
//! messages on top of them are shared by all servers.

pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod columns;
mod commands;
pub(crate) mod connect;
mod connection;
pub(crate) mod error;
pub(crate) mod finished;
mod front;
mod ledger;
mod ledger_statements;
pub(crate) mod owners;
pub(crate) mod pooler;
mod rejected;
pub(crate) mod row;
pub(crate) mod schema;
mod session;
pub(crate) mod settle;
mod tls;
pub(crate) mod topics;
mod transaction;
pub(crate) mod unique;
mod waiting;

use async_trait::async_trait;

use crate::finished::FinishedStore;
use crate::ledger::store::LedgerStore;
use crate::server::finished_store::ServerFinishedStore;
use crate::server::ledger::{ServerLedger, ledger_problem};
use crate::server::store::{ServerStore, StoreParams};
use crate::store::{Stores, TableStore};
use crate::table::finished::Scope;
use crate::table_database::TableDatabase;
use connect::ConnectTarget;
use connection::Connection;
pub(crate) use error::PostgresError;
use ganger_config::model::{PoolConfig, PostgresDatabase, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;

/// Connects. If the server can't be reached, the connection is opened later.
async fn open_store(
    database: &PostgresDatabase,
    params: StoreParams<'_>,
) -> Result<ServerStore<Connection>, PostgresError> {
    let pool = params.pool;
    let target = ConnectTarget::of(database, &format!("ganger {pool}"))?;
    let first = match target.connect().await {
        Ok(raw) => Some(raw),
        Err(error) if error.is_transient() => None,
        Err(error) => return Err(error),
    };
    if let Some(raw) = &first {
        pooler::reject_pooled(&target, raw).await?;
    }
    if target.is_pooled {
        tracing::info!(
            pool,
            "connected through a pooler: new messages are found by polling, and dead daemons by their lease only"
        );
    }
    Ok(ServerStore::begin(target, first, params).await)
}

#[async_trait(?Send)]
impl TableDatabase for &PostgresDatabase {
    async fn store(
        &self,
        config: &TableSource,
        pool: &PoolConfig,
        stores: &Stores,
    ) -> Result<Box<dyn TableStore>, SourceFault> {
        let turns = stores.writer_queues.at(&self.hosts);
        let params = StoreParams::of(config, pool, turns);
        Ok(Box::new(open_store(self, params).await?))
    }

    async fn finished_store(
        &self,
        pool: &PoolConfig,
    ) -> Result<Box<dyn FinishedStore>, SourceFault> {
        let target = ConnectTarget::of(self, &format!("ganger {} finished", pool.name))?;
        let store = ServerFinishedStore::<Connection>::open(
            target,
            Scope::of(pool),
            PostgresError::is_transient,
        );
        Ok(Box::new(store.await?))
    }

    fn client(&self) -> Result<Box<dyn QueueClient>, SourceFault> {
        Ok(Box::new(commands::open(self)?))
    }

    fn ledger(&self, is_command: bool) -> Result<Box<dyn LedgerStore>, SourceFault> {
        let target = ConnectTarget::of(self, "ganger ledger")?;
        Ok(Box::new(ServerLedger::<ledger::LedgerClient>::open(
            target, is_command,
        )?))
    }

    fn ledger_problem(&self) -> Result<Option<String>, SourceFault> {
        let target = ConnectTarget::of(self, "ganger ledger")?;
        ledger_problem::<ledger::LedgerClient>(&target)
    }

    fn schema(&self) -> String {
        schema::statements(&self.schema, &self.table_prefix)
    }
}
