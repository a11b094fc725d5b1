//! Copies of messages: the data that a retry, a requeue or a dead letter keeps, the data that it must not
//! keep since it would take effect again, and the restoring of the message as its producer sent it. Pure.

use std::sync::Arc;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::field_table::{header_frame_bytes, long, text};
use super::returned::NUMBER_BYTES;
use super::signature::CopyKey;
use super::utf8::FRAME_BYTES_MAX;
use crate::rules::Arrival;
use ganger_core::names::{
    ATTEMPTS_MAX_HEADER, CONTENT_ENCODING_HEADER, CONTENT_TYPE_HEADER, KEPT_HEADERS,
    OCCURRENCE_HEADER, STEP_HEADER,
};
use ganger_queue::attempts;
use ganger_queue::dead_letter::{Counters, OwnHeaders, header};
use ganger_queue::delivery::{Headers, Outgoing};

pub(crate) mod kept;

/// Space in a frame for the data that the broker adds to a copy: the names of an exchange, of two queues and
/// of routing keys, and the count of its visits.
pub(crate) const HEAD_ROOM_BYTES: u32 = 4096;

/// Headers that the broker acts on.
const ACTIVE: [&str; 2] = ["CC", "BCC"];
/// Headers that the broker writes.
const DEATHS: [&str; 7] = [
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
];
/// Number of times that the message was returned to its queue.
const DELIVERY_COUNT: &str = "x-delivery-count";
/// Number of times that it was delivered, on newer brokers.
const ACQUIRED_COUNT: &str = "x-acquired-count";

/// The persistent delivery mode.
pub(crate) const PERSISTENT: u8 = 2;

/// A message as its producer sent it, however often ganger has copied it since.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Original {
    /// Properties, with its headers, its step and its occurrence, and without any other header of ganger's
    /// own.
    pub(crate) properties: BasicProperties,
    /// Exchange that it was published to.
    pub(crate) exchange: String,
    /// Routing key that it was published with.
    pub(crate) routing_key: String,
}

/// A message, or a copy of one, as the broker delivers it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) properties: BasicProperties,
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) redelivered: bool,
}

/// Separates the message from the data that the broker has added, and from that of ganger, if it is one of
/// ganger's copies. On any other message ganger's headers have no meaning.
pub(crate) fn unwrap(received: Received, is_copy: bool) -> (Original, Arrival) {
    let Received {
        properties,
        exchange,
        routing_key,
        redelivered,
    } = received;
    let mut original = Original {
        properties,
        exchange: exchange.into(),
        routing_key: routing_key.into(),
    };
    let mut arrival = Arrival {
        redelivered,
        ..Arrival::default()
    };
    let Some(headers) = original.properties.headers() else {
        return (original, arrival);
    };
    let theirs = |(name, _): (&ShortString, &AMQPValue)| is_set_by_broker(name.as_str());
    arrival.returns = headers.inner().get(DELIVERY_COUNT).map_or(0, whole);
    if is_copy {
        let own = own_headers(headers);
        arrival.counters = Counters::read(&own);
        arrival.suspect = find(&own, kept::SUSPECT).is_some();
        arrival.lapses = parsed(&own, kept::LAPSES).unwrap_or_default();
        arrival.turn = parsed(&own, kept::TURN);
        arrival.number = parsed(&own, kept::NUMBER);
        original = as_sent(&original, headers, &own);
    } else if headers.into_iter().any(theirs) {
        let without: Vec<_> = headers.into_iter().filter(|pair| !theirs(*pair)).collect();
        let table = table_of(without);
        original.properties = original.properties.with_headers(table);
    }
    (original, arrival)
}

/// Properties of a copy in the same queue, behind all other messages: without the data that the broker has
/// added since, and without any that would let it overtake others.
pub(crate) fn moved(properties: &BasicProperties, pass: &str) -> BasicProperties {
    let headers = properties.headers().iter().flatten();
    let mut table = table_of(headers.filter(|(name, _)| !is_set_by_broker(name.as_str())));
    table.insert(kept::PASS.into(), long(pass));
    if let Some(priority) = properties.priority() {
        table.insert(kept::PRIORITY.into(), long(&priority.to_string()));
    }
    unranked(properties)
        .with_headers(table)
        .with_delivery_mode(PERSISTENT)
}

fn is_set_by_broker(name: &str) -> bool {
    name == DELIVERY_COUNT || name == ACQUIRED_COUNT
}

