//! The workers' places: which slot is empty, starting, up, on its way out or waiting to be filled
//! again. Plain data; what is to be done about it is decided in `supervise`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::trial::Trial;

/// Which start of the pool's command a worker belongs to: a rolling restart begins a new one.
pub type Generation = u64;

/// One worker's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The generation of the process in it, or of the one that will be.
    pub generation: Generation,
    /// What is going on in it.
    pub stage: Stage,
    /// Ends in a row of workers that had not shown that they work.
    pub fruitless: u32,
    /// It is new in a rolling restart and has yet to show that it works: it replaces nobody so far.
    pub trial: Option<Trial>,
}

/// What is going on in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Empty until then.
    Waiting(Instant),
    /// Its process was started and has not connected.
    Starting,
    /// It takes messages.
    Up,
    /// It gets no more, and its place will not be filled again.
    Leaving,
}

/// All slots, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster(BTreeMap<usize, Slot>);

impl Roster {
    /// The slot of that number.
    pub fn get(&self, number: usize) -> Option<&Slot> {
        self.0.get(&number)
    }

    /// The slot of that number, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Slot> {
        self.0.get_mut(&number)
    }

    /// The slots, lowest number first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Slot)> {
        self.0.iter().map(|(number, slot)| (*number, slot))
    }

    /// The slots' numbers, lowest first.
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

    /// Gives the place up.
    pub fn close(&mut self, number: usize) -> Option<Slot> {
        self.0.remove(&number)
    }

    /// How many slots are there in such a stage.
    pub fn count(&self, stage: impl Fn(Stage) -> bool) -> usize {
        self.0.values().filter(|slot| stage(slot.stage)).count()
    }

    /// How many places are to be kept filled: all but those that are leaving.
    pub fn staying(&self) -> usize {
        self.count(|stage| stage != Stage::Leaving)
    }
}
