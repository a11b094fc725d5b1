//! Quarantine as a table of cases, and against a model of a broker that ends connections over some messages.

use std::collections::{BTreeMap, BTreeSet};

use lapin::types::ShortString;
use proptest::prelude::*;

use super::*;
use crate::broker::tracks::{TrackStep, Tracks};

fn sent(id: u64, since: Instant) -> Unconfirmed {
    let bytes = 0;
    Unconfirmed { id, since, bytes }
}

/// A quarantine with this publication alone in it, and sent.
fn on_trial(id: u64, now: Instant) -> Quarantine {
    let mut quarantine = Quarantine::default();
    for _ in 0..SHARED_LOSSES {
        quarantine.shared_lost(&[sent(id, now)], now);
    }
    assert_eq!(quarantine.next(&[], now), Some(id));
    quarantine
}

#[test]
fn what_was_unconfirmed_at_two_losses_is_sent_alone_one_after_the_other() {
    let (mut quarantine, now) = (Quarantine::default(), Instant::now());
    let all = [3, 1, 2].map(|id| sent(id, now));
    assert!(quarantine.shared_lost(&all, now).is_empty());
    assert!(quarantine.shared_lost(&[sent(9, now)], now).is_empty());
    assert_eq!(quarantine.shared_lost(&all, now), [1, 2, 3]);
    assert_eq!(quarantine.next(&[], now), Some(1));
    assert_eq!(quarantine.next(&[], now), None, "it is not sent yet");
    assert_eq!(quarantine.next(&[sent(1, now)], now), None);
    quarantine.forget(1);
    quarantine.forget(2);
    assert_eq!(quarantine.next(&[], now), Some(3));
}

#[test]
fn one_that_ends_its_connection_three_times_in_a_row_is_blamed() {
    let now = Instant::now();
    let (mut quarantine, alone) = (on_trial(1, now), [sent(1, now)]);
    for _ in 1..ALONE_LOSSES {
        let loss = quarantine.alone_lost(&alone, now);
        assert_eq!(loss, AloneLoss::default());
        assert_eq!(quarantine.next(&alone, now), None);
    }
    let loss = quarantine.alone_lost(&alone, now);
    assert_eq!((loss.blamed, loss.cleared), (Some(1), vec![]));
    assert_eq!(quarantine.next(&[], now), None);
    assert!(quarantine.losses.is_empty());
}

#[test]
fn one_that_its_connection_has_outlived_is_not_blamed_for_its_end() {
    let now = Instant::now();
    let mut quarantine = on_trial(1, now);
    let alone = [sent(1, now)];
    for _ in 1..ALONE_LOSSES {
        quarantine.alone_lost(&alone, now);
    }
    let later = now + AT_ONCE;
    assert_eq!(quarantine.deadline(&alone), Some(later));
    let loss = quarantine.alone_lost(&alone, later);
    assert_eq!((loss.blamed, loss.cleared), (None, vec![1]));
    let again = sent(1, later);
    assert!(quarantine.shared_lost(&[again], later).is_empty(), "anew");
}

#[test]
fn the_next_one_does_not_wait_for_one_that_is_not_answered() {
    let now = Instant::now();
    let mut quarantine = on_trial(1, now);
    for _ in 0..SHARED_LOSSES {
        quarantine.shared_lost(&[sent(2, now)], now);
    }
    let (alone, later) = ([sent(1, now)], now + AT_ONCE);
    assert_eq!(quarantine.next(&alone, now), None);
    assert_eq!(quarantine.next(&alone, later), Some(2));
    let both = [sent(1, now), sent(2, later)];
    let loss = quarantine.alone_lost(&both, later);
    assert_eq!((loss.blamed, loss.cleared), (None, vec![1]));
    assert_eq!(quarantine.losses[&2], 1);
}

