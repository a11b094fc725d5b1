//! Lanes as a table of cases, and as a random test against a plain model.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn entry(part: Part, offset: i64, key: Option<u8>) -> Entry<Option<u8>> {
    Entry {
        part,
        offset,
        lane: key.map(|key| Lane {
            topic: "orders".into(),
            shared: Shared::Key(vec![key].into()),
        }),
        bytes: 10,
        item: key,
    }
}

fn lanes(entries: &[(Part, i64, Option<u8>)]) -> Lanes<Option<u8>> {
    let mut lanes = Lanes::new();
    for &(part, offset, key) in entries {
        lanes.add(entry(part, offset, key));
    }
    lanes
}

fn next(lanes: &mut Lanes<Option<u8>>) -> Option<(i64, Position)> {
    let place = lanes.next(|_, _| true)?;
    Some((lanes.get(place).unwrap().offset, place))
}

#[test]
fn one_of_a_key_at_a_time_and_others_pass() {
    let mut lanes = lanes(&[
        (0, 0, Some(1)),
        (0, 1, Some(1)),
        (0, 2, Some(2)),
        (0, 3, None),
    ]);
    let (first, place) = next(&mut lanes).unwrap();
    assert_eq!(first, 0);
    assert_eq!(next(&mut lanes).unwrap().0, 2);
    assert_eq!(next(&mut lanes).unwrap().0, 3);
    assert_eq!(next(&mut lanes), None);
    lanes.remove(place).unwrap();
    assert_eq!(next(&mut lanes).unwrap().0, 1);
    let Count {
        messages,
        ready,
        out,
        bytes,
    } = lanes.count(0);
    assert_eq!((messages, ready, out, bytes), (3, 0, 3, 0));
}

#[test]
fn messages_without_a_key_wait_for_nobody() {
    let mut lanes = lanes(&[(0, 0, None), (0, 1, None)]);
    assert_eq!(next(&mut lanes).unwrap().0, 0);
    assert_eq!(next(&mut lanes).unwrap().0, 1);
}

#[test]
fn what_comes_back_keeps_its_lane_and_goes_first() {
    let mut lanes = lanes(&[(0, 0, Some(1)), (0, 1, Some(1)), (0, 2, Some(2))]);
    let (_, place) = next(&mut lanes).unwrap();
    lanes.again(place, None);
    assert_eq!(next(&mut lanes).unwrap(), (0, place));
    let now = Instant::now();
    lanes.again(place, Some(now + Duration::from_secs(1)));
    assert_eq!(next(&mut lanes).unwrap().0, 2);
    assert_eq!(next(&mut lanes), None);
    lanes.release(now);
    assert_eq!(next(&mut lanes), None);
    let due = lanes.next_due().unwrap();
    lanes.release(due);
    assert_eq!(lanes.next_due(), None);
    assert_eq!(next(&mut lanes).unwrap(), (0, place));
}

#[test]
fn the_dead_hold_nobody_up() {
    let mut lanes = lanes(&[(0, 0, Some(1)), (0, 1, Some(1)), (0, 2, Some(1))]);
    let (_, dead) = next(&mut lanes).unwrap();
    lanes.let_pass(dead);
    assert_eq!(next(&mut lanes).unwrap().0, 1);
    lanes.let_pass(dead);
    lanes.remove(dead).unwrap();
    assert_eq!(next(&mut lanes), None, "the lane is another's now");
    assert_eq!(lanes.count(0).messages, 2);
    // If no message waits for the lane, it is free.
    let mut lanes = self::lanes(&[(0, 0, Some(1))]);
    let (_, dead) = next(&mut lanes).unwrap();
    lanes.let_pass(dead);
    lanes.add(entry(0, 1, Some(1)));
    assert_eq!(next(&mut lanes).unwrap().0, 1);
    lanes.remove(dead).unwrap();
    lanes.add(entry(0, 2, Some(1)));
    assert_eq!(next(&mut lanes), None);
}