/// Returns whether a message claims to be a copy of one of this queue. Any producer can write that.
pub(crate) fn claims_to_be_of(message: &BasicProperties, queue: &str) -> bool {
    let headers = message.headers().as_ref();
    let origin = headers.and_then(|headers| headers.inner().get(header::QUEUE));
    origin.is_some_and(|origin| text(origin) == queue)
}

/// Restores all data to its original place.
fn as_sent(copy: &Original, headers: &FieldTable, own: &Headers) -> Original {
    let plain = headers.into_iter().filter(|(name, _)| {
        let name = name.as_str();
        !is_ours(name) && !is_set_by_broker(name) && !is_moved(name)
    });
    let mut table = table_of(plain);
    if let Some(AMQPValue::FieldTable(moved)) = headers.inner().get(kept::HEADERS) {
        for (name, value) in moved {
            table.insert(name.clone(), value.clone());
        }
    }
    let mut properties = plain_properties(&copy.properties);
    if !table.inner().is_empty() {
        properties = properties.with_headers(table);
    }
    if let Some(mode) = find(own, kept::DELIVERY_MODE) {
        properties = as_it_was(&properties, mode.parse().ok());
    }
    if let Some(priority) = parsed(own, kept::PRIORITY) {
        properties = properties.with_priority(priority);
    }
    if let Some(expiration) = short(own, kept::EXPIRATION) {
        properties = properties.with_expiration(expiration);
    }
    if let Some(user) = short(own, kept::USER_ID) {
        properties = properties.with_user_id(user);
    }
    Original {
        properties,
        exchange: find(own, kept::EXCHANGE).unwrap_or_default().to_owned(),
        routing_key: find(own, kept::ROUTING_KEY).unwrap_or_default().to_owned(),
    }
}

/// Properties with this delivery mode instead of the copy's.
fn as_it_was(copied: &BasicProperties, mode: Option<u8>) -> BasicProperties {
    let mut properties = without_mode(copied);
    if let Some(headers) = copied.headers() {
        properties = properties.with_headers(headers.clone());
    }
    match mode {
        Some(mode) => properties.with_delivery_mode(mode),
        None => properties,
    }
}

/// Marks that a copy carries in addition to the message itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks<'a> {
    /// Queue that the message was read from.
    pub(crate) queue: &'a str,
    /// Counters of its attempts so far.
    pub(crate) counters: Counters,
    /// The message must run alone.
    pub(crate) suspect: bool,
    /// Number of consecutive daemons that vanished, which makes it a suspect.
    pub(crate) lapses: u32,
    /// Number of its turn, which begins.
    pub(crate) turn: Option<u64>,
    /// Ganger's own number for it.
    pub(crate) number: Option<u64>,
}

impl<'a> Marks<'a> {
    /// Marks of a message without any history.
    pub(crate) fn none(queue: &'a str) -> Self {
        Self {
            queue,
            counters: Counters::default(),
            suspect: false,
            lapses: 0,
            turn: None,
            number: None,
        }
    }
}

impl Original {
    /// Properties of a copy with this body.
    pub(crate) fn copied(&self, marks: &Marks<'_>, body: &[u8], key: &CopyKey) -> BasicProperties {
        let mut own = marks.counters.write();
        own.push((header::QUEUE, marks.queue.to_owned()));
        if let Some(number) = marks.number {
            own.push((kept::NUMBER, number.to_string()));
        }
        if marks.suspect {
            own.push((kept::SUSPECT, "true".to_owned()));
        }
        if marks.lapses > 0 {
            own.push((kept::LAPSES, marks.lapses.to_string()));
        }
        if let Some(turn) = marks.turn {
            own.push((kept::TURN, turn.to_string()));
        }
        self.with_own(&own, body, key)
    }

    /// Properties of a copy with this body, with these headers of ganger's own and those that keep data which
    /// would take effect again.
    pub(crate) fn with_own(&self, own: &OwnHeaders, body: &[u8], key: &CopyKey) -> BasicProperties {
        let original = self.properties.headers();
        let mut table = table_of(self.headers().filter(|(name, _)| !is_moved(name.as_str())));
        for (name, value) in own {
            table.insert((*name).into(), long(value));
        }
        table.insert(kept::EXCHANGE.into(), long(&self.exchange));
        table.insert(kept::ROUTING_KEY.into(), long(&self.routing_key));
        let user = self.properties.user_id();
        for (name, value) in [
            (kept::EXPIRATION, self.properties.expiration()),
            (kept::USER_ID, user),
        ] {
            if let Some(value) = value {
                table.insert(name.into(), long(value.as_str()));
            }
        }
        if self.properties.delivery_mode() != &Some(PERSISTENT) {
            let mode = self.properties.delivery_mode();
            let mode = mode.map_or_else(String::new, |mode| mode.to_string());
            table.insert(kept::DELIVERY_MODE.into(), long(&mode));
        }
        let moved = original.iter().flatten();
        let moved = table_of(moved.filter(|(name, _)| is_moved(name.as_str())));
        if !moved.inner().is_empty() {
            table.insert(kept::HEADERS.into(), AMQPValue::FieldTable(moved));
        }
        let copy = plain_properties(&self.properties).with_headers(table);
        key.sign(copy.with_delivery_mode(PERSISTENT), body)
    }

