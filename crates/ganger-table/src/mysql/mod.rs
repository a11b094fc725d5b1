//! MySQL and MariaDB: their connections, their SQL and their errors. The store and the memory above it are those of
//! all servers.

pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod columns;
mod connection;
pub(crate) mod error;
pub(crate) mod finished;
pub(crate) mod line;
mod owners;
mod rejected;
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

use crate::server::memory::ServerMemory;
use crate::server::store::{Opening, ServerStore};
use crate::table::finished::Scope;
use client::Client;
pub(crate) use error::MysqlError;
use ganger_config::model::MysqlDatabase;
use line::Place;

/// Connects the store of a source. A server that can't be reached is waited for later.
pub(crate) async fn open_store(
    database: &MysqlDatabase,
    opening: Opening<'_>,
) -> Result<ServerStore<Client>, MysqlError> {
    let pool = opening.pool;
    let place = Place::of(database, &format!("ganger {pool}"))?;
    let first = match place.connect().await {
        Ok(client) => Some(client),
        Err(error) if error.is_passing() => None,
        Err(error) => return Err(error),
    };
    if first.as_ref().is_some_and(|client| !client.has_locks()) {
        tracing::info!(
            pool,
            "in a cluster of Galera's: daemons that died are known by their lease"
        );
    }
    Ok(ServerStore::begin(place, first, opening).await)
}

/// Connects the memory of a pool whose messages come from elsewhere.
pub(crate) async fn open_memory(
    database: &MysqlDatabase,
    pool: &str,
    scope: Scope,
) -> Result<ServerMemory<Client>, MysqlError> {
    let place = Place::of(database, &format!("ganger {pool} finished"))?;
    ServerMemory::open(place, scope, MysqlError::is_passing).await
}
