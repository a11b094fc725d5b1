//! Chooses the worker for the next message: keeps the load of the lanes sorted, so that a choice costs the
//! same for any number of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::window::BYTES_MAX;

/// Load of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// The lane takes messages.
    pub open: bool,
    /// Number of messages given to the lane and not settled.
    pub messages: usize,
    /// Size of these messages together, in bytes.
    pub bytes: usize,
    /// Maximum number of messages for the lane.
    pub window: usize,
    /// Number of messages fetched for the lane.
    pub prefetch: usize,
    /// Number of messages that it works on at once; the others wait.
    pub at_once: usize,
    /// Number of messages it may be given together while other lanes have none.
    pub run: usize,
    /// The lane has a message to which no other may be added.
    pub alone: bool,
}

/// Work of all lanes that take messages, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of lanes that could work on one more message at once.
    pub with_room: usize,
    /// Number of workers that the messages in flight keep busy, in thousandths.
    pub busy_thousandths: u64,
    /// Number of messages in progress.
    pub worked_on: usize,
}

impl Load {
    /// Returns whether the lane may be given a message; an idle worker may have one of any size.
    fn has_room(&self) -> bool {
        let fits = self.messages < self.window && self.bytes < BYTES_MAX;
        self.open && !self.alone && (self.is_idle() || fits)
    }

    fn is_idle(&self) -> bool {
        self.messages == 0
    }

    fn work(&self) -> Work {
        let at_once = if self.alone { 1 } else { self.at_once.max(1) };
        let worked_on = self.messages.min(at_once);
        Work {
            with_room: usize::from(worked_on < at_once),
            busy_thousandths: (worked_on * 1000 / at_once) as u64,
            worked_on,
        }
    }
}

/// Rule by which the lane for a message is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    LeastLoaded,
    Idle,
    Run { last: Option<usize>, most: usize },
}

/// Rank of a lane: the fewest messages first, and among equals the lane that has waited longest.
type Rank = (usize, u64, usize);

#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    load: Load,
    /// Rising number of the turn in which the lane was last given a message.
    turn: u64,
}

impl Shown {
    fn place(&self, slot: usize) -> Rank {
        (self.load.messages, self.turn, slot)
    }
}

/// All lanes of a pool, by slot.
#[derive(Debug, Default)]
pub struct Board {
    lanes: BTreeMap<usize, Shown>,
    /// Lanes with room.
    free: BTreeSet<Rank>,
    /// Lane that is to become idle: it is kept for a message that has to run alone.
    reserved: Option<usize>,
    turns: u64,
    open: usize,
    wanted: usize,
    windows: usize,
    out: usize,
    work: Work,
}

impl Work {
    fn plus(self, other: Self) -> Self {
        Self {
            with_room: self.with_room + other.with_room,
            busy_thousandths: self.busy_thousandths + other.busy_thousandths,
            worked_on: self.worked_on + other.worked_on,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            with_room: self.with_room - other.with_room,
            busy_thousandths: self.busy_thousandths - other.busy_thousandths,
            worked_on: self.worked_on - other.worked_on,
        }
    }
}

impl Board {
    /// Returns the number of lanes that take messages.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Returns the number of messages that all lanes together could use.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Returns the number of messages that all open lanes together may have in their pipes.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Returns the number of messages that were given to lanes and are not settled.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Returns the work of the open lanes.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns whether the lane has no message in flight.
    pub fn is_idle(&self, slot: usize) -> bool {
        let is_idle = |shown: &Shown| shown.load.is_idle();
        self.lanes.get(&slot).is_some_and(is_idle)
    }

    /// Records the current load of a lane. Returns whether it has changed.
    pub fn show(&mut self, slot: usize, load: Load) -> bool {
        let turn = self.lanes.get(&slot).map_or(0, |shown| shown.turn);
        let before = self.remove(slot);
        self.out += load.messages;
        if load.open {
            self.open += 1;
            self.wanted += load.prefetch;
            self.windows += load.window;
            self.work = self.work.plus(load.work());
        }
        self.lanes.insert(slot, Shown { load, turn });
        self.queue(slot);
        before != Some(load)
    }

    /// Removes a lane and returns its last load.
    pub fn remove(&mut self, slot: usize) -> Option<Load> {
        let shown = self.lanes.remove(&slot)?;
        self.free.remove(&shown.place(slot));
        let load = shown.load;
        self.out -= load.messages;
        if load.open {
            self.open -= 1;
            self.wanted -= load.prefetch;
            self.windows -= load.window;
            self.work = self.work.minus(load.work());
        }
        Some(load)
    }

    /// Returns the lane for a message by that rule.
    pub(super) fn choose_by(&mut self, choice: Choice) -> Option<usize> {
        match choice {
            Choice::LeastLoaded => self.choose(),
            Choice::Idle => self.choose_idle(),
            Choice::Run { last, most } => self.choose_for_run(last, most),
        }
    }

    /// Returns the lane for the next message.
    pub fn choose(&self) -> Option<usize> {
        self.free.first().map(|(_, _, slot)| *slot)
    }

