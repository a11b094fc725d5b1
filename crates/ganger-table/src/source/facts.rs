//! What a table source knows of itself, for whoever watches it.

use std::time::Duration;

use tokio::time::Instant;

use super::Task;
use super::depth::COUNTED_MAX;
use ganger_queue::credit;

/// How often is looked at what costs a look at the file.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// So many delayed rows are counted at most.
const DELAYED_MAX: u32 = 20_000;

impl Task {
    /// Takes it down. What is not known is not told: the claims show what is wrong.
    pub(super) async fn tell_facts(&mut self) {
        let (settlements, publishes) = (self.settled.len(), self.publishes.len());
        self.end.facts.note(|figures| {
            figures.settlements_pending = Some(settlements as u64);
            figures.publishes_pending = Some(publishes as u64);
        });
        let now = Instant::now();
        if now >= self.next_facts && !self.pause.is_troubled() {
            self.next_facts = now + LOOK_EVERY;
            let delayed = self.store.count_delayed(DELAYED_MAX).await;
            let database = self.store.sizes().await;
            self.end.facts.note(|figures| {
                (figures.delayed, figures.database) = (delayed.ok(), database);
            });
        }
    }

    /// Counts what waits, if it is time. What is not known is not told: the claims show what is wrong.
    pub(super) async fn tell_backlog(&mut self) {
        let began = Instant::now();
        if began < self.depth.next() {
            return;
        }
        let pool = self.policy.borrow().clone();
        let waiting = self.store.waiting(&pool.queue, COUNTED_MAX).await.ok();
        let now = Instant::now();
        self.depth.counted(&pool.workers, now, now - began);
        let backlog = waiting.map(|waiting| self.depth.backlog(waiting));
        credit::tell_backlog(&self.end, backlog);
    }
}
