//! Queue of telemetry for a collector: bounded, so that an unreachable collector costs no more than the
//! items dropped, which are counted. A producer never waits, and wakes the sender only for a full batch.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A queue of spans or records.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Mutex<Vec<T>>,
    /// Maximum number of waiting items.
    waiting_max: usize,
    /// Number of items sent at once.
    batch: usize,
    /// Notifies of a full batch.
    full: Notify,
    /// Number of items lost since the start.
    lost: AtomicU64,
}

impl<T> Queue<T> {
    /// Makes an empty queue.
    pub fn new(waiting_max: usize, batch: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            waiting_max,
            batch: batch.clamp(1, waiting_max),
            full: Notify::new(),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds an item, or drops it if the queue is full.
    pub fn push(&self, one: T) {
        let mut waiting = self.waiting();
        if waiting.len() >= self.waiting_max {
            drop(waiting);
            return self.lose(1);
        }
        waiting.push(one);
        let is_full = waiting.len() == self.batch;
        drop(waiting);
        if is_full {
            self.full.notify_one();
        }
    }

    /// Takes the next batch; empty if none waits.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        if waiting.len() <= self.batch {
            return mem::take(&mut waiting);
        }
        let rest = waiting.split_off(self.batch);
        mem::replace(&mut waiting, rest)
    }

    /// Waits for a full batch. Cancel-safe.
    pub async fn full(&self) {
        self.full.notified().await;
    }

    /// Counts items that were lost otherwise.
    pub fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of items lost since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Locks the queue. The guarded value is never left half changed.
    fn waiting(&self) -> MutexGuard<'_, Vec<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_has_no_room_is_lost_and_counted() {
        let queue = Queue::new(5, 2);
        (0..7).for_each(|one| queue.push(one));
        assert_eq!(queue.lost(), 2);
        let batches: Vec<_> = (0..4).map(|_| queue.take()).collect();
        assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4], vec![]]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_woken_before_a_batch_is_full() {
        let queue = Queue::new(5, 2);
        let mut full = std::pin::pin!(queue.full());
        queue.push(1);
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(second, &mut full).await.is_err());
        queue.push(2);
        full.await;
    }
}