    /// Returns the lane for a message given out together with others: the last one used until it has a run of
    /// at most `most`; then the idle lane that has rested least, so that the others can sleep.
    pub fn choose_for_run(&self, last: Option<usize>, most: usize) -> Option<usize> {
        let goes_on = |slot: &usize| {
            let is_free = |shown: &Shown| self.free.contains(&shown.place(*slot));
            let has_run = |shown: &Shown| shown.load.messages >= shown.load.run.min(most);
            let shown = self.lanes.get(slot);
            shown.is_some_and(|shown| !has_run(shown) && is_free(shown))
        };
        let idle = self.free.range(..(1, 0, 0));
        let rested_least = || idle.last().map(|(_, _, slot)| *slot);
        last.filter(goes_on)
            .or_else(rested_least)
            .or_else(|| self.choose())
    }

    /// Returns the lane for a message that has to run alone: an idle one. If there is none, the least loaded
    /// gets no more messages until it is idle, so that the others can continue.
    pub fn choose_idle(&mut self) -> Option<usize> {
        let idle = |slot: &usize| {
            self.lanes
                .get(slot)
                .is_some_and(|shown| shown.load.is_idle())
        };
        let reserved = self.reserved.filter(|slot| self.is_open(*slot));
        if let Some(slot) = reserved.filter(idle).or(self.choose().filter(idle)) {
            return Some(slot);
        }
        if reserved.is_none() {
            let open = self.lanes.iter().filter(|(_, shown)| shown.load.open);
            let least = open.min_by_key(|(slot, shown)| shown.place(**slot));
            self.reserve(least.map(|(slot, _)| *slot));
        }
        None
    }

    /// Releases the lane that was kept: no message waits for an idle one any more.
    pub fn release(&mut self) {
        self.reserve(None);
    }

    /// Records that the lane was given a message; lanes that have waited longer come first now.
    pub fn took(&mut self, slot: usize) {
        self.turns += 1;
        if let Some(shown) = self.lanes.get_mut(&slot) {
            self.free.remove(&shown.place(slot));
            shown.turn = self.turns;
        }
        self.queue(slot);
    }

    fn is_open(&self, slot: usize) -> bool {
        self.lanes.get(&slot).is_some_and(|shown| shown.load.open)
    }

    fn reserve(&mut self, slot: Option<usize>) {
        let before = std::mem::replace(&mut self.reserved, slot);
        if let Some((slot, shown)) = slot.and_then(|slot| Some((slot, self.lanes.get(&slot)?))) {
            self.free.remove(&shown.place(slot));
        }
        if let Some(slot) = before {
            self.queue(slot);
        }
    }