#[test]
fn a_large_one_has_the_time_that_it_takes() {
    let now = Instant::now();
    let large = Unconfirmed {
        bytes: 10 << 20,
        ..sent(1, now)
    };
    let mut quarantine = Quarantine::default();
    for seconds in [10, 11, 10] {
        quarantine.shared_lost(&[large], now + Duration::from_secs(seconds));
    }
    assert_eq!(quarantine.next(&[], now), Some(1));
}

#[test]
fn of_two_that_may_have_ended_it_none_is_blamed() {
    let now = Instant::now();
    let mut quarantine = on_trial(1, now);
    for _ in 0..10 {
        let loss = quarantine.alone_lost(&[sent(1, now), sent(2, now)], now);
        assert_eq!(loss, AloneLoss::default());
    }
}

/// One connection of the model, and the messages sent over it.
struct Connection {
    tracks: Tracks<()>,
    wire: VecDeque<u64>,
}

impl Connection {
    fn new(now: Instant) -> Self {
        let mut tracks = Tracks::each();
        tracks.adopt((), 2047, now);
        let wire = VecDeque::new();
        Self { tracks, wire }
    }

    fn send(&mut self, now: Instant) -> bool {
        let before = self.wire.len();
        while let Some(step) = self.tracks.next(now) {
            match step {
                TrackStep::Open(track) => self.tracks.opened(track, (), now),
                TrackStep::Send { id, .. } => self.wire.push_back(id),
            }
        }
        self.wire.len() > before
    }

    /// Loses the connection, and makes the next one.
    fn lose(&mut self, now: Instant) -> Vec<Unconfirmed> {
        let lost = self.tracks.unconfirmed();
        self.tracks.requeue_all();
        self.tracks.adopt((), 2047, now);
        self.wire.clear();
        lost
    }
}

/// Publishers and a broker.
struct Model {
    shared: Connection,
    alone: Connection,
    quarantine: Quarantine,
    /// The queue of each message.
    to: BTreeMap<u64, ShortString>,
    deadly: BTreeSet<u64>,
    silent: BTreeSet<ShortString>,
    confirmed: BTreeSet<u64>,
    blamed: BTreeSet<u64>,
    losses: usize,
    now: Instant,
}

impl Model {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            shared: Connection::new(now),
            alone: Connection::new(now),
            quarantine: Quarantine::default(),
            to: BTreeMap::new(),
            deadly: BTreeSet::new(),
            silent: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            blamed: BTreeSet::new(),
            losses: 0,
            now,
        }
    }

    fn publish(&mut self, to: &ShortString, is_deadly: bool) {
        let id = self.to.len() as u64;
        self.to.insert(id, to.clone());
        self.shared.tracks.push(id, to, 100);
        if is_deadly {
            self.deadly.insert(id);
        }
    }

    fn send(&mut self) -> bool {
        let on_it = self.alone.tracks.unconfirmed();
        let next = self.quarantine.next(&on_it, self.now);
        if let Some(id) = next {
            self.alone.tracks.push(id, &self.to[&id], 100);
        }
        let sent = self.shared.send(self.now);
        self.alone.send(self.now) || sent || next.is_some()
    }

    /// Lets the broker read everything sent over one of the connections.
    fn read(&mut self, is_shared: bool) -> bool {
        let (mut has_read, mut unread) = (false, VecDeque::new());
        while let Some(id) = self.connection(is_shared).wire.pop_front() {
            if self.deadly.contains(&id) {
                self.lose(is_shared);
                return true;
            }
            if self.silent.contains(&self.to[&id]) {
                unread.push_back(id);
                continue;
            }
            has_read = true;
            let now = self.now;
            self.connection(is_shared).tracks.record_answer(id, now);
            self.quarantine.forget(id);
            self.confirmed.insert(id);
        }
        self.connection(is_shared).wire = unread;
        has_read
    }

    fn connection(&mut self, is_shared: bool) -> &mut Connection {
        if is_shared {
            &mut self.shared
        } else {
            &mut self.alone
        }
    }

    fn lose(&mut self, is_shared: bool) {
        self.losses += 1;
        let now = self.now;
        let lost = self.connection(is_shared).lose(now);
        if is_shared {
            for id in self.quarantine.shared_lost(&lost, now) {
                self.shared.tracks.forget(id);
            }
            return;
        }
        let loss = self.quarantine.alone_lost(&lost, now);
        for id in loss.cleared {
            self.alone.tracks.forget(id);
            self.shared.tracks.push(id, &self.to[&id], 100);
        }
        if let Some(id) = loss.blamed {
            self.alone.tracks.forget(id);
            self.blamed.insert(id);
        }
    }

    /// Runs until nothing happens any more without an event, however long that takes.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let sent = self.send();
            let read = self.read(true);
            if self.read(false) || read || sent {
                continue;
            }
            let on_it = self.alone.tracks.unconfirmed();
            let alarms = [
                self.shared.tracks.alarm(self.now),
                self.alone.tracks.alarm(self.now),
                self.quarantine.deadline(&on_it),
            ];
            match alarms.into_iter().flatten().min() {
                Some(at) if at > self.now => self.now = at,
                _ => return,
            }
        }
        panic!("it goes on for ever");
    }
}

