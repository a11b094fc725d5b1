//! The messages' way in and out: from the partitions' inboxes into the lanes as far as there is
//! room, and from there to the pool as far as it has credit.

use std::sync::Arc;

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Message as _};
use tokio::time::Instant;

use super::consumer;
use super::headers;
use super::health::Trouble;
use super::lag::Lag;
use super::lanes::{Count, Entry, Lane, Part};
use super::partition::{Parked, Progress};
use super::record::Record;
use super::settle::unix_ms;
use super::task::Task;
use super::watermark::Delivered;
use crate::config::model::Order;

/// How many messages are ready beyond what the pool has room for, all partitions together.
const READY_SPARE: usize = 256;
/// At least so many of each partition.
const READY_EACH_MIN: usize = 16;
/// How far a partition is looked ahead for messages that need not wait, past those that must.
const LOOK_AHEAD: usize = 10_000;
/// Where all wait for the first, a few are enough.
const LOOK_AHEAD_IN_ORDER: usize = 256;
/// How many messages a partition gives before it is the next one's turn.
const CHUNK: usize = 64;
/// How many messages are taken in before settlements are looked at again.
const TURN_MAX: usize = 1000;
/// With so many publications unconfirmed, nothing more is handed out.
const UNCONFIRMED_MAX: usize = 10_000;

/// A message that was just read.
#[derive(Debug)]
pub(super) struct Fresh {
    offset: i64,
    record: Record,
    /// When it falls due, if it comes from a tier.
    due_ms: Option<i64>,
}

/// A message that came past its partition's inbox.
#[derive(Debug)]
pub(super) struct Stray {
    topic: String,
    partition: i32,
    offset: i64,
}

/// What there is to say of a stray message.
pub(super) fn copied(message: &BorrowedMessage<'_>) -> Stray {
    Stray {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
    }
}

fn fresh(topic: &Arc<str>, is_tier: bool, message: &BorrowedMessage<'_>) -> Fresh {
    let raw = consumer::headers(message);
    let place = (message.partition(), message.offset());
    let timestamp = message.timestamp().to_millis();
    let contents = (
        message.key().map(Bytes::copy_from_slice),
        message.payload().map(Bytes::copy_from_slice),
    );
    let offset = message.offset();
    if !is_tier {
        let record = Record::read(topic, place, timestamp, contents, raw);
        return Fresh {
            offset,
            record,
            due_ms: None,
        };
    }
    let due_ms = headers::number(&raw, headers::DUE);
    let record = Record::read(topic, place, timestamp, contents, raw.clone());
    Fresh {
        offset,
        record: record.restore(&raw),
        due_ms,
    }
}

impl Task {
    /// Takes in what there is room for, the partitions in turn.
    pub(super) fn take_in(&mut self, now: Instant) {
        self.more = false;
        if self.is_closing() {
            return;
        }
        self.unpark(now);
        let mut taken = 0;
        let mut open: Vec<Part> = self.partitions.keys().copied().collect();
        open.sort_unstable();
        // Another is first each time.
        let turn = fastrand::usize(..open.len().max(1));
        open.rotate_left(turn);
        while !open.is_empty() {
            open.retain(|part| {
                let before = taken;
                taken += self.take_from(*part, now);
                taken - before == CHUNK
            });
            if taken >= TURN_MAX {
                self.more = !open.is_empty();
                return;
            }
        }
    }

    /// Takes in at most a chunk from one partition.
    fn take_from(&mut self, part: Part, now: Instant) -> usize {
        for taken in 0..CHUNK {
            if !self.has_room(part) || !self.take_one(part, now) {
                return taken;
            }
        }
        CHUNK
    }

