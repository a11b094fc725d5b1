//! The messages' way in and out: from the partitions' inboxes into the lanes as far as there is
//! room, and from there to the pool as far as it has credit.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Message as _};
use tokio::time::Instant;

use super::event_loop::Task;
use super::health::HealthIssue;
use super::ordering::{Count, Entry, Lane};
use super::partition::{Parked, Partition};
use super::settle::unix_ms;
use super::watermark::Delivered;
use crate::broker::kafka::begins::Part;
use crate::broker::kafka::record::Record;
use crate::broker::kafka::statistics::Lag;
use crate::broker::kafka::{consumer, headers};
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
/// With so many publications unconfirmed, letters that are refused included, nothing more is handed
/// out.
const UNCONFIRMED_MAX: usize = 10_000;

/// What one partition may have here.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Messages that are ready.
    ready: usize,
    /// Bytes of those that are not out.
    bytes: usize,
    bytes_of_all: usize,
    /// The pools of the daemon hold all that they may: each has no more than one message then,
    /// and not each partition.
    is_scarce: bool,
}

/// A message that came past its partition's inbox.
#[derive(Debug)]
pub(super) struct Stray {
    topic: String,
    partition: i32,
    fresh: Fresh,
}

/// Takes such a message out of librdkafka's hands.
pub(super) fn stray(main: &Arc<str>, message: &BorrowedMessage<'_>) -> Stray {
    let is_tier = message.topic() != &**main;
    Stray {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        fresh: fresh(main, is_tier, message),
    }
}

/// A message that was just read.
#[derive(Debug)]
struct Fresh {
    offset: i64,
    record: Record,
    /// When it falls due, if it comes from a tier.
    due_ms: Option<i64>,
}

