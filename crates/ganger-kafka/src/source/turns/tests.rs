//! Turns as a table of cases, and as a random test against a scan of all partitions.

use proptest::prelude::*;

use super::*;

const PARTS: usize = 6;

fn number(part: usize) -> Part {
    Part::try_from(part).unwrap()
}

/// A partition in the model, which checks all of them each time.
#[derive(Debug, Default, Clone, Copy)]
struct Plain {
    at_hand: usize,
    is_shut: bool,
    count: Count,
}

#[derive(Debug, Clone)]
enum Step {
    Come(usize, usize),
    HandOut(usize),
    Done(usize),
    Shut(usize),
    Open(usize),
    Lose(usize),
    Share(Share),
}

fn step() -> impl Strategy<Value = Step> {
    let part = || 0..PARTS;
    let share = (1usize..6, 1usize..60, 0usize..120, any::<bool>());
    prop_oneof![
        6 => (part(), 1usize..8).prop_map(|(part, count)| Step::Come(part, count)),
        8 => part().prop_map(Step::HandOut),
        6 => part().prop_map(Step::Done),
        1 => part().prop_map(Step::Shut),
        2 => part().prop_map(Step::Open),
        1 => part().prop_map(Step::Lose),
        4 => share.prop_map(|(ready, bytes, bytes_of_all, is_scarce)| Step::Share(Share {
            ready,
            look_ahead: 8,
            bytes,
            bytes_of_all,
            is_scarce,
        })),
    ]
}

struct Model {
    turns: Turns,
    plain: [Plain; PARTS],
    share: Share,
    looks: usize,
    /// Number of causes for checking a partition.
    causes: usize,
}

impl Model {
    fn new() -> Self {
        let mut turns = Turns::default();
        (0..PARTS).for_each(|part| turns.add(number(part)));
        Self {
            turns,
            plain: [Plain::default(); PARTS],
            share: Share {
                ready: 4,
                look_ahead: 8,
                bytes: 50,
                bytes_of_all: 100,
                is_scarce: false,
            },
            looks: 0,
            causes: PARTS,
        }
    }

    fn here(&self) -> HeldTotals {
        let sum = |of: fn(&Count) -> usize| self.plain.iter().map(|p| of(&p.count)).sum();
        let (bytes, busy): (usize, usize) = (sum(|c| c.messages * 10), sum(|c| c.out + c.ready));
        HeldTotals {
            bytes,
            is_idle: busy == 0,
        }
    }

    fn has_room(&self, plain: &Plain) -> bool {
        self.share.refusal(plain.count, self.here()).is_none()
    }

    fn apply(&mut self, step: &Step) {
        self.causes += 1;
        match *step {
            Step::Come(part, count) => {
                self.plain[part].at_hand += count;
                self.turns.arrived(number(part));
            }
            Step::HandOut(part) => {
                let count = &mut self.plain[part].count;
                if count.ready > 0 {
                    (count.ready, count.out) = (count.ready - 1, count.out + 1);
                    count.bytes -= 10;
                }
                self.turns.counted(number(part), *count);
            }
            Step::Done(part) => {
                let count = &mut self.plain[part].count;
                if count.out > 0 {
                    (count.messages, count.out) = (count.messages - 1, count.out - 1);
                }
                self.turns.counted(number(part), *count);
            }
            Step::Shut(part) => self.plain[part].is_shut = true,
            Step::Open(part) => {
                self.plain[part].is_shut = false;
                self.turns.opened(number(part));
            }
            Step::Lose(part) => {
                self.plain[part] = Plain::default();
                self.turns.remove(number(part));
                self.turns.add(number(part));
            }
            // Then all may be checked.
            Step::Share(share) => {
                self.share = share;
                self.causes += 3 * PARTS;
            }
        }
    }

    /// Takes in messages as far as there is room.
    fn take_in(&mut self) {
        self.turns.widen(&self.share);
        while let Some(part) = self.turns.next(&self.share, self.here()) {
            self.looks += 1;
            let plain = self.plain[part as usize];
            let refusal = self.share.refusal(plain.count, self.here());
            let state = match refusal {
                _ if plain.is_shut => ReadState::Closed,
                Some(state) => state,
                None if plain.at_hand == 0 => ReadState::Empty,
                None => {
                    self.take_one(part as usize);
                    continue;
                }
            };
            self.turns.put(part, state);
        }
    }

