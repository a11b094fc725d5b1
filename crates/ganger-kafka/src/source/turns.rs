//! Choice of the next partition to read: only those that may have messages and for which there may be room
//! are checked, each in its turn and however many there are. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ordering::Count;
use crate::broker::start_positions::Part;

/// Limits of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Number of messages that are ready.
    pub(super) ready: usize,
    /// Number of messages that wait or are ready.
    pub(super) look_ahead: usize,
    /// Size of those that are not handed out.
    pub(super) bytes: usize,
    pub(super) bytes_of_all: usize,
    /// True if the pools of the daemon hold as much as they may: then each pool has no more than one message,
    /// rather than each partition.
    pub(super) is_scarce: bool,
}

/// Messages held of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldTotals {
    pub(super) bytes: usize,
    /// True if no message is handed out or may be.
    pub(super) is_idle: bool,
}

/// State of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadState {
    /// Possibly has something to read and room for it.
    Open,
    /// Has nothing to read.
    Empty,
    /// Not to be read.
    Closed,
    /// At its limit, until one of its messages is handed out or is done.
    Full,
    /// `Full`, or until more than this may be ready of each.
    ReadyMax(usize),
    /// `Full`, or until each may have more bytes than this.
    BytesMax(usize),
    /// All of them together have reached the limit.
    AtTotalLimit,
}

impl Share {
    /// Returns the reason why there is no room for more of a partition with this count; none if there is.
    pub(super) fn refusal(&self, count: Count, here: HeldTotals) -> Option<ReadState> {
        if count.messages - count.out >= self.look_ahead {
            return Some(ReadState::Full);
        }
        if count.ready >= self.ready {
            return Some(ReadState::ReadyMax(count.ready));
        }
        let has_none = if self.is_scarce {
            here.is_idle
        } else {
            count.messages == 0
        };
        if has_none {
            None
        } else if !self.has_bytes(here) {
            Some(ReadState::AtTotalLimit)
        } else {
            (count.bytes >= self.bytes).then_some(ReadState::BytesMax(count.bytes))
        }
    }

    fn has_bytes(&self, here: HeldTotals) -> bool {
        here.bytes < self.bytes_of_all
    }

    /// Returns whether to admit one message to keep this pool going while all pools are at their limit.
    fn wants_one(&self, here: HeldTotals) -> bool {
        self.is_scarce && here.is_idle
    }
}

/// State of one partition.
#[derive(Debug)]
struct TurnEntry {
    state: ReadState,
    /// Its number in its queue.
    number: u64,
    /// True if messages of it are held here.
    is_here: bool,
}

impl TurnEntry {
    /// Returns whether it counts among the partitions that share the limits.
    fn shares(&self) -> bool {
        self.is_here || self.state != ReadState::Empty
    }
}

/// All assigned partitions.
#[derive(Debug, Default)]
pub(super) struct Turns {
    entries: HashMap<Part, TurnEntry>,
    last_number: u64,
    open: BTreeMap<u64, Part>,
    at_total_limit: BTreeMap<u64, Part>,
    by_ready: BTreeSet<(usize, Part)>,
    by_bytes: BTreeSet<(usize, Part)>,
    sharers: usize,
    was_scarce: bool,
}

impl Turns {
    /// Adds a partition. It may have messages.
    pub(super) fn add(&mut self, part: Part) {
        self.remove(part);
        let entry = TurnEntry {
            state: ReadState::Closed,
            number: 0,
            is_here: false,
        };
        self.sharers += usize::from(entry.shares());
        self.entries.insert(part, entry);
        self.put(part, ReadState::Open);
    }

    /// Removes a partition.
    pub(super) fn remove(&mut self, part: Part) {
        self.put(part, ReadState::Closed);
        if let Some(entry) = self.entries.remove(&part) {
            self.sharers -= usize::from(entry.shares());
        }
    }