    /// Properties of a copy without marks, for a message that has no room for more.
    pub(crate) fn bare(&self) -> BasicProperties {
        let table = table_of(self.headers().filter(|(name, _)| !is_moved(name.as_str())));
        let properties = plain_properties(&self.properties).with_delivery_mode(PERSISTENT);
        if table.inner().is_empty() {
            properties
        } else {
            properties.with_headers(table)
        }
    }

    fn headers(&self) -> impl Iterator<Item = (&ShortString, &AMQPValue)> {
        let headers = self.properties.headers().as_ref();
        headers
            .into_iter()
            .flatten()
            .filter(|(name, _)| !is_ours(name.as_str()))
    }

    /// Step of a long task.
    pub(crate) fn step(&self) -> u32 {
        let headers = self.properties.headers().as_ref();
        let step = headers.and_then(|headers| headers.inner().get(STEP_HEADER));
        step.and_then(|step| text(step).parse().ok()).unwrap_or(0)
    }

    /// Number of attempts that the message has; none for that of its pool.
    pub(crate) fn attempts_max(&self) -> Option<u32> {
        let headers = self.properties.headers().as_ref();
        let most = headers.and_then(|headers| headers.inner().get(ATTEMPTS_MAX_HEADER));
        attempts::attempts_max(most.map(text).as_deref())
    }

    /// Id of the occurrence that the message belongs to.
    pub(crate) fn occurrence(&self) -> Option<Arc<str>> {
        let headers = self.properties.headers().as_ref();
        let id = headers.and_then(|headers| headers.inner().get(OCCURRENCE_HEADER));
        id.map(|id| Arc::from(text(id)))
    }

    /// Headers as workers get them.
    pub(crate) fn text_headers(&self) -> Headers {
        let pair = |(name, value): (&ShortString, &AMQPValue)| (name.to_string(), text(value));
        let theirs = self
            .headers()
            .filter(|(name, _)| !kept::is_own(name.as_str()));
        theirs.map(pair).collect()
    }
}

/// Properties of a message that a worker publishes. The message that it continues, if any, supplies the
/// properties that the worker can't set. The error names the part that AMQP can't represent.
pub(crate) fn published(
    message: &Outgoing,
    continued: Option<&Original>,
) -> Result<BasicProperties, String> {
    let mut properties = continued.map_or_else(BasicProperties::default, |original| {
        lent(&original.properties)
    });
    let typed = continued.and_then(|original| original.properties.headers().as_ref());
    let headers = headers_of(&message.headers, typed)?;
    if !headers.inner().is_empty() {
        properties = properties.with_headers(headers);
    }
    if !message.correlation_id.is_empty() {
        let id = fitting("correlation id", &message.correlation_id)?;
        properties = properties.with_correlation_id(id);
    }
    if let Some(queue) = &message.reply_to {
        properties = properties.with_reply_to(fitting("reply-to", queue)?);
    }
    if let Some(id) = &message.message_id {
        properties = properties.with_message_id(fitting("message id", id)?);
    }
    if let Some(kind) = message.content_type() {
        properties = properties.with_content_type(fitting("content type", kind)?);
    }
    if let Some(encoding) = message.content_encoding() {
        properties = properties.with_content_encoding(fitting("content encoding", encoding)?);
    }
    if message.priority != 0 {
        let priority = u8::try_from(message.priority.clamp(0, 255)).unwrap_or(u8::MAX);
        properties = properties.with_priority(priority);
    }
    Ok(properties.with_delivery_mode(PERSISTENT))
}

/// Converts a text that AMQP limits to 255 bytes.
pub(crate) fn fitting(what: &str, text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text)
        .map_err(|_| format!("its {what} must be at most 255 bytes: {} bytes", text.len()))
}

