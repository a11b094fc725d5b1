//! Which partition is read next: only those are looked at that may have something at hand, and for
//! which there may be room, each in its turn and however many there are. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ordering::Count;
use crate::broker::begins::Part;

/// What each partition may have here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Messages that are ready.
    pub(super) ready: usize,
    /// Messages that wait or are ready.
    pub(super) look_ahead: usize,
    /// Bytes of those that are not out.
    pub(super) bytes: usize,
    pub(super) bytes_of_all: usize,
    /// The pools of the daemon hold all that they may: each has no more than one message then,
    /// and not each partition.
    pub(super) is_scarce: bool,
}

/// What is here of all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) bytes: usize,
    /// Nothing is out or may go out.
    pub(super) is_idle: bool,
}

/// How a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It may have something, and there may be room for it.
    Open,
    /// It has nothing at hand.
    Asleep,
    /// It is not to be read.
    Shut,
    /// It has as much as it may, until something of it goes out or is done.
    Full,
    /// Likewise, or until more may be ready of each than that.
    ReadyMax(usize),
    /// Likewise, or until each may have more bytes than that.
    BytesMax(usize),
    /// All of them together have enough.
    Gated,
}

impl Share {
    /// Why there is no room for more of a partition of which so much is here; none if there is.
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

    /// Where all pools hold what they may, one message keeps this one going.
    fn wants_one(&self, here: Here) -> bool {
        self.is_scarce && here.is_idle
    }
}

/// One partition's place.
#[derive(Debug)]
struct Seat {
    turn: Turn,
    /// Its number in the queue that it stands in.
    number: u64,
    /// Messages of it are here.
    is_here: bool,
}

impl Seat {
    /// Whether it takes part in what all may have.
    fn shares(&self) -> bool {
        self.is_here || self.turn != Turn::Asleep
    }
}

/// All partitions of ours.
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
    /// One that is ours from now on. It may have something.
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

    /// One that is not ours any more.
    pub(super) fn remove(&mut self, part: Part) {
        self.put(part, Turn::Shut);
        if let Some(seat) = self.seats.remove(&part) {
            self.sharers -= usize::from(seat.shares());
        }
    }

    /// How it stands, after it was looked at. One that is open goes to the end of the queue.
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

    /// Something has come. True if it had nothing.
    pub(super) fn rang(&mut self, part: Part) -> bool {
        let slept = self.is_asleep(part);
        if slept {
            self.put(part, Turn::Open);
        }
        slept
    }

    /// It is to be read again.
    pub(super) fn opened(&mut self, part: Part) {
        if self.seat(part).is_some_and(|seat| seat.turn == Turn::Shut) {
            self.put(part, Turn::Open);
        }
    }

    /// Something of it came in, went out or is done; so much is here of it now.
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

    /// Lets in those that had as much as they might, and may have more now.
    pub(super) fn widen(&mut self, share: &Share) {
        let mut open: Vec<Part> = Vec::new();
        let ready = self.by_ready.range(..(share.ready, Part::MIN));
        open.extend(ready.map(|(_, part)| *part));
        let bytes = self.by_bytes.range(..(share.bytes, Part::MIN));
        open.extend(bytes.map(|(_, part)| *part));
        // From now on each may have one, and not only all together.
        if std::mem::replace(&mut self.was_scarce, share.is_scarce) && !share.is_scarce {
            open.extend(self.gated.values());
            open.extend(self.by_bytes.iter().map(|(_, part)| *part));
        }
        for part in open {
            self.put(part, Turn::Open);
        }
    }

    /// The next that may have something for which there is room. It goes to the end of the queue.
    pub(super) fn next(&mut self, share: &Share, here: Here) -> Option<Part> {
        let part = self.peek(share, here)?;
        self.put(part, Turn::Open);
        Some(part)
    }

    /// Likewise, and it stays where it is.
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

    /// How many have something, at hand or here.
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
