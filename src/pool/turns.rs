//! Since when what is read now may have been there: the pool's thread looks at all pipes by turns,
//! and sleeps when there is nothing in any.

use std::cell::Cell;

use tokio::time::Instant;

thread_local! {
    static WOKEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// This thread has slept, for nothing was there, until now. To be told by its event loop.
pub fn woken() {
    WOKEN.set(Some(Instant::now()));
}

/// When the last turns of a pool began.
#[derive(Debug)]
pub struct Turns {
    before_last: Cell<Instant>,
    last: Cell<Instant>,
}

impl Turns {
    /// The first begins.
    pub fn new(now: Instant) -> Self {
        Self {
            before_last: now.into(),
            last: now.into(),
        }
    }

    /// The next one begins.
    pub fn next(&self, now: Instant) {
        self.before_last.set(self.last.replace(now));
    }

    /// What is read now was not there before that moment: else it had been read in the turn before, or
    /// nobody would have slept. Where the event loop does not tell of sleep, it came just now.
    pub fn there_since(&self, now: Instant) -> Instant {
        WOKEN
            .get()
            .map_or(now, |woken| woken.max(self.before_last.get()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_read_came_after_the_turn_before_or_the_last_sleep() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        let turns = Turns::new(begun);
        turns.next(after(10));
        turns.next(after(20));
        assert_eq!(turns.there_since(after(25)), after(25), "nobody tells");
        WOKEN.set(Some(after(4)));
        assert_eq!(turns.there_since(after(25)), after(10));
        WOKEN.set(Some(after(22)));
        assert_eq!(turns.there_since(after(25)), after(22));
        woken();
        assert!(WOKEN.get() >= Some(begun));
    }
}
