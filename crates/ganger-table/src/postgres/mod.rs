//! PostgreSQL: its connections, its SQL and its errors. The store and the memory above it are those of all servers.

pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod columns;
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

use crate::server::memory::ServerMemory;
use crate::server::store::{Opening, ServerStore};
use crate::table::finished::Scope;
use connection::Connection;
pub(crate) use error::PostgresError;
use ganger_config::model::PostgresDatabase;
use line::Place;

/// Connects the store of a source. A server that can't be reached is waited for later.
pub(crate) async fn open_store(
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

/// Connects the memory of a pool whose messages come from elsewhere.
pub(crate) async fn open_memory(
    database: &PostgresDatabase,
    pool: &str,
    scope: Scope,
) -> Result<ServerMemory<Connection>, PostgresError> {
    let place = Place::of(database, &format!("ganger {pool} finished"))?;
    ServerMemory::open(place, scope, PostgresError::is_passing).await
}
