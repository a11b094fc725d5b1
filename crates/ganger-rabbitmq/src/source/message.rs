//! Conversion of a delivery into the pool's message. Pure.

use std::sync::Arc;

use lapin::types::ShortString;

use super::book::Held;
use crate::broker::republish::Original;
use crate::rules::signed;
use ganger_queue::delivery::{Message, Property};

/// Builds the message.
pub(super) fn message(queue: &Arc<str>, held: &Held, redelivered: bool) -> Message {
    let original = &held.original;
    let properties = &original.properties;
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    Message {
        queue: Arc::clone(queue),
        body: held.body.clone(),
        headers: original.text_headers(),
        correlation_id: text(properties.correlation_id()).unwrap_or_default(),
        reply_to: text(properties.reply_to()).filter(|queue| !queue.is_empty()),
        properties: described(original, held.arrival.number, redelivered),
        occurrence: original.occurrence(),
    }
}

/// Properties of the message that version 2 workers get.
fn described(
    original: &Original,
    number: Option<u64>,
    redelivered: bool,
) -> Vec<(&'static str, Property)> {
    let properties = &original.properties;
    let mut told = Vec::with_capacity(8);
    for (name, value) in [
        ("message_id", properties.message_id()),
        ("content_type", properties.content_type()),
        ("content_encoding", properties.content_encoding()),
        ("type", properties.kind()),
        ("app_id", properties.app_id()),
        ("user_id", properties.user_id()),
        ("expiration", properties.expiration()),
    ] {
        if let Some(value) = value {
            told.push((name, Property::Text(value.to_string())));
        }
    }
    if let Some(number) = number {
        told.push(("number", Property::Integer(signed(number))));
    }
    if let Some(seconds) = properties.timestamp() {
        // Before 1970 it is negative, which the library does not show.
        let millis = seconds.cast_signed().saturating_mul(1000);
        told.push(("timestamp", Property::Integer(millis)));
    }
    if let Some(priority) = properties.priority() {
        told.push(("priority", Property::Integer(i64::from(*priority))));
    }
    if let Some(mode) = properties.delivery_mode() {
        told.push(("delivery_mode", Property::Integer(i64::from(*mode))));
    }
    told.push(("redelivered", Property::Boolean(redelivered)));
    told.push(("exchange", Property::Text(original.exchange.clone())));
    told.push(("routing_key", Property::Text(original.routing_key.clone())));
    told
}
