//! Messages in flight, against a broker in memory. Whatever happens (settlements, confirmations, rejections,
//! lost partitions, damaged records, failed commits), nothing is committed below which a message is neither
//! settled nor published, and in the end all is done and committed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tokio::sync::{Notify, watch};

use super::super::health::Health;
use super::super::known_topics::{KnownTopics, Origin};
use super::super::progress::Progress;
use super::*;
use crate::broker::commit_metadata;
use crate::broker::commit_metadata::{PartitionSeed, TEXT_BYTES_MAX};
use crate::broker::consumer::Consumer;
use crate::broker::producer::FailureAction;
use crate::broker::settings;
use crate::broker::setup::Setup;
use crate::broker::topic_names::LADDER;
use crate::broker::topic_requirements::Found;
use ganger_config::sample::policy;
use ganger_queue::delivery;
use ganger_queue::delivery::{Delivery, Intake, Outgoing, PoolEnd};

const PARTS: usize = 3;
/// Delay of a retry that has a tier, and of one that has none.
const DELAYS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

#[derive(Debug, Clone, Copy)]
enum End {
    Done,
    Reply,
    Requeue,
    Return,
    Dropped,
    Retry(usize),
    DeadLetter,
}

#[derive(Debug, Clone)]
enum Step {
    Read(usize, usize),
    Damage(usize),
    Restart(usize),
    HandOut(usize),
    Settle(usize, End),
    Published(usize, Result<(), Code>),
    Commit(bool),
    Committed(bool),
    Leave(usize),
    Lose(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        4 => Just(End::Done),
        2 => Just(End::Reply),
        1 => Just(End::Requeue),
        1 => Just(End::Return),
        1 => Just(End::Dropped),
        2 => (0..DELAYS.len()).prop_map(End::Retry),
        1 => Just(End::DeadLetter),
    ];
    let result = prop_oneof![
        3 => Just(Ok(())),
        1 => Just(Err(Code::MessageSizeTooLarge)),
        1 => Just(Err(Code::TopicAuthorizationFailed)),
        1 => Just(Err(Code::MessageTimedOut)),
    ];
    let which = || any::<usize>();
    prop_oneof![
        8 => (0..PARTS, 1usize..5).prop_map(|(which, count)| Step::Read(which, count)),
        1 => (0..PARTS).prop_map(Step::Damage),
        1 => (0..PARTS).prop_map(Step::Restart),
        6 => (1usize..5).prop_map(Step::HandOut),
        10 => (which(), end).prop_map(|(which, end)| Step::Settle(which, end)),
        6 => (which(), result).prop_map(|(which, result)| Step::Published(which, result)),
        2 => any::<bool>().prop_map(Step::Commit),
        2 => any::<bool>().prop_map(Step::Committed),
        1 => (0..PARTS).prop_map(Step::Leave),
        1 => (0..PARTS).prop_map(Step::Lose),
        2 => (0u64..700).prop_map(Step::Wait),
    ]
}

/// A partition at the broker.
#[derive(Debug, Default, Clone)]
struct Log {
    /// Number of its current assignment.
    part: Part,
    end: i64,
    /// Next offset for its reader.
    at: i64,
    is_damaged: bool,
    committed: Option<(i64, String)>,
    /// Offsets that are settled or published.
    finished: BTreeSet<i64>,
}

/// A publication in flight, with the partition and offset of its message.
type OnItsWay = (usize, i64, Purpose);

struct Model<'a> {
    consumer: &'a Consumer,
    plan: Plan,
    topics: KnownTopics,
    assignment: Assignment,
    pool: PoolLink,
    pool_end: PoolEnd,
    logs: Vec<Log>,
    out: Vec<Delivery>,
    publishing: Vec<OnItsWay>,
    /// Commit in flight, with the numbers of the assignments that it is for.
    sent: Option<BTreeMap<usize, (Part, i64, String)>>,
    now: Instant,
}

fn seed(which: usize) -> PartitionSeed {
    PartitionSeed::new("cluster", "orders", i32::try_from(which).unwrap())
}

fn name(which: usize) -> TopicPartition {
    ("orders".to_owned(), i32::try_from(which).unwrap())
}

