//! A message taken from librdkafka. Pure.

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Message as _};

use super::known_topics::{KnownTopics, Origin};
use crate::broker::consumer::TopicPartition;
use crate::broker::emptied::is_emptied;
use crate::broker::record::Record;
use crate::broker::{consumer, headers};

/// A message that was just read.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) offset: i64,
    pub(super) record: Record,
    /// Due time, if it comes from a tier.
    pub(super) due_ms: Option<i64>,
}

/// A message that bypassed its partition's inbox.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) name: TopicPartition,
    /// The message; none if it may have been emptied.
    pub(super) fresh: Option<Fresh>,
}

/// Takes a message from librdkafka; none if it may have been emptied.
pub(super) fn fresh(origin: &Origin, message: &BorrowedMessage<'_>) -> Option<Fresh> {
    if is_emptied(message) {
        return None;
    }
    let Origin { topic, is_tier } = origin;
    let raw = consumer::headers(message);
    let place = (message.partition(), message.offset());
    let timestamp = message.timestamp().to_millis();
    let contents = (
        message.key().map(Bytes::copy_from_slice),
        message.payload().map(Bytes::copy_from_slice),
    );
    let offset = message.offset();
    if !*is_tier {
        let record = Record::read(topic, place, timestamp, contents, raw);
        return Some(Fresh {
            offset,
            record,
            due_ms: None,
        });
    }
    let due_ms = headers::number(&raw, headers::DUE);
    let record = Record::read(topic, place, timestamp, contents, raw.clone());
    Some(Fresh {
        offset,
        record: record.restore(&raw),
        due_ms,
    })
}

/// Takes a message from the queue that should carry only events.
pub(super) fn stray(topics: &KnownTopics, message: &BorrowedMessage<'_>) -> Stray {
    Stray {
        name: (message.topic().to_owned(), message.partition()),
        fresh: fresh(&topics.origin(message.topic()), message),
    }
}
