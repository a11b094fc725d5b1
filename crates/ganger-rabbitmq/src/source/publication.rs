//! Publications required before a delivery can be acknowledged: replies, copies for later, dead letters; and
//! the substitutes when the broker permanently rejects one. Pure.

use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;

use super::purpose::Purpose;
use super::targets::{Targets, given_up_reason};
use crate::broker::field_table::long;
use crate::broker::publisher::OutboundMessage;
use crate::broker::republish::{
    HEAD_ROOM_BYTES, Marks, Original, PERSISTENT, check_size, fitting, published,
};
use crate::broker::signature::CopyKey;
use crate::rules::{Arrival, RETURNS_MAX, message_name, tiers};
use ganger_queue::attempts;
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::{Counters, DeadLetterRecord, OwnHeaders, header};
use ganger_queue::delivery::{Failure, Outgoing, Reason};
use ganger_queue::publishing;

/// Prefix of queues that exist only as long as a caller waits for an answer, on the same broker. RabbitMQ 3
/// reports that there is none even though the answer arrives.
const DIRECT_REPLY: &str = "amq.rabbitmq.reply-to";

/// Delay of a suspect if too many wait.
const PARKED_FOR: Duration = Duration::from_secs(5);

/// Bytes kept of a reply that is too large for a message of its own, and bytes kept if even that is
/// too large.
const SHORT_REPLIES_BYTES: [usize; 2] = [1 << 20, 16 << 10];

/// Publication for a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Publication {
    /// Reply with the work's result.
    Reply(Box<Outgoing>),
    /// Delayed copy, since an attempt has failed.
    Retry {
        /// Counters, with this attempt charged.
        counters: Counters,
        delay: Duration,
        failure: Box<Failure>,
    },
    /// Delayed copy, since the worker requested it; no attempt is charged.
    Requeue { counters: Counters, after: Duration },
    /// Copy without a delay, since the broker would count this message once too often.
    Back,
    /// Copy without a delay, marked as a suspect whose turn begins.
    Turn,
    /// Delayed copy of a suspect: too many wait.
    Parked,
    /// Dead letter.
    DeadLetter {
        counters: Counters,
        failure: Box<Failure>,
        form: DeadLetterDetail,
    },
}

impl Publication {
    /// Purpose, by which the broker's verdict is judged.
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Self::Reply(_) => Purpose::Reply,
            Self::Back => Purpose::Back,
            Self::Turn => Purpose::Turn,
            Self::Retry { .. } | Self::Requeue { .. } | Self::Parked | Self::DeadLetter { .. } => {
                Purpose::Kept
            }
        }
    }
}

/// Level of detail of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadLetterDetail {
    /// Everything that is known.
    Full,
    /// Only that many bytes from the beginning of the reply that could not be delivered.
    ShortReply(usize),
    /// Everything except that reply.
    WithoutReply,
    /// The reason and the origin.
    Short,
    /// No details at all.
    Bare,
}

/// Delivery for which a message is published.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) original: &'a Original,
    pub(super) body: &'a Bytes,
    pub(super) arrival: Arrival,
}

/// Common parameters of all publications of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Composer<'a> {
    /// Name of the pool.
    pub(super) pool: &'a str,
    /// Queue that it reads.
    pub(super) queue: &'a str,
    /// Queue of its dead letters.
    pub(super) dead: &'a str,
    /// Key by which copies are signed.
    pub(super) key: &'a CopyKey,
    /// Queues that are given up.
    pub(super) targets: &'a Targets,
    /// Maximum size of a frame in bytes, into which a message's headers must fit.
    pub(super) frame_max: u32,
    /// Unix time.
    pub(super) now_ms: i64,
    /// Random bits for the name of a dead letter.
    pub(super) random: u128,
}

