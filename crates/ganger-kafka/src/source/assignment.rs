//! Assigned partitions and the messages read of them. Messages are taken in from the partitions' inboxes as
//! far as there is room, handed out to the pool as far as it has credit, and then settled, until they are
//! done and committed. Records to be published for a message, and news for the reader of the partitions, are
//! returned.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::incoming::{Fresh, Stray};
use super::ordering::{Entry, Lane, Lanes, Position, Settled, Shared};
use super::partition::{Partition, Pause, Read};
use super::partitions::{HeldOfPartition, Partitions};
use super::pool_link::{PoolLink, Summary};
use super::purpose::{Publication, Purpose};
use super::settle;
use super::settle::{NextStep, Rules, unix_ms};
use super::throttle::Throttle;
use super::turns::{HeldTotals, ReadState, Share};
use crate::broker::arrivals::ArrivalSet;
use crate::broker::consumer::{Commit, Start, TopicPartition};
use crate::broker::emptied;
use crate::broker::error::words;
use crate::broker::producer::Report;
use crate::broker::record::Record;
use crate::broker::setup::Plan;
use crate::broker::start_positions::{LogQuery, Part};
use crate::broker::statistics::Lag;
use ganger_config::model::Order;
use ganger_queue::delivery::{Outcome, Settlement};

/// Number of ready messages beyond the pool's room, all partitions together.
const READY_SPARE: usize = 256;
/// Minimum number of them for each partition.
const READY_EACH_MIN: usize = 16;
/// Number of messages by which a partition is read ahead, for messages that need not wait behind others.
const LOOK_AHEAD: usize = 10_000;
/// The same limit if all messages wait for the first: a few are enough.
const LOOK_AHEAD_IN_ORDER: usize = 256;
/// Number of messages taken from a partition before it is the next one's turn.
const CHUNK: usize = 64;
/// Number of messages taken in before settlements are handled again.
const TURN_MAX: usize = 1000;
/// A tier whose head is not due for longer is paused meanwhile: the messages behind it would only occupy
/// memory.
const PAUSE_TIER_AFTER: Duration = Duration::from_secs(2);

/// Assigned partitions with their messages.
#[derive(Debug)]
pub(super) struct Assignment {
    order: Order,
    /// Maximum size of all messages.
    bytes_max: usize,
    lanes: Lanes<Record>,
    partitions: Partitions,
    throttle: Throttle,
    /// True once it was logged that long waits leave the order.
    warned_of_order: bool,
}

/// Limits of the intake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Number of messages for which the pool still has room.
    pub(super) room: usize,
    /// Bytes that the daemon has left.
    pub(super) bytes: usize,
}

/// News of a partition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartNews {
    /// A message of it was read.
    Read,
    /// Its position no longer exists.
    PositionLost,
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// Partitions that librdkafka is to pause and to resume.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) pause: Vec<TopicPartition>,
    pub(super) resume: Vec<TopicPartition>,
}

impl Assignment {
    pub(super) fn new(plan: &Plan, throttle: Throttle) -> Self {
        Self {
            order: plan.order,
            // The other half is librdkafka's.
            bytes_max: plan.config.buffered_bytes_max / 2,
            lanes: Lanes::new(),
            partitions: Partitions::default(),
            throttle,
            warned_of_order: false,
        }
    }

    /// Returns the time of the next timer. During a shutdown nothing is taken in any more.
    pub(super) fn due(&self, is_closing: bool) -> Option<Instant> {
        let intake = [self.partitions.next_head(), self.throttle.due()];
        let intake = intake.into_iter().flatten().filter(|_| !is_closing);
        intake.chain(self.lanes.next_due()).min()
    }

    /// Returns the number of messages that the pool has.
    pub(super) fn out(&self) -> usize {
        self.lanes.out()
    }

    /// Returns the number of messages that may be handed out now.
    pub(super) fn ready(&self) -> usize {
        self.lanes.ready()
    }

    /// Returns the size of all messages held here and in librdkafka.
    pub(super) fn bytes(&self) -> usize {
        self.lanes.bytes() + self.throttle.held()
    }

    // -- in --

    /// Makes ready the messages that have been held long enough.
    pub(super) fn release(&mut self, now: Instant) {
        self.lanes.release(now);
    }