/// Checks that the properties fit into a frame of the given maximum, and are small enough to be inspected if
/// the message is returned.
pub(crate) fn check_size(properties: &BasicProperties, frame_max: u32) -> Result<(), String> {
    let bytes = header_frame_bytes(properties) + NUMBER_BYTES;
    let most = usize::try_from(frame_max).unwrap_or(usize::MAX);
    let most = most.min(FRAME_BYTES_MAX);
    if bytes > most {
        return Err(format!(
            "its headers must fit into a frame of {most} bytes: {bytes} bytes"
        ));
    }
    Ok(())
}

/// Properties that a reply takes from the message it continues, in addition to those in `Outgoing`.
fn lent(from: &BasicProperties) -> BasicProperties {
    let mut to = BasicProperties::default();
    if let Some(timestamp) = from.timestamp() {
        to = to.with_timestamp(*timestamp);
    }
    if let Some(kind) = from.kind() {
        to = to.with_type(kind.clone());
    }
    if let Some(app) = from.app_id() {
        to = to.with_app_id(app.clone());
    }
    to
}

/// Converts a worker's headers. A header that the message had, unchanged, keeps its type.
fn headers_of(headers: &Headers, typed: Option<&FieldTable>) -> Result<FieldTable, String> {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        if is_ours(name) || is_moved(name) || is_set_by_broker(name) || is_property(name) {
            continue;
        }
        let known = typed.and_then(|typed| typed.inner().get(name.as_str()));
        let value = match known {
            Some(known) if text(known) == *value => known.clone(),
            _ => long(value),
        };
        table.insert(fitting("header's name", name)?, value);
    }
    Ok(table)
}

/// All properties except the headers and those that would take effect again.
fn plain_properties(from: &BasicProperties) -> BasicProperties {
    let to = without_mode(from);
    match from.delivery_mode() {
        Some(mode) => to.with_delivery_mode(*mode),
        None => to,
    }
}

/// The plain properties without the delivery mode.
fn without_mode(from: &BasicProperties) -> BasicProperties {
    let to = unranked(from);
    match from.priority() {
        Some(priority) => to.with_priority(*priority),
        None => to,
    }
}

/// The plain properties without the delivery mode and the priority.
fn unranked(from: &BasicProperties) -> BasicProperties {
    let mut to = lent(from);
    if let Some(kind) = from.content_type() {
        to = to.with_content_type(kind.clone());
    }
    if let Some(encoding) = from.content_encoding() {
        to = to.with_content_encoding(encoding.clone());
    }
    if let Some(id) = from.correlation_id() {
        to = to.with_correlation_id(id.clone());
    }
    if let Some(queue) = from.reply_to() {
        to = to.with_reply_to(queue.clone());
    }
    if let Some(id) = from.message_id() {
        to = to.with_message_id(id.clone());
    }
    if let Some(id) = from.cluster_id() {
        to = to.with_cluster_id(id.clone());
    }
    to
}

/// Returns whether the header describes a copy, and is not passed on. The step and the occurrence belong to the
/// message itself.
fn is_ours(name: &str) -> bool {
    kept::is_own(name) && !KEPT_HEADERS.contains(&name)
}

fn is_moved(name: &str) -> bool {
    ACTIVE.contains(&name) || DEATHS.contains(&name)
}

/// Returns whether AMQP has a property for the header.
fn is_property(name: &str) -> bool {
    [CONTENT_TYPE_HEADER, CONTENT_ENCODING_HEADER]
        .iter()
        .any(|property| name.eq_ignore_ascii_case(property))
}

/// Ganger's own headers as text.
pub(crate) fn own_headers(headers: &FieldTable) -> Headers {
    let own = headers
        .into_iter()
        .filter(|(name, _)| kept::is_own(name.as_str()));
    own.map(|(name, value)| (name.to_string(), text(value)))
        .collect()
}

fn table_of<'a>(pairs: impl IntoIterator<Item = (&'a ShortString, &'a AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert(name.clone(), value.clone());
    }
    table
}

fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
}

fn parsed<T: std::str::FromStr>(headers: &Headers, name: &str) -> Option<T> {
    find(headers, name)?.parse().ok()
}

fn short(headers: &Headers, name: &str) -> Option<ShortString> {
    ShortString::try_new(find(headers, name)?).ok()
}

fn whole(value: &AMQPValue) -> u64 {
    match value {
        AMQPValue::LongLongInt(count) => u64::try_from(*count).unwrap_or(0),
        AMQPValue::LongInt(count) => u64::try_from(*count).unwrap_or(0),
        AMQPValue::LongUInt(count) => u64::from(*count),
        AMQPValue::ShortInt(count) => u64::try_from(*count).unwrap_or(0),
        AMQPValue::ShortUInt(count) => u64::from(*count),
        AMQPValue::ShortShortUInt(count) => u64::from(*count),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