impl Composer<'_> {
    /// Messages for a publication, each to be confirmed before the next is sent. The error is the reason why
    /// there can be none.
    pub(super) fn parcels(
        &self,
        subject: &Subject<'_>,
        publication: &Publication,
    ) -> Result<Vec<OutboundMessage>, String> {
        match publication {
            Publication::Reply(reply) => Ok(vec![self.outgoing(reply, Some(subject.original))?]),
            Publication::Retry {
                counters, delay, ..
            } => Ok(vec![self.later(subject, *counters, *delay)?]),
            Publication::Requeue { counters, after } => {
                Ok(vec![self.later(subject, *counters, *after)?])
            }
            Publication::Back => Ok(vec![self.copy(subject, None)?]),
            Publication::Turn => Ok(vec![self.copy(subject, subject.arrival.turn)?]),
            Publication::Parked => Ok(vec![self.delayed(
                subject,
                &self.marks(subject.arrival),
                PARKED_FOR,
            )?]),
            Publication::DeadLetter {
                counters,
                failure,
                form,
            } => self.dead_letter(subject, *counters, failure, *form),
        }
    }

    /// Message that a worker sends, as a reply or an emit.
    pub(super) fn outgoing(
        &self,
        message: &Outgoing,
        continued: Option<&Original>,
    ) -> Result<OutboundMessage, String> {
        if self.targets.is_unresponsive(&message.queue) {
            return Err(given_up_reason());
        }
        let to = fitting("queue's name", &message.queue)?;
        let mandatory = !message.queue.starts_with(DIRECT_REPLY);
        let properties = published(message, continued)?;
        self.parcel(to, mandatory, properties, message.body.clone())
    }

    /// Copy in the tier of this delay.
    fn later(
        &self,
        subject: &Subject<'_>,
        counters: Counters,
        delay: Duration,
    ) -> Result<OutboundMessage, String> {
        let marks = Marks {
            counters,
            number: subject.arrival.number,
            ..Marks::none(self.queue)
        };
        self.delayed(subject, &marks, delay)
    }

    fn delayed(
        &self,
        subject: &Subject<'_>,
        marks: &Marks<'_>,
        delay: Duration,
    ) -> Result<OutboundMessage, String> {
        let to = tiers::tier_queue(self.queue, tiers::tier(delay));
        let properties = subject
            .original
            .copied(marks, subject.body, self.key)
            .with_expiration(fitting("delay", &delay.as_millis().to_string())?);
        let to = fitting("queue's name", &to)?;
        self.copied_parcel(to, properties, subject.body.clone())
    }

    /// Copy that will be read again: the broker adds its history, and does not check whether that still fits
    /// into a frame. Otherwise it could not be read, nor anything behind it.
    fn copied_parcel(
        &self,
        to: ShortString,
        properties: BasicProperties,
        body: Bytes,
    ) -> Result<OutboundMessage, String> {
        check_size(&properties, self.frame_max.saturating_sub(HEAD_ROOM_BYTES))?;
        self.parcel(to, true, properties, body)
    }

    /// Copy in the queue that the message came from.
    fn copy(&self, subject: &Subject<'_>, turn: Option<u64>) -> Result<OutboundMessage, String> {
        let marks = Marks {
            turn,
            ..self.marks(subject.arrival)
        };
        let properties = subject.original.copied(&marks, subject.body, self.key);
        let to = fitting("queue's name", self.queue)?;
        self.copied_parcel(to, properties, subject.body.clone())
    }

    /// Marks of a copy whose message has no new history.
    fn marks(&self, arrival: Arrival) -> Marks<'_> {
        Marks {
            queue: self.queue,
            counters: arrival.counters,
            suspect: arrival.suspect,
            lapses: arrival.lapses,
            turn: None,
            number: arrival.number,
        }
    }

    fn dead_letter(
        &self,
        subject: &Subject<'_>,
        counters: Counters,
        failure: &Failure,
        form: DeadLetterDetail,
    ) -> Result<Vec<OutboundMessage>, String> {
        let to = fitting("queue's name", self.dead)?;
        let body = subject.body.clone();
        if form == DeadLetterDetail::Bare {
            let parcel = self.parcel(to, true, subject.original.bare(), body)?;
            return Ok(vec![parcel]);
        }
        let id = dead_letter::id(self.now_ms, self.random);
        let reduced = reduced(failure, form);
        let written = DeadLetterRecord {
            id: &id,
            pool: self.pool,
            queue: self.queue,
            message_name: message_name(self.queue, subject.arrival.number),
            counters,
            now_ms: self.now_ms,
            failure: &reduced,
        }
        .write();
        let mut parcels = Vec::with_capacity(2);
        if let Some(reply) = written.reply {
            let properties = own_properties(&reply.headers);
            parcels.push(self.parcel(to.clone(), true, properties, reply.body)?);
        }
        let original = subject.original;
        let properties = original.with_own(&written.headers, &body, self.key);
        parcels.push(self.copied_parcel(to, properties, body)?);
        Ok(parcels)
    }

    fn parcel(
        &self,
        to: ShortString,
        mandatory: bool,
        properties: BasicProperties,
        body: Bytes,
    ) -> Result<OutboundMessage, String> {
        check_size(&properties, self.frame_max)?;
        Ok(OutboundMessage {
            exchange: ShortString::default(),
            to,
            mandatory,
            properties,
            body,
        })
    }
}

