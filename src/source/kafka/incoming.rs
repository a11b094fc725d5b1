//! A message out of librdkafka's hands. Pure.

use std::sync::Arc;

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Message as _};

use crate::broker::kafka::consumer::TopicPartition;
use crate::broker::kafka::record::Record;
use crate::broker::kafka::{consumer, headers};

/// A message that was just read.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) offset: i64,
    pub(super) record: Record,
    /// When it falls due, if it comes from a tier.
    pub(super) due_ms: Option<i64>,
}

/// A message that came past its partition's inbox.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) name: TopicPartition,
    pub(super) fresh: Fresh,
}

/// Takes a message out of librdkafka's hands.
pub(super) fn fresh(topic: &Arc<str>, is_tier: bool, message: &BorrowedMessage<'_>) -> Fresh {
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

/// Likewise, of one that came by the way that only events should come.
pub(super) fn stray(main: &Arc<str>, message: &BorrowedMessage<'_>) -> Stray {
    let is_tier = message.topic() != &**main;
    Stray {
        name: (message.topic().to_owned(), message.partition()),
        fresh: fresh(main, is_tier, message),
    }
}
