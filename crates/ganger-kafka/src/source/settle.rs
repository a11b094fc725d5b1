//! Carries out outcomes and handles the confirmations of what they had published.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::burial::Burial;
use super::event_loop::Task;
use super::health::HealthIssue;
use super::ordering::{Position, Settled};
use super::purpose::Purpose;
use crate::broker::error::words;
use crate::broker::producer::{Report, Then};
use crate::broker::record::{Outbound, Record, reply_of_letter};
use crate::broker::topic_names::LADDER;
use crate::broker::{error, headers, topic_names};
use ganger_config::model::Order;
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::Letter;
use ganger_queue::delivery::{Failure, LogName, Outcome, Outgoing, Publish, Settlement};
use ganger_queue::publishing::{confirm, undeliverable};
use ganger_telemetry::metrics::dead_lettered;

/// Returns the current time in milliseconds of Unix time.
pub(super) fn unix_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Task {
    // -- outcomes --

    /// Carries out the outcome of a delivery.
    pub(super) fn settle(&mut self, settlement: Settlement) {
        let place = usize::try_from(settlement.token).unwrap_or(usize::MAX);
        let outcome = settlement.outcome;
        match self.lanes.settle(place) {
            Settled::Ours => {}
            Settled::Void => return self.settled_too_late(place, &outcome),
            Settled::Unknown => {
                tracing::error!(token = settlement.token, "settled, but never handed out");
                return;
            }
        }
        let now = Instant::now();
        if let (Some(span), Some(record)) = (settlement.span, self.lanes.get_mut(place)) {
            record.counters.span = Some(span);
        }
        match outcome {
            Outcome::Done => self.done(place),
            Outcome::Reply(reply) => self.reply(place, reply),
            Outcome::Requeue { after } => self.requeue(place, now + after),
            Outcome::Return { suspect } => {
                if let Some(record) = self.lanes.get_mut(place) {
                    record.suspect |= suspect;
                }
                self.lanes.again(place, None);
            }
            Outcome::ReturnAfter { delay } => self.later(place, delay, now),
            Outcome::RetryAfter { delay, failure } => {
                if let Some(record) = self.lanes.get_mut(place) {
                    record.charge(failure.reason, unix_ms());
                }
                self.later(place, delay, now);
            }
            Outcome::DeadLetter(failure) => self.bury(place, &failure),
        }
    }

    fn settled_too_late(&mut self, place: Position, outcome: &Outcome) {
        let Some(entry) = self.lanes.remove(place) else {
            return;
        };
        if !outcome.is_of_work() {
            return;
        }
        self.end.may_run_twice(1);
        tracing::warn!(
            pool = self.plan.pool,
            partition = entry.item.partition,
            offset = entry.item.offset,
            "settled too late: the partition was lost, so the message may run twice"
        );
    }

    /// Completes a message for which everything has been done.
    fn done(&mut self, place: Position) {
        let is_void = self.lanes.is_void(place);
        let Some(entry) = self.lanes.remove(place) else {
            return;
        };
        if is_void {
            let why = "what was published for them was taken after their partitions were lost";
            self.health.may_run_twice(&self.end, 1, why);
            return;
        }
        let (part, offset) = (entry.part, entry.offset);
        self.partitions.change(part, |each| each.done(offset));
        self.partitions.counted(part, self.lanes.count(part));
    }

    fn reply(&mut self, place: Position, reply: Box<Outgoing>) {
        let Some(record) = self.lanes.get(place).map(|entry| &entry.item) else {
            return;
        };
        let outbound = Outbound {
            topic: reply.queue.clone(),
            // The original key, which need not be text.
            key: record.key.clone(),
            value: Some(reply.body.clone()),
            headers: headers::outgoing(&reply, &record.headers),
            timestamp_ms: None,
            compressed: false,
        };
        self.publish(outbound, Purpose::Reply { place, reply });
    }

    fn requeue(&mut self, place: Position, from: Instant) {
        if let Some(record) = self.lanes.get_mut(place) {
            record.requeue();
        }
        self.lanes.again(place, Some(from));
    }

    /// Delays a message: in memory, where it keeps its place in the order, or in a tier.
    fn later(&mut self, place: Position, delay: Duration, now: Instant) {
        let in_place_max = self.policy.borrow().retry.in_place_max;
        if self.plan.order != Order::None && delay <= in_place_max {
            self.hold(place, now + delay);
            return;
        }
        if self.plan.order != Order::None && !self.told_of_order {
            self.told_of_order = true;
            tracing::warn!(
                pool = self.plan.pool,
                ?delay,
                ?in_place_max,
                "a message is to wait for longer than retry.in_place_max: it leaves the order"
            );
        }
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // Rounded up: never early.
        let due_ms = unix_ms().saturating_add(delay_ms).saturating_add(1);
        let Some(record) = self.lanes.get(place).map(|entry| &entry.item) else {
            return;
        };
        // The tier may not exist yet.
        let tier = self.topics.tier(&record.topic, LADDER.tier(delay)).cloned();
        let Some(topic) = tier else {
            self.hold(place, now + delay);
            return;
        };
        let outbound = record.in_tier(topic, due_ms);
        let due = now + delay;
        self.producer.send(outbound, Purpose::Tier { place, due });
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

    fn bury(&mut self, place: Position, failure: &Failure) {
        let Some(record) = self.lanes.get_mut(place) else {
            return;
        };
        record.charge(failure.reason, unix_ms());
        // No worker gets it again, however long its dead letter takes.
        self.lanes.let_pass(place);
        let id = dead_letter::id(unix_ms(), fastrand::u128(..));
        let Some(record) = self.lanes.get(place).map(|entry| &entry.item) else {
            return;
        };
        let written = self.letter(&id, record, failure).write();
        let dead = self.plan.dead(&record.topic);
        let letter = record.as_letter(&dead, &id, written.headers);
        let reply = written.reply;
        let reply = reply.map(|apart| reply_of_letter(&dead, &id, apart));
        self.bury_next(place, Box::new(Burial::new(reply, letter)));
    }

    /// Sends the next record of a dead letter; once there is none, its message is done.
    fn bury_next(&mut self, place: Position, burial: Box<Burial>) {
        match burial.next().cloned() {
            Some(record) => {
                let purpose = Purpose::Letter { place, burial };
                self.producer.send(record, purpose);
            }
            None => self.done(place),
        }
    }

    fn letter<'a>(&'a self, id: &'a str, record: &'a Record, failure: &'a Failure) -> Letter<'a> {
        Letter {
            id,
            pool: &self.plan.pool,
            queue: &record.topic,
            message_name: Some(record.name()),
            counters: record.counters,
            now_ms: unix_ms(),
            failure,
        }
    }

    // -- publications --

    /// Publishes to a topic that a worker chose. What no broker would accept is handled as if one had
    /// rejected it.
    fn publish(&mut self, outbound: Outbound, purpose: Purpose) {
        if topic_names::fault_in(&outbound.topic).is_some() {
            self.refused(purpose, Code::InvalidTopic);
        } else if self.strangers.refuse(&outbound.topic) {
            self.refused(purpose, Code::MessageTimedOut);
        } else {
            self.producer.send(outbound, purpose);
        }
    }

    /// Publishes without settling anything.
    pub(super) fn emit(&mut self, publish: Publish) {
        let Publish { message, confirmed } = publish;
        // The caller has given up, so the task behind it failed and will publish again.
        if confirmed.is_closed() {
            return;
        }
        let outbound = Outbound {
            topic: message.queue.clone(),
            key: message.key.clone().map(Into::into),
            value: Some(message.body.clone()),
            headers: headers::outgoing(&message, &headers::Raw::new()),
            timestamp_ms: None,
            compressed: false,
        };
        let queue = message.queue;
        self.publish(outbound, Purpose::Emit { queue, confirmed });
    }

    pub(super) fn has_room_for_publishes(&self) -> bool {
        !self.standstill.in_doubt() && !self.producer.is_full()
    }

    /// Handles confirmations and rejections.
    pub(super) fn published(&mut self, now: Instant) {
        let lanes = &self.lanes;
        // Messages of revoked partitions run again at their new owner.
        let is_void = |purpose: &Purpose| purpose.place().is_some_and(|place| lanes.is_void(place));
        self.strangers
            .look(now, self.health.has(HealthIssue::Brokers));
        let strangers = &self.strangers;
        let reports = self.producer.reports(now, |purpose, code, age| {
            if is_void(purpose) {
                Then::GiveUp
            } else {
                purpose.then(code, strangers.is_too_long(now, age))
            }
        });
        let is_taken = reports.ended.iter().any(|report| report.result.is_ok());
        if is_taken {
            self.health.over(&self.end, HealthIssue::Brokers);
            self.health.over(&self.end, HealthIssue::Refused);
        }
        // A refusal is an answer, too.
        let is_heard = is_taken || !reports.refused.is_empty();
        if is_heard && self.producer.unheard(now).is_none() || self.producer.is_idle() {
            self.health.over(&self.end, HealthIssue::Publishing);
        }
        for (code, topic) in reports.refused {
            let problem = error::reason(code, &topic);
            self.health.begin(&self.end, HealthIssue::Letters, problem);
        }
        if self.producer.refused() == 0 {
            self.health.over(&self.end, HealthIssue::Letters);
        }
        for Report { purpose, result } in reports.ended {
            if let Some(topic) = purpose.stranger() {
                self.strangers.heard(topic, result);
            }
            match result {
                Ok(()) => self.confirmed(purpose),
                Err(code) => self.refused(purpose, code),
            }
        }
        self.make_room(now);
        // A reported reason is more useful.
        if let Some(topic) = self.producer.unheard(now)
            && !self.health.has(HealthIssue::Publishing)
        {
            let problem = format!("nothing is confirmed of what is for the topic `{topic}`");
            self.health
                .begin(&self.end, HealthIssue::Publishing, problem);
        }
        for (code, detail) in reports.errors {
            let problem = error::reason(code, &detail);
            // The consumer reports brokers that are away.
            if matches!(
                code,
                Code::AllBrokersDown | Code::BrokerTransportFailure | Code::Resolve
            ) {
                tracing::debug!(
                    pool = self.plan.pool,
                    problem,
                    "the producer has no connection"
                );
            } else if !self.producer.is_idle() {
                self.health
                    .begin(&self.end, HealthIssue::Publishing, problem);
            }
        }
    }

    /// Makes room, so that callers that do not take their replies do not block the others.
    fn make_room(&mut self, now: Instant) {
        if self.health.has(HealthIssue::Brokers) {
            return;
        }
        let is_reply = |purpose: &Purpose| matches!(purpose, Purpose::Reply { .. });
        while let Some(purpose) = self.producer.make_room(now, is_reply) {
            if let Some(topic) = purpose.stranger() {
                self.strangers.given_up(topic);
            }
            self.refused(purpose, Code::MessageTimedOut);
        }
    }

    fn confirmed(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Reply { place, .. } | Purpose::Tier { place, .. } => self.done(place),
            // The new owner of the partition runs the message again, and may bury it.
            Purpose::Letter { place, .. } if self.lanes.is_void(place) => self.done(place),
            Purpose::Letter { place, mut burial } => {
                burial.stored(Instant::now());
                self.bury_next(place, burial);
            }
            Purpose::Emit { confirmed, queue } => confirm(confirmed, &queue, Ok(())),
        }
    }

    /// Handles a publication that is given up.
    fn refused(&mut self, purpose: Purpose, code: Code) {
        let why = words(code);
        let pool = self.plan.pool.clone();
        if let Some(place) = purpose.place().filter(|place| self.lanes.is_void(*place)) {
            // The new owner of the partition runs the message again.
            return self.done(place);
        }
        match purpose {
            Purpose::Emit { queue, confirmed } => confirm(confirmed, &queue, Err(why)),
            Purpose::Reply { place, reply } => {
                let message = self.lanes.get(place).map(|entry| entry.item.message());
                let name = message.as_ref().map(LogName::of).unwrap_or_default();
                let failure = undeliverable(reply, &why);
                dead_lettered(&pool, &name, &failure);
                self.bury(place, &failure);
            }
            Purpose::Tier { place, due } => {
                tracing::error!(
                    pool,
                    why,
                    "a tier does not take a copy; the message waits here"
                );
                self.hold(place, due);
            }
            Purpose::Letter { place, mut burial } => {
                tracing::warn!(pool, why, "a dead letter is not taken as it is");
                burial.shrink(code);
                self.bury_next(place, burial);
            }
        }
    }
}
