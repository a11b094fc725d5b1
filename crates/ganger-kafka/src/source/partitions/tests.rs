//! The indexes as a random test against a scan of all partitions.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::Notify;

use super::super::incoming::Fresh;
use super::super::known_topics::Origin;
use super::super::progress::Progress;
use super::*;
use crate::broker::commit_metadata::{Carried, PartitionSeed, Tried};
use crate::broker::consumer::Consumer;
use crate::broker::record::Record;
use crate::broker::settings;

const PARTS: i32 = 5;
/// Wall clock time of the start.
const START_MS: i64 = 1_000_000;

#[derive(Debug, Clone)]
enum Step {
    Read(usize, i64),
    Unpark(u64),
    Done(usize),
    Retried(usize),
    Commit(bool),
    Committed(bool),
    Pause(usize, Option<Pause>),
    Damage(usize, bool),
    Leave(usize),
    Rename(usize),
    Lose(usize),
    Sleep(usize),
    Ring(usize),
    BeginAnew(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let part = || 0..PARTS as usize;
    let pause = prop_oneof![
        Just(None),
        Just(Some(Pause::Turn)),
        Just(Some(Pause::HeadNotDue))
    ];
    prop_oneof![
        6 => (part(), -50i64..200).prop_map(|(part, due)| Step::Read(part, due)),
        3 => (1u64..100).prop_map(Step::Unpark),
        4 => part().prop_map(Step::Done),
        2 => part().prop_map(Step::Retried),
        3 => any::<bool>().prop_map(Step::Commit),
        3 => any::<bool>().prop_map(Step::Committed),
        3 => (part(), pause).prop_map(|(part, pause)| Step::Pause(part, pause)),
        1 => (part(), any::<bool>()).prop_map(|(part, is)| Step::Damage(part, is)),
        1 => part().prop_map(Step::Leave),
        1 => part().prop_map(Step::Rename),
        1 => part().prop_map(Step::Lose),
        2 => part().prop_map(Step::Sleep),
        2 => part().prop_map(Step::Ring),
        1 => part().prop_map(Step::BeginAnew),
    ]
}

struct Model<'a> {
    consumer: &'a Consumer,
    partitions: Partitions,
    /// Current number of each partition.
    parts: Vec<Part>,
    asleep: BTreeSet<Part>,
    now: Instant,
    now_ms: i64,
    next: i64,
}

impl<'a> Model<'a> {
    fn new(consumer: &'a Consumer) -> Self {
        let mut model = Self {
            consumer,
            partitions: Partitions::default(),
            parts: Vec::new(),
            asleep: BTreeSet::new(),
            now: Instant::now(),
            now_ms: START_MS,
            next: 0,
        };
        for number in 0..PARTS {
            let part = model.partitions.add(model.partition(number));
            model.parts.push(part);
        }
        model
    }

    /// Creates a partition that has a commit, so that nothing is to be committed.
    fn partition(&self, number: i32) -> Partition {
        let name = ("tier".to_owned(), number);
        let inbox = self.consumer.inbox(&name.0, name.1).unwrap();
        let place = PartitionSeed::new("cluster", &name.0, name.1);
        let progress = Progress::new(self.next, Some(String::new()), Carried::default());
        let origin = Origin {
            topic: "orders".into(),
            is_tier: true,
        };
        Partition::new(name, place, origin, inbox, progress)
    }

    fn read(&mut self, part: Part, due: i64) {
        let fresh = Fresh {
            offset: self.next,
            record: Record::read(
                &"tier".into(),
                (0, self.next),
                None,
                (None, None),
                Vec::new(),
            ),
            due_ms: Some(self.now_ms + due),
        };
        self.next += 1;
        let (now, now_ms) = (self.now, self.now_ms);
        self.partitions.change(part, |each| {
            if !each.traits().is_shut {
                let fresh = each.take_stray(fresh).unwrap();
                drop(each.admit(fresh, now, now_ms));
            }
        });
    }

    fn unpark(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.now_ms += ms.cast_signed();
        let (now, now_ms) = (self.now, self.now_ms);
        for part in self.partitions.heads(now) {
            let due = self
                .partitions
                .change(part, |each| each.unpark(now, now_ms));
            assert!(!due.unwrap().is_empty(), "both clocks agree");
        }
    }

