//! The choice of a database, once for each that is opened. Nothing else here knows which ones there are, but for
//! the client of commands.

use crate::finished::FinishedStore;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::server::{store::Opening, turns::WriterQueue};
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
            let opening = opening(
                config,
                name,
                scope,
                stores.writer_queues.at(&database.hosts),
            );
            Box::new(crate::postgres::open_store(database, opening).await?)
        }
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => {
            let opening = opening(
                config,
                name,
                scope,
                stores.writer_queues.at(&database.hosts),
            );
            Box::new(crate::mysql::open_store(database, opening).await?)
        }
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
fn opening<'a>(
    config: &TableSource,
    pool: &'a str,
    scope: Scope,
    turns: WriterQueue,
) -> Opening<'a> {
    Opening {
        pool,
        scope,
        lease: config.lease,
        poll_interval: config.poll_interval,
        turns,
    }
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
            Box::new(crate::postgres::open_memory(database, &pool.name, scope).await?)
        }
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => {
            Box::new(crate::mysql::open_memory(database, &pool.name, scope).await?)
        }
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}
