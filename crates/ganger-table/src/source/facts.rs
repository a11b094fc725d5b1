//! Figures of a table source, for whoever watches it. What can't be read is left out: the claims show what is wrong.

use std::time::Duration;

use tokio::time::Instant;

use super::book::Book;
use super::depth::{COUNTED_MAX, Depth};
use crate::store::TableStore;
use ganger_config::model::PoolConfig;
use ganger_queue::credit;
use ganger_queue::delivery::SourceEnd;

/// Interval of what costs a look at the database.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of delayed rows that are counted.
const DELAYED_MAX: u32 = 20_000;

/// The times at which the figures are taken.
#[derive(Debug)]
pub(super) struct Facts {
    next: Instant,
    depth: Depth,
}

impl Facts {
    /// All are taken at once.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            next: now,
            depth: Depth::new(now),
        }
    }

    /// Time of the next count of the rows that wait.
    pub(super) fn next_count(&self) -> Instant {
        self.depth.next()
    }

    /// Counts at once: by new rules.
    pub(super) fn count_now(&mut self) {
        self.depth.count_now(Instant::now());
    }

    /// Records that a claim found no row that could be claimed.
    pub(super) fn record_empty(&mut self) {
        self.depth.record_empty();
    }

    /// Publishes the figures, and those of the database if it is time and it answers.
    pub(super) async fn report(
        &mut self,
        store: &mut dyn TableStore,
        end: &SourceEnd,
        book: &Book,
        is_failing: bool,
    ) {
        let (settlements, publishes) = (book.settled().len(), book.publishes());
        end.facts.note(|figures| {
            figures.settlements_pending = Some(settlements as u64);
            figures.publishes_pending = Some(publishes as u64);
        });
        let now = Instant::now();
        if now >= self.next && !is_failing {
            self.next = now + LOOK_EVERY;
            let delayed = store.count_delayed(DELAYED_MAX).await;
            let database = store.sizes().await;
            end.facts.note(|figures| {
                (figures.delayed, figures.database) = (delayed.ok(), database);
            });
        }
    }

    /// Counts the rows that wait, if it is time.
    pub(super) async fn report_backlog(
        &mut self,
        store: &mut dyn TableStore,
        end: &SourceEnd,
        pool: &PoolConfig,
    ) {
        let began = Instant::now();
        if began < self.depth.next() {
            return;
        }
        let waiting = store.waiting(&pool.queue, COUNTED_MAX).await.ok();
        let now = Instant::now();
        self.depth.counted(&pool.workers, now, now - began);
        let backlog = waiting.map(|waiting| self.depth.backlog(waiting));
        credit::report_backlog(end, backlog);
    }
}
