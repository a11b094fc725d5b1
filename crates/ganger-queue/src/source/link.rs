//! Connection of a source's reader to its pool.

use std::sync::Arc;

use tokio::sync::watch;

use ganger_config::model::PoolConfig;
use ganger_core::budget::Share;

use crate::delivery::SourceEnd;
use crate::exclusive::Exclusive;

/// A reader's connection to its pool.
#[derive(Debug)]
pub struct Link {
    /// The channels to the pool.
    pub end: SourceEnd,
    /// The pool's rules; a reload replaces them, but never its name, its queue or its options.
    pub policy: watch::Receiver<Arc<PoolConfig>>,
    /// The daemon's turn for suspects.
    pub exclusive: Exclusive,
    /// Memory budget that the source draws on for the messages that it holds.
    pub share: Share,
}
