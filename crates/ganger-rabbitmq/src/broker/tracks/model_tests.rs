//! Tracks against a model of a broker whose queues lose their leaders: the credit that it gives a channel,
//! and the point at which it stops reading.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Credit that the broker's reader gives a channel, and gets back at a time.
const CREDIT: usize = 400;
const MORE_CREDIT: usize = 200;
/// Number of open messages for one quorum queue at which a channel stops.
const SOFT_LIMIT: usize = 32;

/// A channel of the model.
#[derive(Default)]
struct Channel {
    credit: usize,
    handled: usize,
    /// Messages read, and not handled by the channel.
    mailbox: VecDeque<(u64, String)>,
    /// Quorum queues that know the channel, with their unconfirmed messages.
    pending: BTreeMap<String, VecDeque<u64>>,
}

impl Channel {
    /// Returns whether the channel gives its reader no credit.
    fn is_slow(&self) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| pending.len() >= SOFT_LIMIT)
    }

    fn lend(&mut self) {
        while self.handled >= MORE_CREDIT && !self.is_slow() {
            self.handled -= MORE_CREDIT;
            self.credit += MORE_CREDIT;
        }
    }
}

/// The broker and its publishers.
struct Broker {
    tracks: Tracks<usize>,
    channels: Vec<Channel>,
    leaderless: BTreeSet<String>,
    now: Instant,
    to: BTreeMap<u64, String>,
    confirmed: BTreeMap<String, Vec<u64>>,
}

impl Broker {
    fn new() -> Self {
        let mut broker = Self {
            tracks: Tracks::each(),
            channels: Vec::new(),
            leaderless: BTreeSet::new(),
            now: Instant::now(),
            to: BTreeMap::new(),
            confirmed: BTreeMap::new(),
        };
        let channel = broker.channel();
        broker.tracks.adopt(channel, 2047, broker.now);
        broker
    }

    fn channel(&mut self) -> usize {
        self.channels.push(Channel {
            credit: CREDIT,
            ..Channel::default()
        });
        self.channels.len() - 1
    }

    fn publish(&mut self, to: &str, bytes: usize) {
        let id = u64::try_from(self.to.len()).unwrap();
        self.to.insert(id, to.to_owned());
        self.tracks.push(id, &to.into(), bytes);
    }

    /// Sends what may be sent. Returns the number of messages.
    fn send(&mut self) -> usize {
        let mut sent = 0;
        while let Some(step) = self.tracks.next(self.now) {
            match step {
                TrackStep::Open(track) => {
                    let channel = self.channel();
                    self.tracks.opened(track, channel, self.now);
                }
                TrackStep::Send { track, id } => {
                    sent += 1;
                    let channel = *self.tracks.channel(track).unwrap();
                    let channel = &mut self.channels[channel];
                    channel.credit -= 1;
                    assert!(channel.credit > 0, "the connection is read no more");
                    channel.mailbox.push_back((id, self.to[&id].clone()));
                }
            }
        }
        sent
    }

    /// Lets a channel handle up to `count` messages, if it can.
    fn handle(&mut self, channel: usize, count: usize) {
        let channel = &mut self.channels[channel];
        for _ in 0..count {
            let Some((id, to)) = channel.mailbox.front().cloned() else {
                return;
            };
            // The first message for a queue waits until the queue knows the channel.
            if self.leaderless.contains(&to) && !channel.pending.contains_key(&to) {
                return;
            }
            channel.mailbox.pop_front();
            channel.pending.entry(to).or_default().push_back(id);
            channel.handled += 1;
            channel.lend();
        }
    }

    /// Lets the queues of a channel confirm up to `count` messages each, if they can.
    fn confirm(&mut self, channel: usize, count: usize) {
        let channel = &mut self.channels[channel];
        for (to, pending) in &mut channel.pending {
            if self.leaderless.contains(to) {
                continue;
            }
            for id in pending.drain(..count.min(pending.len())) {
                self.tracks.record_answer(id, self.now);
                self.confirmed.entry(to.clone()).or_default().push(id);
            }
        }
        channel.lend();
    }

    /// Runs until nothing happens any more without an event, however long that takes.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let confirmed = self.confirmed.values().map(Vec::len).sum::<usize>();
            let mut goes_on = self.send() > 0;
            for channel in 0..self.channels.len() {
                self.handle(channel, usize::MAX);
                self.confirm(channel, usize::MAX);
            }
            goes_on |= self.confirmed.values().map(Vec::len).sum::<usize>() > confirmed;
            if goes_on {
                continue;
            }
            match self.tracks.alarm(self.now) {
                Some(at) => self.now = at,
                None => return,
            }
        }
        panic!("it goes on for ever");
    }

    fn wanted(&self, to: &str) -> Vec<u64> {
        let wanted = self.to.iter().filter(|(_, other)| *other == to);
        wanted.map(|(id, _)| *id).collect()
    }

    fn confirmed(&self, to: &str) -> &[u64] {
        self.confirmed.get(to).map_or(&[], Vec::as_slice)
    }
}

#[derive(Debug, Clone)]
enum Event {
    Publish { to: u8, count: usize, large: bool },
    Send,
    Handle { channel: usize, count: usize },
    Confirm { channel: usize, count: usize },
    LoseLeader(u8),
    FindLeader(u8),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let queue = 0..12_u8;
    let count = prop_oneof![Just(1), 1..50_usize, 100..400_usize];
    let channel = 0..16_usize;
    prop_oneof![
        3 => (queue.clone(), count.clone(), prop::bool::weighted(0.1))
            .prop_map(|(to, count, large)| Event::Publish { to, count, large }),
        3 => Just(Event::Send),
        3 => (channel.clone(), count.clone())
            .prop_map(|(channel, count)| Event::Handle { channel, count }),
        3 => (channel, count).prop_map(|(channel, count)| Event::Confirm { channel, count }),
        1 => queue.clone().prop_map(Event::LoseLeader),
        1 => queue.prop_map(Event::FindLeader),
        1 => (0..1500_u64).prop_map(Event::Wait),
    ]
}

fn name(queue: u8) -> String {
    format!("queue{queue}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever loses its leader at whatever time: the broker continues to read, messages for other queues
    /// arrive, and once all have leaders everything has arrived once, in order.
    #[test]
    fn queues_without_a_leader_hold_up_no_other(
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut broker = Broker::new();
        for event in events {
            let channels = broker.channels.len();
            match event {
                Event::Publish { to, count, large } => {
                    let bytes = if large { 900_000 } else { 100 };
                    for _ in 0..count.min(if large { 5 } else { 400 }) {
                        broker.publish(&name(to), bytes);
                    }
                }
                Event::Send => drop(broker.send()),
                Event::Handle { channel, count } => broker.handle(channel % channels, count),
                Event::Confirm { channel, count } => broker.confirm(channel % channels, count),
                Event::LoseLeader(queue) => drop(broker.leaderless.insert(name(queue))),
                Event::FindLeader(queue) => drop(broker.leaderless.remove(&name(queue))),
                Event::Wait(ms) => broker.now += Duration::from_millis(ms),
            }
        }
        broker.settle();
        for queue in (0..12).map(name).filter(|queue| !broker.leaderless.contains(queue)) {
            prop_assert_eq!(broker.confirmed(&queue), broker.wanted(&queue));
        }
        broker.leaderless.clear();
        broker.settle();
        for queue in (0..12).map(name) {
            prop_assert_eq!(broker.confirmed(&queue), broker.wanted(&queue));
        }
        prop_assert!(broker.tracks.is_empty() && broker.channels.len() <= TRACKS_MAX);
    }
}