#[test]
fn partitions_take_turns() {
    let mut lanes = lanes(&[
        (0, 0, None),
        (0, 1, None),
        (0, 2, None),
        (1, 7, None),
        (1, 8, None),
    ]);
    let order: Vec<i64> = std::iter::from_fn(|| next(&mut lanes))
        .map(|(o, _)| o)
        .collect();
    assert_eq!(order, [0, 7, 1, 8, 2]);
}

#[test]
fn a_partition_that_may_not_is_passed_over() {
    let mut lanes = lanes(&[(0, 0, None), (1, 7, None), (1, 8, None)]);
    let may = |part, _| part == 1;
    assert!(lanes.next(may).is_some() && lanes.next(may).is_some());
    assert_eq!(lanes.next(may), None);
    assert_eq!(next(&mut lanes).unwrap().0, 0);
}

#[test]
fn a_lost_partition_keeps_the_lanes_of_what_is_out() {
    let mut lanes = lanes(&[
        (0, 0, Some(1)),
        (0, 1, Some(1)),
        (0, 2, Some(2)),
        (0, 3, Some(3)),
    ]);
    let (_, out) = next(&mut lanes).unwrap();
    let (_, held) = next(&mut lanes).unwrap();
    lanes.again(held, Some(Instant::now()));
    assert_eq!(lanes.forget(0), 1);
    assert_eq!(
        (lanes.ready(), lanes.next_due(), lanes.bytes()),
        (0, None, 10)
    );
    // The partition is assigned again, and its messages are delivered again.
    lanes.add(entry(1, 0, Some(1)));
    lanes.add(entry(1, 2, Some(2)));
    assert_eq!(next(&mut lanes).unwrap().0, 2);
    assert_eq!(next(&mut lanes), None);
    assert!(lanes.is_void(out));
    lanes.again(out, None);
    assert_eq!(next(&mut lanes).unwrap().0, 0);
}

#[test]
fn a_lane_passes_over_a_lost_partition_to_the_next() {
    let mut lanes = lanes(&[(0, 0, Some(1)), (0, 1, Some(1)), (1, 5, Some(1))]);
    assert_eq!(lanes.forget(0), 0);
    assert_eq!(next(&mut lanes).unwrap().0, 5);
}

#[derive(Debug, Clone)]
enum Step {
    Add {
        part: Part,
        key: Option<u8>,
    },
    Next,
    /// Settled as done at once, or after its reply.
    Done(usize, bool),
    Settle(usize),
    Again(usize),
    Hold(usize, u64),
    Pass(u64),
    Forget(Part),
}

fn step() -> impl Strategy<Value = Step> {
    let key = proptest::option::weighted(0.8, 0u8..4);
    prop_oneof![
        6 => (0u32..3, key).prop_map(|(part, key)| Step::Add { part, key }),
        6 => Just(Step::Next),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, is)| Step::Done(which, is)),
        1 => any::<usize>().prop_map(Step::Settle),
        1 => any::<usize>().prop_map(Step::Again),
        1 => (any::<usize>(), 1u64..50).prop_map(|(which, ms)| Step::Hold(which, ms)),
        1 => (1u64..50).prop_map(Step::Pass),
        1 => (0u32..3).prop_map(Step::Forget),
    ]
}

/// Messages that are handed out, by place, with their keys; and each key's offsets in order of arrival.
struct Model {
    lanes: Lanes<Option<u8>>,
    now: Instant,
    /// Current assignment of each partition.
    assigned: [Part; 3],
    assignments: Part,
    offsets: i64,
    out: Vec<(Position, Option<u8>)>,
    /// Messages of `out` that are settled and being published.
    publishing: HashSet<Position>,
    not_done: Vec<(Part, i64, Option<u8>)>,
}

