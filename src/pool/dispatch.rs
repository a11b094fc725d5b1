//! Which worker gets the next message: a pure choice among what the lanes show of themselves.

use super::window::BYTES_MAX;

/// What a lane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// It takes messages.
    pub open: bool,
    /// Messages given to it and not settled.
    pub messages: usize,
    /// Their size together, in bytes.
    pub bytes: usize,
    /// How many it may have.
    pub window: usize,
    /// It has a message that nothing may be added to.
    pub alone: bool,
}

impl Load {
    /// Whether it may be given a message; an idle worker may have one of any size.
    pub fn has_room(&self, alone: bool) -> bool {
        let idle = self.messages == 0;
        let fits = self.messages < self.window && self.bytes < BYTES_MAX;
        self.open && !self.alone && (idle || (fits && !alone))
    }
}

/// The lane with the fewest messages among those that have room. `first` is where the search
/// begins, so that equals take turns.
pub fn choose(
    lanes: impl ExactSizeIterator<Item = Load> + Clone,
    first: usize,
    alone: bool,
) -> Option<usize> {
    let count = lanes.len();
    let mut best: Option<(usize, usize)> = None;
    for (index, load) in lanes
        .clone()
        .enumerate()
        .skip(first)
        .chain(lanes.enumerate().take(first.min(count)))
    {
        if !load.has_room(alone) || best.is_some_and(|(_, least)| least <= load.messages) {
            continue;
        }
        if load.messages == 0 {
            return Some(index);
        }
        best = Some((index, load.messages));
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(messages: usize, window: usize) -> Load {
        Load {
            open: true,
            messages,
            bytes: 0,
            window,
            alone: false,
        }
    }

    #[test]
    fn the_least_loaded_goes_first_and_equals_take_turns() {
        let lanes = [load(2, 4), load(1, 4), load(1, 4)];
        assert_eq!(choose(lanes.iter().copied(), 0, false), Some(1));
        assert_eq!(choose(lanes.iter().copied(), 2, false), Some(2));
        assert_eq!(choose([load(1, 1), load(1, 1)].into_iter(), 0, false), None);
        assert_eq!(choose([].into_iter(), 0, false), None);
    }

    #[test]
    fn a_suspect_goes_to_an_idle_worker_and_nothing_follows_it() {
        assert_eq!(
            choose([load(1, 4), load(0, 4)].into_iter(), 0, true),
            Some(1)
        );
        assert_eq!(choose([load(1, 4)].into_iter(), 0, true), None);
        let occupied = Load {
            alone: true,
            ..load(1, 4)
        };
        assert_eq!(choose([occupied].into_iter(), 0, false), None);
    }

    #[test]
    fn bytes_fill_a_window_too_but_an_idle_worker_takes_any_size() {
        let full = Load {
            bytes: BYTES_MAX,
            ..load(1, 64)
        };
        assert!(!full.has_room(false));
        assert!(
            Load {
                bytes: 0,
                ..load(0, 1)
            }
            .has_room(false)
        );
    }

    proptest! {
        #[test]
        fn no_message_waits_behind_another_while_a_worker_is_idle(
            loads in proptest::collection::vec((0usize..4, 1usize..8), 1..20), first in 0usize..25,
        ) {
            let lanes: Vec<Load> = loads.iter().map(|(messages, window)| load(*messages, *window)).collect();
            let chosen = choose(lanes.iter().copied(), first, false);
            let least = lanes.iter().filter(|l| l.has_room(false)).map(|l| l.messages).min();
            prop_assert_eq!(chosen.map(|index| lanes[index].messages), least);
        }
    }
}
