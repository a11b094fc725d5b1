//! Queues that hold messages and that no pool of the daemon reads. One of the pools on a source checks
//! for all of them; the status of the daemon shows the result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::delivery::Backlog;
use ganger_core::names::PAUSED_QUEUE;

/// Unread queues of the daemon's sources. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct UnreadQueues(Arc<Mutex<BTreeMap<String, SourceQueues>>>);

/// A source that at least one pool reads from.
#[derive(Debug, Default)]
struct SourceQueues {
    /// Number of pools that read each queue.
    readers: BTreeMap<Arc<str>, usize>,
    /// Time before which the source is not checked again.
    rests_until: Option<Instant>,
    found: Vec<UnreadQueue>,
}

/// A queue that holds messages and that no pool reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadQueue {
    /// Name of the queue, which a sender chose.
    pub queue: String,
    /// Messages that wait in it.
    pub backlog: Backlog,
}

impl UnreadQueues {
    /// Registers a pool that reads the queue from the source, until the result is dropped.
    pub fn reader(&self, source: &str, queue: &Arc<str>) -> Reader {
        let mut sources = self.lock();
        let readers = &mut sources.entry(source.to_owned()).or_default().readers;
        *readers.entry(Arc::clone(queue)).or_default() += 1;
        Reader {
            all: self.clone(),
            source: source.to_owned(),
            queue: Arc::clone(queue),
        }
    }

    /// Returns the queues found by the last check, with their sources.
    pub fn found(&self) -> Vec<(String, UnreadQueue)> {
        let sources = self.lock();
        let of_one = |(name, source): (&String, &SourceQueues)| {
            // The daemons' own entries are in that queue.
            let is_read = |one: &UnreadQueue| {
                one.queue == PAUSED_QUEUE || source.readers.contains_key(one.queue.as_str())
            };
            let is_unread = |one: &&UnreadQueue| !is_read(one);
            let unread = source.found.iter().filter(is_unread).cloned();
            unread.map(|one| (name.clone(), one)).collect::<Vec<_>>()
        };
        sources.iter().flat_map(of_one).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SourceQueues>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool that reads a queue.
#[derive(Debug)]
pub struct Reader {
    all: UnreadQueues,
    source: String,
    queue: Arc<str>,
}

impl Reader {
    /// Returns whether this pool is to check now. No other checks before `until`.
    pub fn begins(&self, now: Instant, until: Instant) -> bool {
        self.change(|source| {
            let is_due = source.rests_until.is_none_or(|rests| rests <= now);
            if is_due {
                source.rests_until = Some(until);
            }
            is_due
        })
        .unwrap_or(false)
    }

    /// Returns whether a pool reads the queue.
    pub fn is_read(&self, queue: &str) -> bool {
        self.change(|source| source.readers.contains_key(queue))
            .unwrap_or(false)
    }

    /// Publishes the queues found. Nobody checks again before `until`.
    pub fn found(&self, found: Vec<UnreadQueue>, until: Instant) {
        self.change(|source| {
            source.found = found;
            source.rests_until = Some(until);
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut SourceQueues) -> T) -> Option<T> {
        self.all.lock().get_mut(&self.source).map(change)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut sources = self.all.lock();
        let Some(source) = sources.get_mut(&self.source) else {
            return;
        };
        if let Some(count) = source.readers.get_mut(&self.queue) {
            *count -= 1;
        }
        source.readers.retain(|_, count| *count > 0);
        if source.readers.is_empty() {
            sources.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn found(queue: &str) -> UnreadQueue {
        UnreadQueue {
            queue: queue.to_owned(),
            backlog: Backlog {
                depth: 1,
                is_limit: false,
                oldest: None,
            },
        }
    }

    #[test]
    fn one_pool_of_a_source_looks_for_all() {
        let (all, now) = (UnreadQueues::default(), Instant::now());
        let later = now + Duration::from_secs(60);
        let (a, b) = (
            all.reader("main", &"a".into()),
            all.reader("main", &"b".into()),
        );
        let other = all.reader("other", &"a".into());
        assert!(a.begins(now, later) && !b.begins(now, later) && other.begins(now, later));
        a.found(vec![found("c")], later);
        assert!(!a.begins(now, later) && b.begins(later, later));
    }

    #[test]
    fn a_queue_is_unread_until_a_pool_reads_it_and_a_source_known_while_one_does() {
        let (all, now) = (UnreadQueues::default(), Instant::now());
        let a = all.reader("main", &"a".into());
        assert!(a.is_read("a") && !a.is_read("b"));
        a.found(vec![found("b"), found("c")], now);
        let names = || -> Vec<String> {
            let found = all.found().into_iter();
            found
                .map(|(source, one)| format!("{source}/{}", one.queue))
                .collect()
        };
        assert_eq!(names(), ["main/b", "main/c"]);
        let b = [
            all.reader("main", &"b".into()),
            all.reader("main", &"b".into()),
        ];
        assert_eq!(names(), ["main/c"]);
        drop(b);
        assert_eq!(names(), ["main/b", "main/c"]);
        drop(a);
        assert!(names().is_empty());
    }
}