/// Failure, reduced to this level of detail.
fn reduced(failure: &Failure, form: DeadLetterDetail) -> Failure {
    match form {
        DeadLetterDetail::Full => failure.clone(),
        DeadLetterDetail::ShortReply(bytes) => Failure {
            reply: failure
                .reply
                .as_deref()
                .map(|reply| truncated(reply, bytes)),
            ..failure.clone()
        },
        DeadLetterDetail::WithoutReply => Failure {
            reply: None,
            ..failure.clone()
        },
        DeadLetterDetail::Short | DeadLetterDetail::Bare => Failure {
            reason: failure.reason,
            ..Failure::default()
        },
    }
}

/// Beginning of a reply, with a note of the number of missing bytes.
fn truncated(reply: &Outgoing, bytes_max: usize) -> Box<Outgoing> {
    let bytes = reply.body.len().saturating_sub(bytes_max);
    let mut short = reply.clone();
    short.body.truncate(bytes_max);
    let note = (header::REPLY_CUT.to_owned(), bytes.to_string());
    // Before others for which there may be no room.
    short.headers.insert(0, note);
    Box::new(short)
}

/// Next lower level of detail that is really shorter; `None` if there is none.
fn shorter(form: DeadLetterDetail, failure: &Failure) -> Option<DeadLetterDetail> {
    let reply = failure.reply.as_ref().map_or(0, |reply| reply.body.len());
    let said = match form {
        DeadLetterDetail::Full => reply,
        DeadLetterDetail::ShortReply(bytes) => bytes,
        DeadLetterDetail::WithoutReply => return Some(DeadLetterDetail::Short),
        DeadLetterDetail::Short => return Some(DeadLetterDetail::Bare),
        DeadLetterDetail::Bare => return None,
    };
    let mut less = SHORT_REPLIES_BYTES
        .into_iter()
        .filter(|bytes| *bytes < said);
    Some(match less.next() {
        Some(bytes) => DeadLetterDetail::ShortReply(bytes),
        None if failure.reply.is_some() => DeadLetterDetail::WithoutReply,
        None => DeadLetterDetail::Short,
    })
}

fn own_properties(own: &OwnHeaders) -> BasicProperties {
    let mut table = lapin::types::FieldTable::default();
    for (name, value) in own {
        table.insert((*name).into(), long(value));
    }
    debug_assert!(table.contains_key(header::REPLY_OF));
    BasicProperties::default()
        .with_headers(table)
        .with_delivery_mode(PERSISTENT)
}

/// Substitute for a publication that the broker permanently rejects; `None` if there is none left to try.
pub(super) fn substitute(
    publication: Publication,
    arrival: Arrival,
    now_ms: i64,
    why: &str,
) -> Option<Publication> {
    let counters = arrival.counters;
    match publication {
        // The work is done, and must not be repeated.
        Publication::Reply(reply) => {
            let failure = publishing::undeliverable(reply, why);
            Some(Publication::DeadLetter {
                counters: attempts::charged(counters, failure.reason, now_ms),
                failure: Box::new(failure),
                form: DeadLetterDetail::Full,
            })
        }
        Publication::Retry {
            counters,
            mut failure,
            ..
        } => {
            failure.error = format!("{}; no retry is possible: {why}", failure.error);
            Some(Publication::DeadLetter {
                counters,
                failure,
                form: DeadLetterDetail::Full,
            })
        }
        Publication::DeadLetter {
            counters,
            mut failure,
            form,
        } => {
            let form = shorter(form, &failure)?;
            if form == DeadLetterDetail::WithoutReply {
                failure.error =
                    format!("{}; the reply can't be stored either: {why}", failure.error);
            }
            Some(Publication::DeadLetter {
                counters,
                failure,
                form,
            })
        }
        // It would be redelivered at once, as often as its worker requests that.
        Publication::Requeue { counters, .. } => {
            let failure = Failure {
                error: format!("the worker requested a requeue, which is impossible: {why}"),
                ..Failure::default()
            };
            Some(Publication::DeadLetter {
                counters: attempts::charged(counters, failure.reason, now_ms),
                failure: Box::new(failure),
                form: DeadLetterDetail::Full,
            })
        }
        // The broker would drop it at some time, since it counts messages that are returned unchanged.
        Publication::Back | Publication::Parked if arrival.returns >= RETURNS_MAX => {
            let returns = arrival.returns;
            let error = format!(
                "returned to its queue {returns} times, and the queue accepts no copy of it: \
                 {why}"
            );
            Some(Publication::DeadLetter {
                counters,
                failure: Box::new(Failure::new(Reason::Undeliverable, error)),
                form: DeadLetterDetail::Full,
            })
        }
        Publication::Back | Publication::Turn | Publication::Parked => None,
    }
}

#[cfg(test)]
mod tests;
