//! A table queue on a server, whichever database it speaks for.

use std::collections::BTreeSet;

use tokio::sync::watch;

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
use super::table::finished::Scope;
use super::table::{Fault, LookReason, Outlook, Waiting, Work, Written};
use crate::on_server::turns::{Line, Lines, Turn, in_turn};
use ganger_config::model::{Database, PoolConfig, TableSource};
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::DatabaseFigures;
use ganger_queue::fault::SourceFault;

/// What claims and settles the rows of one queue there.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    /// Where it waits for its turn.
    line: Line,
}

#[derive(Debug)]
enum Kind {
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Store>),
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Box<mysql::Store>),
}

/// The same of whichever it is.
macro_rules! of {
    ($whichever:expr, $store:ident => $done:expr) => {
        match $whichever {
            #[cfg(feature = "postgres")]
            Kind::Postgres($store) => $done,
            #[cfg(feature = "mysql")]
            Kind::Mysql($store) => $done,
        }
    };
}

impl Server {
    /// Connects for the source of that pool, and enters it among the owners.
    pub(super) async fn open(
        config: &TableSource,
        pool: &PoolConfig,
        lines: &Lines,
    ) -> Result<Self, SourceFault> {
        let (name, scope) = (&pool.name, Scope::of(pool));
        let times = (config.lease, config.poll_interval);
        let (kind, hosts) = match &config.database {
            Database::Sqlite(_) => return Err(SourceFault::missing_feature("sqlite")),
            #[cfg(feature = "postgres")]
            Database::Postgres(database) => {
                let store = postgres::Store::open(database, name, scope, times).await?;
                (Kind::Postgres(Box::new(store)), &database.hosts)
            }
            #[cfg(not(feature = "postgres"))]
            Database::Postgres(_) => return Err(SourceFault::missing_feature("postgres")),
            #[cfg(feature = "mysql")]
            Database::Mysql(database) => {
                let store = mysql::Store::open(database, name, scope, times).await?;
                (Kind::Mysql(Box::new(store)), &database.hosts)
            }
            #[cfg(not(feature = "mysql"))]
            Database::Mysql(_) => return Err(SourceFault::missing_feature("mysql")),
        };
        let line = lines.at(hosts);
        Ok(Self { kind, line })
    }

    /// Where the sources of the daemon on that server wait for their turn to write.
    pub(super) fn line(&self) -> Line {
        self.line.clone()
    }

    /// Resolves when there may be something new. Loses nothing when it is dropped.
    pub(super) async fn woken(&mut self, news: bool) -> LookReason {
        of!(&mut self.kind, store => store.woken(news).await)
    }

    /// The last news were of a row for us.
    pub(super) fn was_fruitful(&mut self) {
        of!(&mut self.kind, store => store.was_fruitful());
    }

    /// How often it was that others may have had what is claimed here.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        of!(&self.kind, store => store.losses())
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(super) async fn peek(&mut self, limits: Limits) -> Result<Outlook, Fault> {
        of!(&mut self.kind, store => store.peek(limits).await)
    }

    /// Counts the rows of a queue that could be claimed, and finds the age of the oldest, taking no lock.
    pub(super) async fn waiting(&mut self, queue: &str, most: u32) -> Result<Waiting, Fault> {
        of!(&mut self.kind, store => store.waiting(queue, most).await)
    }

    /// Names of queues of the database that hold rows, taking no lock.
    pub(super) async fn queues(&mut self, most: u32) -> Result<BTreeSet<String>, Fault> {
        of!(&mut self.kind, store => store.queues(most).await)
    }

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    pub(super) async fn count_delayed(&mut self, most: u32) -> Result<u64, Fault> {
        of!(&mut self.kind, store => store.count_delayed(most).await)
    }

    /// Returns whether the queue is paused for all daemons.
    pub(super) async fn is_paused(&mut self) -> Result<bool, Fault> {
        of!(&mut self.kind, store => store.is_paused().await)
    }

    /// How large the database is.
    pub(super) async fn sizes(&mut self) -> Result<DatabaseFigures, Fault> {
        of!(&mut self.kind, store => store.sizes().await)
    }

    /// Which of these rows another program has locked.
    pub(super) async fn locked(&mut self, rows: &[i64]) -> Result<Vec<i64>, Fault> {
        of!(&mut self.kind, store => store.locked(rows).await)
    }

    /// Does all of the work in one transaction, or none of it.
    pub(super) async fn write(
        &mut self,
        turn: Option<Turn<'_>>,
        work: &Work<'_>,
    ) -> Result<Written, Fault> {
        of!(&mut self.kind, store => in_turn(turn, store.write(work)).await)
    }

    /// Leaves the owners and closes the connections.
    pub(super) async fn close(self) {
        of!(self.kind, store => store.close().await)
    }
}
