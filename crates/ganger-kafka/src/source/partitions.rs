//! Assigned partitions and their indexes: turns, due heads, uncommitted progress, fetching. However many
//! there are, only those that have changed are checked. A partition is changed only in `change`, so that the
//! indexes stay correct.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::ordering::Count;
use super::partition::{Partition, Pause, Traits};
use super::pool_link::Summary;
use super::turns::{HeldTotals, ReadState, Share, Turns};
use crate::broker::arrivals::ArrivalSet;
use crate::broker::consumer::{Commit, TopicPartition};
use crate::broker::start_positions::Part;
use crate::broker::statistics::Lag;

/// All assigned partitions.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    all: HashMap<Part, Partition>,
    by_name: HashMap<TopicPartition, Part>,
    last: Part,
    turns: Turns,
    /// Times of the next checks of heads.
    parked: Deadlines,
    /// Times of the next checks of heads of partitions that are fetched meanwhile.
    to_pause: Deadlines,
    /// Partitions that are paused for a head that no longer exists.
    to_resume: BTreeSet<Part>,
    /// Partitions that are fetched and have messages in their local buffer.
    full: BTreeSet<Part>,
    /// Partitions that are fetched and have an empty local buffer.
    empty: BTreeSet<Part>,
    uncommitted: BTreeSet<Part>,
    /// Partitions in the commit in flight.
    sent: Vec<Part>,
}

