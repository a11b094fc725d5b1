//! What ties the sources of one daemon to each other, and a source to its pool.

use std::sync::Arc;

use tokio::sync::watch;

#[cfg(feature = "sqlite")]
use crate::broker::store::Stores;
use ganger_core::budget::{Budget, Share};
use crate::config::model::PoolConfig;
use crate::delivery::SourceEnd;
use crate::rules::exclusive::Exclusive;
use crate::unread::UnreadQueues;

/// What all sources of one daemon share.
#[derive(Debug, Clone)]
pub struct Shared {
    pub(super) budget: Budget,
    pub(super) exclusive: Exclusive,
    pub(super) unread: UnreadQueues,
    #[cfg(feature = "sqlite")]
    pub(super) stores: Stores,
}

impl Shared {
    /// For a daemon that has no source yet, whose sources share this budget, and tell there which queues
    /// no pool reads.
    pub fn new(budget: Budget, unread: UnreadQueues) -> Self {
        Self {
            budget,
            exclusive: Exclusive::default(),
            unread,
            #[cfg(feature = "sqlite")]
            stores: Stores::default(),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(Budget::new(None), UnreadQueues::default())
    }
}

/// What ties a source to its pool.
#[derive(Debug)]
pub(super) struct Link {
    /// The channels to the pool.
    pub(super) end: SourceEnd,
    /// The pool's rules; a reload replaces them, but never its name, its queue or its options.
    pub(super) policy: watch::Receiver<Arc<PoolConfig>>,
    pub(super) exclusive: Exclusive,
    /// What the source draws from for the messages that it holds.
    pub(super) share: Share,
}
