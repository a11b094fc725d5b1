//! The book as a table of cases, and as random runs of the book and the outbox against a model of a broker and
//! a pool.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::*;
use crate::broker::isolating::IsolatingPublisher;
use crate::broker::publisher::Verdict;
use crate::broker::republish::Original;
use crate::broker::signature::CopyKey;
use crate::rules::{Arrival, RETURNS_MAX};
use crate::source::outbox::{Job, Outbox};
use crate::source::publication::Composer;
use crate::source::purpose::Consequence;
use crate::source::targets::Targets;
use ganger_config::model::{QueueDeclaration, RabbitMqSource, Secret};
use ganger_core::budget::Budget;
use ganger_queue::attempts::Limits;
use ganger_queue::delivery::{Outgoing, Publish, PublishError};

const PATIENCE: Duration = Duration::from_secs(80);
const BASE: u64 = 1000;

static KEY: LazyLock<CopyKey> = LazyLock::new(|| CopyKey::from_secret("s"));

fn held(arrival: Arrival, since: Instant) -> Held {
    let hold = Budget::new(None).share("p").hold(0);
    Held::new(Original::default(), arrival, Bytes::new(), hold, since)
}

fn terms(targets: &Targets, now: Instant) -> Terms<'_> {
    Terms {
        limits: Limits {
            crashes_max: 3,
            lapses_max: 10,
        },
        patience: PATIENCE,
        now,
        rejects_dead: false,
        following: None,
        composer: Composer {
            pool: "p",
            queue: "work",
            dead: "work.dead",
            key: &KEY,
            targets,
            frame_max: 131_072,
            now_ms: 7,
            random: 1,
        },
    }
}

fn returned(returns: u64) -> Arrival {
    Arrival {
        returns,
        redelivered: returns > 0,
        ..Arrival::default()
    }
}

fn failure() -> Box<Failure> {
    Box::default()
}

/// A reply to this queue, so large that its dead letter would be two messages.
fn reply(queue: &str) -> Outcome {
    Outcome::Reply(Box::new(Outgoing {
        queue: queue.to_owned(),
        body: Bytes::from_static(&[0; 5 << 10]),
        ..Outgoing::default()
    }))
}

/// A book with one delivery, which the pool has.
fn out(arrival: Arrival, now: Instant) -> DeliveryBook {
    let mut book = DeliveryBook::new(BASE);
    book.receive(1, held(arrival, now)).unwrap();
    assert_eq!(book.enqueue(1, &terms(&Targets::default(), now)), None);
    assert_eq!(book.hand_out().map(|(token, _)| token), Some(BASE + 1));
    book
}

fn acks(book: &mut DeliveryBook) -> Vec<u64> {
    let mut acks = Vec::new();
    book.acks(Others::Single, &mut acks);
    acks.iter().map(|ack| ack.tag).collect()
}

/// Kind of a step, for tables.
fn kind(step: Option<&DeliveryStep>) -> &'static str {
    match step {
        None => "rest",
        Some(DeliveryStep::Publish(_, Purpose::Back, _)) => "copy",
        Some(DeliveryStep::Publish(..)) => "publish",
        Some(DeliveryStep::Return(_)) => "return",
        Some(DeliveryStep::Reject(_)) => "reject",
    }
}

#[test]
fn only_what_is_done_is_acknowledged_at_once() {
    let (now, targets) = (Instant::now(), Targets::default());
    let terms = terms(&targets, now);
    let retry = Outcome::RetryAfter {
        delay: PATIENCE,
        failure: failure(),
    };
    let table = [
        (Outcome::Done, "acknowledged"),
        (reply("answers"), "published"),
        (retry, "published"),
        (Outcome::Requeue { after: PATIENCE }, "published"),
        (Outcome::ReturnAfter { delay: PATIENCE }, "published"),
        (Outcome::DeadLetter(failure()), "published"),
        (Outcome::Return { suspect: true }, "ready"),
    ];
    for (outcome, expected) in table {
        let mut book = out(Arrival::default(), now);
        let step = book.settle(1, outcome.clone(), None, &terms);
        let again = book.settle(1, outcome.clone(), None, &terms);
        assert_eq!(again, None, "{outcome:?} came twice");
        let before = acks(&mut book);
        let ready = book.hand_out().is_some();
        let found = match kind(step.as_ref()) {
            "rest" if before == [1] => "acknowledged",
            "rest" if ready => "ready",
            "publish" if before.is_empty() && !ready => "published",
            _ => "something else",
        };
        assert_eq!(found, expected, "{outcome:?}");
        book.is_published(1);
        let after = acks(&mut book);
        assert_eq!(after == [1], expected == "published", "{outcome:?}");
    }
}

