//! Flow of messages: from the partitions' inboxes into the lanes as far as there is room, and from
//! there to the pool as far as it has credit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::event_loop::Task;
use super::health::HealthIssue;
use super::incoming::{Fresh, Stray};
use super::ordering::{Entry, Lane, Shared};
use super::partition::{Partition, Read};
use super::partitions::Present;
use super::settle::unix_ms;
use super::turns::{Here, Share, Turn};
use crate::broker::begins::Part;
use crate::broker::emptied;
use crate::broker::statistics::Lag;
use ganger_config::model::Order;
use ganger_queue::delivery::Backlog;

/// Number of ready messages beyond what the pool has room for, all partitions together.
const READY_SPARE: usize = 256;
/// Minimum number of them for each partition.
const READY_EACH_MIN: usize = 16;
/// Number of messages a partition is read ahead, for those that need not wait behind others.
const LOOK_AHEAD: usize = 10_000;
/// Same limit where all messages wait for the first: a few are enough.
const LOOK_AHEAD_IN_ORDER: usize = 256;
/// Number of messages taken from a partition before the next one's turn.
const CHUNK: usize = 64;
/// Number of messages taken in before settlements are handled again.
const TURN_MAX: usize = 1000;
/// Number of unconfirmed publications, rejected dead letters included, above which nothing more is
/// handed out.
const UNCONFIRMED_MAX: usize = 10_000;

impl Task {
    /// Takes in what there is room for, from the partitions in turn. True if there may be more.
    pub(super) fn take_in(&mut self, now: Instant) -> bool {
        if self.is_closing() {
            return false;
        }
        self.unpark(now);
        self.partitions.listen(self.consumer.rung());
        let share = self.share();
        self.partitions.widen(&share);
        let mut taken = 0;
        while let Some(part) = self.partitions.next(&share, self.here()) {
            taken += self.take_from(part, &share, now);
            if taken >= TURN_MAX {
                return true;
            }
        }
        false
    }

    /// Returns whether more is available than was handed out: then another turn follows at once.
    pub(super) fn has_more(&mut self) -> bool {
        if self.room() == 0 || self.is_held_up() || self.is_closing() {
            return false;
        }
        let share = self.share();
        self.partitions.widen(&share);
        self.partitions.has_next(&share, self.here())
    }

    /// Returns the share of each partition that has something.
    fn share(&self) -> Share {
        let sharers = self.partitions.sharers().max(1);
        let spare = self.room() + READY_SPARE;
        // The other half is librdkafka's.
        let bytes_max = self.plan.config.buffered_bytes_max / 2;
        let of_all = self.lanes.bytes() + self.budget.room();
        Share {
            ready: (spare / sharers).max(READY_EACH_MIN),
            look_ahead: match self.plan.order {
                Order::Partition => LOOK_AHEAD_IN_ORDER,
                Order::Key | Order::None => LOOK_AHEAD,
            },
            bytes: bytes_max / sharers,
            bytes_of_all: bytes_max.min(of_all),
            is_scarce: of_all < bytes_max,
        }
    }

    fn here(&self) -> Here {
        Here {
            bytes: self.lanes.bytes(),
            is_idle: self.lanes.out() == 0 && self.lanes.ready() == 0,
        }
    }

    /// Takes in at most a chunk from one partition.
    fn take_from(&mut self, part: Part, share: &Share, now: Instant) -> usize {
        for taken in 0..CHUNK {
            let why = self.refusal(part, share);
            let why = why.or_else(|| self.take_one(part, now).err());
            if let Some(why) = why {
                self.partitions.rest(part, why);
                return taken;
            }
        }
        CHUNK
    }

    /// Returns why nothing more is read of a partition; none if it is read.
    fn refusal(&self, part: Part, share: &Share) -> Option<Turn> {
        let is_shut = self.partitions.get(part)?.traits().is_shut;
        if is_shut {
            return Some(Turn::Shut);
        }
        share.refusal(self.lanes.count(part), self.here())
    }

    /// Takes in one message, if one is available.
    fn take_one(&mut self, part: Part, now: Instant) -> Result<(), Turn> {
        match self.partitions.change(part, Partition::read) {
            None | Some(Read::Nothing) => return Err(Turn::Asleep),
            Some(Read::Passed) => {}
            Some(Read::New(fresh)) => self.admit(part, fresh, now),
            Some(Read::Emptied) => self.is_damaged(part, emptied::PROBLEM, now),
            Some(Read::Fault(code)) => self.partition_error(part, code, now),
        }
        Ok(())
    }

    /// Takes in a message from the queue that should carry only events.
    pub(super) fn take_stray(&mut self, stray: Stray, now: Instant) {
        let Stray { name, fresh } = stray;
        let Some(part) = self.partitions.named(&name) else {
            return;
        };
        let Some(fresh) = fresh else {
            return self.is_damaged(part, emptied::PROBLEM, now);
        };
        let fresh = self.partitions.change(part, |each| each.take_stray(fresh));
        if let Some(fresh) = fresh.flatten() {
            self.admit(part, fresh, now);
        }
    }