    fn apply(&mut self, step: &Step) {
        let parts = self.parts.clone();
        let partitions = &mut self.partitions;
        match *step {
            Step::Read(which, due) => self.read(parts[which], due),
            Step::Unpark(ms) => self.unpark(ms),
            Step::Done(which) => {
                let done = |each: &mut Partition| each.done(each.progress().committable());
                partitions.change(parts[which], done);
            }
            Step::Retried(which) => {
                let tried = Tried::default();
                let retried = |each: &mut Partition| {
                    each.retried(each.progress().committable(), tried);
                };
                partitions.change(parts[which], retried);
            }
            Step::Commit(force) => drop(partitions.commit(100, force)),
            Step::Committed(is_taken) => partitions.committed(is_taken, &BTreeSet::new()),
            Step::Pause(which, pause) => {
                partitions.change(parts[which], |each| each.pause(pause));
            }
            Step::Damage(which, true) => {
                partitions.change(parts[which], Partition::damage);
            }
            Step::Damage(which, false) => {
                partitions.change(parts[which], Partition::restarted);
            }
            Step::Leave(which) => {
                partitions.change(parts[which], Partition::leave);
            }
            Step::Rename(which) => {
                self.parts[which] = partitions.rename(parts[which]);
            }
            Step::Lose(which) => {
                let lost = partitions.remove(parts[which]).unwrap();
                let anew = self.partition(lost.name().1);
                self.parts[which] = self.partitions.add(anew);
            }
            Step::Sleep(which) => {
                partitions.stop_reading(parts[which], ReadState::Empty);
                self.asleep.insert(parts[which]);
            }
            Step::Ring(which) => {
                partitions.arrived(parts[which]);
                self.asleep.remove(&parts[which]);
            }
            Step::BeginAnew(which) => {
                let next = self.next;
                partitions.change(parts[which], |each| each.switch_log(next, next));
            }
        }
    }

    /// Returns the partitions that satisfy a condition.
    fn those(&self, is: impl Fn(Traits, Part) -> bool) -> BTreeSet<Part> {
        let all = self.partitions.iter();
        let those = all.filter(|(part, each)| is(each.traits(), *part));
        those.map(|(part, _)| part).collect()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let set = |parts: Vec<Part>| -> BTreeSet<Part> { parts.into_iter().collect() };
        let partitions = &self.partitions;
        prop_assert_eq!(
            &self.those(|is, _| is.is_uncommitted),
            &partitions.uncommitted
        );
        let heads = self.those(|is, _| is.look_at.is_some_and(|when| when <= self.now));
        prop_assert_eq!(&heads, &set(partitions.heads(self.now)));
        let looks = partitions
            .iter()
            .filter_map(|(_, each)| each.traits().look_at);
        prop_assert_eq!(looks.min(), partitions.next_head());
        let fetched = |is: Traits| is.pause.is_none() && !is.is_leaving;
        let late = |is: Traits| is.look_at.is_some_and(|when| when > self.now);
        let to_pause = self.those(|is, _| fetched(is) && late(is));
        prop_assert_eq!(&to_pause, &set(partitions.to_pause(self.now)));
        let to_resume = |is: Traits| is.pause == Some(Pause::HeadNotDue) && is.look_at.is_none();
        prop_assert_eq!(
            &self.those(|is, _| to_resume(is)),
            &set(partitions.to_resume())
        );
        let asleep = |part: &Part| self.asleep.contains(part);
        let full = self.those(|is, part| fetched(is) && !asleep(&part));
        prop_assert_eq!(&full, partitions.full());
        let empty = self.those(|is, part| fetched(is) && asleep(&part));
        prop_assert_eq!(&empty, partitions.empty());
        for (part, each) in partitions.iter() {
            prop_assert_eq!(partitions.named(each.name()), Some(part));
        }
        prop_assert_eq!(partitions.len(), PARTS as usize);
        Ok(())
    }
}

#[test]
fn what_they_are_found_by_is_what_a_scan_of_all_finds() {
    let properties = settings::consumer(&settings::tests::source(&[]), "p", 1 << 20);
    let consumer = Consumer::new(&properties, "p", Arc::new(Notify::new())).unwrap();
    let steps = proptest::collection::vec(step(), 0..80);
    proptest!(|(steps in steps)| {
        let mut model = Model::new(&consumer);
        for step in &steps {
            model.apply(step);
            model.check()?;
        }
    });
}