#[test]
fn dead_letters_are_rejected_where_the_broker_handles_them() {
    let (now, targets) = (Instant::now(), Targets::default());
    let terms = Terms {
        rejects_dead: true,
        ..terms(&targets, now)
    };
    let long = "q".repeat(300);
    for outcome in [Outcome::DeadLetter(failure()), reply(&long)] {
        let mut book = out(Arrival::default(), now);
        let step = book.settle(1, outcome, None, &terms);
        assert_eq!(step, Some(DeliveryStep::Reject(1)));
        assert_eq!((book.unacknowledged(), acks(&mut book)), (0, vec![]));
    }
}

#[test]
fn what_was_not_begun_goes_back_once_half_of_the_patience_is_over() {
    let (since, targets) = (Instant::now(), Targets::default());
    let early = PATIENCE / 2 - Duration::from_nanos(1);
    let table = [
        (returned(0), early, "rest"),
        (returned(0), PATIENCE / 2, "return"),
        (returned(1), PATIENCE / 2, "copy"),
    ];
    for (arrival, age, expected) in table {
        let mut book = out(arrival, since);
        let outcome = Outcome::Return { suspect: false };
        let step = book.settle(1, outcome, None, &terms(&targets, since + age));
        assert_eq!(kind(step.as_ref()), expected, "{arrival:?} {age:?}");
    }
}

#[test]
fn what_stays_too_long() {
    let (since, targets) = (Instant::now(), Targets::default());
    let [early, late] = [PATIENCE / 2, PATIENCE / 4 * 3].map(|age| since + age);
    let at = |now| terms(&targets, now);
    let mut book = DeliveryBook::new(BASE);
    for tag in 1..=4 {
        book.receive(tag, held(returned(u64::from(tag == 1)), since))
            .unwrap();
        book.enqueue(tag, &at(since));
    }
    for _ in 1..=3 {
        book.hand_out();
    }
    for tag in 1..=2 {
        book.settle(tag, reply("answers"), None, &at(since));
    }
    book.give_up(2, "no", &at(since));
    assert_eq!((book.parked(), book.unsure()), (1, 2));
    let mut look = |now| {
        let aged = book.find_aged(&at(now));
        for tag in &aged.unbegun {
            assert_eq!(
                book.give_back(*tag, &at(now)),
                Some(DeliveryStep::Return(*tag))
            );
        }
        let warned = book.ledger.get(3).map(|held| held.warnings());
        (aged.unbegun, aged.stuck, warned)
    };
    assert_eq!(look(early - PATIENCE / 100), (vec![], vec![], Some(0)));
    assert_eq!(look(early), (vec![4], vec![], Some(1)));
    assert_eq!(look(early), (vec![], vec![], Some(1)));
    assert_eq!(look(late), (vec![], vec![1, 2], Some(2)));
    let counts = [early, late, late].map(|now| book.count_late(PATIENCE, now));
    assert_eq!(counts, [0, 1, 0], "each once");
    assert_eq!(book.give_back(3, &at(late)), None, "the pool has it");
    assert_eq!(book.give_back(2, &at(late)), Some(DeliveryStep::Return(2)));
    // A copy, unless that is what could not be published.
    let steps = [(); 2].map(|()| book.give_back(1, &at(late)));
    assert_eq!(
        steps.each_ref().map(|step| kind(step.as_ref())),
        ["copy", "return"]
    );
    assert_eq!((book.parked(), book.unacknowledged()), (0, 1));
}

// -- random runs --

