//! Figures of a table source, for display. Figures that can't be read are left out: problems of the database
//! are reported by the claims.

use std::time::Duration;

use tokio::time::Instant;

use super::book::Book;
use super::depth::{COUNTED_MAX, Depth};
use crate::store::TableStore;
use ganger_config::model::PoolConfig;
use ganger_queue::credit;
use ganger_queue::delivery::SourceEnd;

/// Interval between queries for figures that cost a read of the database.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of delayed rows that are counted.
const DELAYED_MAX: u32 = 20_000;

/// Times at which the figures are taken.
#[derive(Debug)]
pub(super) struct Facts {
    next: Instant,
    depth: Depth,
}

impl Facts {
    /// Makes a schedule in which all figures are taken at once.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            next: now,
            depth: Depth::new(now),
        }
    }

    /// Returns the time of the next count of the waiting rows.
    pub(super) fn next_count(&self) -> Instant {
        self.depth.next()
    }

    /// Plans a count at once, for new rules.
    pub(super) fn count_now(&mut self) {
        self.depth.count_now(Instant::now());
    }

    /// Records that a claim found no row that could be claimed.
    pub(super) fn record_empty(&mut self) {
        self.depth.record_empty();
    }

    /// Publishes the figures, including those of the database if they are due and it answers.
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

    /// Counts the waiting rows, if that is due.
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
