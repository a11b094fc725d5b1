//! Choice of the next message to hand out: messages that were read and are not done, and their waiting order.
//! Pure, except for the times passed in.
//!
//! Messages that must not overlap share a *lane*: a topic's key, or partition, as the pool's `order` defines.
//! A lane is held by one message at a time, from when it becomes ready until it is done or dead, however
//! often it is handed out in between. Of the ready messages each partition's lowest offset comes first, so
//! that none starves and completion runs ahead as little as possible; partitions take turns.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::broker::start_positions::Part;

/// Index of a message here. It is returned with the message's settlement.
pub(super) type Position = usize;

/// Common property of messages that must not overlap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) topic: Arc<str>,
    pub(super) shared: Shared,
}

/// The part of the lane in addition to the topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    /// Key of the messages.
    Key(Bytes),
    /// Number of their partition.
    Partition(i32),
}

/// A message to take in.
#[derive(Debug)]
pub(super) struct Entry<T> {
    /// Partition from which it was read.
    pub(super) part: Part,
    /// Offset in that partition.
    pub(super) offset: i64,
    /// Lane; none if the message need not wait for any other.
    pub(super) lane: Option<Lane>,
    /// Size charged against the limits.
    pub(super) bytes: usize,
    /// The message.
    pub(super) item: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waiting for another message that holds its lane.
    Waiting,
    /// Ready to be handed out.
    Ready,
    /// Held back until this time.
    Held(Instant),
    /// Handed out to the pool.
    Out,
    /// Settled, and being published elsewhere.
    Publishing,
    /// Handed out or being published, from a partition that is no longer assigned.
    Void { is_out: bool },
}

impl State {
    /// Returns whether the pool has the message.
    fn is_out(self) -> bool {
        matches!(self, Self::Out | Self::Void { is_out: true })
    }

    /// Returns whether it is handed out or being published.
    fn is_gone(self) -> bool {
        matches!(self, Self::Out | Self::Publishing | Self::Void { .. })
    }

    fn is_void(self) -> bool {
        matches!(self, Self::Void { .. })
    }
}

/// Target of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// A message of an assigned partition.
    Ours,
    /// A message whose partition is no longer assigned.
    Void,
    /// Not a message that the pool has.
    Unknown,
}

#[derive(Debug)]
struct Slot<T> {
    entry: Entry<T>,
    state: State,
}

#[derive(Debug)]
struct Queue {
    holder: Position,
    waiting: VecDeque<Position>,
}

/// Number of messages of a partition held here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) messages: usize,
    /// Number of those that may be handed out.
    pub(super) ready: usize,
    /// Number of those that are handed out.
    pub(super) out: usize,
    /// Size of those that are not handed out.
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct PartitionMessages {
    ready: BinaryHeap<Reverse<(i64, Position)>>,
    /// True if it is in the ring of turns.
    in_turn: bool,
    /// All messages held here.
    places: HashSet<Position>,
    out: usize,
    /// Size of those that are not handed out.
    bytes: usize,
}

/// All messages that were read and are not done.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    slots: Vec<Option<Slot<T>>>,
    free: Vec<Position>,
    queues: HashMap<Lane, Queue>,
    messages_of: HashMap<Part, PartitionMessages>,
    ring: VecDeque<Part>,
    held: BTreeSet<(Instant, Position)>,
    bytes: usize,
    ready: usize,
    /// Number of messages that the pool has.
    out: usize,
}

