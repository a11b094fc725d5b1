//! The choice of a database, once for each that is opened. Nothing else here knows which ones there are, but for
//! the client of commands.

#[cfg(any(feature = "mysql", feature = "postgres"))]
use std::time::Duration;

use crate::finished::FinishedStore;
use crate::sqlite::{self, WallClock};
use crate::store::{Stores, TableStore};
use crate::table::finished::Scope;
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_queue::fault::SourceFault;

/// Opens the database for the source of that pool, and enters this daemon among its owners.
pub(crate) async fn open_store(
    config: &TableSource,
    pool: &PoolConfig,
    stores: &Stores,
) -> Result<Box<dyn TableStore>, SourceFault> {
    let (name, scope) = (&pool.name, Scope::of(pool));
    Ok(match &config.database {
        Database::Sqlite(path) => {
            let (file, clock) = ((path.as_path(), config.mode), WallClock::system());
            let (lease, owners) = (config.lease, &stores.owners);
            let store = sqlite::Store::open(file, name, scope, lease, owners, clock)?;
            Box::new(store)
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => {
            let (times, line) = (times(config), stores.lines.at(&database.hosts));
            let store = crate::postgres::Store::open(database, name, scope, times, line).await?;
            Box::new(store)
        }
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => {
            let (times, line) = (times(config), stores.lines.at(&database.hosts));
            let store = crate::mysql::Store::open(database, name, scope, times, line).await?;
            Box::new(store)
        }
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
fn times(config: &TableSource) -> (Duration, Duration) {
    (config.lease, config.poll_interval)
}

/// Opens the database for that pool. A server that can't be reached is waited for later.
pub(crate) async fn open_finished(
    table: &TableSource,
    pool: &PoolConfig,
) -> Result<Box<dyn FinishedStore>, SourceFault> {
    let scope = Scope::of(pool);
    Ok(match &table.database {
        Database::Sqlite(path) => {
            let (path, clock) = (path.clone(), WallClock::system());
            let store = sqlite::finished::Memory::open(path, table.mode, scope, clock)?;
            Box::new(store)
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => {
            let memory = crate::postgres::finished::Memory::open(database, &pool.name, scope);
            Box::new(memory.await?)
        }
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => {
            let memory = crate::mysql::finished::Memory::open(database, &pool.name, scope);
            Box::new(memory.await?)
        }
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}
