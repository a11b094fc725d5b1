//! The table queue in MySQL and MariaDB: a connection that claims and settles, another that keeps the
//! lease, and everything that is theirs alone behind them. The source task above knows none of this.

pub(crate) mod client;
pub(crate) mod columns;
pub(crate) mod error;
pub(crate) mod finished;
pub(crate) mod line;
pub(crate) mod row;
pub(crate) mod schema;
mod tidy;
mod tls;
pub(crate) mod topics;
pub(crate) mod unique;
pub(crate) mod value;

use std::time::Duration;

use tokio::sync::watch;

use super::table::finished::Scope;
use super::table::{Fault, LookReason, Outlook, Work, Written};
use crate::config::model::MysqlDatabase;
use crate::delivery::DatabaseFigures;
use crate::rules::Limits;
pub use error::MysqlError;

/// What claims and settles the rows of one queue.
#[derive(Debug)]
pub(crate) struct Store {
    losses: watch::Sender<u64>,
}

impl Store {
    /// Connects, and enters this source among the owners. A server that can't be reached is waited
    /// for later.
    pub(crate) async fn open(
        database: &MysqlDatabase,
        _pool: &str,
        _scope: Scope,
        _lease: Duration,
    ) -> Result<Self, MysqlError> {
        Err(MysqlError::Away {
            server: database.servers(),
            why: "not built yet".to_owned(),
        })
    }

    /// Resolves when there may be something new. Loses nothing when it is dropped.
    pub(crate) async fn woken(&mut self, _news: bool) -> LookReason {
        std::future::pending().await
    }

    /// The last news were of a row for us.
    pub(crate) fn was_fruitful(&mut self) {}

    /// How often it was that others may have had what is claimed here.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }

    /// Looks whether the queue has anything to claim, taking no lock.
    pub(crate) async fn peek(&mut self, _limits: Limits) -> Result<Outlook, Fault> {
        Err(unbuilt())
    }

    /// Counts what the queue has to claim, as far as it goes, taking no lock.
    pub(crate) async fn count_ready(&mut self, _most: u32) -> Result<u64, Fault> {
        Err(unbuilt())
    }

    /// Counts what waits for a later time, as far as it goes, taking no lock.
    pub(crate) async fn count_delayed(&mut self, _most: u32) -> Result<u64, Fault> {
        Err(unbuilt())
    }

    /// How large the tables are.
    pub(crate) async fn sizes(&mut self) -> Result<DatabaseFigures, Fault> {
        Err(unbuilt())
    }

    /// Does all of the work in one transaction, or none of it.
    pub(crate) async fn write(&mut self, _work: &Work<'_>) -> Result<Written, Fault> {
        Err(unbuilt())
    }

    /// Leaves the owners and closes the connections.
    pub(crate) async fn close(self) {}
}

fn unbuilt() -> Fault {
    Fault {
        problem: "not built yet".to_owned(),
        for_good: false,
    }
}
