//! Undeliverable publications, when there is no time to wait for them: neither a shutdown nor a revoked
//! partition waits for them. Their messages are not committed, so they run again.

use tokio::time::Instant;

use super::event_loop::Task;
use super::partition::Partition;
use super::purpose::{Purpose, WITHIN};
use crate::broker::begins::Part;

impl Task {
    fn in_vain(&self, now: Instant) -> impl Iterator<Item = &Purpose> {
        self.producer.in_vain(now, Purpose::is_in_vain)
    }

    /// Returns whether a publication is in flight that a shutdown waits for.
    pub(super) fn is_still_publishing(&self, now: Instant) -> bool {
        self.in_vain(now).count() < self.producer.pending()
    }

    /// Number of messages of these leaving partitions that are being worked on or settled.
    pub(super) fn in_hand(&self, parts: &[Part], now: Instant) -> usize {
        let out: usize = parts.iter().map(|part| self.lanes.count(*part).out).sum();
        let leaves = |part| self.partitions.get(part).is_some_and(Partition::is_leaving);
        let is_theirs = |purpose: &&Purpose| {
            let entry = purpose.place().and_then(|place| self.lanes.get(place));
            entry.is_some_and(|entry| leaves(entry.part))
        };
        out.saturating_sub(self.in_vain(now).filter(is_theirs).count())
    }

    /// Returns the time at which the next publication in flight is no longer awaited.
    pub(super) fn next_in_vain(&self) -> Option<Instant> {
        let is_hurried = self.is_closing() || self.group.is_draining();
        let next = || self.producer.next_of_age(Instant::now(), WITHIN);
        is_hurried.then(next).flatten()
    }

    /// Logs what a shutdown leaves undone.
    pub(super) fn tell_of_what_is_left(&self) {
        let left = |is: fn(&Purpose) -> bool| self.producer.purposes().filter(|p| is(p)).count();
        let replies = left(|purpose| matches!(purpose, Purpose::Reply { .. }));
        let retries = left(|purpose| matches!(purpose, Purpose::Tier { .. }));
        let letters = left(|purpose| matches!(purpose, Purpose::Letter { .. }));
        if replies + retries + letters > 0 {
            tracing::warn!(
                pool = self.plan.pool,
                replies,
                retries,
                letters,
                "not all that was published was taken: its messages are not committed, and run again"
            );
        }
    }
}