    /// Takes in messages as far as there is room, from the partitions in turn, with their news in order. True
    /// if there may be more.
    pub(super) fn take_in(
        &mut self,
        arrivals: &ArrivalSet,
        limits: Limits,
        now: Instant,
    ) -> (bool, Vec<(Part, PartNews)>) {
        self.unpark(now);
        self.partitions.listen(arrivals);
        let share = self.share(limits);
        self.partitions.widen(&share);
        let (mut taken, mut news) = (0, Vec::new());
        while let Some(part) = self.partitions.next(&share, self.here()) {
            taken += self.take_from(part, &share, &mut news, now);
            if taken >= TURN_MAX {
                return (true, news);
            }
        }
        (false, news)
    }

    /// Returns whether there may be more to take in.
    pub(super) fn has_more(&mut self, limits: Limits) -> bool {
        let share = self.share(limits);
        self.partitions.widen(&share);
        self.partitions.has_next(&share, self.here())
    }

    /// Returns the share of each partition that has messages.
    fn share(&self, limits: Limits) -> Share {
        let sharers = self.partitions.sharers().max(1);
        let spare = limits.room + READY_SPARE;
        let of_all = self.lanes.bytes() + limits.bytes;
        Share {
            ready: (spare / sharers).max(READY_EACH_MIN),
            look_ahead: match self.order {
                Order::Partition => LOOK_AHEAD_IN_ORDER,
                Order::Key | Order::None => LOOK_AHEAD,
            },
            bytes: self.bytes_max / sharers,
            bytes_of_all: self.bytes_max.min(of_all),
            is_scarce: of_all < self.bytes_max,
        }
    }

    fn here(&self) -> HeldTotals {
        HeldTotals {
            bytes: self.lanes.bytes(),
            is_idle: self.lanes.out() == 0 && self.lanes.ready() == 0,
        }
    }

    /// Takes in at most a chunk from one partition.
    fn take_from(
        &mut self,
        part: Part,
        share: &Share,
        news: &mut Vec<(Part, PartNews)>,
        now: Instant,
    ) -> usize {
        for taken in 0..CHUNK {
            let why = self.refusal(part, share);
            let read = why.map_or_else(|| self.take_one(part, now), Err);
            match read {
                // One item of news for a run of messages.
                Ok(one) if one.is_some() && one.as_ref() == last_of(part, news) => {}
                Ok(one) => news.extend(one.map(|one| (part, one))),
                Err(why) => {
                    self.partitions.stop_reading(part, why);
                    return taken;
                }
            }
        }
        CHUNK
    }

    /// Returns the reason why no more is read of a partition; none if it is read.
    fn refusal(&self, part: Part, share: &Share) -> Option<ReadState> {
        let is_shut = self.partitions.get(part)?.traits().is_shut;
        if is_shut {
            return Some(ReadState::Closed);
        }
        share.refusal(self.lanes.count(part), self.here())
    }

    /// Takes in one message, if one is available.
    fn take_one(&mut self, part: Part, now: Instant) -> Result<Option<PartNews>, ReadState> {
        match self.partitions.change(part, Partition::read) {
            None | Some(Read::Nothing) => Err(ReadState::Empty),
            Some(Read::Passed) => Ok(None),
            Some(Read::New(fresh)) => {
                self.admit(part, fresh, now);
                Ok(Some(PartNews::Read))
            }
            Some(Read::Emptied) => Ok(self.damaged(part, emptied::PROBLEM)),
            Some(Read::Fault(code)) => Ok(self.fault(part, code)),
        }
    }

    fn fault(&mut self, part: Part, code: Code) -> Option<PartNews> {
        match code {
            Code::AutoOffsetReset => Some(PartNews::PositionLost),
            Code::PartitionEOF => None,
            Code::BadMessage | Code::BadCompression | Code::NotImplemented => {
                self.damaged(part, &words(code))
            }
            // Its end is not reported: it is queried.
            code => Some(PartNews::Unreadable(words(code))),
        }
    }

    /// Handles a damaged record, which librdkafka would skip. It may be intact when fetched again; otherwise
    /// the partition waits, and reports that, until an operator has repaired it or set the group's offset
    /// past it.
    fn damaged(&mut self, part: Part, problem: &str) -> Option<PartNews> {
        let next = self.partitions.change(part, |each| {
            each.damage();
            each.progress().position()
        })?;
        let why = format!("data after offset {next} is damaged: {problem}");
        Some(PartNews::Unreadable(why))
    }

