//! Choice of the channel for a message, so that a queue which confirms nothing blocks no other. Pure.
//!
//! A quorum queue without a leader stops the channel that publishes to it: for a minute when it is the
//! channel's first message for that queue, and later once 32 of them are open. For a channel that has stopped
//! the broker reads some 200 messages more, and then nothing more from the connection. So the messages to a
//! queue have a track: a channel that no other queue uses meanwhile, with never so many messages on it that
//! the broker would stop reading (`track.rs`).

use std::collections::{HashMap, HashSet, VecDeque};

use lapin::types::ShortString;
use tokio::time::Instant;

use flight::{Flight, Unconfirmed};
use track::{Pending, Track};

pub(crate) mod flight;
mod track;

/// Number of tracks created before one is used for another queue: each becomes known to the quorum queues
/// that it is used for.
const KEPT: usize = 8;
/// Maximum number of tracks in use that answer.
const ANSWERING_MAX: usize = 32;
/// Maximum number of tracks in use, including those that do not answer.
const TRACKS_MAX: usize = 256;

/// Maximum number of unconfirmed messages on all tracks that answer.
const COUNT_MAX: usize = 1024;
/// Maximum number of their bytes, except for a single message. Bytes beyond the library's buffer, 4 MiB,
/// would still be sent after the broker has closed the channel, and then it ends the whole connection. (Bytes
/// passed to the library at that very moment occasionally have the same effect; only the library can fix
/// that.)
const BYTES_MAX: usize = 2 << 20;

/// Prefix of all direct reply-to addresses. They are not queues: each is answered at once.
const DIRECT: &str = "amq.rabbitmq.reply-to.";

/// Next action of the publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrackStep {
    /// Open a channel for this track.
    Open(usize),
    /// Send this message over this track; it counts as sent.
    Send { track: usize, id: u64 },
}

/// Consequences of the end of a channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackEnd {
    /// Message that ended the channel, which is not sent again.
    pub(crate) refused: Option<u64>,
    /// Messages for which nothing waits any more.
    pub(crate) forgotten: Vec<u64>,
}

/// Every message without an outcome, and the tracks, whose channels are `C`.
#[derive(Debug)]
pub(crate) struct Tracks<C> {
    tracks: Vec<Track<C>>,
    /// Track that a queue has, or had last.
    track_of_queue: HashMap<ShortString, usize>,
    /// Queues that wait for a track, in order.
    queues_without_track: VecDeque<ShortString>,
    /// Messages to be sent to these queues.
    pending_without_track: HashMap<ShortString, Pending>,
    open: HashMap<u64, Parcel>,
    /// Messages in flight, including those for which nothing waits any more.
    flights: HashMap<u64, Flight>,
    /// Messages to be sent again that the broker may have received before it ended the channel.
    maybe_received: HashSet<u64>,
    /// True if all queues share one track: the publisher waits for all of it.
    shares: bool,
    /// Maximum number of tracks.
    most: usize,
    /// True while no channels are opened.
    is_held: bool,
    /// The track whose turn it is.
    first: usize,
    /// True if that track has found no room.
    lacks_room: bool,
}

#[derive(Debug)]
struct Parcel {
    queue_name: ShortString,
    bytes: usize,
}

impl<C> Tracks<C> {
    /// Creates tracks with one for each queue.
    pub(crate) fn each() -> Self {
        Self::new(false)
    }

    /// Creates one track for all queues.
    pub(crate) fn one() -> Self {
        Self::new(true)
    }

    fn new(shares: bool) -> Self {
        Self {
            tracks: Vec::new(),
            track_of_queue: HashMap::new(),
            queues_without_track: VecDeque::new(),
            pending_without_track: HashMap::new(),
            open: HashMap::new(),
            flights: HashMap::new(),
            maybe_received: HashSet::new(),
            shares,
            most: if shares { 1 } else { TRACKS_MAX },
            is_held: false,
            first: 0,
            lacks_room: false,
        }
    }

    // -- channels --

    /// Takes over this channel of a new connection, which allows `most` channels.
    pub(crate) fn adopt(&mut self, channel: C, most: u16, now: Instant) {
        self.most = self.most.min(usize::from(most).max(1));
        self.tracks.push(Track::new(Some(channel), now));
        self.is_held = false;
    }