#[derive(Debug, Clone)]
enum Event {
    /// The broker delivers some messages of this kind.
    Deliver(u8, Arrival),
    HandOut(u8),
    TakeTurns(u16),
    Settle(Index, Outcome),
    /// A worker publishes without settling anything.
    Emit,
    /// The broker answers to a publication.
    Answer(Index, Verdict),
    /// A confirm for a delivery without a publication.
    Stray(Index),
    /// Rejected publications are sent again.
    TryAgain,
    /// The connection for publishing is lost, or open again.
    PublishConnection(bool),
    Surplus(u8, bool),
    Wait(Duration),
    Write(bool),
    /// The connection is lost, and another is made.
    Lose,
    /// The pool settles a delivery of a lost connection.
    SettleVoid(Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let copy = |(lapses, turn)| Arrival {
        lapses,
        turn,
        ..Arrival::default()
    };
    let arrival = prop_oneof![
        4 => (0u64..4).prop_map(returned),
        1 => Just(returned(RETURNS_MAX)),
        // There are few turn numbers, so that some of these copies are in their turn.
        2 => (2u32..12, proptest::option::of(0u64..3)).prop_map(copy),
        1 => Just(Arrival { is_unreadable: true, ..Arrival::default() }),
    ];
    let outcome = prop_oneof![
        4 => Just(Outcome::Done),
        2 => Just(reply("answers")),
        1 => Just(reply(&"long".repeat(100))),
        1 => any::<bool>().prop_map(|suspect| Outcome::Return { suspect }),
        1 => Just(Outcome::Requeue { after: PATIENCE }),
        1 => Just(Outcome::ReturnAfter { delay: PATIENCE }),
        1 => Just(Outcome::RetryAfter { delay: PATIENCE, failure: failure() }),
        1 => Just(Outcome::DeadLetter(failure())),
    ];
    let why = || "why".to_owned();
    let verdict = prop_oneof![
        5 => Just(Verdict::Confirmed),
        1 => Just(Verdict::Returned),
        1 => Just(Verdict::NotNow),
        2 => Just(Verdict::Refused(why())),
        1 => Just(Verdict::EndsConnection(why())),
    ];
    let event = prop_oneof![
        4 => (1u8..8, arrival).prop_map(|(count, arrival)| Event::Deliver(count, arrival)),
        4 => (1u8..8).prop_map(Event::HandOut),
        3 => (0u16..12).prop_map(Event::TakeTurns),
        6 => (any::<Index>(), outcome).prop_map(|(at, outcome)| Event::Settle(at, outcome)),
        1 => Just(Event::Emit),
        6 => (any::<Index>(), verdict).prop_map(|(at, verdict)| Event::Answer(at, verdict)),
        1 => any::<Index>().prop_map(Event::Stray),
        2 => Just(Event::TryAgain),
        1 => any::<bool>().prop_map(Event::PublishConnection),
        1 => (0u8..8, any::<bool>()).prop_map(|(most, all)| Event::Surplus(most, all)),
        2 => (0u64..30).prop_map(|seconds| Event::Wait(Duration::from_secs(seconds))),
        2 => any::<bool>().prop_map(Event::Write),
        1 => Just(Event::Lose),
        1 => any::<Index>().prop_map(Event::SettleVoid),
    ];
    proptest::collection::vec(event, 0..150)
}

/// An outbox without a broker: the answers come from the events.
fn outbox(now: Instant) -> Outbox {
    let config = RabbitMqSource {
        hosts: Vec::new(),
        tls: None,
        vhost: String::new(),
        username: String::new(),
        password: Secret::new(String::new()),
        signing_secret: None,
        unsigned_copies: false,
        heartbeat: PATIENCE,
        connect_timeout: PATIENCE,
        connection_name: String::new(),
        declare: false,
        queue: QueueDeclaration::default(),
        consumer_timeout: PATIENCE,
    };
    let publisher = IsolatingPublisher::new(config, "p".to_owned());
    Outbox::new(publisher, "p", now)
}

/// Policy of a pool.
#[derive(Debug, Clone, Copy)]
struct Policy {
    rejects_dead: bool,
    drops_replies: bool,
}

/// State of all deliveries, as the broker and the pool know it.
struct Game {
    book: DeliveryBook,
    outbox: Outbox,
    policy: Policy,
    closing: bool,
    now: Instant,
    /// Token of the delivery with tag 0.
    base: u64,
    last: u64,
    /// Number of messages so far.
    messages: u64,
    /// Messages that wait at the broker.
    queue: VecDeque<u64>,
    /// Messages of the deliveries that are unacknowledged there.
    outstanding: BTreeMap<u64, u64>,
    /// Messages that were acknowledged or rejected.
    ended: BTreeSet<u64>,
    /// Deliveries that the pool processes.
    out: BTreeSet<u64>,
    /// The suspect among them.
    suspect: Option<u64>,
    /// Tokens of lost connections that the pool has.
    void: BTreeSet<u64>,
    /// Number of unconfirmed messages among the publications for each delivery.
    unconfirmed: BTreeMap<u64, usize>,
    /// Deliveries that may be acknowledged: done, or with everything confirmed.
    safe: BTreeSet<u64>,
    emits: Vec<oneshot::Receiver<Result<(), PublishError>>>,
}

type Checked = Result<(), TestCaseError>;

fn chosen<T: Copy>(at: Index, among: impl Iterator<Item = T>) -> Option<T> {
    let among: Vec<T> = among.collect();
    (!among.is_empty()).then(|| *at.get(&among))
}

impl Game {
    fn new(policy: Policy) -> Self {
        let now = Instant::now();
        Self {
            book: DeliveryBook::new(BASE),
            outbox: outbox(now),
            policy,
            closing: false,
            now,
            base: BASE,
            last: 0,
            messages: 0,
            queue: VecDeque::new(),
            outstanding: BTreeMap::new(),
            ended: BTreeSet::new(),
            out: BTreeSet::new(),
            suspect: None,
            void: BTreeSet::new(),
            unconfirmed: BTreeMap::new(),
            safe: BTreeSet::new(),
            emits: Vec::new(),
        }
    }

