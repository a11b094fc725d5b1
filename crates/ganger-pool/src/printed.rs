//! Last lines of workers that have ended, by slot: for requests that come before another worker
//! runs there.

use std::collections::VecDeque;

use crate::worker::output::LastLines;

/// Maximum number of slots whose lines are kept; the most recent ends count.
const SLOTS_MAX: usize = 64;

/// Last lines of workers that have ended.
#[derive(Debug, Default)]
pub(super) struct Printed(VecDeque<(usize, LastLines)>);

impl Printed {
    /// Keeps the last lines of the worker in that slot, which has ended for that cause.
    pub(super) fn keep(&mut self, slot: usize, cause: String, lines: LastLines) {
        self.0.retain(|(other, _)| *other != slot);
        if self.0.len() == SLOTS_MAX {
            self.0.pop_front();
        }
        let ended = Some(cause);
        self.0.push_back((slot, LastLines { ended, ..lines }));
    }

    /// Returns the last lines of the last worker in that slot.
    pub(super) fn of(&self, slot: usize) -> Option<&LastLines> {
        let mut kept = self.0.iter();
        kept.find_map(|(other, lines)| (*other == slot).then_some(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_slot_is_kept_and_their_number_is_bounded() {
        let mut printed = Printed::default();
        for n in 0..SLOTS_MAX + 10 {
            printed.keep(n, format!("cause {n}"), LastLines::default());
        }
        printed.keep(70, "another".to_owned(), LastLines::default());
        assert_eq!(printed.0.len(), SLOTS_MAX);
        assert_eq!(printed.of(9), None);
        let cause = |slot| printed.of(slot).unwrap().ended.clone().unwrap();
        assert_eq!(cause(10), "cause 10");
        assert_eq!(cause(70), "another");
    }
}
