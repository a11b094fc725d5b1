//! Where it is remembered what is finished, whichever database that is. SQLite's calls block, on a
//! thread that is there for that: its futures are ready the first time they are asked.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::sqlite::{self, WallClock};
use crate::table::Fault;
use crate::table::finished::{Entry, Found, Scope};
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_queue::delivery::Identity;
use ganger_queue::fault::SourceFault;

/// What remembers for the messages of one pool.
#[async_trait(?Send)]
pub(crate) trait FinishedStore: Debug + Send {
    /// Enters all of them in one transaction, or none. Returns what was entered before, where
    /// something was: that stays as it is.
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault>;

    /// Looks for what is entered of each.
    async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault>;

    /// Removes what is out of date, at most so many. Returns how many.
    async fn expire(&mut self, most: u32) -> Result<usize, Fault>;

    /// Closes the connection.
    fn close(self: Box<Self>) {}
}

/// Opens the database for that pool. A server that can't be reached is waited for later.
pub(crate) async fn open(
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
