//! Which message may go out next: those that were read and are not done, with who waits for whom.
//! Pure, but for the moments it is given.
//!
//! Messages that must not overlap share a *lane*: a topic's key, or partition, as the pool's `order` says.
//! A lane is held by one message at a time, from when it becomes ready until it is done or dead,
//! however often it goes out in between. Of those that are ready each partition's lowest offset goes first,
//! so that none starves and completion runs ahead as little as it can; partitions take turns.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::broker::begins::Part;

/// A place for a message here. It comes back with the message's settlement.
pub(super) type Position = usize;

/// What messages that must not overlap have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) topic: Arc<str>,
    pub(super) shared: Shared,
}

/// What that is beside the topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    /// Their key.
    Key(Bytes),
    /// The number of their partition.
    Partition(i32),
}

/// A message as it is taken in.
#[derive(Debug)]
pub(super) struct Entry<T> {
    /// Where it was read.
    pub(super) part: Part,
    /// Its offset there.
    pub(super) offset: i64,
    /// None where it need not wait for any other.
    pub(super) lane: Option<Lane>,
    /// How much it counts against the bounds.
    pub(super) bytes: usize,
    /// The message.
    pub(super) item: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Another message holds its lane.
    Waiting,
    /// It may go out.
    Ready,
    /// It may go out from then on.
    Held(Instant),
    /// With the pool.
    Out,
    /// Settled, and on its way elsewhere.
    Publishing,
    /// Either of them, and of a partition that is no longer ours.
    Void { is_out: bool },
}

impl State {
    /// Whether the pool has it.
    fn is_out(self) -> bool {
        matches!(self, Self::Out | Self::Void { is_out: true })
    }

    /// Whether somebody has it.
    fn is_gone(self) -> bool {
        matches!(self, Self::Out | Self::Publishing | Self::Void { .. })
    }

    fn is_void(self) -> bool {
        matches!(self, Self::Void { .. })
    }
}

/// What a settlement is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// A message of ours.
    Ours,
    /// One whose partition is no longer ours.
    Void,
    /// Nothing that the pool has.
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

/// How many messages of a partition are here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) messages: usize,
    /// Those that may go out.
    pub(super) ready: usize,
    /// Those that are.
    pub(super) out: usize,
    /// What those take that are not.
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct Stock {
    ready: BinaryHeap<Reverse<(i64, Position)>>,
    /// It has its turn in the ring.
    in_turn: bool,
    /// All that are here.
    places: HashSet<Position>,
    out: usize,
    /// What those take that are not out.
    bytes: usize,
}

/// All messages that were read and are not done.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    slots: Vec<Option<Slot<T>>>,
    free: Vec<Position>,
    queues: HashMap<Lane, Queue>,
    stocks: HashMap<Part, Stock>,
    ring: VecDeque<Part>,
    held: BTreeSet<(Instant, Position)>,
    bytes: usize,
    ready: usize,
    /// How many the pool has.
    out: usize,
}

