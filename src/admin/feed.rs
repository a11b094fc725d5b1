//! The last events, kept for those who listen and those who come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::watch;

use super::event::Event;
use crate::pool::status::unix_seconds;

/// How many events are kept for those who come back.
const KEPT_MAX: usize = 4096;
/// An event with its number.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(super) struct Numbered {
    /// Counted from 1 since the daemon's start.
    pub(super) id: u64,
    /// When, in seconds since 1970.
    #[serde(with = "unix_seconds")]
    #[schema(value_type = f64)]
    at: SystemTime,
    #[serde(flatten)]
    pub(super) event: Event,
}

/// The last events, and a bell for those who wait for the next. Clones are of the same.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    kept: Arc<Mutex<VecDeque<Arc<Numbered>>>>,
    last: watch::Sender<u64>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            kept: Arc::default(),
            last: watch::channel(0).0,
        }
    }
}

impl Feed {
    /// Something has happened.
    pub(super) fn push(&self, event: Event) {
        let id = *self.last.borrow() + 1;
        let at = SystemTime::now();
        let mut kept = self.kept();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Arc::new(Numbered { id, at, event }));
        drop(kept);
        self.last.send_replace(id);
    }

    /// The first that is kept after that one.
    pub(super) fn after(&self, id: u64) -> Option<Arc<Numbered>> {
        let kept = self.kept();
        let at = kept.partition_point(|event| event.id <= id);
        kept.get(at).cloned()
    }

    /// The number of the last one.
    pub(super) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// A bell that rings at each event.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<Numbered>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_kept() {
        let feed = Feed::default();
        for _ in 0..KEPT_MAX + 10 {
            feed.push(Event::PoolEnded { pool: "p".into() });
        }
        assert_eq!(feed.kept().len(), KEPT_MAX);
        assert_eq!(feed.after(0).unwrap().id, 11);
        assert_eq!(feed.last(), KEPT_MAX as u64 + 10);
        assert!(feed.after(feed.last()).is_none());
    }
}
