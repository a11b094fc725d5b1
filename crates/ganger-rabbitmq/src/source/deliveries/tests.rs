//! Deliveries as a table of cases, and as random runs against a model of a broker and a pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::broker::republish::Original;
use crate::rules::{Arrival, RETURNS_MAX};
use ganger_core::budget::Budget;

const LIMITS: Limits = Limits {
    crashes_max: 3,
    lapses_max: 10,
};
const PATIENCE: Duration = Duration::from_secs(80);
const BASE: u64 = 1000;

fn held(arrival: Arrival, since: Instant) -> Held {
    let hold = Budget::new(None).share("p").hold(0);
    Held::new(Original::default(), arrival, Bytes::new(), hold, since)
}

fn terms(now: Instant) -> Terms {
    Terms {
        limits: LIMITS,
        patience: PATIENCE,
        now,
        now_ms: 7,
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

/// Deliveries with one that the pool has.
fn out(arrival: Arrival, now: Instant) -> Deliveries {
    let mut deliveries = Deliveries::new(BASE);
    let step = deliveries.receive(1, held(arrival, now), LIMITS);
    assert_eq!(step, Some(DeliveryStep::Rest));
    assert_eq!(
        deliveries.hand_out().map(|(token, _)| token),
        Some(BASE + 1)
    );
    deliveries
}

fn acks(deliveries: &mut Deliveries) -> Vec<u64> {
    let mut acks = Vec::new();
    deliveries.acks(Others::Single, &mut acks);
    acks.iter().map(|ack| ack.tag).collect()
}

#[test]
fn only_what_is_done_is_acknowledged_at_once() {
    let now = Instant::now();
    let retry = Outcome::RetryAfter {
        delay: PATIENCE,
        failure: failure(),
    };
    let table = [
        (Outcome::Done, "acknowledged"),
        (Outcome::Reply(Box::default()), "published"),
        (retry, "published"),
        (Outcome::Requeue { after: PATIENCE }, "published"),
        (Outcome::ReturnAfter { delay: PATIENCE }, "published"),
        (Outcome::DeadLetter(failure()), "published"),
        (Outcome::Return { suspect: true }, "ready"),
    ];
    for (outcome, expected) in table {
        let mut deliveries = out(Arrival::default(), now);
        let step = deliveries.settle(1, outcome.clone(), &terms(now)).unwrap();
        let again = deliveries.settle(1, outcome.clone(), &terms(now));
        assert_eq!(again, None, "{outcome:?} came twice");
        let before = acks(&mut deliveries);
        let ready = deliveries.hand_out().is_some();
        let found = match step {
            DeliveryStep::Rest if before == [1] => "acknowledged",
            DeliveryStep::Rest if ready => "ready",
            DeliveryStep::Publish(_) if before.is_empty() && !ready => "published",
            _ => "something else",
        };
        assert_eq!(found, expected, "{outcome:?}");
        deliveries.is_published(1);
        let after = acks(&mut deliveries);
        assert_eq!(after == [1], expected == "published", "{outcome:?}");
    }
}

#[test]
fn what_was_not_begun_goes_back_once_half_of_the_patience_is_over() {
    let since = Instant::now();
    let table = [
        (
            returned(0),
            PATIENCE / 2 - Duration::from_nanos(1),
            DeliveryStep::Rest,
        ),
        (returned(0), PATIENCE / 2, DeliveryStep::Return),
        (
            returned(1),
            PATIENCE / 2,
            DeliveryStep::Publish(Publication::Back),
        ),
    ];
    for (arrival, age, expected) in table {
        let mut deliveries = out(arrival, since);
        let outcome = Outcome::Return { suspect: false };
        let step = deliveries.settle(1, outcome, &terms(since + age));
        assert_eq!(step, Some(expected), "{arrival:?} {age:?}");
    }
}

#[test]
fn what_stays_too_long() {
    let since = Instant::now();
    let [early, late] = [PATIENCE / 2, PATIENCE / 4 * 3].map(|age| since + age);
    let mut deliveries = Deliveries::new(BASE);
    for tag in 1..=4 {
        deliveries.receive(tag, held(Arrival::default(), since), LIMITS);
    }
    for _ in 1..=3 {
        deliveries.hand_out();
    }
    let reply = || Outcome::Reply(Box::default());
    for tag in 1..=2 {
        deliveries.settle(tag, reply(), &terms(since));
    }
    deliveries.give_up(2, &Publication::Reply(Box::default()));
    assert!(deliveries.is_aside(2) && deliveries.aside() == 1 && deliveries.unsure() == 2);
    let mut look = |now| {
        let aged = deliveries.look_at_age(PATIENCE, now);
        let (unbegun, slow, stuck) = (aged.unbegun, aged.slow, aged.stuck);
        let back = |tag: &u64| deliveries.give_back(*tag) == DeliveryStep::Return;
        assert!(unbegun.iter().all(back));
        unbegun.iter().for_each(|tag| deliveries.let_go(*tag));
        (unbegun, slow, stuck)
    };
    assert_eq!(look(early - PATIENCE / 100), (vec![], vec![], vec![]));
    assert_eq!(look(early), (vec![4], vec![3], vec![]));
    assert_eq!(look(early), (vec![], vec![], vec![]), "warned of once");
    assert_eq!(look(late), (vec![], vec![3], vec![1, 2]));
    assert_eq!(look(late), (vec![], vec![], vec![1, 2]));
    let counts = [early, late, late].map(|now| deliveries.count_late(PATIENCE, now));
    assert_eq!(counts, [0, 1, 0], "each once");
    assert_eq!(deliveries.give_back_stuck(2, false), DeliveryStep::Return);
    assert_eq!(deliveries.give_back_stuck(1, true), DeliveryStep::Return);
}

// -- random runs --

#[derive(Debug, Clone)]
enum Event {
    /// The broker delivers some messages of this kind.
    Deliver(u8, Arrival),
    HandOut(u8),
    TakeTurns(u16),
    Settle(Index, Outcome),
    Confirm(Index),
    /// A confirm for a delivery without a publication.
    Stray(Index),
    Refuse(Index),
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
        // The turns that are given are few, so that some of these copies are in theirs.
        2 => (2u32..12, proptest::option::of(0u64..3)).prop_map(copy),
        1 => Just(Arrival { is_unreadable: true, ..Arrival::default() }),
    ];
    let outcome = prop_oneof![
        4 => Just(Outcome::Done),
        2 => Just(Outcome::Reply(Box::default())),
        1 => any::<bool>().prop_map(|suspect| Outcome::Return { suspect }),
        1 => Just(Outcome::Requeue { after: PATIENCE }),
        1 => Just(Outcome::ReturnAfter { delay: PATIENCE }),
        1 => Just(Outcome::RetryAfter { delay: PATIENCE, failure: failure() }),
        1 => Just(Outcome::DeadLetter(failure())),
    ];
    let event = prop_oneof![
        4 => (1u8..8, arrival).prop_map(|(count, arrival)| Event::Deliver(count, arrival)),
        4 => (1u8..8).prop_map(Event::HandOut),
        3 => (0u16..12).prop_map(Event::TakeTurns),
        6 => (any::<Index>(), outcome).prop_map(|(at, outcome)| Event::Settle(at, outcome)),
        4 => any::<Index>().prop_map(Event::Confirm),
        1 => any::<Index>().prop_map(Event::Stray),
        2 => any::<Index>().prop_map(Event::Refuse),
        1 => (0u8..8, any::<bool>()).prop_map(|(most, all)| Event::Surplus(most, all)),
        2 => (0u64..30).prop_map(|seconds| Event::Wait(Duration::from_secs(seconds))),
        2 => any::<bool>().prop_map(Event::Write),
        1 => Just(Event::Lose),
        1 => any::<Index>().prop_map(Event::SettleVoid),
    ];
    proptest::collection::vec(event, 0..150)
}

/// State of all deliveries, as the broker and the pool know it.
struct Game {
    deliveries: Deliveries,
    now: Instant,
    /// Token of the delivery with tag 0.
    base: u64,
    last: u64,
    /// Number of messages that there were.
    messages: u64,
    /// Messages that wait at the broker,
    queue: VecDeque<u64>,
    /// those of the deliveries that are unacknowledged there,
    outstanding: BTreeMap<u64, u64>,
    /// and those that were acknowledged.
    acknowledged: BTreeSet<u64>,
    /// Tokens of lost connections that the pool has.
    void: BTreeSet<u64>,
    /// Deliveries that the pool works on.
    out: BTreeSet<u64>,
    /// The suspect among them.
    suspect: Option<u64>,
    /// Publications in flight, by delivery.
    jobs: BTreeMap<u64, Publication>,
    /// Deliveries that may be acknowledged: done, or with their publication safe.
    safe: BTreeSet<u64>,
}

type Checked = Result<(), TestCaseError>;

fn chosen(at: Index, among: impl Iterator<Item = u64>) -> Option<u64> {
    let among: Vec<u64> = among.collect();
    (!among.is_empty()).then(|| *at.get(&among))
}

impl Game {
    fn new() -> Self {
        Self {
            deliveries: Deliveries::new(BASE),
            now: Instant::now(),
            base: BASE,
            last: 0,
            messages: 0,
            queue: VecDeque::new(),
            outstanding: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            void: BTreeSet::new(),
            out: BTreeSet::new(),
            suspect: None,
            jobs: BTreeMap::new(),
            safe: BTreeSet::new(),
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
            Event::Confirm(at) => {
                if let Some(tag) = chosen(at, self.jobs.keys().copied()) {
                    self.confirm(tag);
                }
            }
            Event::Stray(at) => {
                let others = self.outstanding.keys().copied();
                let others = others.filter(|tag| !self.jobs.contains_key(tag));
                if let Some(tag) = chosen(at, others) {
                    self.deliveries.is_published(tag);
                }
            }
            Event::Refuse(at) => {
                if let Some(tag) = chosen(at, self.jobs.keys().copied()) {
                    let aim = self.jobs.remove(&tag).unwrap();
                    let step = self.deliveries.give_up(tag, &aim);
                    self.act(tag, step)?;
                }
            }
            Event::Surplus(most, with_suspects) => {
                let back = self.deliveries.surplus(most.into(), with_suspects);
                prop_assert!(back.is_sorted());
                self.give_back(&back)?;
            }
            Event::Wait(time) => {
                self.now += time;
                self.look_at_age()?;
            }
            Event::Write(all) => self.write(if all { Others::Single } else { Others::Wait })?,
            Event::Lose => self.lose_connection(),
            Event::SettleVoid(at) => {
                if let Some(token) = chosen(at, self.void.iter().copied()) {
                    self.void.remove(&token);
                    prop_assert_eq!(self.deliveries.tag(token), None);
                }
            }
        }
        self.check()
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
            let step = self
                .deliveries
                .receive(tag, held(arrival, self.now), LIMITS);
            self.act(tag, step.unwrap())?;
        }
        let twice = held(arrival, self.now);
        let step = self.deliveries.receive(self.last, twice, LIMITS);
        prop_assert_eq!(step, None);
        Ok(())
    }

    fn hand_out(&mut self, most: u8) -> Checked {
        for _ in 0..most {
            let lowest = self.deliveries.ready.front().copied();
            let token = self.deliveries.hand_out().map(|(token, _)| token);
            let tag = token.and_then(|token| self.deliveries.tag(token));
            prop_assert_eq!(tag, lowest);
            if let Some(tag) = tag {
                self.goes_out(tag)?;
            }
        }
        Ok(())
    }

    fn goes_out(&mut self, tag: u64) -> Checked {
        prop_assert!(!self.jobs.contains_key(&tag) && !self.safe.contains(&tag));
        prop_assert!(self.out.insert(tag), "{} is out already", tag);
        Ok(())
    }

    /// Takes turns as `turns.rs` does, while no other pool wants the turn.
    fn take_turns(&mut self, prefetch: u16) -> Checked {
        self.deliveries.give_up_turn(self.now);
        while let Some(turn) = self.deliveries.suspects().begun() {
            let is_its_turn = self.deliveries.suspects().is_its_turn(turn);
            let is_ours = is_its_turn.unwrap_or(self.suspect.is_none());
            let (tag, step) = self.deliveries.take_begun(is_ours).unwrap();
            prop_assert_eq!(step == DeliveryStep::Rest, is_ours);
            self.act(tag, step)?;
        }
        if self.suspect.is_none() && !self.deliveries.suspects().has_turn() {
            let begun = self.deliveries.begin_turn(self.last % 3, self.now);
            if let Some((tag, step)) = begun {
                self.act(tag, step)?;
            }
        }
        let surplus = self.deliveries.take_surplus_suspect(prefetch.into());
        if let Some((tag, step)) = surplus {
            self.act(tag, step)?;
        }
        let token = self.deliveries.hand_out_suspect().map(|(token, _)| token);
        if let Some(tag) = token.and_then(|token| self.deliveries.tag(token)) {
            prop_assert_eq!(self.suspect, None, "two suspects run");
            self.suspect = Some(tag);
            self.goes_out(tag)?;
        }
        Ok(())
    }

    fn settle(&mut self, tag: u64, outcome: Outcome) -> Checked {
        self.out.remove(&tag);
        self.suspect = self.suspect.filter(|suspect| *suspect != tag);
        if outcome == Outcome::Done {
            self.safe.insert(tag);
        }
        let step = self.deliveries.settle(tag, outcome, &terms(self.now));
        prop_assert!(step.is_some());
        self.act(tag, step.unwrap())
    }

    fn confirm(&mut self, tag: u64) {
        self.jobs.remove(&tag);
        self.safe.insert(tag);
        self.deliveries.is_published(tag);
    }

    fn look_at_age(&mut self) -> Checked {
        let aged = self.deliveries.look_at_age(PATIENCE, self.now);
        let all_out = aged.slow.iter().all(|tag| self.out.contains(tag));
        prop_assert!(all_out, "warned of others: {:?}", aged);
        self.give_back(&aged.unbegun)?;
        for tag in aged.stuck {
            let job = self.jobs.remove(&tag);
            let copied = job == Some(Publication::Back);
            let step = self.deliveries.give_back_stuck(tag, copied);
            self.act(tag, step)?;
        }
        Ok(())
    }

    fn give_back(&mut self, tags: &[u64]) -> Checked {
        for tag in tags.iter().rev() {
            let step = self.deliveries.give_back(*tag);
            prop_assert!(step != DeliveryStep::Rest, "{} stays", tag);
            self.act(*tag, step)?;
        }
        Ok(())
    }

    fn act(&mut self, tag: u64, step: DeliveryStep) -> Checked {
        if step != DeliveryStep::Rest {
            prop_assert!(!self.out.contains(&tag), "the pool has {}", tag);
            prop_assert!(
                !self.jobs.contains_key(&tag),
                "something is published for {}",
                tag
            );
            prop_assert!(!self.safe.contains(&tag), "{} is done", tag);
        }
        match step {
            DeliveryStep::Rest => {}
            DeliveryStep::Publish(aim) => {
                self.jobs.insert(tag, aim);
            }
            DeliveryStep::Bury(counters, failure) => {
                let letter = Publication::Letter {
                    counters,
                    failure,
                    form: LetterDetail::Full,
                };
                self.jobs.insert(tag, letter);
            }
            DeliveryStep::Return => {
                self.deliveries.let_go(tag);
                let message = self.outstanding.remove(&tag);
                prop_assert!(message.is_some(), "{} is none of ours", tag);
                self.queue.extend(message);
            }
        }
        Ok(())
    }

    fn write(&mut self, others: Others) -> Checked {
        let mut acks = Vec::new();
        self.deliveries.acks(others, &mut acks);
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
                prop_assert!(
                    self.acknowledged.insert(message),
                    "{} is acknowledged twice",
                    tag
                );
            }
        }
        Ok(())
    }

    /// Takes everything unacknowledged back, and begins another connection.
    fn lose_connection(&mut self) {
        self.void.extend(self.out.iter().map(|tag| self.base + tag));
        let unacknowledged = std::mem::take(&mut self.outstanding);
        self.queue.extend(unacknowledged.into_values());
        self.base = self.deliveries.next_token();
        self.deliveries = Deliveries::new(self.base);
        (self.last, self.suspect) = (0, None);
        self.out.clear();
        self.jobs.clear();
        self.safe.clear();
    }

    /// Checks that each delivery is in one place, and in the one recorded.
    fn check(&self) -> Checked {
        let Deliveries {
            ledger,
            ready,
            suspects,
            ..
        } = &self.deliveries;
        let in_state = |state| -> Vec<u64> {
            let all = ledger.iter().filter(|(_, held)| held.state() == state);
            all.map(|(tag, _)| tag).collect()
        };
        prop_assert_eq!(Vec::from(ready.clone()), in_state(HeldState::Ready));
        prop_assert_eq!(suspects.tags(), in_state(HeldState::Waiting));
        prop_assert!(self.out.iter().eq(&in_state(HeldState::Out)));
        prop_assert!(self.jobs.keys().eq(&in_state(HeldState::Publishing)));
        prop_assert_eq!(in_state(HeldState::Leaving), Vec::<u64>::new());
        let held: BTreeSet<u64> = ledger.iter().map(|(tag, _)| tag).collect();
        let all = self.outstanding.keys().copied();
        let left: BTreeSet<u64> = all.filter(|tag| !self.safe.contains(tag)).collect();
        prop_assert_eq!(held, left, "what is not safe is in our hands");
        let here = self.queue.iter().chain(self.outstanding.values());
        let mut known: Vec<u64> = here.chain(&self.acknowledged).copied().collect();
        known.sort_unstable();
        prop_assert!(
            known.into_iter().eq(1..=self.messages),
            "a message is lost or there twice"
        );
        prop_assert_eq!(self.deliveries.unacknowledged(), self.outstanding.len());
        Ok(())
    }

    /// Checks that at the end everything is acknowledged or returned.
    fn end(&mut self) -> Checked {
        while let Some(tag) = self.out.first().copied() {
            self.settle(tag, Outcome::Return { suspect: false })?;
        }
        self.play(Event::Surplus(0, true))?;
        for tag in Vec::from_iter(self.jobs.keys().copied()) {
            self.confirm(tag);
        }
        self.play(Event::Wait(PATIENCE))?;
        self.play(Event::Write(true))?;
        prop_assert!(self.outstanding.is_empty() && self.safe.is_empty());
        prop_assert!(self.deliveries.held() == 0 && !self.deliveries.has_settled());
        prop_assert_eq!(self.deliveries.next_token(), self.base + self.last + 1);
        Ok(())
    }
}

proptest! {
    #[test]
    fn each_is_acknowledged_when_it_is_safe_or_goes_back(events in events()) {
        let mut game = Game::new();
        for event in events {
            game.play(event)?;
        }
        game.end()?;
    }
}
