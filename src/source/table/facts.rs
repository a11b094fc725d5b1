//! What a table source knows of itself, for whoever watches it.

use std::time::Duration;

use tokio::time::Instant;

use super::Task;
use super::depth::COUNTED_MAX;
use crate::rules::credit;

/// How often is looked at what costs a look at the file.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
            let delayed = self.store.count_delayed(COUNTED_MAX).await;
            let database = self.store.sizes().await;
            self.end.facts.note(|figures| {
                (figures.delayed, figures.database) = (delayed.ok(), database);
            });
        }
    }

    pub(super) fn next_count(&self) -> Option<Instant> {
        self.depth.next(&self.policy.borrow().workers)
    }

    /// Counts what waits, if it is time. What is not known is not told: the claims show what is wrong.
    pub(super) async fn tell_depth(&mut self) {
        let workers = self.policy.borrow().workers;
        let began = Instant::now();
        if self.depth.is_due(&workers, began) {
            let counted = self.store.count_ready(COUNTED_MAX).await;
            let now = Instant::now();
            self.depth.counted(&workers, now, now - began);
            credit::tell_depth(&self.end, counted.ok());
        } else if self.depth.ceases(&workers) {
            credit::tell_depth(&self.end, None);
        }
    }
}
