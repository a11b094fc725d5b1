//! Interface to a configured database of any kind.

use async_trait::async_trait;

use crate::finished::FinishedStore;
use crate::ledger::store::LedgerStore;
use crate::store::{Stores, TableStore};
use ganger_config::model::{PoolConfig, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;

/// A configured database.
#[async_trait(?Send)]
pub(crate) trait TableDatabase {
    /// Opens the store for the source of that pool, and enters this daemon among its owners.
    async fn store(
        &self,
        config: &TableSource,
        pool: &PoolConfig,
        stores: &Stores,
    ) -> Result<Box<dyn TableStore>, SourceFault>;

    /// Opens the pool's store of finished messages. If the server can't be reached, it connects later.
    async fn finished_store(
        &self,
        pool: &PoolConfig,
    ) -> Result<Box<dyn FinishedStore>, SourceFault>;

    /// Connects for commands.
    fn client(&self) -> Result<Box<dyn QueueClient>, SourceFault>;

    /// Connects for the ledger. For a command it waits longer while others write.
    fn ledger(&self, is_command: bool) -> Result<Box<dyn LedgerStore>, SourceFault>;

    /// Returns the problem with the tables of a ledger, if there is one; tables that will be created are none.
    /// Creates nothing.
    fn ledger_problem(&self) -> Result<Option<String>, SourceFault>;

    /// Returns the statements that create its tables.
    fn schema(&self) -> String;
}
