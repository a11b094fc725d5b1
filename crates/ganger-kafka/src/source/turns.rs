//! Choice of the next partition to read: only those that may have something to read and for which there
//! may be room are checked, each in its turn and however many there are. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ordering::Count;
use crate::broker::begins::Part;

/// Limits of each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Number of messages that are ready.
    pub(super) ready: usize,
    /// Number of messages that wait or are ready.
    pub(super) look_ahead: usize,
    /// Size of those that are not out.
    pub(super) bytes: usize,
    pub(super) bytes_of_all: usize,
    /// True if the pools of the daemon hold all that they may: each pool then has no more than one
    /// message, not each partition.
    pub(super) is_scarce: bool,
}

/// Messages held of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) bytes: usize,
    /// True if nothing is out or may go out.
    pub(super) is_idle: bool,
}

/// State of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Possibly has something to read and room for it.
    Open,
    /// Has nothing to read.
    Asleep,
    /// Not to be read.
    Shut,
    /// At its limit, until a message of it goes out or is done.
    Full,
    /// `Full`, or until more than this may be ready of each.
    ReadyMax(usize),
    /// `Full`, or until each may have more bytes than this.
    BytesMax(usize),
    /// All of them together have reached the limit.
    Gated,
}

impl Share {
    /// Returns why there is no room for more of a partition with this count; none if there is.
    pub(super) fn refusal(&self, count: Count, here: Here) -> Option<Turn> {
        if count.messages - count.out >= self.look_ahead {
            return Some(Turn::Full);
        }
        if count.ready >= self.ready {
            return Some(Turn::ReadyMax(count.ready));
        }
        let has_none = if self.is_scarce {
            here.is_idle
        } else {
            count.messages == 0
        };
        if has_none {
            None
        } else if !self.has_bytes(here) {
            Some(Turn::Gated)
        } else {
            (count.bytes >= self.bytes).then_some(Turn::BytesMax(count.bytes))
        }
    }

    fn has_bytes(&self, here: Here) -> bool {
        here.bytes < self.bytes_of_all
    }

    /// Returns whether to admit one message to keep this pool going while all pools are at their limit.
    fn wants_one(&self, here: Here) -> bool {
        self.is_scarce && here.is_idle
    }
}

/// State of one partition.
#[derive(Debug)]
struct Seat {
    turn: Turn,
    /// Its number in its queue.
    number: u64,
    /// True if messages of it are held here.
    is_here: bool,
}

impl Seat {
    /// Returns whether it counts among the partitions that share the limits.
    fn shares(&self) -> bool {
        self.is_here || self.turn != Turn::Asleep
    }
}

/// All assigned partitions.
#[derive(Debug, Default)]
pub(super) struct Turns {
    seats: HashMap<Part, Seat>,
    last_number: u64,
    open: BTreeMap<u64, Part>,
    gated: BTreeMap<u64, Part>,
    by_ready: BTreeSet<(usize, Part)>,
    by_bytes: BTreeSet<(usize, Part)>,
    sharers: usize,
    was_scarce: bool,
}

impl Turns {
    /// Adds a partition. It may have something.
    pub(super) fn add(&mut self, part: Part) {
        self.remove(part);
        let seat = Seat {
            turn: Turn::Shut,
            number: 0,
            is_here: false,
        };
        self.sharers += usize::from(seat.shares());
        self.seats.insert(part, seat);
        self.put(part, Turn::Open);
    }

    /// Removes a partition.
    pub(super) fn remove(&mut self, part: Part) {
        self.put(part, Turn::Shut);
        if let Some(seat) = self.seats.remove(&part) {
            self.sharers -= usize::from(seat.shares());
        }
    }

    /// Sets the state of a partition after a check. An open one goes to the end of the queue.
    pub(super) fn put(&mut self, part: Part, turn: Turn) {
        let Some(seat) = self.seats.get_mut(&part) else {
            return;
        };
        let did_share = seat.shares();
        match seat.turn {
            Turn::Open => drop(self.open.remove(&seat.number)),
            Turn::Gated => drop(self.gated.remove(&seat.number)),
            Turn::ReadyMax(ready) => drop(self.by_ready.remove(&(ready, part))),
            Turn::BytesMax(bytes) => drop(self.by_bytes.remove(&(bytes, part))),
            Turn::Asleep | Turn::Shut | Turn::Full => {}
        }
        self.last_number += 1;
        (seat.turn, seat.number) = (turn, self.last_number);
        match turn {
            Turn::Open => drop(self.open.insert(seat.number, part)),
            Turn::Gated => drop(self.gated.insert(seat.number, part)),
            Turn::ReadyMax(ready) => drop(self.by_ready.insert((ready, part))),
            Turn::BytesMax(bytes) => drop(self.by_bytes.insert((bytes, part))),
            Turn::Asleep | Turn::Shut | Turn::Full => {}
        }
        self.sharers += usize::from(seat.shares());
        self.sharers -= usize::from(did_share);
    }

    /// Records an arrival. True if the partition had nothing.
    pub(super) fn rang(&mut self, part: Part) -> bool {
        let slept = self.is_asleep(part);
        if slept {
            self.put(part, Turn::Open);
        }
        slept
    }

    /// Reopens a partition for reading.
    pub(super) fn opened(&mut self, part: Part) {
        if self.seat(part).is_some_and(|seat| seat.turn == Turn::Shut) {
            self.put(part, Turn::Open);
        }
    }

    /// Updates the messages held of a partition.
    pub(super) fn counted(&mut self, part: Part, count: Count) {
        let Some(seat) = self.seats.get_mut(&part) else {
            return;
        };
        let did_share = seat.shares();
        seat.is_here = count.messages > 0;
        self.sharers += usize::from(seat.shares());
        self.sharers -= usize::from(did_share);
        match seat.turn {
            Turn::Full | Turn::ReadyMax(_) | Turn::BytesMax(_) | Turn::Gated => {
                self.put(part, Turn::Open);
            }
            Turn::Open | Turn::Asleep | Turn::Shut => {}
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
            open.extend(self.gated.values());
            open.extend(self.by_bytes.iter().map(|(_, part)| *part));
        }
        for part in open {
            self.put(part, Turn::Open);
        }
    }

    /// Returns the next partition that may have something for which there is room. It goes to the end
    /// of the queue.
    pub(super) fn next(&mut self, share: &Share, here: Here) -> Option<Part> {
        let part = self.peek(share, here)?;
        self.put(part, Turn::Open);
        Some(part)
    }

    /// Returns the same partition and leaves it in its place.
    pub(super) fn peek(&self, share: &Share, here: Here) -> Option<Part> {
        let wants_one = share.wants_one(here);
        let may_pass = wants_one || share.has_bytes(here);
        let gated = self.gated.values().next().filter(|_| may_pass);
        let full = self.by_bytes.first().filter(|_| wants_one);
        gated
            .or_else(|| self.open.values().next())
            .or(full.map(|(_, part)| part))
            .copied()
    }

    /// Number of partitions that have something, in librdkafka or here.
    pub(super) fn sharers(&self) -> usize {
        self.sharers
    }

    pub(super) fn is_asleep(&self, part: Part) -> bool {
        self.seat(part)
            .is_some_and(|seat| seat.turn == Turn::Asleep)
    }

    fn seat(&self, part: Part) -> Option<&Seat> {
        self.seats.get(&part)
    }
}

#[cfg(test)]
mod tests;
