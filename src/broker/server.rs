//! A table queue on a server, whichever database it speaks for.

use tokio::sync::watch;

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
use super::table::finished::Scope;
use super::table::{Fault, LookReason, Outlook, Work, Written};
use crate::config::model::{Database, PoolConfig, TableSource};
use crate::delivery::DatabaseFigures;
use crate::rules::Limits;

/// What claims and settles the rows of one queue there.
#[derive(Debug)]
pub(crate) enum Server {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Store>),
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Box<mysql::Store>),
}

/// The same of whichever it is.
macro_rules! of {
    ($server:expr, $store:ident => $done:expr) => {
        match $server {
            #[cfg(feature = "postgres")]
            Self::Postgres($store) => $done,
            #[cfg(feature = "mysql")]
            Self::Mysql($store) => $done,
        }
    };
}

impl Server {
    /// Connects for the source of that pool, and enters it among the owners.
    pub(super) async fn open(
        config: &TableSource,
        pool: &PoolConfig,
    ) -> Result<Self, super::Fault> {
        let (name, scope) = (&pool.name, Scope::of(pool));
        let times = (config.lease, config.poll_interval);
        match &config.database {
            Database::Sqlite(_) => Err(super::Fault::LeftOut("sqlite")),
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => {
                let store = postgres::Store::open(database, name, scope, times).await?;
                Ok(Self::Postgres(Box::new(store)))
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => Err(super::Fault::LeftOut("postgres")),
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => {
                let store = mysql::Store::open(database, name, scope, times).await?;
                Ok(Self::Mysql(Box::new(store)))
            }
            #[cfg(not(feature = "mysql"))]
            Database::Mysql(_) => Err(super::Fault::LeftOut("mysql")),
        }
    }

    /// Resolves when there may be something new. Loses nothing when it is dropped.
    pub(super) async fn woken(&mut self, news: bool) -> LookReason {
        of!(self, store => store.woken(news).await)
    }

    /// The last news were of a row for us.
    pub(super) fn was_fruitful(&mut self) {
        of!(self, store => store.was_fruitful());
    }

    /// How often it was that others may have had what is claimed here.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        of!(self, store => store.losses())
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(super) async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        of!(self, store => store.peek(limits).await)
    }

    /// Counts what the queue has to claim, as far as it goes, taking no lock.
    pub(super) async fn count_ready(&mut self, most: u32) -> Result<u64, Fault> {
        of!(self, store => store.count_ready(most).await)
    }

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    pub(super) async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        of!(self, store => store.count_delayed(most).await)
    }

    /// How large the database is.
    pub(super) async fn sizes(&mut self) -> Result<DatabaseFigures, Fault> {
        of!(self, store => store.sizes().await)
    }

    /// Does all of the work in one transaction, or none of it.
    pub(super) async fn write(&mut self, work: &Work<'_>) -> Result<Written, Fault> {
        of!(self, store => store.write(work).await)
    }

    /// Leaves the owners and closes the connections.
    pub(super) async fn close(self) {
        of!(self, store => store.close().await)
    }
}