impl<T> Lanes<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queues: HashMap::new(),
            messages_of: HashMap::new(),
            ring: VecDeque::new(),
            held: BTreeSet::new(),
            bytes: 0,
            ready: 0,
            out: 0,
        }
    }

    /// Adds a message.
    pub(super) fn add(&mut self, entry: Entry<T>) {
        let place = self.free.pop().unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.bytes += entry.bytes;
        let messages = self.messages_of.entry(entry.part).or_default();
        messages.places.insert(place);
        messages.bytes += entry.bytes;
        let waits = self.queue_up(&entry, place);
        let state = if waits { State::Waiting } else { State::Ready };
        let (part, offset) = (entry.part, entry.offset);
        self.slots[place] = Some(Slot { entry, state });
        if !waits {
            self.push_ready(part, offset, place);
        }
    }

    /// Queues a message for its lane. False if it holds the lane at once.
    fn queue_up(&mut self, entry: &Entry<T>, place: Position) -> bool {
        let Some(lane) = &entry.lane else {
            return false;
        };
        if let Some(queue) = self.queues.get_mut(lane) {
            queue.waiting.push_back(place);
            return true;
        }
        let queue = Queue {
            holder: place,
            waiting: VecDeque::new(),
        };
        self.queues.insert(lane.clone(), queue);
        false
    }

    fn push_ready(&mut self, part: Part, offset: i64, place: Position) {
        let messages = self.messages_of.entry(part).or_default();
        messages.ready.push(Reverse((offset, place)));
        self.ready += 1;
        if !messages.in_turn {
            messages.in_turn = true;
            self.ring.push_back(part);
        }
    }

    /// Returns the next message to hand out, of the partition whose turn it is. Skips partitions whose next
    /// message may not be handed out.
    pub(super) fn next(&mut self, mut may: impl FnMut(Part, i64) -> bool) -> Option<Position> {
        for _ in 0..self.ring.len() {
            let part = self.ring.pop_front()?;
            let messages = self.messages_of.get_mut(&part)?;
            let Some(&Reverse((offset, place))) = messages.ready.peek() else {
                messages.in_turn = false;
                continue;
            };
            self.ring.push_back(part);
            if may(part, offset) {
                messages.ready.pop();
                messages.out += 1;
                self.ready -= 1;
                let slot = self.slots.get_mut(place)?.as_mut()?;
                slot.state = State::Out;
                self.out += 1;
                messages.bytes -= slot.entry.bytes;
                return Some(place);
            }
        }
        None
    }

    /// Marks a message as settled by the pool. It may be published elsewhere until it returns or is
    /// removed.
    pub(super) fn settle(&mut self, place: Position) -> Settled {
        let slot = self.slots.get_mut(place).and_then(Option::as_mut);
        let Some(slot) = slot.filter(|slot| slot.state.is_out()) else {
            return Settled::Unknown;
        };
        self.out -= 1;
        if slot.state.is_void() {
            slot.state = State::Void { is_out: false };
            return Settled::Void;
        }
        slot.state = State::Publishing;
        Settled::Ours
    }

    /// Number of messages that the pool has, void or not.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Returns a message that is handed out or being published.
    pub(super) fn get(&self, place: Position) -> Option<&Entry<T>> {
        self.slot(place).map(|slot| &slot.entry)
    }

    /// Returns the content of such a message mutably.
    pub(super) fn get_mut(&mut self, place: Position) -> Option<&mut T> {
        let slot = self.slots.get_mut(place)?.as_mut()?;
        slot.state.is_gone().then_some(&mut slot.entry.item)
    }

    fn slot(&self, place: Position) -> Option<&Slot<T>> {
        let slot = self.slots.get(place)?.as_ref()?;
        slot.state.is_gone().then_some(slot)
    }

    /// Returns whether it is handed out and its partition no longer assigned.
    pub(super) fn is_void(&self, place: Position) -> bool {
        self.slot(place).is_some_and(|slot| slot.state.is_void())
    }

    /// Returns a message from the pool to its lane, which it keeps: it is handed out again at once, or from a
    /// given time on. A void one is removed.
    pub(super) fn again(&mut self, place: Position, from: Option<Instant>) {
        let Some(slot) = self.slot(place) else {
            return;
        };
        if slot.state.is_void() {
            self.remove(place);
            return;
        }
        let is_out = slot.state.is_out();
        let (part, offset) = (slot.entry.part, slot.entry.offset);
        let bytes = slot.entry.bytes;
        self.out -= usize::from(is_out);
        if let Some(messages) = self.messages_of.get_mut(&part) {
            messages.out -= 1;
            messages.bytes += bytes;
        }
        match from {
            Some(from) => {
                self.set_state(place, State::Held(from));
                self.held.insert((from, place));
            }
            None => {
                self.set_state(place, State::Ready);
                self.push_ready(part, offset, place);
            }
        }
    }

    /// Removes a message that is handed out and passes its lane to the next waiting message.
    pub(super) fn remove(&mut self, place: Position) -> Option<Entry<T>> {
        let is_void = self.slot(place)?.state.is_void();
        let entry = self.take(place)?;
        if !is_void && let Some(messages) = self.messages_of.get_mut(&entry.part) {
            messages.out -= 1;
            messages.places.remove(&place);
        }
        self.pass_on(entry.lane.as_ref(), place);
        Some(entry)
    }

    /// Passes on the lane of a message that is handed out now and will not be handed out again.
    pub(super) fn let_pass(&mut self, place: Position) {
        let lane = self.slot(place).and_then(|slot| slot.entry.lane.clone());
        self.pass_on(lane.as_ref(), place);
    }

    fn take(&mut self, place: Position) -> Option<Entry<T>> {
        let Slot { entry, state } = self.slots.get_mut(place)?.take()?;
        self.out -= usize::from(state.is_out());
        self.free.push(place);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Passes on a lane, if this message holds it.
    fn pass_on(&mut self, lane: Option<&Lane>, place: Position) {
        let Some(lane) = lane else {
            return;
        };
        let Some(queue) = self.queues.get_mut(lane) else {
            return;
        };
        if queue.holder != place {
            return;
        }
        let Some(next) = queue.waiting.pop_front() else {
            self.queues.remove(lane);
            return;
        };
        queue.holder = next;
        if let Some(Some(slot)) = self.slots.get_mut(next) {
            slot.state = State::Ready;
            let (part, offset) = (slot.entry.part, slot.entry.offset);
            self.push_ready(part, offset, next);
        }
    }

    fn set_state(&mut self, place: Position, state: State) {
        if let Some(Some(slot)) = self.slots.get_mut(place) {
            slot.state = state;
        }
    }

    /// Returns the time at which the next held message may be handed out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.first().map(|(due, _)| *due)
    }

    /// Makes ready the messages that have been held long enough.
    pub(super) fn release(&mut self, now: Instant) {
        while let Some(&(due, place)) = self.held.first().filter(|(due, _)| *due <= now) {
            self.held.remove(&(due, place));
            if let Some(Some(slot)) = self.slots.get_mut(place) {
                slot.state = State::Ready;
                let (part, offset) = (slot.entry.part, slot.entry.offset);
                self.push_ready(part, offset, place);
            }
        }
    }

    /// Removes a partition. Its messages that are handed out become void, and keep their lanes until they are
    /// settled; returns their number.
    pub(super) fn forget(&mut self, part: Part) -> usize {
        let Some(messages) = self.messages_of.remove(&part) else {
            return 0;
        };
        self.ready -= messages.ready.len();
        let places = &messages.places;
        let slots = places
            .iter()
            .filter_map(|place| self.slots[*place].as_ref());
        let lanes: HashSet<&Lane> = slots.filter_map(|slot| slot.entry.lane.as_ref()).collect();
        // After the removal, so that no lane passes to one of the removed messages.
        for lane in lanes {
            if let Some(queue) = self.queues.get_mut(lane) {
                queue.waiting.retain(|place| !places.contains(place));
            }
        }
        let mut void = 0;
        for place in places {
            void += usize::from(self.forget_one(*place));
        }
        self.ring.retain(|other| *other != part);
        void
    }

    fn forget_one(&mut self, place: Position) -> bool {
        let Some(slot) = &mut self.slots[place] else {
            return false;
        };
        match slot.state {
            State::Out | State::Publishing | State::Void { .. } => {
                let is_out = slot.state.is_out();
                slot.state = State::Void { is_out };
                return true;
            }
            State::Held(due) => {
                self.held.remove(&(due, place));
            }
            State::Waiting | State::Ready => {}
        }
        if let Some(entry) = self.take(place) {
            self.pass_on(entry.lane.as_ref(), place);
        }
        false
    }

    /// Returns the number of messages that may be handed out now.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns the size of all messages in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the messages that wait only for others that hold their lanes.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        let slots = self.slots.iter().flatten();
        let waits = |slot: &&Slot<T>| matches!(slot.state, State::Waiting | State::Ready);
        slots.filter(waits).map(|slot| &slot.entry)
    }

    /// Returns the numbers of messages held of a partition.
    pub(super) fn count(&self, part: Part) -> Count {
        let messages = self.messages_of.get(&part);
        messages.map_or_else(Count::default, |messages| Count {
            messages: messages.places.len(),
            ready: messages.ready.len(),
            out: messages.out,
            bytes: messages.bytes,
        })
    }
}

#[cfg(test)]
mod tests;
