//! Where it is remembered what is finished, whichever database that is. SQLite's calls block, on a
//! thread that is there for that: its futures are ready the first time they are asked.

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
use super::sqlite::{self, WallClock};
use super::table::Fault;
use super::table::finished::{Entry, Found, Scope};
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_queue::delivery::Identity;
use ganger_queue::fault::SourceFault;

/// What remembers for the messages of one pool.
#[derive(Debug)]
pub(crate) enum Memory {
    /// In a file.
    Sqlite(Box<sqlite::finished::Memory>),
    /// On a server.
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::finished::Memory>),
    /// Likewise.
    #[cfg(feature = "mysql")]
    Mysql(Box<mysql::finished::Memory>),
}

impl Memory {
    /// Opens the database for that pool. A server that can't be reached is waited for later.
    pub(crate) async fn open(table: &TableSource, pool: &PoolConfig) -> Result<Self, SourceFault> {
        let scope = Scope::of(pool);
        match &table.database {
            Database::Sqlite(path) => {
                let (path, clock) = (path.clone(), WallClock::system());
                let store = sqlite::finished::Memory::open(path, table.mode, scope, clock)?;
                Ok(Self::Sqlite(Box::new(store)))
            }
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => {
                let store = postgres::finished::Memory::open(database, &pool.name, scope).await?;
                Ok(Self::Postgres(Box::new(store)))
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => Err(SourceFault::missing_feature("postgres")),
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => {
                let store = mysql::finished::Memory::open(database, &pool.name, scope).await?;
                Ok(Self::Mysql(Box::new(store)))
            }
            #[cfg(not(feature = "mysql"))]
            Database::Mysql(_) => Err(SourceFault::missing_feature("mysql")),
        }
    }

    /// Enters all of them in one transaction, or none. Returns what was entered before, where
    /// something was: that stays as it is.
    pub(crate) async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault> {
        match self {
            Self::Sqlite(store) => store.enter(entries),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.enter(entries).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(store) => store.enter(entries).await,
        }
    }

    /// Looks for what is entered of each.
    pub(crate) async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault> {
        match self {
            Self::Sqlite(store) => store.find(identities),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.find(identities).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(store) => store.find(identities).await,
        }
    }

    /// Removes what is out of date, at most so many. Returns how many.
    pub(crate) async fn expire(&mut self, most: u32) -> Result<usize, Fault> {
        match self {
            Self::Sqlite(store) => store.expire(most),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.expire(most).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(store) => store.expire(most).await,
        }
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        match self {
            Self::Sqlite(store) => store.close(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => {}
        }
    }
}