    fn has_room(&self, part: Part) -> bool {
        let Some(partition) = self.partitions.get(&part) else {
            return false;
        };
        if !partition.inbox.has_news() || partition.leaving || partition.parked.is_some() {
            return false;
        }
        let Count {
            messages,
            ready,
            out,
            bytes,
        } = self.lanes.count(part);
        let sharers = self.partitions.len().max(1);
        let spare = self.credit().saturating_sub(self.out) + READY_SPARE;
        let look_ahead = match self.plan.order {
            Order::Partition => LOOK_AHEAD_IN_ORDER,
            Order::Key | Order::None => LOOK_AHEAD,
        };
        // The other half is librdkafka's.
        let bytes_max = self.plan.config.buffered_bytes_max / 2;
        let has_bytes = self.lanes.bytes() < bytes_max && bytes < bytes_max / sharers;
        ready < (spare / sharers).max(READY_EACH_MIN)
            && messages - out < look_ahead
            && (has_bytes || messages == 0)
    }

    /// Takes in one message. False if there is none at hand.
    fn take_one(&mut self, part: Part, now: Instant) -> bool {
        let Some(partition) = self.partitions.get_mut(&part) else {
            return false;
        };
        let message = match partition.inbox.next() {
            None => return false,
            Some(Ok(message)) => message,
            Some(Err(code)) => {
                self.partition_error(part, code);
                return true;
            }
        };
        match partition.progress.mark.delivered(message.offset()) {
            Delivered::DoneBefore => partition.progress.passed(),
            Delivered::New => {
                let fresh = fresh(&self.plan.topic, partition.is_tier, &message);
                drop(message);
                self.admit(part, fresh, now);
            }
            Delivered::WentBack => {
                let fresh = fresh(&self.plan.topic, partition.is_tier, &message);
                drop(message);
                let part = self.begin_anew(part, fresh.offset);
                if let Some(partition) = self.partitions.get_mut(&part) {
                    partition.progress.mark.delivered(fresh.offset);
                }
                self.admit(part, fresh, now);
            }
        }
        true
    }

    /// A partition is not what it was: what is out of it is void, and it is read from `offset` on.
    pub(super) fn begin_anew(&mut self, part: Part, offset: i64) -> Part {
        let Some(mut partition) = self.partitions.remove(&part) else {
            return part;
        };
        tracing::warn!(
            pool = self.plan.pool,
            partition = partition.name(),
            offset,
            was_at = partition.progress.mark.position(),
            "the partition has gone back: its topic was made again, or it has lost messages"
        );
        self.lanes.forget(part);
        partition.progress = Progress::new(offset, None, super::metadata::Carried::default());
        partition.parked = None;
        let part = self.new_part();
        self.partitions.insert(part, partition);
        part
    }