    /// Limits the channels to those that are open, since the broker allows no more.
    pub(crate) fn limit_to_open(&mut self) {
        let open = self.tracks.iter().filter(|track| track.channel().is_some());
        self.most = open.count().max(1);
    }

    /// Stops or resumes the opening of channels.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Takes in the channel of a track.
    pub(crate) fn opened(&mut self, track: usize, channel: C, now: Instant) {
        if let Some(track) = self.tracks.get_mut(track) {
            track.opened(channel, now);
        }
    }

    pub(crate) fn channel(&self, track: usize) -> Option<&C> {
        self.tracks.get(track).and_then(Track::channel)
    }

    /// All open channels.
    pub(crate) fn into_channels(self) -> impl Iterator<Item = C> {
        self.tracks.into_iter().filter_map(Track::into_channel)
    }

    // -- to be sent --

    /// Returns whether no message is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Adds a message to be sent to a queue.
    pub(crate) fn push(&mut self, id: u64, to: &ShortString, bytes: usize) {
        let queue_name = if self.shares {
            ShortString::default()
        } else if to.as_str().starts_with(DIRECT) {
            DIRECT.into()
        } else {
            to.clone()
        };
        self.pending(&queue_name).queue.push_back(id);
        self.open.insert(id, Parcel { queue_name, bytes });
    }

    fn pending(&mut self, queue_name: &ShortString) -> &mut Pending {
        let home = self.track_of_queue.get(queue_name);
        match home.and_then(|track| self.tracks.get_mut(*track)) {
            Some(track) => &mut track.pending,
            None => {
                if !self.pending_without_track.contains_key(queue_name) {
                    self.queues_without_track.push_back(queue_name.clone());
                }
                self.pending_without_track
                    .entry(queue_name.clone())
                    .or_default()
            }
        }
    }

    fn bytes(&self, id: u64) -> usize {
        self.open.get(&id).map_or(0, |parcel| parcel.bytes)
    }

    /// Returns the next action; `None` if it has to wait.
    pub(crate) fn next(&mut self, now: Instant) -> Option<TrackStep> {
        self.give_tracks(now);
        self.lacks_room = false;
        let (first, count) = (self.first, self.tracks.len());
        for index in (first..count).chain(0..first.min(count)) {
            if !self.is_held && self.tracks[index].opens(now) {
                return Some(TrackStep::Open(index));
            }
            let track = &self.tracks[index];
            let Some(id) = track.next() else {
                continue;
            };
            let bytes = self.bytes(id);
            if !track.has_suspects() {
                let gives_way = !self.queues_without_track.is_empty() && track.has_had_its_turn();
                if !self.shares && (gives_way || !track.has_room(bytes)) {
                    continue;
                }
                if !self.has_room(bytes, now) {
                    // It is the first once there is.
                    (self.first, self.lacks_room) = (index, true);
                    return None;
                }
            }
            self.first = index + 1;
            self.send(index, id, now);
            return Some(TrackStep::Send { track: index, id });
        }
        None
    }

    /// Returns whether a message of this size may join all unconfirmed ones.
    fn has_room(&self, more: usize, now: Instant) -> bool {
        let counted = |track: &&Track<C>| self.shares || track.answers(now);
        let counted = self.tracks.iter().filter(counted).map(Track::in_flight);
        let (count, bytes) = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        count == 0 || (count < COUNT_MAX && bytes.saturating_add(more) <= BYTES_MAX)
    }

    fn send(&mut self, track: usize, id: u64, now: Instant) {
        let flight = Flight {
            track,
            bytes: self.bytes(id),
            since: now,
            is_silent: false,
        };
        self.tracks[track].send(flight.bytes, now);
        self.flights.insert(id, flight);
    }

    /// Gives tracks to the queues that wait for one.
    fn give_tracks(&mut self, now: Instant) {
        if self.queues_without_track.is_empty() {
            return;
        }
        for track in &mut self.tracks {
            if track.has_had_its_turn()
                && let Some((queue_name, pending)) = track.leave()
            {
                self.track_of_queue.remove(&queue_name);
                self.queues_without_track.push_back(queue_name.clone());
                self.pending_without_track.insert(queue_name, pending);
            }
        }
        while !self.queues_without_track.is_empty()
            && let Some(index) = self.track_to_give(now)
            && let Some(queue_name) = self.queues_without_track.pop_front()
        {
            if index == self.tracks.len() {
                self.tracks.push(Track::new(None, now));
            }
            let pending = self
                .pending_without_track
                .remove(&queue_name)
                .unwrap_or_default();
            if let Some(former) = self.tracks[index].give(queue_name.clone(), pending, now) {
                self.track_of_queue.remove(&former);
            }
            self.track_of_queue.insert(queue_name, index);
        }
    }