/// Takes a message out of librdkafka's hands.
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
        let share = self.share();
        let mut taken = 0;
        let mut open: Vec<Part> = self.partitions.keys().copied().collect();
        open.sort_unstable();
        // Another is first each time.
        let turn = fastrand::usize(..open.len().max(1));
        open.rotate_left(turn);
        while !open.is_empty() && taken < TURN_MAX {
            open.retain(|part| {
                let before = taken;
                taken += self.take_from(*part, share, now);
                taken - before == CHUNK
            });
        }
        self.more = !open.is_empty();
    }

    /// Whether there is more at hand than was handed out: then another turn follows at once.
    pub(super) fn look_for_more(&mut self) {
        let has_credit = self.room() > 0 && !self.is_held_up() && !self.is_closing();
        if has_credit && !self.more {
            let share = self.share();
            self.more = self
                .partitions
                .keys()
                .any(|part| self.has_room(*part, share));
        }
    }

    /// What each partition may have, of those that have something.
    fn share(&self) -> Share {
        let has_something = |(part, partition): &(&Part, &Partition)| {
            partition.inbox.has_news() || self.lanes.count(**part).messages > 0
        };
        let sharers = self.partitions.iter().filter(has_something).count().max(1);
        let spare = self.room() + READY_SPARE;
        // The other half is librdkafka's.
        let bytes_max = self.plan.config.buffered_bytes_max / 2;
        let of_all = self.lanes.bytes() + self.budget.room();
        Share {
            ready: (spare / sharers).max(READY_EACH_MIN),
            bytes: bytes_max / sharers,
            bytes_of_all: bytes_max.min(of_all),
            is_scarce: of_all < bytes_max,
        }
    }

    /// Takes in at most a chunk from one partition.
    fn take_from(&mut self, part: Part, share: Share, now: Instant) -> usize {
        for taken in 0..CHUNK {
            if !self.has_room(part, share) || !self.take_one(part, now) {
                return taken;
            }
        }
        CHUNK
    }

    fn has_room(&self, part: Part, share: Share) -> bool {
        let Some(partition) = self.partitions.get(&part) else {
            return false;
        };
        let is_shut = partition.leaving || partition.is_damaged || partition.parked.is_some();
        if !partition.inbox.has_news() || is_shut {
            return false;
        }
        let Count {
            messages,
            ready,
            out,
            bytes,
        } = self.lanes.count(part);
        let look_ahead = match self.plan.order {
            Order::Partition => LOOK_AHEAD_IN_ORDER,
            Order::Key | Order::None => LOOK_AHEAD,
        };
        let has_bytes = self.lanes.bytes() < share.bytes_of_all && bytes < share.bytes;
        let has_none = if share.is_scarce {
            self.out == 0 && self.lanes.ready() == 0
        } else {
            messages == 0
        };
        ready < share.ready && messages - out < look_ahead && (has_bytes || has_none)
    }

    /// Takes in one message. False if there is none at hand.
    fn take_one(&mut self, part: Part, now: Instant) -> bool {
        let Some(partition) = self.partitions.get_mut(&part) else {
            return false;
        };
        let fresh = match partition.inbox.next() {
            None => return false,
            Some(Ok(message)) => {
                let is_new = partition.progress.mark.delivered(message.offset());
                match is_new {
                    Delivered::New => fresh(&self.plan.topic, partition.is_tier, &message),
                    Delivered::DoneBefore => {
                        partition.progress.passed();
                        return true;
                    }
                    Delivered::Again => return true,
                }
            }
            Some(Err(code)) => {
                self.partition_error(part, code, now);
                return true;
            }
        };
        self.admit(part, fresh, now);
        true
    }

    /// Takes in a message that came by the way that only events should come: in front of what its
    /// inbox has, so it is the next of its partition, or one that was there before.
    pub(super) fn take_stray(&mut self, stray: Stray, now: Instant) {
        let Stray {
            topic,
            partition,
            fresh,
        } = stray;
        let mut ours = self.partitions.iter_mut();
        let Some((part, partition)) = ours.find(|(_, each)| each.is(&topic, partition)) else {
            return;
        };
        match partition.progress.mark.delivered(fresh.offset) {
            Delivered::New => {
                let part = *part;
                self.admit(part, fresh, now);
            }
            Delivered::DoneBefore => partition.progress.passed(),
            Delivered::Again => {}
        }
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
        self.throttle.read(record.bytes());
        partition.times_astray = 0;
        if let Some(tried) = partition.progress.tried(offset) {
            record.counters.attempts = tried.attempts;
            record.counters.crashes = tried.crashes;
        }
        if !self.unread.is_empty() {
            let name = partition.name();
            self.can_be_read(&name);
        }
        let Some(partition) = self.partitions.get_mut(&part) else {
            return;
        };
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
        let room = self.room().min(self.lanes.ready());
        if room == 0 || self.is_held_up() {
            return;
        }
        for _ in 0..room {
            if !self.hand_out_one() {
                return;
            }
        }
    }

    /// What is done could not be written down, or not be told: nothing more is begun.
    fn is_held_up(&self) -> bool {
        let troubles = [HealthIssue::Brokers, HealthIssue::Commits];
        troubles.into_iter().any(|trouble| self.health.has(trouble))
            || self.standstill.in_doubt()
            || self.producer.is_full()
            || self.producer.pending() > UNCONFIRMED_MAX
            || self.producer.pending_bytes() > self.plan.config.buffered_bytes_max
    }

    fn hand_out_one(&mut self) -> bool {
        // So that nothing can wait for itself.
        let is_idle = self.out == 0;
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
            has_room || is_idle
        });
        if let Some((part, is_full)) = full {
            self.tell_of_metadata(part, is_full);
        }
        let Some(place) = next else {
            return false;
        };
        let Some(entry) = self.lanes.get(place) else {
            return false;
        };
        let Some(Partition { claim, .. }) = self.partitions.get(&entry.part) else {
            return false;
        };
        let (message, history) = (entry.item.message(), entry.item.history());
        self.out += 1;
        let token = place as u64;
        self.end.deliver_under(claim, token, message, history);
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

    /// Takes in how the partitions stand, and tells the pool how far behind it is.
    pub(super) fn take_statistics(&mut self, statistics: &[Lag], now: Instant) {
        let mut lag = Vec::new();
        let mut idle = Vec::new();
        let statistics: HashMap<(&str, i32), &Lag> = statistics
            .iter()
            .map(|stats| ((stats.topic.as_str(), stats.partition), stats))
            .collect();
        for (part, partition) in &mut self.partitions {
            let Some(stats) = statistics.get(&(partition.topic.as_str(), partition.number)) else {
                continue;
            };
            // Once it may just be between two fetches.
            if stats.is_idle && std::mem::replace(&mut partition.is_idle, stats.is_idle) {
                idle.push(*part);
            }
            partition.is_idle = stats.is_idle;
            let mark = &partition.progress.mark;
            if let Some(end) = stats.end {
                let unread = end.saturating_sub(mark.position()).max(0).unsigned_abs();
                let unread = if stats.is_read { 0 } else { unread };
                lag.push((partition.name(), unread + mark.undone() as u64));
            }
        }
        for part in idle {
            self.is_not_fetched(part, now);
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