    /// Sets the state of a partition after a check. An open one goes to the end of the queue.
    pub(super) fn put(&mut self, part: Part, state: ReadState) {
        let Some(entry) = self.entries.get_mut(&part) else {
            return;
        };
        let did_share = entry.shares();
        match entry.state {
            ReadState::Open => drop(self.open.remove(&entry.number)),
            ReadState::AtTotalLimit => drop(self.at_total_limit.remove(&entry.number)),
            ReadState::ReadyMax(ready) => drop(self.by_ready.remove(&(ready, part))),
            ReadState::BytesMax(bytes) => drop(self.by_bytes.remove(&(bytes, part))),
            ReadState::Empty | ReadState::Closed | ReadState::Full => {}
        }
        self.last_number += 1;
        (entry.state, entry.number) = (state, self.last_number);
        match state {
            ReadState::Open => drop(self.open.insert(entry.number, part)),
            ReadState::AtTotalLimit => drop(self.at_total_limit.insert(entry.number, part)),
            ReadState::ReadyMax(ready) => drop(self.by_ready.insert((ready, part))),
            ReadState::BytesMax(bytes) => drop(self.by_bytes.insert((bytes, part))),
            ReadState::Empty | ReadState::Closed | ReadState::Full => {}
        }
        self.sharers += usize::from(entry.shares());
        self.sharers -= usize::from(did_share);
    }

    /// Records an arrival. True if the partition was empty before.
    pub(super) fn arrived(&mut self, part: Part) -> bool {
        let slept = self.has_nothing(part);
        if slept {
            self.put(part, ReadState::Open);
        }
        slept
    }

    /// Reopens a partition for reading.
    pub(super) fn opened(&mut self, part: Part) {
        if self
            .entry(part)
            .is_some_and(|entry| entry.state == ReadState::Closed)
        {
            self.put(part, ReadState::Open);
        }
    }

    /// Updates the messages held of a partition.
    pub(super) fn counted(&mut self, part: Part, count: Count) {
        let Some(entry) = self.entries.get_mut(&part) else {
            return;
        };
        let did_share = entry.shares();
        entry.is_here = count.messages > 0;
        self.sharers += usize::from(entry.shares());
        self.sharers -= usize::from(did_share);
        match entry.state {
            ReadState::Full
            | ReadState::ReadyMax(_)
            | ReadState::BytesMax(_)
            | ReadState::AtTotalLimit => {
                self.put(part, ReadState::Open);
            }
            ReadState::Open | ReadState::Empty | ReadState::Closed => {}
        }
    }

    /// Reopens partitions that had reached their limit and may have more now.
    pub(super) fn widen(&mut self, share: &Share) {
        let mut open: Vec<Part> = Vec::new();
        let ready = self.by_ready.range(..(share.ready, Part::MIN));
        open.extend(ready.map(|(_, part)| *part));
        let bytes = self.by_bytes.range(..(share.bytes, Part::MIN));
        open.extend(bytes.map(|(_, part)| *part));
        // Now each may have one, not only all together.
        if std::mem::replace(&mut self.was_scarce, share.is_scarce) && !share.is_scarce {
            open.extend(self.at_total_limit.values());
            open.extend(self.by_bytes.iter().map(|(_, part)| *part));
        }
        for part in open {
            self.put(part, ReadState::Open);
        }
    }

    /// Returns the next partition that may have messages for which there is room. It goes to the end of the
    /// queue.
    pub(super) fn next(&mut self, share: &Share, here: HeldTotals) -> Option<Part> {
        let part = self.peek(share, here)?;
        self.put(part, ReadState::Open);
        Some(part)
    }

    /// Returns the same partition and leaves it in its place.
    pub(super) fn peek(&self, share: &Share, here: HeldTotals) -> Option<Part> {
        let wants_one = share.wants_one(here);
        let may_pass = wants_one || share.has_bytes(here);
        let at_total_limit = self.at_total_limit.values().next().filter(|_| may_pass);
        let full = self.by_bytes.first().filter(|_| wants_one);
        at_total_limit
            .or_else(|| self.open.values().next())
            .or(full.map(|(_, part)| part))
            .copied()
    }

    /// Returns the number of partitions that have messages, in librdkafka or here.
    pub(super) fn sharers(&self) -> usize {
        self.sharers
    }

    pub(super) fn has_nothing(&self, part: Part) -> bool {
        self.entry(part)
            .is_some_and(|entry| entry.state == ReadState::Empty)
    }

    fn entry(&self, part: Part) -> Option<&TurnEntry> {
        self.entries.get(&part)
    }
}

#[cfg(test)]
mod tests;