impl<T> Lanes<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queues: HashMap::new(),
            stocks: HashMap::new(),
            ring: VecDeque::new(),
            held: BTreeSet::new(),
            bytes: 0,
            ready: 0,
            out: 0,
        }
    }

    /// Takes a message in.
    pub(super) fn add(&mut self, entry: Entry<T>) {
        let place = self.free.pop().unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.bytes += entry.bytes;
        let stock = self.stocks.entry(entry.part).or_default();
        stock.places.insert(place);
        stock.bytes += entry.bytes;
        let waits = self.queue_up(&entry, place);
        let state = if waits { State::Waiting } else { State::Ready };
        let (part, offset) = (entry.part, entry.offset);
        self.slots[place] = Some(Slot { entry, state });
        if !waits {
            self.push_ready(part, offset, place);
        }
    }

    /// Gets in line for its lane. False if it has it.
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
        let stock = self.stocks.entry(part).or_default();
        stock.ready.push(Reverse((offset, place)));
        self.ready += 1;
        if !stock.in_turn {
            stock.in_turn = true;
            self.ring.push_back(part);
        }
    }

    /// The next message to go out, of the partition whose turn it is, passing over those whose next
    /// may not.
    pub(super) fn next(&mut self, mut may: impl FnMut(Part, i64) -> bool) -> Option<Position> {
        for _ in 0..self.ring.len() {
            let part = self.ring.pop_front()?;
            let stock = self.stocks.get_mut(&part)?;
            let Some(&Reverse((offset, place))) = stock.ready.peek() else {
                stock.in_turn = false;
                continue;
            };
            self.ring.push_back(part);
            if may(part, offset) {
                stock.ready.pop();
                stock.out += 1;
                self.ready -= 1;
                let slot = self.slots.get_mut(place)?.as_mut()?;
                slot.state = State::Out;
                self.out += 1;
                stock.bytes -= slot.entry.bytes;
                return Some(place);
            }
        }
        None
    }

    /// The pool has settled a message. It may be on its way elsewhere from now on, until it comes back or
    /// is removed.
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

    /// How many the pool has, void or not.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// A message that is out, or on its way elsewhere.
    pub(super) fn get(&self, place: Position) -> Option<&Entry<T>> {
        self.slot(place).map(|slot| &slot.entry)
    }

    /// Likewise.
    pub(super) fn get_mut(&mut self, place: Position) -> Option<&mut T> {
        let slot = self.slots.get_mut(place)?.as_mut()?;
        slot.state.is_gone().then_some(&mut slot.entry.item)
    }

    fn slot(&self, place: Position) -> Option<&Slot<T>> {
        let slot = self.slots.get(place)?.as_ref()?;
        slot.state.is_gone().then_some(slot)
    }

    /// Whether it is out and its partition no longer ours.
    pub(super) fn is_void(&self, place: Position) -> bool {
        self.slot(place).is_some_and(|slot| slot.state.is_void())
    }

    /// A message that is out comes back and keeps its lane: to go out again at once, or from a
    /// moment on. One that is void is forgotten.
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
        if let Some(stock) = self.stocks.get_mut(&part) {
            stock.out -= 1;
            stock.bytes += bytes;
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

    /// A message that is out is done with: its lane goes to the next in line.
    pub(super) fn remove(&mut self, place: Position) -> Option<Entry<T>> {
        let is_void = self.slot(place)?.state.is_void();
        let entry = self.take(place)?;
        if !is_void && let Some(stock) = self.stocks.get_mut(&entry.part) {
            stock.out -= 1;
            stock.places.remove(&place);
        }
        self.pass_on(entry.lane.as_ref(), place);
        Some(entry)
    }

    /// A message that is out, and will not go out again, lets the next of its lane go.
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

    /// Hands a lane on, if it is this one's.
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

    /// When the next held message may go out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.first().map(|(due, _)| *due)
    }

    /// Makes ready what has been held long enough.
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

    /// Forgets a partition. What is out of it is void from now on, and keeps its lane until its
    /// settlement comes; returns how many those are.
    pub(super) fn forget(&mut self, part: Part) -> usize {
        let Some(stock) = self.stocks.remove(&part) else {
            return 0;
        };
        self.ready -= stock.ready.len();
        let places = &stock.places;
        let slots = places
            .iter()
            .filter_map(|place| self.slots[*place].as_ref());
        let lanes: HashSet<&Lane> = slots.filter_map(|slot| slot.entry.lane.as_ref()).collect();
        // So that no lane passes to one of them.
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

    /// How many messages may go out now.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// How many bytes all of them take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that are here and could go out, but for others that hold their lanes.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Entry<T>> {
        let slots = self.slots.iter().flatten();
        let waits = |slot: &&Slot<T>| matches!(slot.state, State::Waiting | State::Ready);
        slots.filter(waits).map(|slot| &slot.entry)
    }

    /// What is here of a partition.
    pub(super) fn count(&self, part: Part) -> Count {
        let stock = self.stocks.get(&part);
        stock.map_or_else(Count::default, |stock| Count {
            messages: stock.places.len(),
            ready: stock.ready.len(),
            out: stock.out,
            bytes: stock.bytes,
        })
    }
}

#[cfg(test)]
mod tests;
