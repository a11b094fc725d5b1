//! The table queue in PostgreSQL: connections, SQL and errors. The store and the memory of finished
//! messages on top of them are shared by all servers.

pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod columns;
mod commands;
mod connection;
pub(crate) mod error;
pub(crate) mod finished;
mod front;
pub(crate) mod line;
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
use crate::server::memory::ServerMemory;
use crate::server::store::{Opening, ServerStore};
use crate::store::{Stores, TableStore};
use crate::table::finished::Scope;
use crate::table_database::TableDatabase;
use connection::Connection;
pub(crate) use error::PostgresError;
use ganger_config::model::{PoolConfig, PostgresDatabase, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;
use line::Place;

/// Connects. If the server can't be reached, the connection is opened later.
async fn open_store(
    database: &PostgresDatabase,
    opening: Opening<'_>,
) -> Result<ServerStore<Connection>, PostgresError> {
    let pool = opening.pool;
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
    Ok(ServerStore::begin(place, first, opening).await)
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
        let opening = Opening::of(config, pool, turns);
        Ok(Box::new(open_store(self, opening).await?))
    }

    async fn memory(&self, pool: &PoolConfig) -> Result<Box<dyn FinishedStore>, SourceFault> {
        let place = Place::of(self, &format!("ganger {} finished", pool.name))?;
        let memory =
            ServerMemory::<Connection>::open(place, Scope::of(pool), PostgresError::is_passing);
        Ok(Box::new(memory.await?))
    }

    fn client(&self) -> Result<Box<dyn QueueClient>, SourceFault> {
        Ok(Box::new(commands::open(self)?))
    }

    fn schema(&self) -> String {
        schema::statements(&self.schema, &self.table_prefix)
    }
}