impl<'a> Model<'a> {
    fn new(consumer: &'a Consumer, plan: Plan) -> Self {
        let tier = LADDER.tier(DELAYS[0]);
        let found = Found {
            cluster: "cluster".to_owned(),
            topics: [("orders".to_owned(), PARTS)].into(),
            tiers: [("orders".to_owned(), [(tier, "tier".to_owned())].into())].into(),
        };
        let now = Instant::now();
        let every = Duration::from_secs(1);
        let topics = KnownTopics::new(found, plan.wanted.clone(), every, now);
        let (end, pool_end) = delivery::link();
        pool_end.intake.send_replace(Intake::Credit(1000));
        let (_, policies) = watch::channel(Arc::new(policy()));
        let throttle = Throttle::new(1 << 20, 1 << 10, now);
        let mut model = Self {
            consumer,
            assignment: Assignment::new(&plan, throttle),
            pool: PoolLink::new("p", end, policies, Health::new("p")),
            plan,
            topics,
            pool_end,
            logs: vec![Log::default(); PARTS],
            out: Vec::new(),
            publishing: Vec::new(),
            sent: None,
            now,
        };
        (0..PARTS).for_each(|which| model.assign(which));
        model
    }

    /// Assigns a partition at its committed position.
    fn assign(&mut self, which: usize) {
        let log = &mut self.logs[which];
        let (offset, text) = log.committed.clone().unwrap_or_default();
        let carried = commit_metadata::decode(seed(which), offset, &text).unwrap();
        let progress = Progress::new(offset, Some(text), carried);
        let (topic, number) = name(which);
        let inbox = self.consumer.inbox(&topic, number).unwrap();
        let origin = Origin {
            topic: "orders".into(),
            is_tier: false,
        };
        let partition = Partition::new((topic, number), seed(which), origin, inbox, progress);
        log.part = self.assignment.add(partition);
        (log.at, log.is_damaged) = (offset, false);
    }

    fn read(&mut self, which: usize) {
        let log = &mut self.logs[which];
        let contents = (
            Some(vec![u8::try_from(log.at % 3).unwrap()].into()),
            Some(format!("{which} {}", log.at).into()),
        );
        let (number, offset) = (i32::try_from(which).unwrap(), log.at);
        let record = Record::read(
            &"orders".into(),
            (number, offset),
            None,
            contents,
            Vec::new(),
        );
        let fresh = Some(Fresh {
            offset,
            record,
            due_ms: None,
        });
        if !log.is_damaged {
            log.at += 1;
            log.end = log.end.max(log.at);
        }
        let name = name(which);
        self.assignment.take_stray(Stray { name, fresh }, self.now);
    }

    fn hand_out(&mut self, count: usize) {
        self.assignment.hand_out(count, &self.pool);
        while let Ok(delivery) = self.pool_end.deliveries.try_recv() {
            self.out.push(delivery);
        }
    }

    fn settle(&mut self, which: usize, end: End) {
        if self.out.is_empty() {
            return;
        }
        let delivery = self.out.swap_remove(which % self.out.len());
        let body = String::from_utf8(delivery.message.body.to_vec()).unwrap();
        let (part, offset) = body.split_once(' ').unwrap();
        let (part, offset): (usize, i64) = (part.parse().unwrap(), offset.parse().unwrap());
        if matches!(end, End::Done) && !delivery.is_void() {
            self.logs[part].finished.insert(offset);
        }
        match end {
            End::Done => delivery.settle(Outcome::Done),
            End::Reply => delivery.settle(Outcome::Reply(Box::new(Outgoing {
                queue: "answers".to_owned(),
                ..Outgoing::default()
            }))),
            End::Requeue => delivery.settle(Outcome::Requeue { after: DELAYS[0] }),
            End::Return => delivery.settle(Outcome::Return { suspect: true }),
            End::Dropped => drop(delivery),
            End::Retry(delay) => delivery.settle(Outcome::RetryAfter {
                delay: DELAYS[delay],
                failure: Box::default(),
            }),
            End::DeadLetter => delivery.settle(Outcome::DeadLetter(Box::default())),
        }
        let settlement = self.pool.settlement().unwrap();
        let rules = rules(&self.plan, &self.topics);
        let next = self
            .assignment
            .settle(settlement, rules, &self.pool, self.now);
        self.publish(part, offset, next);
    }

    fn publish(&mut self, part: usize, offset: i64, publication: Option<Publication>) {
        let purpose = publication.map(|publication| publication.purpose);
        self.publishing
            .extend(purpose.map(|purpose| (part, offset, purpose)));
    }

    fn published(&mut self, which: usize, result: Result<(), Code>) {
        if self.publishing.is_empty() {
            return;
        }
        let place = which % self.publishing.len();
        let purpose = &self.publishing[place].2;
        let is_void = self.assignment.is_void(purpose.place().unwrap());
        let is_kept = |code| !is_void && purpose.on_failure(code, true) != FailureAction::GiveUp;
        if result.is_err_and(is_kept) {
            return;
        }
        let (part, offset, purpose) = self.publishing.swap_remove(place);
        let report = Report { purpose, result };
        let rules = rules(&self.plan, &self.topics);
        let next = self
            .assignment
            .published(report, rules, &self.pool, self.now);
        if result.is_ok() && next.is_none() && !is_void {
            self.logs[part].finished.insert(offset);
        }
        self.publish(part, offset, next);
    }

