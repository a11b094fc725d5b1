//! Messages with texts in which the socket had to replace bytes: detected, and shown with question marks
//! instead. Pure.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};

use super::SUBSTITUTE;
use crate::broker::republish::Received;

/// Text shown for a byte that could not be read.
const PLACEHOLDER: &str = "?";

/// Message with the readable part of its texts, if any of them could not be read completely.
pub(crate) fn readable(received: &Received) -> Option<Received> {
    let properties = &received.properties;
    let texts = [&received.exchange, &received.routing_key].into_iter();
    let mut texts = texts.chain(texts_of(properties).into_iter().flatten());
    let is_whole =
        !texts.any(is_repaired) && !properties.headers().as_ref().is_some_and(has_repaired);
    if is_whole {
        return None;
    }
    Some(Received {
        properties: readable_properties(properties),
        exchange: readable_text(&received.exchange),
        routing_key: readable_text(&received.routing_key),
        redelivered: received.redelivered,
    })
}

fn texts_of(properties: &BasicProperties) -> [Option<&ShortString>; 10] {
    [
        properties.content_type().as_ref(),
        properties.content_encoding().as_ref(),
        properties.correlation_id().as_ref(),
        properties.reply_to().as_ref(),
        properties.expiration().as_ref(),
        properties.message_id().as_ref(),
        properties.kind().as_ref(),
        properties.user_id().as_ref(),
        properties.app_id().as_ref(),
        properties.cluster_id().as_ref(),
    ]
}

fn is_repaired(text: &ShortString) -> bool {
    text.as_str().contains(SUBSTITUTE)
}

fn has_repaired(table: &FieldTable) -> bool {
    let mut pairs = table.into_iter();
    pairs.any(|(name, value)| is_repaired(name) || is_repaired_within(value))
}

fn is_repaired_within(value: &AMQPValue) -> bool {
    match value {
        AMQPValue::FieldTable(table) => has_repaired(table),
        AMQPValue::FieldArray(array) => array.as_slice().iter().any(is_repaired_within),
        _ => false,
    }
}

fn readable_text(text: &ShortString) -> ShortString {
    text.as_str().replace(SUBSTITUTE, PLACEHOLDER).into()
}

fn readable_properties(of: &BasicProperties) -> BasicProperties {
    type With = fn(BasicProperties, ShortString) -> BasicProperties;
    // In the order of `texts_of`.
    let with: [With; 10] = [
        BasicProperties::with_content_type,
        BasicProperties::with_content_encoding,
        BasicProperties::with_correlation_id,
        BasicProperties::with_reply_to,
        BasicProperties::with_expiration,
        BasicProperties::with_message_id,
        BasicProperties::with_type,
        BasicProperties::with_user_id,
        BasicProperties::with_app_id,
        BasicProperties::with_cluster_id,
    ];
    let mut properties = of.clone();
    for (text, with) in texts_of(of).into_iter().zip(with) {
        if let Some(text) = text {
            properties = with(properties, readable_text(text));
        }
    }
    match of.headers() {
        Some(headers) => properties.with_headers(readable_table(headers)),
        None => properties,
    }
}

fn readable_table(table: &FieldTable) -> FieldTable {
    let mut readable = FieldTable::default();
    for (name, value) in table {
        readable.insert(readable_text(name), readable_value(value));
    }
    readable
}

fn readable_value(value: &AMQPValue) -> AMQPValue {
    match value {
        AMQPValue::FieldTable(table) => AMQPValue::FieldTable(readable_table(table)),
        AMQPValue::FieldArray(array) => {
            let values: Vec<AMQPValue> = array.as_slice().iter().map(readable_value).collect();
            AMQPValue::FieldArray(FieldArray::from(values))
        }
        value => value.clone(),
    }
}