    fn queue(&mut self, slot: usize) {
        if let Some(shown) = self.lanes.get(&slot)
            && shown.load.has_room()
            && self.reserved != Some(slot)
        {
            self.free.insert(shown.place(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(messages: usize, window: usize) -> Load {
        Load {
            open: true,
            messages,
            window,
            prefetch: window + 1,
            at_once: 1,
            ..Load::default()
        }
    }

    fn in_runs(messages: usize, run: usize) -> Load {
        Load {
            run,
            ..load(messages, 8)
        }
    }

    #[test]
    fn a_run_goes_to_one_lane_until_it_has_it() {
        let mut board = board(&[in_runs(0, 3), in_runs(0, 3)]);
        let mut last = None;
        for slot in [1, 1, 1, 0, 0, 0, 1, 0] {
            last = board.choose_for_run(last, 9);
            assert_eq!(last, Some(slot));
            let messages = board.lanes[&slot].load.messages + 1;
            board.show(slot, in_runs(messages, 3));
            board.took(slot);
        }
    }

    #[test]
    fn a_run_is_not_gone_on_with_where_there_is_no_room() {
        let closed = Load {
            open: false,
            ..in_runs(1, 3)
        };
        let board = board(&[closed, in_runs(1, 3), in_runs(0, 3)]);
        assert_eq!(board.choose_for_run(Some(0), 9), Some(2), "closed");
        assert_eq!(board.choose_for_run(Some(7), 9), Some(2), "gone");
        assert_eq!(board.choose_for_run(Some(1), 9), Some(1));
        assert_eq!(board.choose_for_run(None, 9), Some(2), "the least loaded");
        assert_eq!(board.choose_for_run(Some(1), 1), Some(2), "enough");
    }

    fn board(loads: &[Load]) -> Board {
        let mut board = Board::default();
        for (slot, load) in loads.iter().enumerate() {
            board.show(slot, *load);
        }
        board
    }

    /// Gives out that many messages and returns the lanes that got them.
    fn give(board: &mut Board, count: usize) -> Vec<usize> {
        let mut given = Vec::new();
        for _ in 0..count {
            let Some(slot) = board.choose() else { break };
            let before = board.lanes[&slot].load;
            let messages = before.messages + 1;
            board.show(slot, Load { messages, ..before });
            board.took(slot);
            given.push(slot);
        }
        given
    }

    #[test]
    fn the_least_loaded_goes_first_and_equals_take_turns() {
        let mut three = board(&[load(2, 4), load(1, 4), load(1, 4)]);
        assert_eq!(give(&mut three, 9), [1, 2, 0, 1, 2, 0, 1, 2]);
        let mut idle = board(&[load(0, 1), load(0, 1)]);
        assert_eq!(give(&mut idle, 1), [0]);
        idle.show(0, load(0, 1));
        assert_eq!(
            give(&mut idle, 1),
            [1],
            "the one that has waited for longer"
        );
        assert_eq!(board(&[load(1, 1), load(1, 1)]).choose(), None);
        assert_eq!(Board::default().choose(), None);
    }

    #[test]
    fn a_suspect_goes_to_an_idle_worker_and_nothing_follows_it() {
        assert_eq!(board(&[load(1, 4), load(0, 4)]).choose_idle(), Some(1));
        let alone = Load {
            alone: true,
            ..load(1, 4)
        };
        assert_eq!(board(&[alone]).choose(), None);
    }

    #[test]
    fn the_least_loaded_is_kept_for_a_suspect_and_the_others_go_on() {
        let mut board = board(&[load(3, 8), load(2, 8), load(4, 8)]);
        assert_eq!(board.choose_idle(), None);
        assert_eq!(give(&mut board, 5), [0, 2, 0, 2, 0], "1 gets nothing more");
        assert_eq!(board.choose_idle(), None);
        board.show(1, load(1, 8));
        assert_eq!(board.choose(), Some(2));
        board.show(1, load(0, 8));
        assert_eq!(board.choose_idle(), Some(1));
        board.release();
        assert_eq!(board.choose(), Some(1), "nothing waits any more");
    }

    #[test]
    fn a_lane_that_closes_is_kept_for_nobody() {
        let mut board = board(&[load(1, 8), load(2, 8)]);
        assert_eq!(board.choose_idle(), None);
        board.show(
            0,
            Load {
                open: false,
                ..load(1, 8)
            },
        );
        assert_eq!(board.choose_idle(), None);
        assert_eq!(board.choose(), None, "the other one is kept now");
        board.remove(1);
        board.remove(0);
        assert_eq!(board.choose_idle(), None);
        board.show(0, load(0, 8));
        assert_eq!(board.choose_idle(), Some(0));
    }

    #[test]
    fn what_waits_in_a_pipe_is_not_worked_on() {
        let work = |load: Load| {
            let Work {
                with_room,
                busy_thousandths,
                worked_on,
            } = board(&[load]).work();
            (with_room, busy_thousandths, worked_on)
        };
        let several = Load {
            at_once: 4,
            ..load(1, 4)
        };
        assert_eq!(work(load(0, 4)), (1, 0, 0));
        assert_eq!(work(load(3, 4)), (0, 1000, 1));
        assert_eq!(work(several), (1, 250, 1));
        assert_eq!(
            work(Load {
                messages: 4,
                ..several
            }),
            (0, 1000, 4)
        );
        let alone = Load {
            alone: true,
            ..several
        };
        assert_eq!(work(alone), (0, 1000, 1), "nothing may be added");
        let closed = Load {
            open: false,
            ..several
        };
        assert_eq!(work(closed), (0, 0, 0));
    }

    #[test]
    fn a_full_pipe_takes_nothing_but_an_idle_worker_takes_anything() {
        let full = Load {
            bytes: BYTES_MAX,
            ..load(1, 64)
        };
        assert_eq!(board(&[full]).choose(), None);
        let idle = Load {
            bytes: 0,
            ..load(0, 1)
        };
        assert_eq!(board(&[idle]).choose(), Some(0));
    }

    fn loads() -> impl Strategy<Value = Vec<(usize, Option<Load>)>> {
        let any = (any::<bool>(), 0usize..4, 0usize..4, any::<bool>());
        let load = any.prop_map(|(open, messages, window, alone)| Load {
            open,
            alone,
            ..load(messages, window)
        });
        proptest::collection::vec((0usize..6, proptest::option::of(load)), 0..60)
    }

    proptest! {
        /// Whatever the history, order and sums equal those computed from all lanes.
        #[test]
        fn the_board_is_what_the_lanes_show(steps in loads()) {
            let mut board = Board::default();
            for (slot, load) in steps {
                match load {
                    Some(load) => drop(board.show(slot, load)),
                    None => drop(board.remove(slot)),
                }
                let lanes = || board.lanes.iter().map(|(slot, shown)| (*slot, shown));
                let open = || lanes().filter(|(_, shown)| shown.load.open);
                prop_assert_eq!(board.open(), open().count());
                prop_assert_eq!(board.wanted(), open().map(|(_, s)| s.load.prefetch).sum::<usize>());
                let work = open().fold(Work::default(), |sum, (_, s)| sum.plus(s.load.work()));
                prop_assert_eq!(board.work(), work);
                let free = lanes().filter(|(_, shown)| shown.load.has_room());
                let least = free.min_by_key(|(slot, shown)| shown.place(*slot));
                prop_assert_eq!(board.choose(), least.map(|(slot, _)| slot));
                if let Some(slot) = board.choose() {
                    board.took(slot);
                }
            }
        }
    }
}
