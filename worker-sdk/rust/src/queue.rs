//! Messages from the thread that reads to those that work.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::link::locked;

/// A bounded queue that wakes no more threads than can get to work: each that takes one and leaves
/// some wakes the next.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    most: usize,
    state: Mutex<State<T>>,
    more: Condvar,
    room: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// How many wait for an item.
    idle: usize,
    /// One of them is woken, and not here yet.
    waking: bool,
    full: bool,
    closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            state: Mutex::new(State {
                items: VecDeque::new(),
                idle: 0,
                waking: false,
                full: false,
                closed: false,
            }),
            more: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Waits for room, and adds one.
    pub(crate) fn push(&self, item: T) {
        let mut state = locked(&self.state);
        while state.items.len() >= self.most {
            state.full = true;
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.items.push_back(item);
        self.wake(&mut state);
    }

    /// Waits for the next one; None when there will be none.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = locked(&self.state);
        loop {
            if let Some(item) = state.items.pop_front() {
                if std::mem::take(&mut state.full) {
                    self.room.notify_one();
                }
                self.wake(&mut state);
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.waking = false;
        }
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        locked(&self.state).closed = true;
        self.more.notify_all();
    }

    fn wake(&self, state: &mut State<T>) {
        if !state.items.is_empty() && state.idle > 0 && !state.waking {
            state.waking = true;
            self.more.notify_one();
        }
    }
}
