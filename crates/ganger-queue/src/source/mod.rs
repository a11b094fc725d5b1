//! Sources of messages. A source is one configured connection; each pool that takes messages from it has
//! a reader, one task that talks to its pool through a [`SourceEnd`](crate::delivery::SourceEnd), on a
//! thread of its own or, if it never blocks, on its pool's.

mod error;
pub mod link;
mod thread;

pub use error::SourceError;
pub use link::Link;
pub use thread::{
    Opening, Running, SharedThread, ThreadBody, open_beside_pool, open_on_thread, run_on_thread,
};

use std::sync::Arc;

use crate::client::QueueClient;
use crate::fault::SourceFault;
use ganger_config::model::PoolConfig;

/// A configured connection to a broker or a database, of any kind.
pub trait Source {
    /// Begins to open a reader for the pool at the other end of `link`. Several can be opening at once;
    /// none of the work is done on the caller's thread, which a slow disk or a silent broker would hold
    /// up.
    ///
    /// # Errors
    /// If no thread can be started.
    fn reader(&self, link: Link) -> Result<Opening, SourceError>;

    /// Connects for commands and requests. The `pools` that read from the source determine its queues.
    ///
    /// # Errors
    /// If it can't be reached, or used.
    fn client(&self, pools: &[Arc<PoolConfig>]) -> Result<Box<dyn QueueClient>, SourceFault>;

    /// Returns the statements that create its tables; none for a source that has no tables.
    fn schema(&self) -> Option<String> {
        None
    }
}
