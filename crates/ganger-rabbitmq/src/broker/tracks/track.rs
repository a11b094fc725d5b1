//! One track: a channel, the queue that owns it, the messages to be sent to that queue, and the
//! limit of unconfirmed ones. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use lapin::types::ShortString;
use tokio::time::Instant;

use super::flight::{Flight, Unconfirmed};

/// Number of unconfirmed messages with which the broker's channel runs, if it runs at all: it stops at 32.
pub(super) const LOW: usize = 30;
/// Number of messages that may follow beyond that, until there are as few again. The broker's reader has a
/// credit of 400 messages with a channel, and gets it back by 200 while that runs: 199 + 30 + 170 < 400.
pub(super) const BURST: usize = 170;
/// Maximum number of unconfirmed body bytes on a track, except for a single message.
const BYTES_MAX: usize = 1 << 20;
/// Silence after which a track counts as not answering: other messages do not wait for room on it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A track, whose channel is `C`.
#[derive(Debug)]
pub(super) struct Track<C> {
    channel_state: ChannelState<C>,
    /// Queue that owns the track, or owned it last.
    pub(super) queue_name: Option<ShortString>,
    pub(super) pending: Pending,
    /// The suspect in flight.
    alone: Option<u64>,
    /// Number of messages in flight.
    count: usize,
    /// Number of their bytes.
    bytes: usize,
    /// Number of messages sent since few were in flight.
    burst: usize,
    /// Number of messages sent since its queue has the track.
    turn: usize,
    /// Time since which it has not answered.
    since: Instant,
    /// Messages lost with its channel, which has ended.
    lost: Vec<(u64, Flight)>,
}

/// State of its channel.
#[derive(Debug)]
enum ChannelState<C> {
    Closed,
    Opening,
    Open(C),
}

/// Messages to be sent to one queue.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Messages in order.
    pub(super) queue: VecDeque<u64>,
    /// Messages of which one ended the channel. While there are any, they are sent one at a time, and no
    /// others are sent.
    pub(super) suspects: VecDeque<u64>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.suspects.is_empty()
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.queue.retain(|other| *other != id);
        self.suspects.retain(|other| *other != id);
    }
}

impl<C> Track<C> {
    /// Creates a track without an owner, with its channel if that is open.
    pub(super) fn new(channel: Option<C>, now: Instant) -> Self {
        Self {
            channel_state: channel.map_or(ChannelState::Closed, ChannelState::Open),
            queue_name: None,
            pending: Pending::default(),
            alone: None,
            count: 0,
            bytes: 0,
            burst: 0,
            turn: 0,
            since: now,
            lost: Vec::new(),
        }
    }

    // -- its channel --

    /// Returns, only once, whether the channel has to be opened.
    pub(super) fn opens(&mut self, now: Instant) -> bool {
        let opens = matches!(self.channel_state, ChannelState::Closed) && !self.pending.is_empty();
        if opens {
            (self.channel_state, self.since) = (ChannelState::Opening, now);
        }
        opens
    }

    pub(super) fn opened(&mut self, channel: C, now: Instant) {
        (self.channel_state, self.since) = (ChannelState::Open(channel), now);
    }

    pub(super) fn channel(&self) -> Option<&C> {
        match &self.channel_state {
            ChannelState::Open(channel) => Some(channel),
            ChannelState::Closed | ChannelState::Opening => None,
        }
    }

    pub(super) fn into_channel(self) -> Option<C> {
        match self.channel_state {
            ChannelState::Open(channel) => Some(channel),
            ChannelState::Closed | ChannelState::Opening => None,
        }
    }

    // -- its owner --

    /// Returns whether its queue has nothing to send, and nothing in flight.
    pub(super) fn is_free(&self) -> bool {
        self.count == 0 && self.lost.is_empty() && self.pending.is_empty()
    }

    /// Gives the track to a queue. Returns its former owner.
    pub(super) fn give(
        &mut self,
        queue_name: ShortString,
        pending: Pending,
        now: Instant,
    ) -> Option<ShortString> {
        (self.turn, self.burst, self.since) = (0, 0, now);
        self.pending = pending;
        self.queue_name.replace(queue_name)
    }

    /// Returns whether its queue has had it for long enough if others wait.
    pub(super) fn has_had_its_turn(&self) -> bool {
        self.turn >= BURST
    }

    /// Takes the track from its queue, if nothing is in flight.
    pub(super) fn leave(&mut self) -> Option<(ShortString, Pending)> {
        if self.count > 0 || !self.lost.is_empty() || self.pending.is_empty() {
            return None;
        }
        let queue_name = self.queue_name.take()?;
        Some((queue_name, std::mem::take(&mut self.pending)))
    }

