//! A database file, as configured.

use std::path::Path;

use async_trait::async_trait;

use super::commands::SqliteClient;
use super::finished::SqliteFinishedStore;
use super::ledger::SqliteLedger;
use super::{Store, WallClock, schema};
use crate::finished::FinishedStore;
use crate::ledger::store::LedgerStore;
use crate::store::{Stores, TableStore};
use crate::table::finished::Scope;
use crate::table_database::TableDatabase;
use ganger_config::model::{PoolConfig, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;

#[derive(Debug)]
pub(crate) struct DatabaseFile<'a> {
    path: &'a Path,
    /// Permissions of the file, if we create it.
    mode: u32,
}

impl<'a> DatabaseFile<'a> {
    pub(crate) fn new(path: &'a Path, mode: u32) -> Self {
        Self { path, mode }
    }
}

#[async_trait(?Send)]
impl TableDatabase for DatabaseFile<'_> {
    async fn store(
        &self,
        config: &TableSource,
        pool: &PoolConfig,
        stores: &Stores,
    ) -> Result<Box<dyn TableStore>, SourceFault> {
        let (file, clock) = ((self.path, self.mode), WallClock::system());
        let (lease, owners) = (config.lease, &stores.owners);
        let store = Store::open(file, &pool.name, Scope::of(pool), lease, owners, clock)?;
        Ok(Box::new(store))
    }

    async fn finished_store(
        &self,
        pool: &PoolConfig,
    ) -> Result<Box<dyn FinishedStore>, SourceFault> {
        let (path, clock) = (self.path.to_owned(), WallClock::system());
        let store = SqliteFinishedStore::open(path, self.mode, Scope::of(pool), clock)?;
        Ok(Box::new(store))
    }

    fn client(&self) -> Result<Box<dyn QueueClient>, SourceFault> {
        Ok(Box::new(SqliteClient::open(self.path, self.mode)?))
    }

    fn ledger(&self, is_command: bool) -> Result<Box<dyn LedgerStore>, SourceFault> {
        let mut ledger = SqliteLedger::open(self.path, self.mode, WallClock::system())?;
        if is_command {
            ledger.extend_busy_timeout()?;
        }
        Ok(Box::new(ledger))
    }

    fn ledger_problem(&self) -> Result<Option<String>, SourceFault> {
        // They are created when the file is opened.
        Ok(None)
    }

    fn schema(&self) -> String {
        schema::statements()
    }
}