    fn commit(&mut self, force: bool) -> Result<(), TestCaseError> {
        if self.sent.is_some() {
            return Ok(());
        }
        let mut sent = BTreeMap::new();
        for commit in self.assignment.commit(TEXT_BYTES_MAX, force) {
            let which = usize::try_from(commit.partition).unwrap();
            let (log, offset) = (&self.logs[which], commit.offset);
            let finished = |offset: i64| log.finished.contains(&offset);
            prop_assert!(offset <= log.end && (0..offset).all(finished), "{offset}");
            let known = commit_metadata::decode(seed(which), offset, &commit.metadata).unwrap();
            prop_assert!(known.ahead.into_iter().flatten().all(finished));
            sent.insert(which, (log.part, offset, commit.metadata));
        }
        self.sent = (!sent.is_empty()).then_some(sent);
        Ok(())
    }

    fn committed(&mut self, is_taken: bool) {
        let Some(sent) = self.sent.take() else {
            return;
        };
        for (which, (part, offset, metadata)) in sent.into_iter().filter(|_| is_taken) {
            let log = &mut self.logs[which];
            if log.part == part {
                log.committed = Some((offset, metadata));
            }
        }
        self.assignment.committed(is_taken, &BTreeSet::new());
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Read(which, count) => (0..count).for_each(|_| self.read(which)),
            Step::Damage(which) => {
                let (name, fresh) = (name(which), None);
                let news = self.assignment.take_stray(Stray { name, fresh }, self.now);
                let is_told = matches!(news, Some((_, PartNews::Unreadable(_))));
                prop_assert!(is_told);
                self.logs[which].is_damaged = true;
            }
            Step::Restart(which) => {
                let log = &mut self.logs[which];
                self.assignment.restarted(log.part);
                let partition = self.assignment.partition(log.part).unwrap();
                log.at = partition.progress().position();
                log.is_damaged = false;
            }
            Step::HandOut(count) => self.hand_out(count),
            Step::Settle(which, end) => self.settle(which, end),
            Step::Published(which, result) => self.published(which, result),
            Step::Commit(force) => return self.commit(force),
            Step::Committed(is_taken) => self.committed(is_taken),
            Step::Leave(which) => self.assignment.leave(&[self.logs[which].part]),
            Step::Lose(which) => {
                self.assignment.forget(&[self.logs[which].part], &self.pool);
                self.assign(which);
            }
            Step::Wait(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.assignment.release(self.now);
            }
        }
        Ok(())
    }

    /// Completes all remaining work, with partitions that stay assigned.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        self.committed(false);
        for which in 0..PARTS {
            self.apply(&Step::Lose(which))?;
            while self.logs[which].at < self.logs[which].end {
                self.read(which);
            }
        }
        while !self.out.is_empty() || !self.publishing.is_empty() || self.assignment.ready() > 0 {
            self.settle(0, End::Done);
            self.published(0, Ok(()));
            self.hand_out(1000);
        }
        self.commit(false)?;
        self.committed(true);
        prop_assert_eq!(self.assignment.out(), 0);
        prop_assert!(self.assignment.are_committed());
        for log in &self.logs {
            let committed = log.committed.as_ref().map_or(0, |(offset, _)| *offset);
            prop_assert_eq!(committed, log.end);
            prop_assert!((0..log.end).all(|offset| log.finished.contains(&offset)));
        }
        Ok(())
    }
}

fn rules<'a>(plan: &'a Plan, topics: &'a KnownTopics) -> Rules<'a> {
    Rules {
        plan,
        topics,
        in_place_max: Duration::ZERO,
    }
}

#[test]
fn nothing_is_committed_that_is_neither_settled_nor_published() {
    let config = settings::tests::source(&[]);
    let plan = Setup::new(&config, &policy()).unwrap().plan;
    let properties = settings::consumer(&config, "p", 1 << 20);
    let consumer = Consumer::new(&properties, "p", Arc::new(Notify::new())).unwrap();
    let steps = proptest::collection::vec(step(), 0..120);
    let order = prop_oneof![Just(Order::None), Just(Order::Key), Just(Order::Partition)];
    proptest!(|(steps in steps, order in order)| {
        let plan = Plan { order, ..plan.clone() };
        let mut model = Model::new(&consumer, plan);
        for step in &steps {
            model.apply(step)?;
        }
        model.finish()?;
    });
}