    fn play(&mut self, event: Event) -> Checked {
        match event {
            Event::Deliver(count, arrival) => self.deliver(count, arrival)?,
            Event::HandOut(most) => self.hand_out(most)?,
            Event::TakeTurns(prefetch) => self.take_turns(prefetch)?,
            Event::Settle(at, outcome) => {
                if let Some(tag) = chosen(at, self.out.iter().copied()) {
                    self.settle(tag, outcome)?;
                }
            }
            Event::Emit => self.emit(),
            Event::Answer(at, verdict) => {
                if let Some((id, tag)) = chosen(at, self.outbox.in_flight().into_iter()) {
                    self.answer(id, tag, verdict)?;
                }
            }
            Event::Stray(at) => {
                let others = self.outstanding.keys().copied();
                let others = others.filter(|tag| !self.unconfirmed.contains_key(tag));
                if let Some(tag) = chosen(at, others) {
                    self.book.is_published(tag);
                }
            }
            Event::TryAgain => self.outbox.try_again(self.now + PATIENCE * 100),
            Event::PublishConnection(is_lost) => {
                if is_lost {
                    self.outbox.lose();
                }
                self.outbox.set_blocked(is_lost, self.now);
            }
            Event::Surplus(most, with_suspects) => {
                let back = self.book.surplus(most.into(), with_suspects);
                prop_assert!(back.is_sorted());
                self.give_back(&back)?;
            }
            Event::Wait(time) => {
                self.now += time;
                self.check_ages()?;
            }
            Event::Write(all) => self.write(if all { Others::Single } else { Others::Wait })?,
            Event::Lose => self.lose_connection(),
            Event::SettleVoid(at) => {
                if let Some(token) = chosen(at, self.void.iter().copied()) {
                    self.void.remove(&token);
                    prop_assert_eq!(self.book.tag(token), None);
                }
            }
        }
        self.check()
    }