#[derive(Debug, Clone)]
enum Event {
    Publish {
        to: u8,
        is_deadly: bool,
    },
    Send,
    Read {
        is_shared: bool,
    },
    /// Loss of a connection for another reason.
    Lose {
        is_shared: bool,
    },
    Silence(u8),
    Speak(u8),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let queue = 0..5_u8;
    prop_oneof![
        6 => (queue.clone(), prop::bool::weighted(0.15))
            .prop_map(|(to, is_deadly)| Event::Publish { to, is_deadly }),
        3 => Just(Event::Send),
        3 => any::<bool>().prop_map(|is_shared| Event::Read { is_shared }),
        1 => prop::bool::weighted(0.8).prop_map(|is_shared| Event::Lose { is_shared }),
        1 => queue.clone().prop_map(Event::Silence),
        1 => queue.prop_map(Event::Speak),
        1 => (0..1500_u64).prop_map(Event::Wait),
    ]
}

fn name(queue: u8) -> ShortString {
    format!("queue{queue}").into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However often connections are lost for other reasons: every message that ends them is found, after the
    /// minimum number of losses, all others arrive, and none of those is blamed.
    #[test]
    fn what_ends_connections_is_found_out_and_all_else_arrives(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let (mut model, mut unrelated, mut unrelated_alone) = (Model::new(), 0, 0);
        for event in events {
            match event {
                Event::Publish { to, is_deadly } => model.publish(&name(to), is_deadly),
                Event::Send => drop(model.send()),
                Event::Read { is_shared } => drop(model.read(is_shared)),
                // If it happened as often in succession, each time just after the same message was sent, that
                // message would be blamed.
                Event::Lose { is_shared: false } if unrelated_alone + 1 == ALONE_LOSSES => {}
                Event::Lose { is_shared } => {
                    unrelated += 1;
                    unrelated_alone += u32::from(!is_shared);
                    model.lose(is_shared);
                }
                Event::Silence(queue) => drop(model.silent.insert(name(queue))),
                Event::Speak(queue) => drop(model.silent.remove(&name(queue))),
                Event::Wait(ms) => {
                    // A message that ends a connection does so at once.
                    model.read(true);
                    model.read(false);
                    model.now += Duration::from_millis(ms);
                }
            }
        }
        model.silent.clear();
        model.settle();
        prop_assert_eq!(&model.blamed, &model.deadly);
        let all: BTreeSet<u64> = model.to.keys().copied().collect();
        prop_assert_eq!(&model.confirmed, &(&all - &model.deadly));
        let most = model.deadly.len() * (SHARED_LOSSES + ALONE_LOSSES) as usize;
        prop_assert!(model.losses <= most + unrelated, "{} losses", model.losses);
        let quarantine = &model.quarantine;
        prop_assert!(quarantine.losses.is_empty() && quarantine.waiting.is_empty());
        prop_assert!(model.shared.tracks.is_empty() && model.alone.tracks.is_empty());
    }
}