    fn track_to_give(&self, now: Instant) -> Option<usize> {
        let count = self.tracks.len();
        let may_add = count < self.most && !self.is_held;
        let tracks = self.tracks.iter().enumerate();
        let free: Vec<(usize, &Track<C>)> = tracks.filter(|(_, track)| track.is_free()).collect();
        if let Some((index, _)) = free.iter().find(|(_, track)| track.queue_name.is_none()) {
            return Some(*index);
        }
        if may_add && count < KEPT {
            return Some(count);
        }
        if let Some((index, _)) = free.iter().min_by_key(|(_, track)| track.used()) {
            return Some(*index);
        }
        let answering = self
            .tracks
            .iter()
            .filter(|track| track.answers(now))
            .count();
        (may_add && answering < ANSWERING_MAX).then_some(count)
    }

    /// Returns the time of the next action that does not depend on an answer.
    pub(crate) fn alarm(&self, now: Instant) -> Option<Instant> {
        if self.queues_without_track.is_empty() && !self.lacks_room {
            return None;
        }
        let patience = self.tracks.iter().filter_map(Track::patience);
        patience.filter(|until| now < *until).min()
    }

    // -- outcomes --

    /// Records the broker's answer to a message. Returns whether the broker may have received it before.
    pub(crate) fn record_answer(&mut self, id: u64, now: Instant) -> bool {
        self.open.remove(&id);
        if let Some(flight) = self.flights.remove(&id) {
            self.tracks[flight.track].record_answer(id, flight.bytes, now);
        }
        self.maybe_received.remove(&id)
    }

    /// Records that a message was lost with its channel.
    pub(crate) fn lose(&mut self, id: u64) {
        if let Some(flight) = self.flights.remove(&id) {
            self.tracks[flight.track].lose(id, flight);
        }
    }

    /// A track whose channel has ended, and on which nothing is in flight any more.
    pub(crate) fn ended(&self) -> Option<usize> {
        self.tracks.iter().position(Track::has_ended)
    }

    /// Then sends the lost messages again. If `one_is_to_blame`, the message that was alone is the cause; the
    /// broker has received neither that one nor those sent after it.
    pub(crate) fn settle_end(&mut self, track: usize, one_is_to_blame: bool) -> TrackEnd {
        let track = &mut self.tracks[track];
        let (mut lost, alone) = track.settle_end();
        let refused = alone.filter(|_| one_is_to_blame);
        lost.retain(|id| Some(*id) != refused);
        let is_open = |id: &u64| self.open.contains_key(id);
        let (again, forgotten): (Vec<u64>, Vec<u64>) = lost.into_iter().partition(is_open);
        let pending = if refused.is_some() {
            &mut track.pending.queue
        } else {
            &mut track.pending.suspects
        };
        for id in again.iter().rev() {
            pending.push_front(*id);
        }
        self.maybe_received.extend(again);
        if let Some(refused) = refused {
            self.open.remove(&refused);
            self.maybe_received.remove(&refused);
            for id in track.pending.suspects.iter().filter(|id| **id > refused) {
                self.maybe_received.remove(id);
            }
        }
        TrackEnd { refused, forgotten }
    }

    /// The suspect in flight on a track.
    pub(crate) fn alone(&self, track: usize) -> Option<u64> {
        self.tracks.get(track).and_then(Track::alone)
    }

    /// The track with such a channel on which no suspect is alone.
    pub(crate) fn crowded(&self, is_it: impl Fn(&C) -> bool) -> Option<usize> {
        let is_it =
            |track: &Track<C>| track.alone().is_none() && track.channel().is_some_and(&is_it);
        self.tracks.iter().position(is_it)
    }