    /// Takes in a message from the queue that should carry only events.
    pub(super) fn take_stray(&mut self, stray: Stray, now: Instant) -> Option<(Part, PartNews)> {
        let Stray { name, fresh } = stray;
        let part = self.partitions.named(&name)?;
        let Some(fresh) = fresh else {
            return Some((part, self.damaged(part, emptied::PROBLEM)?));
        };
        let fresh = self.partitions.change(part, |each| each.take_stray(fresh));
        self.admit(part, fresh??, now);
        Some((part, PartNews::Read))
    }

    fn admit(&mut self, part: Part, fresh: Fresh, now: Instant) {
        self.throttle.read(fresh.record.bytes());
        let due = self
            .partitions
            .change(part, |each| each.admit(fresh, now, unix_ms()));
        if let Some(fresh) = due.flatten() {
            self.add_message(part, fresh);
        }
    }

    fn add_message(&mut self, part: Part, fresh: Fresh) {
        let Fresh { offset, record, .. } = fresh;
        let shared = match self.order {
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
                self.add_message(part, fresh);
            }
        }
    }

    // -- out --

    /// Hands out up to `count` messages to the pool.
    pub(super) fn hand_out(&mut self, count: usize, pool: &PoolLink) {
        for _ in 0..count {
            if self.hand_out_one(pool).is_none() {
                return;
            }
        }
    }

    fn hand_out_one(&mut self, pool: &PoolLink) -> Option<()> {
        // A message must not wait for itself.
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
            self.partitions
                .change(part, |each| each.log_metadata_limit(pool.name(), is_full));
        }
        let place = next?;
        let entry = self.lanes.get(place)?;
        let partition = self.partitions.get(entry.part)?;
        pool.deliver(partition.claim(), place as u64, &entry.item);
        let part = entry.part;
        self.partitions.counted(part, self.lanes.count(part));
        Some(())
    }

    // -- on --

    /// Carries out the outcome of a delivery; returns the record to be published for it.
    pub(super) fn settle(
        &mut self,
        settlement: Settlement,
        rules: Rules<'_>,
        pool: &PoolLink,
        now: Instant,
    ) -> Option<Publication> {
        let place = usize::try_from(settlement.token).unwrap_or(usize::MAX);
        let outcome = settlement.outcome;
        match self.lanes.settle(place) {
            Settled::Ours => {}
            Settled::Void => {
                self.settled_too_late(place, &outcome, pool);
                return None;
            }
            Settled::Unknown => {
                tracing::error!(token = settlement.token, "settled, but never handed out");
                return None;
            }
        }
        let record = self.lanes.get_mut(place)?;
        record.counters.span = settlement.span.or(record.counters.span);
        let next = settle::settled(place, record, outcome, rules, now);
        self.apply_step(place, next, rules, pool, now)
    }

    fn settled_too_late(&mut self, place: Position, outcome: &Outcome, pool: &PoolLink) {
        let entry = self.lanes.remove(place);
        if let Some(Entry { item, .. }) = entry.filter(|_| outcome.is_of_work()) {
            pool.settled_too_late(item.partition, item.offset);
        }
    }

    /// Handles the end of a publication; returns the next record to be published for its message.
    pub(super) fn published(
        &mut self,
        report: Report<Purpose>,
        rules: Rules<'_>,
        pool: &PoolLink,
        now: Instant,
    ) -> Option<Publication> {
        let Report { purpose, result } = report;
        let place = purpose.place();
        if let Some(place) = place.filter(|place| self.lanes.is_void(*place)) {
            // The new owner of the partition runs the message again, and may make a dead letter of it.
            self.done(place, pool);
            return None;
        }
        let next = match result {
            Ok(()) => settle::confirmed(purpose),
            Err(code) => {
                let record = place.and_then(|place| self.lanes.get_mut(place));
                settle::given_up(purpose, code, record, rules.plan)
            }
        };
        self.apply_step(place?, next?, rules, pool, now)
    }

    fn apply_step(
        &mut self,
        place: Position,
        next: NextStep,
        rules: Rules<'_>,
        pool: &PoolLink,
        now: Instant,
    ) -> Option<Publication> {
        match next {
            NextStep::Done => self.done(place, pool),
            NextStep::Again(from) => self.lanes.again(place, from),
            NextStep::Hold(until) => self.hold(place, until),
            NextStep::Publish(publication) => {
                match &publication.purpose {
                    // No worker gets the message again, however long its dead letter takes.
                    Purpose::DeadLetter { .. } => self.lanes.let_pass(place),
                    Purpose::Tier { due, .. } => self.leaves_the_order(*due - now, rules),
                    Purpose::Reply { .. } | Purpose::Emit { .. } => {}
                }
                return Some(publication);
            }
        }
        None
    }

    /// Completes a message for which everything has been done.
    fn done(&mut self, place: Position, pool: &PoolLink) {
        let is_void = self.lanes.is_void(place);
        let Some(entry) = self.lanes.remove(place) else {
            return;
        };
        if is_void {
            let why = "their publications were accepted after their partitions were lost";
            return pool.may_run_twice(1, why);
        }
        let (part, offset) = (entry.part, entry.offset);
        self.partitions.change(part, |each| each.done(offset));
        self.partitions.counted(part, self.lanes.count(part));
    }

    /// Keeps a message for another attempt.
    fn hold(&mut self, place: Position, until: Instant) {
        if let Some(entry) = self.lanes.get(place)
            && let Some(tried) = entry.item.tried()
        {
            let (part, offset) = (entry.part, entry.offset);
            self.partitions
                .change(part, |each| each.retried(offset, tried));
        }
        self.lanes.again(place, Some(until));
    }

    fn leaves_the_order(&mut self, delay: Duration, rules: Rules<'_>) {
        if self.order == Order::None || self.warned_of_order {
            return;
        }
        self.warned_of_order = true;
        tracing::warn!(
            pool = rules.plan.pool,
            ?delay,
            in_place_max = ?rules.in_place_max,
            "message waits for longer than retry.in_place_max: it loses its place in the order"
        );
    }

    /// Returns whether the partition of a message that is settled or handed out is no longer assigned.
    pub(super) fn is_void(&self, place: Position) -> bool {
        self.lanes.is_void(place)
    }

    // -- commits --

    /// Returns whether all known progress is committed.
    pub(super) fn are_committed(&self) -> bool {
        self.partitions.are_committed()
    }

    /// Returns whether all known progress of these partitions is committed.
    pub(super) fn are_all_committed(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| self.partitions.is_committed(*part))
    }

    /// Returns the commits to send; with `force` those of all partitions.
    pub(super) fn commit(&mut self, metadata_bytes_max: usize, force: bool) -> Vec<Commit> {
        self.partitions.commit(metadata_bytes_max, force)
    }

    /// Handles the outcome of the commit; partitions of `missing` topics were not committed.
    pub(super) fn committed(&mut self, is_taken: bool, missing: &BTreeSet<String>) {
        self.partitions.committed(is_taken, missing);
    }

    // -- partitions --

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Returns the number of partitions.
    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    pub(super) fn partition(&self, part: Part) -> Option<&Partition> {
        self.partitions.get(part)
    }

    /// Returns all partitions.
    pub(super) fn parts(&self) -> Vec<Part> {
        self.partitions.iter().map(|(part, _)| part).collect()
    }

    /// Returns the assigned partitions among these names.
    pub(super) fn all_named(&self, names: &[TopicPartition]) -> Vec<Part> {
        self.partitions.all_named(names)
    }

    /// Returns the positions of all partitions except one.
    pub(super) fn starts(&self, but: Option<Part>) -> Vec<Start> {
        let others = self.partitions.iter();
        let others = others.filter(|(part, _)| Some(*part) != but);
        others
            .map(|(_, partition)| partition.at(partition.progress().position()))
            .collect()
    }

    /// Returns the parameters of the query for the states of these partitions.
    pub(super) fn asked(&self, parts: Vec<Part>) -> Vec<LogQuery> {
        let ours = parts.into_iter();
        let ours = ours.filter_map(|part| Some((part, self.partitions.get(part)?)));
        ours.map(|(part, partition)| LogQuery {
            part,
            name: partition.name().clone(),
            read_to: partition.progress().read_to(),
        })
        .collect()
    }

    /// Counts a query of its state; returns the number since a message was read of it.
    pub(super) fn ask_again(&mut self, part: Part) -> Option<u32> {
        self.partitions.change(part, Partition::ask_again)
    }

    pub(super) fn add(&mut self, partition: Partition) -> Part {
        self.partitions.add(partition)
    }

    /// Removes a partition of which nothing was read.
    pub(super) fn remove(&mut self, part: Part) {
        self.partitions.remove(part);
    }

    /// Begins to revoke partitions: none of their messages is read or handed out any more.
    pub(super) fn leave(&mut self, parts: &[Part]) {
        for part in parts {
            self.partitions.change(*part, Partition::leave);
        }
    }

    /// Returns the number of messages of these leaving partitions that are being processed or settled,
    /// without those at `held_undeliverable`.
    pub(super) fn in_hand(
        &self,
        parts: &[Part],
        held_undeliverable: impl Iterator<Item = Position>,
    ) -> usize {
        let out: usize = parts.iter().map(|part| self.lanes.count(*part).out).sum();
        let leaves = |part| self.partitions.get(part).is_some_and(Partition::is_leaving);
        let is_theirs = |place: &Position| {
            let entry = self.lanes.get(*place);
            entry.is_some_and(|entry| leaves(entry.part))
        };
        out.saturating_sub(held_undeliverable.filter(is_theirs).count())
    }

    /// Removes partitions. Their messages held by workers are void, and the workers are notified. Messages
    /// that are done and not committed are delivered again to the next reader.
    pub(super) fn forget(&mut self, parts: &[Part], pool: &PoolLink) {
        let forgotten = parts.iter().filter_map(|part| self.partitions.get(*part));
        let again = forgotten.map(|one| one.progress().uncommitted()).sum();
        let why = "their partitions were lost before their completion was committed";
        pool.may_run_twice(again, why);
        for part in parts {
            self.lanes.forget(*part);
            self.throttle.forget(*part);
            self.partitions.remove(*part);
        }
        pool.lost();
    }

    /// Switches a partition to another log, which starts at `fork` and is read from `to` on. Its messages
    /// that are handed out are void. The partition is renumbered.
    pub(super) fn switch_log(&mut self, part: Part, to: i64, fork: i64, pool: &PoolLink) -> Part {
        self.partitions
            .change(part, |each| each.switch_log(to, fork));
        self.lanes.forget(part);
        self.throttle.forget(part);
        pool.lost();
        self.partitions.rename(part)
    }

    /// Declares that unread offsets below this one will never be read.
    pub(super) fn skip_to(&mut self, part: Part, offset: i64) {
        self.partitions.change(part, |each| each.skip_to(offset));
    }

    /// Records that a partition is fetched again.
    pub(super) fn restarted(&mut self, part: Part) {
        self.partitions.change(part, Partition::restarted);
    }

    // -- fetching --

    /// Returns the partitions to pause and to resume, so that librdkafka holds no more than its limit; none
    /// if no check is due. `bytes` is the memory that the daemon has left for them.
    pub(super) fn throttle(&mut self, bytes: usize, now: Instant) -> Option<Fetching> {
        if !self.throttle.may_look(now) {
            return None;
        }
        let tiers = self.partitions.to_pause(now + PAUSE_TIER_AFTER);
        let mut pause = self.set_pause(&tiers, Some(Pause::HeadNotDue));
        let mut resumed = self.partitions.to_resume();
        let (full, empty) = (self.partitions.full(), self.partitions.empty());
        let change = self.throttle.turn(full, empty, bytes, now);
        pause.extend(self.set_pause(&change.pause, Some(Pause::Turn)));
        resumed.extend(change.resume);
        let resume = self.set_pause(&resumed, None);
        Some(Fetching { pause, resume })
    }

    /// Returns the paused partitions among these, to be resumed.
    pub(super) fn wake(&mut self, parts: &[Part]) -> Vec<TopicPartition> {
        self.set_pause(parts, None)
    }

    /// Sets the reason why partitions are paused; returns those for which that is new.
    fn set_pause(&mut self, parts: &[Part], why: Option<Pause>) -> Vec<TopicPartition> {
        let mut names = Vec::with_capacity(parts.len());
        for part in parts {
            let name = self
                .partitions
                .change(*part, |each| each.pause(why).then(|| each.name().clone()));
            names.extend(name.flatten());
        }
        names
    }

    // -- statistics --

    /// Handles the statistics of the partitions.
    pub(super) fn take_statistics(&mut self, statistics: &[Lag]) -> Summary {
        let oldest = self.oldest_here();
        let lanes = &self.lanes;
        let here = |part| HeldOfPartition {
            out: lanes.count(part).out,
            oldest_ms: oldest.get(&part).copied(),
        };
        self.partitions.take_statistics(statistics, here)
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

fn last_of(part: Part, news: &[(Part, PartNews)]) -> Option<&PartNews> {
    let last = news.last().filter(|(other, _)| *other == part);
    last.map(|(_, one)| one)
}

#[cfg(test)]
mod tests;
