//! The workers' slots: empty, starting, up, leaving or waiting to be filled again. Plain data; `supervise`
//! decides on the actions.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::trial::Trial;

/// Number of a generation of workers: a rolling restart begins a new one.
pub type Generation = u64;

/// Place of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Generation of the process in the slot, or of the next one.
    pub generation: Generation,
    /// Stage of the slot.
    pub stage: Stage,
    /// Number of consecutive ends of workers that had not shown that they work.
    pub fruitless: u32,
    /// Trial of a worker that is new in a rolling restart and has yet to show that it works; until then it
    /// replaces no other worker.
    pub trial: Option<Trial>,
}

/// Stage of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Empty until that time.
    Waiting(Instant),
    /// The process was started and has not connected.
    Starting,
    /// The worker takes messages.
    Up,
    /// The worker gets no more messages, and its slot will not be filled again.
    Leaving,
}

/// All slots, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster(BTreeMap<usize, Slot>);

impl Roster {
    /// Returns the slot of that number.
    pub fn get(&self, number: usize) -> Option<&Slot> {
        self.0.get(&number)
    }

    /// Returns the slot of that number, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Slot> {
        self.0.get_mut(&number)
    }

    /// Returns the slots, lowest number first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Slot)> {
        self.0.iter().map(|(number, slot)| (*number, slot))
    }

    /// Returns the slots' numbers, lowest first.
    pub fn numbers(&self) -> Vec<usize> {
        self.0.keys().copied().collect()
    }

    /// Opens a slot with the lowest free number.
    pub fn open(&mut self, slot: Slot) -> usize {
        let taken = |number: &usize| self.0.contains_key(number);
        let number = (0..).find(|number| !taken(number)).unwrap_or_default();
        self.0.insert(number, slot);
        number
    }

    /// Closes the slot.
    pub fn close(&mut self, number: usize) -> Option<Slot> {
        self.0.remove(&number)
    }

    /// Returns the number of slots in the stages that `stage` selects.
    pub fn count(&self, stage: impl Fn(Stage) -> bool) -> usize {
        self.0.values().filter(|slot| stage(slot.stage)).count()
    }

    /// Returns the number of slots that are kept filled: all except those that are leaving.
    pub fn staying(&self) -> usize {
        self.count(|stage| stage != Stage::Leaving)
    }
}