    fn take_one(&mut self, part: usize) {
        let Plain { at_hand, count, .. } = &mut self.plain[part];
        *at_hand -= 1;
        count.messages += 1;
        count.ready += 1;
        count.bytes += 10;
        self.turns.counted(number(part), *count);
        // A message that was taken in may close the gate for another, or be the one that all may have.
        self.causes += 3;
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (part, plain) in self.plain.iter().enumerate() {
            let is_left = plain.at_hand > 0 && !plain.is_shut && self.has_room(plain);
            prop_assert!(!is_left, "{part} was passed over: {plain:?}");
        }
        let has = |part: &usize| {
            let plain = &self.plain[*part];
            plain.count.messages > 0 || !self.turns.has_nothing(number(*part))
        };
        let sharers = (0..PARTS).filter(has).count();
        prop_assert_eq!(self.turns.sharers(), sharers);
        Ok(())
    }
}

proptest! {
    #[test]
    fn nobody_is_passed_over_for_whom_a_scan_of_all_finds_room(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.apply(step);
            model.take_in();
            model.check()?;
        }
        prop_assert!(model.looks <= model.causes, "{} > {}", model.looks, model.causes);
    }
}

#[test]
fn those_that_have_nothing_and_those_that_are_full_are_not_looked_at() {
    let mut turns = Turns::default();
    let share = Share {
        ready: 16,
        look_ahead: 100,
        bytes: 1000,
        bytes_of_all: 10_000,
        is_scarce: false,
    };
    let here = HeldTotals {
        bytes: 0,
        is_idle: true,
    };
    for part in 0..2000 {
        turns.add(part);
        let is_full = part % 2 == 0;
        turns.put(
            part,
            if is_full {
                ReadState::ReadyMax(16)
            } else {
                ReadState::Empty
            },
        );
    }
    turns.widen(&share);
    assert_eq!((turns.peek(&share, here), turns.sharers()), (None, 1000));
    turns.arrived(7);
    turns.counted(8, Count::default());
    assert_eq!(turns.next(&share, here), Some(7));
    assert_eq!(turns.next(&share, here), Some(8));
    assert_eq!(turns.next(&share, here), Some(7), "in turns");
    let wider = Share { ready: 17, ..share };
    turns.widen(&wider);
    assert_eq!(turns.open.len(), 1001);
}

#[test]
fn those_that_are_gated_wait_for_the_gate_and_go_first() {
    let mut turns = Turns::default();
    let share = Share {
        ready: 16,
        look_ahead: 100,
        bytes: 1000,
        bytes_of_all: 10_000,
        is_scarce: false,
    };
    let here = |bytes| HeldTotals {
        bytes,
        is_idle: false,
    };
    (0..3).for_each(|part| turns.add(part));
    turns.put(1, ReadState::AtTotalLimit);
    assert_eq!(turns.next(&share, here(10_000)), Some(0));
    assert_eq!(turns.next(&share, here(9_999)), Some(1));
    turns.put(0, ReadState::AtTotalLimit);
    turns.put(1, ReadState::BytesMax(1000));
    turns.put(2, ReadState::AtTotalLimit);
    assert_eq!(turns.peek(&share, here(10_000)), None);
    let scarce = Share {
        is_scarce: true,
        ..share
    };
    turns.widen(&scarce);
    assert_eq!(turns.peek(&scarce, here(10_000)), None);
    let idle = HeldTotals {
        bytes: 10_000,
        is_idle: true,
    };
    assert_eq!(
        turns.next(&scarce, idle),
        Some(0),
        "one keeps the pool going"
    );
    turns.put(0, ReadState::Empty);
    turns.put(2, ReadState::Empty);
    assert_eq!(
        turns.next(&scarce, idle),
        Some(1),
        "also one that has its share"
    );
    turns.put(1, ReadState::AtTotalLimit);
    turns.widen(&share);
    assert_eq!(turns.peek(&share, here(10_000)), Some(1), "it may have one");
}
