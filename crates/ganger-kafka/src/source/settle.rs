//! Next step of a message: after its settlement, and after the end of a publication that it waits for. Pure,
//! except for the wall clock and the ids of dead letters.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::dead_letter_write::DeadLetterWrite;
use super::known_topics::KnownTopics;
use super::ordering::Position;
use super::purpose::{Publication, Purpose};
use crate::broker::error::words;
use crate::broker::headers;
use crate::broker::record::{Outbound, Record, reply_of_dead_letter};
use crate::broker::setup::Plan;
use crate::broker::topic_names::LADDER;
use ganger_config::model::Order;
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::DeadLetterRecord;
use ganger_queue::delivery::{Failure, LogName, Outcome, Outgoing, Publish};
use ganger_queue::publishing::{confirm, undeliverable};
use ganger_telemetry::metrics::dead_lettered;

/// Returns the current time in milliseconds of Unix time.
pub(super) fn unix_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Next step of a message.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Everything has been done for it.
    Done,
    /// It is handed out again, at once or from a given time on.
    Again(Option<Instant>),
    /// It is kept for another attempt, in which its earlier ones count.
    Hold(Instant),
    /// It is published elsewhere, and done once that is confirmed.
    Publish(Publication),
}

/// Rules by which messages are settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) plan: &'a Plan,
    pub(super) topics: &'a KnownTopics,
    /// Longest delay for which a message keeps its place in the order.
    pub(super) in_place_max: Duration,
}

// -- outcomes --

/// Returns the next step after an outcome, and records the outcome in the message.
pub(super) fn settled(
    place: Position,
    record: &mut Record,
    outcome: Outcome,
    rules: Rules<'_>,
    now: Instant,
) -> NextStep {
    match outcome {
        Outcome::Done => NextStep::Done,
        Outcome::Reply(reply) => NextStep::Publish(self::reply(place, record, reply)),
        Outcome::Requeue { after } => {
            record.requeue();
            NextStep::Again(Some(now + after))
        }
        Outcome::Return { suspect } => {
            record.suspect |= suspect;
            NextStep::Again(None)
        }
        Outcome::ReturnAfter { delay } => later(place, record, delay, rules, now),
        Outcome::RetryAfter { delay, failure } => {
            record.charge(failure.reason, unix_ms());
            later(place, record, delay, rules, now)
        }
        Outcome::DeadLetter(failure) => write_dead_letter(place, record, &failure, rules.plan),
    }
}

fn reply(place: Position, record: &Record, reply: Box<Outgoing>) -> Publication {
    let record = Outbound {
        topic: reply.queue.clone(),
        // The original key, which need not be text.
        key: record.key.clone(),
        value: Some(reply.body.clone()),
        headers: headers::outgoing(&reply, &record.headers),
        timestamp_ms: None,
        compressed: false,
    };
    let purpose = Purpose::Reply { place, reply };
    Publication { record, purpose }
}

/// Delays a message: in memory, where it keeps its place in the order, or in a tier.
fn later(
    place: Position,
    record: &Record,
    delay: Duration,
    rules: Rules<'_>,
    now: Instant,
) -> NextStep {
    let due = now + delay;
    if rules.plan.order != Order::None && delay <= rules.in_place_max {
        return NextStep::Hold(due);
    }
    let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
    // Rounded up, so that it is never early.
    let due_ms = unix_ms().saturating_add(delay_ms).saturating_add(1);
    // The tier may not exist yet.
    let Some(tier) = rules.topics.tier(&record.topic, LADDER.tier(delay)) else {
        return NextStep::Hold(due);
    };
    NextStep::Publish(Publication {
        record: record.in_tier(tier.clone(), due_ms),
        purpose: Purpose::Tier { place, due },
    })
}

fn write_dead_letter(
    place: Position,
    record: &mut Record,
    failure: &Failure,
    plan: &Plan,
) -> NextStep {
    record.charge(failure.reason, unix_ms());
    let id = dead_letter::id(unix_ms(), fastrand::u128(..));
    let written = DeadLetterRecord {
        id: &id,
        pool: &plan.pool,
        queue: &record.topic,
        message_name: Some(record.name()),
        counters: record.counters,
        now_ms: unix_ms(),
        failure,
    }
    .write();
    let dead = plan.dead(&record.topic);
    let letter = record.as_dead_letter(&dead, &id, written.headers);
    let reply = written.reply;
    let reply = reply.map(|apart| reply_of_dead_letter(&dead, &id, apart));
    write_next_record(place, Box::new(DeadLetterWrite::new(reply, letter)))
}

/// Returns the next record of a dead letter; once there is none, its message is done.
fn write_next_record(place: Position, write: Box<DeadLetterWrite>) -> NextStep {
    match write.next().cloned() {
        Some(record) => NextStep::Publish(Publication {
            record,
            purpose: Purpose::DeadLetter { place, write },
        }),
        None => NextStep::Done,
    }
}

// -- publications --

/// Returns the publication of an emit; none if its caller no longer waits: the task behind it failed and will
/// publish again.
pub(super) fn emit(publish: Publish) -> Option<Publication> {
    let Publish { message, confirmed } = publish;
    if confirmed.is_closed() {
        return None;
    }
    let record = Outbound {
        topic: message.queue.clone(),
        key: message.key.clone().map(Into::into),
        value: Some(message.body.clone()),
        headers: headers::outgoing(&message, &headers::Raw::new()),
        timestamp_ms: None,
        compressed: false,
    };
    let queue = message.queue;
    let purpose = Purpose::Emit { queue, confirmed };
    Some(Publication { record, purpose })
}

/// Returns the next step of the message of a confirmed publication; none if it has no message.
pub(super) fn confirmed(purpose: Purpose) -> Option<NextStep> {
    match purpose {
        Purpose::Reply { .. } | Purpose::Tier { .. } => Some(NextStep::Done),
        Purpose::DeadLetter { place, mut write } => {
            write.stored();
            Some(write_next_record(place, write))
        }
        Purpose::Emit { confirmed, queue } => {
            confirm(confirmed, &queue, Ok(()));
            None
        }
    }
}

/// Returns the next step of the message of a publication that is given up; none if it has no message.
pub(super) fn given_up(
    purpose: Purpose,
    code: Code,
    record: Option<&mut Record>,
    plan: &Plan,
) -> Option<NextStep> {
    let (why, pool) = (words(code), plan.pool.as_str());
    Some(match purpose {
        Purpose::Emit { queue, confirmed } => {
            confirm(confirmed, &queue, Err(why));
            return None;
        }
        Purpose::Reply { place, reply } => {
            let record = record?;
            let failure = undeliverable(reply, &why);
            dead_lettered(pool, &LogName::of(&record.message()), &failure);
            write_dead_letter(place, record, &failure, plan)
        }
        Purpose::Tier { due, .. } => {
            tracing::error!(
                pool,
                why,
                "tier rejected a copy; the message waits in memory"
            );
            NextStep::Hold(due)
        }
        Purpose::DeadLetter { place, mut write } => {
            tracing::warn!(pool, why, "dead letter rejected in this form");
            write.shrink(code);
            write_next_record(place, write)
        }
    })
}