    fn admit(&mut self, part: Part, fresh: Fresh, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&part) else {
            return;
        };
        let Fresh {
            offset,
            mut record,
            due_ms,
        } = fresh;
        if let Some(tried) = partition.progress.tried(offset) {
            record.counters.attempts = tried.attempts;
            record.counters.crashes = tried.crashes;
        }
        if self.health.has(Trouble::Partitions) {
            self.health.over(&self.end, Trouble::Partitions);
        }
        match due_ms.filter(|due_ms| *due_ms > unix_ms()) {
            None => self.add(part, offset, record),
            Some(due_ms) => {
                partition.parked = Some(Parked {
                    look_at: look_at(due_ms, now),
                    due_ms,
                    offset,
                    record,
                });
            }
        }
    }

    fn add(&mut self, part: Part, offset: i64, record: Record) {
        let lane = match self.plan.order {
            Order::Key => record.key.clone().map(Lane::Key),
            Order::Partition => Some(Lane::Partition(record.partition)),
            Order::None => None,
        };
        self.lanes.add(Entry {
            part,
            offset,
            lane,
            bytes: record.bytes(),
            item: record,
        });
    }

    /// Takes in the heads of tiers that have fallen due.
    fn unpark(&mut self, now: Instant) {
        let due = |parked: &Parked| parked.look_at <= now;
        let parts: Vec<Part> = self
            .partitions
            .iter()
            .filter(|(_, partition)| partition.parked.as_ref().is_some_and(due))
            .map(|(part, _)| *part)
            .collect();
        for part in parts {
            let Some(partition) = self.partitions.get_mut(&part) else {
                continue;
            };
            let Some(mut parked) = partition.parked.take() else {
                continue;
            };
            // By the clock on the wall it may not be, if that was set meanwhile.
            if parked.due_ms > unix_ms() {
                parked.look_at = look_at(parked.due_ms, now);
                partition.parked = Some(parked);
            } else {
                self.add(part, parked.offset, parked.record);
            }
        }
    }

    /// Hands to the pool what it has credit for.
    pub(super) fn hand_out(&mut self) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let room = self
            .credit()
            .saturating_sub(self.out)
            .min(self.lanes.ready());
        let held_up =
            self.health.has(Trouble::Brokers) || self.producer.pending() > UNCONFIRMED_MAX;
        if room == 0 || held_up {
            self.permits.want_no_more();
            return;
        }
        for _ in 0..self.permits.spare(count(self.out), count(room)) {
            if !self.hand_out_one() {
                return;
            }
        }
    }

    fn hand_out_one(&mut self) -> bool {
        let partitions = &self.partitions;
        let mut full = None;
        let next = self.lanes.next(|part, offset| {
            let Some(partition) = partitions.get(&part).filter(|each| !each.leaving) else {
                return false;
            };
            let has_room = partition.progress.has_room(offset);
            if has_room == partition.is_full {
                full = Some((part, !has_room));
            }
            has_room
        });
        if let Some((part, is_full)) = full {
            self.tell_of_metadata(part, is_full);
        }
        let Some(place) = next else {
            return false;
        };
        let Some(record) = self.lanes.get(place).map(|entry| &entry.item) else {
            return false;
        };
        let (message, history) = (record.message(), record.history());
        self.out += 1;
        if !self.end.deliver(place as u64, message, history) {
            tracing::debug!("the pool is gone; the message is on its way back");
        }
        true
    }

    /// Says once that a partition waits because of what its commit can hold, and once that it does
    /// not any more.
    fn tell_of_metadata(&mut self, part: Part, is_full: bool) {
        let Some(partition) = self.partitions.get_mut(&part) else {
            return;
        };
        partition.is_full = is_full;
        let (pool, topic) = (self.plan.pool.as_str(), partition.topic.as_str());
        let (partition, undone) = (partition.number, partition.progress.mark.undone());
        if is_full {
            tracing::warn!(
                pool,
                topic,
                partition,
                undone,
                "no commit could hold more: nothing is taken in until older messages are done"
            );
        } else {
            tracing::info!(pool, topic, partition, "commits can hold more again");
        }
    }

    /// A message came by the way that only events should come.
    pub(super) fn stray(&self, stray: Stray) {
        let Stray {
            topic,
            partition,
            offset,
        } = stray;
        tracing::error!(
            pool = self.plan.pool,
            topic,
            partition,
            offset,
            "a message came past its inbox; it comes again after a restart"
        );
    }

    /// Tells the pool how far behind it is.
    pub(super) fn tell_lag(&self, ends: &[Lag]) {
        let mut lag = Vec::new();
        for partition in self.partitions.values() {
            let end = ends
                .iter()
                .find(|end| partition.is(&end.topic, end.partition));
            if let Some(end) = end {
                let mark = &partition.progress.mark;
                let unread = end
                    .end
                    .saturating_sub(mark.position())
                    .max(0)
                    .unsigned_abs();
                lag.push((partition.name(), unread + mark.undone() as u64));
            }
        }
        lag.sort();
        self.end.state.send_if_modified(|state| {
            let news = state.lag != lag;
            state.lag = lag;
            news
        });
    }
}

fn look_at(due_ms: i64, now: Instant) -> Instant {
    let wait = due_ms.saturating_sub(unix_ms()).max(0).unsigned_abs();
    now + std::time::Duration::from_millis(wait)
}