    // -- sending --

    /// Returns the next message, if the channel is open and no suspect holds the others back.
    pub(super) fn next(&self) -> Option<u64> {
        if self.alone.is_some() || !self.lost.is_empty() || self.channel().is_none() {
            return None;
        }
        let pending = &self.pending;
        pending.suspects.front().or(pending.queue.front()).copied()
    }

    pub(super) fn has_suspects(&self) -> bool {
        !self.pending.suspects.is_empty()
    }

    /// Returns whether a message of this size may be sent before others are confirmed.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.count == 0 || self.bytes.saturating_add(bytes) <= BYTES_MAX;
        fits && (self.count < LOW || self.burst < BURST)
    }

    /// Records that the next message is sent.
    pub(super) fn send(&mut self, bytes: usize, now: Instant) {
        match self.pending.suspects.pop_front() {
            Some(suspect) => self.alone = Some(suspect),
            None => drop(self.pending.queue.pop_front()),
        }
        if self.count == 0 {
            self.since = now;
        }
        self.burst = if self.count < LOW { 0 } else { self.burst + 1 };
        self.turn += 1;
        self.count += 1;
        self.bytes += bytes;
    }

    // -- outcomes --

    /// Number of messages and bytes in flight.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        (self.count, self.bytes)
    }

    /// Records the answer to a message.
    pub(super) fn record_answer(&mut self, id: u64, bytes: usize, now: Instant) {
        self.count -= 1;
        self.bytes -= bytes;
        self.since = now;
        self.release(id);
    }

    /// Records that a message was lost with its channel.
    pub(super) fn lose(&mut self, id: u64, flight: Flight) {
        self.count -= 1;
        self.bytes -= flight.bytes;
        self.lost.push((id, flight));
    }

    /// The suspect in flight.
    pub(super) fn alone(&self) -> Option<u64> {
        self.alone
    }

    /// Lets others proceed without waiting for this one.
    pub(super) fn release(&mut self, id: u64) {
        self.alone = self.alone.filter(|alone| *alone != id);
    }

    /// Messages lost with its channel.
    pub(super) fn lost(&self) -> impl Iterator<Item = Unconfirmed> {
        let lost = self.lost.iter();
        lost.map(|(id, flight)| flight.unconfirmed(*id))
    }

    /// Returns whether its channel has ended, and nothing is in flight any more.
    pub(super) fn has_ended(&self) -> bool {
        !self.lost.is_empty() && self.count == 0
    }

    /// Handles the end of the channel: returns the lost messages, in order, and the one that ended it if
    /// there is one. A message that ends the channel does so at once, so a silent one is not the cause.
    pub(super) fn settle_end(&mut self) -> (Vec<u64>, Option<u64>) {
        (self.channel_state, self.burst) = (ChannelState::Closed, 0);
        let mut lost = std::mem::take(&mut self.lost);
        lost.sort_unstable_by_key(|(id, _)| *id);
        let alone = self.alone.take();
        let is_alone = |id: &u64| Some(*id) == alone;
        let blamed = lost.iter().any(|(id, _)| is_alone(id));
        let is_silent = |(id, flight): &(u64, Flight)| is_alone(id) || flight.is_silent;
        let others_are_silent = lost.iter().all(is_silent);
        let lost = lost.into_iter().map(|(id, _)| id).collect();
        (lost, alone.filter(|_| blamed && others_are_silent))
    }

    /// Its suspects, the one in flight first.
    pub(super) fn into_suspects(self) -> impl Iterator<Item = u64> {
        self.alone.into_iter().chain(self.pending.suspects)
    }

    // -- silence --

    /// Time since which the broker has not answered on it; `None` while no answer is expected.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        let waits = self.count > 0 || matches!(self.channel_state, ChannelState::Opening);
        waits.then_some(self.since)
    }

    /// Time at which it counts as not answering; `None` while no answer is expected.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.unanswered_since().map(|since| since + ANSWERS_WITHIN)
    }

    pub(super) fn answers(&self, now: Instant) -> bool {
        self.patience().is_none_or(|until| now < until)
    }

    /// Time of its last use, for comparison.
    pub(super) fn used(&self) -> Instant {
        self.since
    }

    /// Restarts its waiting time, since the broker has not read up to now.
    pub(super) fn restart_waits(&mut self, now: Instant) {
        self.since = now;
    }
}