impl Model {
    fn new() -> Self {
        Self {
            lanes: Lanes::new(),
            now: Instant::now(),
            assigned: [0, 1, 2],
            assignments: 3,
            offsets: 0,
            out: Vec::new(),
            publishing: HashSet::new(),
            not_done: Vec::new(),
        }
    }

    fn take(&mut self, which: usize) -> Option<(Position, Option<u8>)> {
        let count = self.out.len();
        let taken = (count > 0).then(|| self.out.swap_remove(which % count))?;
        self.publishing.remove(&taken.0);
        Some(taken)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Add { part, key } => {
                let part = self.assigned[part as usize];
                self.lanes.add(entry(part, self.offsets, key));
                self.not_done.push((part, self.offsets, key));
                self.offsets += 1;
            }
            Step::Next => self.next(),
            Step::Settle(which) => {
                if let Some((place, _)) = self.out.get(which % self.out.len().max(1)) {
                    let is_first = self.publishing.insert(*place);
                    let settled = self.lanes.settle(*place);
                    assert_eq!(settled == Settled::Unknown, !is_first, "once only");
                }
            }
            Step::Done(which, is_settled) => {
                if let Some((place, _)) = self.take(which) {
                    if is_settled {
                        self.lanes.settle(place);
                    }
                    let done = self.lanes.remove(place).unwrap();
                    self.not_done
                        .retain(|(_, offset, _)| *offset != done.offset);
                }
            }
            Step::Again(which) => {
                if let Some((place, _)) = self.take(which) {
                    self.lanes.again(place, None);
                }
            }
            Step::Hold(which, ms) => {
                if let Some((place, _)) = self.take(which) {
                    let until = self.now + Duration::from_millis(ms);
                    self.lanes.again(place, Some(until));
                }
            }
            Step::Pass(ms) => {
                self.now += Duration::from_millis(ms);
                self.lanes.release(self.now);
            }
            Step::Forget(part) => {
                let gone = std::mem::replace(&mut self.assigned[part as usize], self.assignments);
                self.assignments += 1;
                self.lanes.forget(gone);
                self.not_done.retain(|(part, _, _)| *part != gone);
            }
        }
    }

    fn next(&mut self) {
        let Some(place) = self.lanes.next(|_, _| true) else {
            return;
        };
        let Entry {
            part,
            offset,
            item: key,
            ..
        } = *self.lanes.get(place).unwrap();
        if key.is_some() {
            assert!(
                self.out.iter().all(|(_, other)| *other != key),
                "two of a key are out"
            );
            let first = self.not_done.iter().find(|(_, _, other)| *other == key);
            assert_eq!(
                first,
                Some(&(part, offset, key)),
                "a key's messages in their order"
            );
        }
        assert!(self.out.iter().all(|(other, _)| *other != place));
        self.out.push((place, key));
    }

    /// Hands out and settles all remaining messages.
    fn drain(&mut self) {
        self.now += Duration::from_secs(1);
        self.lanes.release(self.now);
        while !self.not_done.is_empty() {
            let before = self.out.len();
            self.apply(Step::Next);
            assert!(
                self.out.len() > before || before > 0,
                "{:?} starve",
                self.not_done
            );
            if self.out.len() == before {
                self.apply(Step::Done(0, true));
            }
        }
        while !self.out.is_empty() {
            self.apply(Step::Done(0, false));
        }
        assert_eq!((self.lanes.ready(), self.lanes.bytes()), (0, 0));
        assert!(self.lanes.queues.is_empty() && self.lanes.held.is_empty());
        assert!(self.lanes.slots.iter().all(Option::is_none));
    }
}

proptest! {
    #[test]
    fn keys_never_overlap_and_nothing_starves(steps in proptest::collection::vec(step(), 0..200)) {
        let mut model = Model::new();
        for step in steps {
            model.apply(step);
            let out = model.out.len() - model.publishing.len();
            prop_assert_eq!(model.lanes.out(), out);
        }
        model.drain();
    }
}