    fn admit(&mut self, part: Part, fresh: Fresh, now: Instant) {
        self.throttle.read(fresh.record.bytes());
        if self.positions.has_unread()
            && let Some(partition) = self.partitions.get(part)
        {
            let name = partition.label();
            self.can_be_read(&name);
        }
        let due = self
            .partitions
            .change(part, |each| each.admit(fresh, now, unix_ms()));
        if let Some(fresh) = due.flatten() {
            self.add(part, fresh);
        }
    }

    fn add(&mut self, part: Part, fresh: Fresh) {
        let Fresh { offset, record, .. } = fresh;
        let shared = match self.plan.order {
            Order::Key => record.key.clone().map(Shared::Key),
            Order::Partition => Some(Shared::Partition(record.partition)),
            Order::None => None,
        };
        let topic = &record.topic;
        let lane = shared.map(|shared| Lane {
            topic: Arc::clone(topic),
            shared,
        });
        self.lanes.add(Entry {
            part,
            offset,
            lane,
            bytes: record.bytes(),
            item: record,
        });
        self.partitions.counted(part, self.lanes.count(part));
    }

    /// Takes in the heads of tiers that have fallen due.
    fn unpark(&mut self, now: Instant) {
        for part in self.partitions.heads(now) {
            let due = self
                .partitions
                .change(part, |each| each.unpark(now, unix_ms()));
            for fresh in due.unwrap_or_default() {
                self.add(part, fresh);
            }
        }
    }

    /// Hands out messages to the pool as far as it has credit.
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

    /// Returns whether progress could not be committed or replies not be published: nothing more is
    /// begun.
    fn is_held_up(&self) -> bool {
        let troubles = [HealthIssue::Brokers, HealthIssue::Commits];
        troubles.into_iter().any(|trouble| self.health.has(trouble))
            || self.standstill.in_doubt()
            || self.producer.is_full()
            || self.producer.pending() > UNCONFIRMED_MAX
            || self.producer.pending_bytes() > self.plan.config.buffered_bytes_max
    }

    fn hand_out_one(&mut self) -> bool {
        // So that nothing waits for itself.
        let is_idle = self.lanes.out() == 0;
        let partitions = &self.partitions;
        let mut full = None;
        let next = self.lanes.next(|part, offset| {
            let Some(partition) = partitions.get(part).filter(|each| !each.is_leaving()) else {
                return false;
            };
            let has_room = partition.progress().has_room(offset);
            if has_room == partition.is_full() {
                full = Some((part, !has_room));
            }
            has_room || is_idle
        });
        if let Some((part, is_full)) = full {
            let pool = self.plan.pool.as_str();
            self.partitions
                .change(part, |each| each.tell_of_metadata(pool, is_full));
        }
        let Some(place) = next else {
            return false;
        };
        let Some(entry) = self.lanes.get(place) else {
            return false;
        };
        let part = entry.part;
        let Some(partition) = self.partitions.get(part) else {
            return false;
        };
        let (message, history) = (entry.item.message(), entry.item.history());
        let token = place as u64;
        self.end
            .deliver_under(partition.claim(), token, message, history);
        self.partitions.counted(part, self.lanes.count(part));
        true
    }

    /// Handles the statistics of the partitions, and reports the lag to the pool.
    pub(super) fn take_statistics(&mut self, statistics: &[Lag], now: Instant) {
        let oldest = self.oldest_here();
        let lanes = &self.lanes;
        let here = |part| Present {
            out: lanes.count(part).out,
            oldest_ms: oldest.get(&part).copied(),
        };
        let standing = self.partitions.take_statistics(statistics, here);
        for part in standing.idle {
            self.is_not_fetched(part, now);
        }
        let delayed = standing.delayed;
        self.end
            .facts
            .note(|figures| figures.delayed = Some(delayed));
        let (lag, out) = (standing.lag, self.lanes.out() as u64);
        let depth = standing.unfinished.saturating_sub(out);
        let sent = standing.oldest_ms.and_then(|ms| u64::try_from(ms).ok());
        let sent = sent.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        let backlog = Backlog {
            depth,
            is_limit: false,
            oldest: self.oldest.since(depth, sent, SystemTime::now()),
        };
        self.end.state.send_if_modified(|state| {
            let news = state.lag != lag || state.backlog != Some(backlog);
            (state.lag, state.backlog) = (lag, Some(backlog));
            news
        });
    }

    /// Returns the send time of the oldest waiting message of each partition without earlier attempts.
    fn oldest_here(&self) -> HashMap<Part, i64> {
        let mut oldest = HashMap::new();
        for entry in self.lanes.waiting() {
            if let (0, Some(ms)) = (entry.item.counters.attempts, entry.item.timestamp_ms) {
                let known = oldest.entry(entry.part).or_insert(ms);
                *known = ms.min(*known);
            }
        }
        oldest
    }
}