impl Partitions {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, part: Part) -> Option<&Partition> {
        self.all.get(&part)
    }

    /// Returns all of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Part, &Partition)> {
        self.all.iter().map(|(part, partition)| (*part, partition))
    }

    /// Returns the partition of this name, if it is assigned.
    pub(super) fn named(&self, name: &TopicPartition) -> Option<Part> {
        self.by_name.get(name).copied()
    }

    /// Returns the assigned partitions among these names.
    pub(super) fn all_named(&self, names: &[TopicPartition]) -> Vec<Part> {
        names.iter().filter_map(|name| self.named(name)).collect()
    }

    /// Adds a partition, which may have messages.
    pub(super) fn add(&mut self, partition: Partition) -> Part {
        self.last = self.last.wrapping_add(1);
        let part = self.last;
        self.by_name.insert(partition.name().clone(), part);
        self.turns.add(part);
        self.index(part, partition.traits());
        self.all.insert(part, partition);
        part
    }

    /// Removes a partition.
    pub(super) fn remove(&mut self, part: Part) -> Option<Partition> {
        let partition = self.all.remove(&part)?;
        if self.named(partition.name()) == Some(part) {
            self.by_name.remove(partition.name());
        }
        self.turns.remove(part);
        self.index(part, Traits::default());
        self.full.remove(&part);
        self.empty.remove(&part);
        Some(partition)
    }

    /// Renumbers a partition, so that it is not taken for the previous assignment.
    pub(super) fn rename(&mut self, part: Part) -> Part {
        match self.remove(part) {
            Some(partition) => self.add(partition),
            None => part,
        }
    }

    /// Changes a partition and updates the indexes.
    pub(super) fn change<T>(
        &mut self,
        part: Part,
        change: impl FnOnce(&mut Partition) -> T,
    ) -> Option<T> {
        let partition = self.all.get_mut(&part)?;
        let before = partition.traits();
        let result = change(partition);
        let after = partition.traits();
        if before != after {
            self.index(part, after);
        }
        Some(result)
    }

    fn index(&mut self, part: Part, traits: Traits) {
        let Traits {
            is_uncommitted,
            look_at,
            pause,
            is_leaving,
            is_shut,
        } = traits;
        let is_fetched = pause.is_none() && !is_leaving;
        self.parked.set(part, look_at);
        self.to_pause.set(part, look_at.filter(|_| is_fetched));
        put(
            &mut self.to_resume,
            part,
            pause == Some(Pause::HeadNotDue) && look_at.is_none(),
        );
        put(&mut self.uncommitted, part, is_uncommitted);
        if !is_shut {
            self.turns.opened(part);
        }
        self.index_fetched(part, is_fetched);
    }

    fn index_fetched(&mut self, part: Part, is_fetched: bool) {
        let has_nothing = self.turns.has_nothing(part);
        put(&mut self.full, part, is_fetched && !has_nothing);
        put(&mut self.empty, part, is_fetched && has_nothing);
    }

    // -- turns --

    /// Updates the partitions that have received messages.
    pub(super) fn listen(&mut self, arrivals: &ArrivalSet) {
        for name in arrivals.take() {
            if let Some(part) = self.named(&name) {
                self.arrived(part);
            }
        }
    }

    fn arrived(&mut self, part: Part) {
        if self.turns.arrived(part) && self.empty.remove(&part) {
            self.full.insert(part);
        }
    }

    /// Returns the number of partitions that have messages, in librdkafka or here.
    pub(super) fn sharers(&self) -> usize {
        self.turns.sharers()
    }

    /// Reopens partitions that had reached their limit and may have more now.
    pub(super) fn widen(&mut self, share: &Share) {
        self.turns.widen(share);
    }

    /// Returns the next partition that may have messages for which there is room.
    pub(super) fn next(&mut self, share: &Share, here: HeldTotals) -> Option<Part> {
        self.turns.next(share, here)
    }

    /// Returns whether there may be such a partition.
    pub(super) fn has_next(&self, share: &Share, here: HeldTotals) -> bool {
        self.turns.peek(share, here).is_some()
    }

    /// Stops reading a partition for this reason.
    pub(super) fn stop_reading(&mut self, part: Part, why: ReadState) {
        self.turns.put(part, why);
        if why == ReadState::Empty && self.full.remove(&part) {
            self.empty.insert(part);
        }
    }

    /// Updates the messages held of a partition.
    pub(super) fn counted(&mut self, part: Part, count: Count) {
        self.turns.counted(part, count);
    }

    // -- due heads --

    /// Returns the time of the next check of a head.
    pub(super) fn next_head(&self) -> Option<Instant> {
        self.parked.next()
    }

    /// Returns the partitions whose heads are to be checked.
    pub(super) fn heads(&self, now: Instant) -> Vec<Part> {
        self.parked.until(now)
    }

    // -- fetching --

    /// Returns the partitions that are fetched and have messages in their local buffer.
    pub(super) fn full(&self) -> &BTreeSet<Part> {
        &self.full
    }

    /// Returns the partitions that are fetched and have an empty local buffer.
    pub(super) fn empty(&self) -> &BTreeSet<Part> {
        &self.empty
    }

    /// Returns the partitions that are fetched although their heads are not due by then.
    pub(super) fn to_pause(&self, until: Instant) -> Vec<Part> {
        self.to_pause.after(until)
    }

    /// Returns the partitions that are paused for a head that no longer exists.
    pub(super) fn to_resume(&self) -> Vec<Part> {
        self.to_resume.iter().copied().collect()
    }

    // -- commits --

    /// Returns whether all known progress is committed.
    pub(super) fn are_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }

    /// Returns whether all known progress of a partition is committed.
    pub(super) fn is_committed(&self, part: Part) -> bool {
        !self.uncommitted.contains(&part)
    }

    /// Returns the commits to send; with `force` those of all partitions.
    pub(super) fn commit(&mut self, metadata_bytes_max: usize, force: bool) -> Vec<Commit> {
        let parts: Vec<Part> = if force {
            self.all.keys().copied().collect()
        } else {
            self.uncommitted.iter().copied().collect()
        };
        let mut commits = Vec::with_capacity(parts.len());
        for part in parts {
            let commit = self.change(part, |each| each.commit(metadata_bytes_max, force));
            if let Some(commit) = commit.flatten() {
                self.sent.push(part);
                commits.push(commit);
            }
        }
        commits
    }

    /// Handles the outcome of the commit; partitions of `missing` topics were not committed.
    pub(super) fn committed(&mut self, is_taken: bool, missing: &BTreeSet<String>) {
        for part in std::mem::take(&mut self.sent) {
            self.change(part, |each| match missing.contains(&each.name().0) {
                true => each.is_missing(),
                false => each.committed(is_taken),
            });
        }
    }

    // -- statistics --

    /// Handles the statistics, with the messages held of each partition.
    pub(super) fn take_statistics(
        &mut self,
        all: &[Lag],
        here: impl Fn(Part) -> HeldOfPartition,
    ) -> Summary {
        let mut summary = Summary::default();
        for statistics in all {
            let name = (statistics.topic.clone(), statistics.partition);
            let Some(part) = self.named(&name) else {
                continue;
            };
            let told = self.change(part, |each| {
                let behind = each.lag(statistics).map(|lag| (each.label(), lag));
                // Messages in a tier are not due.
                let counts = behind.clone().filter(|_| !each.is_tier());
                let unread = (each.is_not_fetched(statistics), each.read_up_to_ms());
                (behind, counts, unread)
            });
            let (behind, counts, (is_not_fetched, read_up_to_ms)) = told.unwrap_or_default();
            let lag = behind.as_ref().map_or(0, |(_, lag)| *lag);
            let unfinished = counts.map_or(0, |(_, lag)| lag);
            summary.unfinished += unfinished;
            let here = here(part);
            if unfinished > here.out as u64 {
                let sent = here.oldest_ms.or(read_up_to_ms);
                let known = [summary.oldest_ms, sent].into_iter().flatten();
                summary.oldest_ms = known.min();
            }
            summary.delayed += lag - unfinished;
            summary.lag.extend(behind);
            summary.idle.extend(is_not_fetched.then_some(part));
        }
        summary.lag.sort();
        summary
    }
}

/// Messages held of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeldOfPartition {
    /// Number of those that the pool has.
    pub(super) out: usize,
    /// Send time of the oldest of the others without earlier attempts.
    pub(super) oldest_ms: Option<i64>,
}

fn put(set: &mut BTreeSet<Part>, part: Part, is_in: bool) {
    if is_in {
        set.insert(part);
    } else {
        set.remove(&part);
    }
}

#[cfg(test)]
mod tests;