    /// Lets the book decide, and carries that out. Returns whether there was anything.
    fn decide(
        &mut self,
        decision: impl FnOnce(&mut DeliveryBook, &Terms<'_>) -> Option<DeliveryStep>,
    ) -> Result<bool, TestCaseError> {
        let terms = Terms {
            rejects_dead: self.policy.rejects_dead,
            ..terms(self.outbox.targets(), self.now)
        };
        let Some(step) = decision(&mut self.book, &terms) else {
            return Ok(false);
        };
        let (DeliveryStep::Publish(tag, ..)
        | DeliveryStep::Return(tag)
        | DeliveryStep::Reject(tag)) = step;
        prop_assert!(!self.out.contains(&tag), "the pool has {}", tag);
        prop_assert!(
            !self.unconfirmed.contains_key(&tag),
            "{} is published for",
            tag
        );
        prop_assert!(!self.safe.contains(&tag), "{} is done", tag);
        match step {
            DeliveryStep::Publish(_, purpose, parcels) => {
                prop_assert!(!parcels.is_empty());
                self.unconfirmed.insert(tag, parcels.len());
                self.outbox.publish(tag, purpose, parcels);
            }
            DeliveryStep::Return(_) => {
                let message = self.outstanding.remove(&tag);
                prop_assert!(message.is_some(), "{} is none of ours", tag);
                self.queue.extend(message);
            }
            DeliveryStep::Reject(_) => {
                prop_assert!(self.policy.rejects_dead);
                let message = self.outstanding.remove(&tag);
                prop_assert!(message.is_some_and(|message| self.ended.insert(message)));
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, count: u8, arrival: Arrival) -> Checked {
        for _ in 0..count {
            self.last += 1;
            let tag = self.last;
            let message = self.queue.pop_front().unwrap_or_else(|| {
                self.messages += 1;
                self.messages
            });
            self.outstanding.insert(tag, message);
            prop_assert!(self.book.receive(tag, held(arrival, self.now)).is_ok());
            self.decide(|book, terms| book.enqueue(tag, terms))?;
        }
        let twice = held(arrival, self.now);
        prop_assert!(self.book.receive(self.last, twice).is_err());
        Ok(())
    }

    fn hand_out(&mut self, most: u8) -> Checked {
        for _ in 0..most {
            let lowest = self.book.ready.first().copied();
            let token = self.book.hand_out().map(|(token, _)| token);
            let tag = token.and_then(|token| self.book.tag(token));
            prop_assert_eq!(tag, lowest);
            if let Some(tag) = tag {
                self.mark_out(tag)?;
            }
        }
        Ok(())
    }

    fn mark_out(&mut self, tag: u64) -> Checked {
        prop_assert!(!self.unconfirmed.contains_key(&tag) && !self.safe.contains(&tag));
        prop_assert!(self.out.insert(tag), "{} is out already", tag);
        Ok(())
    }

    /// Takes turns as the session does, while no other pool wants the turn.
    fn take_turns(&mut self, prefetch: u16) -> Checked {
        self.book.give_up_turn(self.now);
        while self.book.suspects().has_begun() {
            let is_free = self.suspect.is_none();
            self.decide(|book, terms| book.take_begun(|| is_free, terms))?;
        }
        if self.suspect.is_none() && !self.book.suspects().has_turn() {
            let turn = self.last % 3;
            self.decide(|book, terms| book.begin_turn(turn, terms))?;
        }
        while self.book.suspects().has_surplus(prefetch.into()) {
            prop_assert!(self.decide(|book, terms| book.send_surplus_suspect(terms))?);
        }
        let token = self.book.hand_out_suspect().map(|(token, _)| token);
        if let Some(tag) = token.and_then(|token| self.book.tag(token)) {
            prop_assert_eq!(self.suspect, None, "two suspects run");
            self.suspect = Some(tag);
            self.mark_out(tag)?;
        }
        Ok(())
    }

    fn settle(&mut self, tag: u64, outcome: Outcome) -> Checked {
        self.out.remove(&tag);
        self.suspect = self.suspect.filter(|suspect| *suspect != tag);
        let is_done = outcome == Outcome::Done;
        self.decide(|book, terms| book.settle(tag, outcome, None, terms))?;
        if is_done {
            self.safe.insert(tag);
        }
        Ok(())
    }

    fn emit(&mut self) {
        let (confirmed, told) = oneshot::channel();
        let message = Outgoing::default();
        let terms = terms(self.outbox.targets(), self.now);
        let parcel = terms.composer.outgoing(&message, None);
        self.outbox.emit(Publish { message, confirmed }, parcel);
        self.emits.push(told);
    }

    /// Judges an answer as the session does.
    fn answer(&mut self, id: u64, tag: Option<u64>, verdict: Verdict) -> Checked {
        if verdict == Verdict::Confirmed
            && let Some(tag) = tag
            && let Some(left) = self.unconfirmed.get_mut(&tag)
        {
            *left -= 1;
            if *left == 0 {
                self.unconfirmed.remove(&tag);
                self.safe.insert(tag);
            }
        }
        let Some(job) = self.outbox.answered(id, &verdict) else {
            return Ok(());
        };
        let drops = self.policy.drops_replies;
        match job.purpose().consequence(verdict, self.closing, drops) {
            Consequence::Safe => self.ends_well(job),
            Consequence::Dropped(_) => {
                prop_assert!(drops && job.purpose() == Purpose::Reply);
                self.unconfirmed.retain(|other, _| Some(*other) != tag);
                self.safe.extend(tag);
                self.ends_well(job);
            }
            Consequence::Full => {
                if let Some(job) = self.outbox.wait_for_room(job, self.now) {
                    self.ends_badly(job, |book, tag, terms| book.refuse(tag, "full", terms))?;
                }
            }
            Consequence::Missing => self.outbox.wait(job, self.now),
            Consequence::Refused(why) => {
                self.ends_badly(job, |book, tag, terms| book.refuse(tag, &why, terms))?;
            }
            Consequence::GivenUp(why) => {
                self.ends_badly(job, |book, tag, terms| book.give_up(tag, why, terms))?;
            }
        }
        Ok(())
    }

    fn ends_well(&mut self, job: Job) {
        if let Some(tag) = self.outbox.end(job, Ok(())) {
            self.book.is_published(tag);
        }
    }

    fn ends_badly(
        &mut self,
        job: Job,
        decision: impl FnOnce(&mut DeliveryBook, u64, &Terms<'_>) -> Option<DeliveryStep>,
    ) -> Checked {
        if let Some(tag) = self.outbox.end(job, Err("why")) {
            self.unconfirmed.remove(&tag);
            self.decide(|book, terms| decision(book, tag, terms))?;
        }
        Ok(())
    }

    fn check_ages(&mut self) -> Checked {
        let aged = self.book.find_aged(&terms(self.outbox.targets(), self.now));
        self.give_back(&aged.unbegun)?;
        self.outbox.forget_all(&aged.stuck);
        self.unconfirmed
            .retain(|tag, _| aged.stuck.binary_search(tag).is_err());
        self.give_back(&aged.stuck)
    }

    fn give_back(&mut self, tags: &[u64]) -> Checked {
        for tag in tags.iter().rev() {
            let is_back = self.decide(|book, terms| book.give_back(*tag, terms))?;
            prop_assert!(is_back, "{} stays", tag);
        }
        Ok(())
    }

    fn write(&mut self, others: Others) -> Checked {
        let mut acks = Vec::new();
        self.book.acks(others, &mut acks);
        for Ack { tag, multiple } in acks {
            prop_assert!(
                self.outstanding.contains_key(&tag),
                "{} is none of ours",
                tag
            );
            let covers = |other: u64| other == tag || (multiple && other < tag);
            let (covered, rest) = std::mem::take(&mut self.outstanding)
                .into_iter()
                .partition(|(other, _)| covers(*other));
            self.outstanding = rest;
            let covered: BTreeMap<u64, u64> = covered;
            for (tag, message) in covered {
                prop_assert!(self.safe.remove(&tag), "{} is lost", tag);
                prop_assert!(self.ended.insert(message), "{} is acknowledged twice", tag);
            }
        }
        Ok(())
    }

    /// Takes everything unacknowledged back, and begins another connection.
    fn lose_connection(&mut self) {
        self.void.extend(self.out.iter().map(|tag| self.base + tag));
        let unacknowledged = std::mem::take(&mut self.outstanding);
        self.queue.extend(unacknowledged.into_values());
        self.base = self.book.next_token();
        self.book = DeliveryBook::new(self.base);
        std::mem::replace(&mut self.outbox, outbox(self.now)).abandon();
        (self.last, self.suspect) = (0, None);
        self.out.clear();
        self.unconfirmed.clear();
        self.safe.clear();
    }

    /// Checks that each delivery is in one state, that the order of waiting ones contains the same
    /// deliveries, and that no message is lost or duplicated.
    fn check(&self) -> Checked {
        let DeliveryBook {
            ledger,
            ready,
            suspects,
            parked,
            ..
        } = &self.book;
        let in_state = |is_it: fn(&DeliveryState) -> bool| -> BTreeSet<u64> {
            let all = ledger.iter().filter(|(_, held)| is_it(&held.state));
            all.map(|(tag, _)| tag).collect()
        };
        prop_assert_eq!(ready, &in_state(|state| *state == DeliveryState::Ready));
        let waiting: BTreeSet<u64> = suspects.tags().collect();
        prop_assert_eq!(waiting, in_state(|state| *state == DeliveryState::Suspect));
        prop_assert_eq!(
            suspects.tags().count(),
            in_state(|state| *state == DeliveryState::Suspect).len()
        );
        prop_assert_eq!(&self.out, &in_state(|state| *state == DeliveryState::Out));
        let publishing = in_state(|state| matches!(state, DeliveryState::Publishing(_)));
        prop_assert!(self.unconfirmed.keys().eq(&publishing));
        prop_assert!(self.outbox.tags().iter().eq(&publishing));
        prop_assert_eq!(
            *parked,
            in_state(|state| *state == DeliveryState::Parked).len()
        );
        prop_assert!(in_state(|state| *state == DeliveryState::Here).is_empty());
        let held: BTreeSet<u64> = ledger.iter().map(|(tag, _)| tag).collect();
        let all = self.outstanding.keys().copied();
        let left: BTreeSet<u64> = all.filter(|tag| !self.safe.contains(tag)).collect();
        prop_assert_eq!(held, left, "what is not safe is in our hands");
        let here = self.queue.iter().chain(self.outstanding.values());
        let mut known: Vec<u64> = here.chain(&self.ended).copied().collect();
        known.sort_unstable();
        prop_assert!(
            known.into_iter().eq(1..=self.messages),
            "a message is lost or there twice"
        );
        prop_assert_eq!(self.book.unacknowledged(), self.outstanding.len());
        Ok(())
    }

    /// Checks that at the end everything is acknowledged or returned, and each emit is answered.
    fn end(&mut self) -> Checked {
        self.closing = true;
        while let Some(tag) = self.out.first().copied() {
            self.settle(tag, Outcome::Return { suspect: false })?;
        }
        self.play(Event::Surplus(0, true))?;
        let backs = self.outbox.take_returns();
        self.unconfirmed.retain(|tag, _| !backs.contains(tag));
        self.give_back(&backs)?;
        while self.outbox.pending() > 0 {
            for (id, tag) in self.outbox.in_flight() {
                self.answer(id, tag, Verdict::Confirmed)?;
            }
            self.play(Event::TryAgain)?;
        }
        self.play(Event::Wait(PATIENCE))?;
        self.play(Event::Write(true))?;
        prop_assert!(self.outstanding.is_empty() && self.safe.is_empty());
        prop_assert!(self.book.unacknowledged() == 0 && !self.book.has_settled());
        prop_assert_eq!(self.book.next_token(), self.base + self.last + 1);
        prop_assert!(self.emits.iter_mut().all(|told| told.try_recv().is_ok()));
        Ok(())
    }
}

#[test]
fn each_is_acknowledged_when_it_is_safe_or_goes_back() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let policy = any::<(bool, bool)>().prop_map(|(rejects_dead, drops_replies)| Policy {
        rejects_dead,
        drops_replies,
    });
    proptest!(|(events in events(), policy in policy)| {
        let mut game = Game::new(policy);
        for event in events {
            game.play(event)?;
        }
        game.end()?;
    });
}