    /// Makes suspects of all messages in flight on a track, to find the one that ended the channel.
    pub(crate) fn suspect_all(&mut self, track: usize) {
        let here =
            |(id, flight): &(&u64, &Flight)| flight.track == track && self.open.contains_key(id);
        let here = self.flights.iter().filter(here);
        let mut here: Vec<u64> = here.map(|(id, _)| *id).collect();
        here.sort_unstable();
        self.tracks[track].pending.suspects.extend(here);
    }

    /// Messages sent and not answered, including those for which nothing waits any more.
    fn sent(&self) -> impl Iterator<Item = Unconfirmed> {
        let flights = self.flights.iter();
        let flights = flights.map(|(id, flight)| flight.unconfirmed(*id));
        flights.chain(self.tracks.iter().flat_map(Track::lost))
    }

    /// Messages sent and not answered.
    pub(crate) fn unconfirmed(&self) -> Vec<Unconfirmed> {
        let is_open = |sent: &Unconfirmed| self.open.contains_key(&sent.id);
        self.sent().filter(is_open).collect()
    }

    /// Queues all messages again for the next connection, since this one is lost. Returns the number that the
    /// broker may have received.
    pub(crate) fn requeue_all(&mut self) -> u64 {
        let mut again = std::mem::take(&mut self.maybe_received);
        again.extend(self.sent().map(|sent| sent.id));
        let again = again.len();
        let mut suspects: Vec<u64> = Vec::new();
        suspects.extend(self.tracks.drain(..).flat_map(Track::into_suspects));
        let pending_without_track = std::mem::take(&mut self.pending_without_track).into_values();
        suspects.extend(pending_without_track.flat_map(|pending| pending.suspects));
        let mut known = HashSet::new();
        suspects.retain(|id| self.open.contains_key(id) && known.insert(*id));
        let others = self.open.keys().filter(|id| !known.contains(id));
        let mut others: Vec<u64> = others.copied().collect();
        others.sort_unstable();
        self.track_of_queue.clear();
        self.queues_without_track.clear();
        self.flights.clear();
        for id in suspects.into_iter().chain(others) {
            if let Some(queue_name) = self.open.get(&id).map(|parcel| parcel.queue_name.clone()) {
                let pending = self.pending(&queue_name);
                if known.contains(&id) {
                    pending.suspects.push_back(id);
                } else {
                    pending.queue.push_back(id);
                }
            }
        }
        u64::try_from(again).unwrap_or_default()
    }

    // -- silence --

    /// Stops waiting for a message: it is not sent again. Returns whether the broker's answer may
    /// still come.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        let Some(Parcel { queue_name, .. }) = self.open.remove(&id) else {
            return false;
        };
        self.maybe_received.remove(&id);
        if let Some(flight) = self.flights.get(&id) {
            self.tracks[flight.track].release(id);
            return true;
        }
        self.pending(&queue_name).remove(id);
        if self
            .pending_without_track
            .get(&queue_name)
            .is_some_and(Pending::is_empty)
        {
            self.pending_without_track.remove(&queue_name);
            self.queues_without_track
                .retain(|other| *other != queue_name);
        }
        false
    }

    /// Marks a message as unanswered for long. A message that ends a channel does so at once, so this one is
    /// not the cause, and others need not wait for it.
    pub(crate) fn mark_silent(&mut self, id: u64) {
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.is_silent = true;
            self.tracks[flight.track].release(id);
        }
    }

    /// Returns whether the message waits for a queue that has not answered for long: sent and
    /// marked silent, or not sent.
    pub(crate) fn is_stuck(&self, id: u64) -> bool {
        let flight = self.flights.get(&id);
        flight.is_none_or(|flight| flight.is_silent)
    }

    /// Time since which a sent message has no answer, or an unsent one waits for a queue that does not
    /// answer; `None` if it waits for another reason.
    pub(crate) fn unanswered_since(&self, id: u64) -> Option<Instant> {
        if let Some(flight) = self.flights.get(&id) {
            return Some(flight.since);
        }
        let home = self.track_of_queue.get(&self.open.get(&id)?.queue_name)?;
        self.tracks.get(*home)?.unanswered_since()
    }

    /// Restarts all waiting times, since the broker has not read up to now.
    pub(crate) fn restart_waits(&mut self, now: Instant) {
        for flight in self.flights.values_mut() {
            flight.since = now;
        }
        for track in &mut self.tracks {
            track.restart_waits(now);
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
