//! What a table source knows of itself, for whoever watches it.

use std::time::Duration;

use tokio::time::Instant;

use super::Task;
use super::depth::COUNTED_MAX;

/// How often is looked at what costs a look at the file.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Task {
    /// Takes it down. What is not known is not told: the claims show what is wrong.
    pub(super) fn tell_facts(&mut self) {
        let (settlements, publishes) = (self.settled.len(), self.publishes.len());
        self.end.facts.note(|figures| {
            figures.settlements_pending = Some(settlements as u64);
            figures.publishes_pending = Some(publishes as u64);
        });
        let now = Instant::now();
        if now >= self.next_facts && !self.pause.is_troubled() {
            self.next_facts = now + LOOK_EVERY;
            let (delayed, database) = (self.store.count_delayed(COUNTED_MAX), self.store.sizes());
            self.end.facts.note(|figures| {
                (figures.delayed, figures.database) = (delayed.ok(), database.ok());
            });
        }
    }
}
