//! Queues that are tables of a database (SQLite, PostgreSQL, MySQL): the source that a pool reads from,
//! and the client that commands use. Also the store of finished messages, which is a table beside them.

mod databases;
mod dead_letters;
mod finished;
pub mod idempotency;
pub mod ledger;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod rejected_rows;
mod rules;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
mod source;
mod sqlite;
mod store;
mod table;
mod table_database;

use std::sync::Arc;

use databases::database;
use ganger_config::model::{PoolConfig, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;
use ganger_queue::source::{Link, Opening, Source, SourceError, open_on_thread};
use ganger_queue::unread::UnreadQueues;

pub use store::Stores;

/// A configured database.
#[derive(Debug)]
pub struct Table {
    name: String,
    config: TableSource,
    stores: Stores,
    unread: UnreadQueues,
}

impl Table {
    /// Makes the source called `name`, without connecting.
    pub fn new(name: &str, config: &TableSource, stores: &Stores, unread: &UnreadQueues) -> Self {
        Self {
            name: name.to_owned(),
            config: config.clone(),
            stores: stores.clone(),
            unread: unread.clone(),
        }
    }
}

impl Source for Table {
    fn reader(&self, link: Link) -> Result<Opening, SourceError> {
        let (name, config, stores) = (self.name.clone(), self.config.clone(), self.stores.clone());
        let (pool, queue) = {
            let policy = link.policy.borrow();
            (policy.name.clone(), policy.queue.clone())
        };
        let reader = self.unread.reader(&name, &queue);
        open_on_thread("source", &pool, move || {
            let opened = source::open(&config, link, &stores, reader);
            opened.map_err(|fault| fault.of(&name).into())
        })
    }
    fn client(&self, _: &[Arc<PoolConfig>]) -> Result<Box<dyn QueueClient>, SourceFault> {
        database(&self.config)?.client()
    }

    fn schema(&self) -> Option<String> {
        let database = database(&self.config).ok();
        database.map(|database| database.schema())
    }
}
