//! Reads a topic, or a part of it, from outside: partitions are assigned manually, so no group is
//! involved and nothing is committed. The records are interpreted elsewhere.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError as Native, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::broker::command_error::CommandError;
use crate::broker::consumer::{Consumer, Context};
use crate::broker::error::KafkaError;
use crate::broker::headers::Raw;
use crate::broker::{consumer, error, settings};
use ganger_config::model::KafkaSource;

/// Timeout of a query.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time without an expected record.
const RECORD_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
/// Size of the local buffer of each partition in librdkafka.
const LOCAL_BYTES: usize = 4 << 20;

/// Range of offsets of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// First offset.
    pub(super) from: i64,
    /// One past the last offset.
    pub(super) end: i64,
}

/// A stored record.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stored {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Raw,
}

/// Reader of topics.
#[derive(Debug)]
pub(super) struct Reader {
    consumer: Consumer,
}

/// Returns the properties of a consumer that joins no group. The library requires a group name all the
/// same.
pub(super) fn properties(config: &KafkaSource) -> ClientConfig {
    let mut properties = settings::consumer(config, "command", LOCAL_BYTES);
    properties.remove("group.instance.id");
    properties.set("enable.partition.eof", "true");
    properties.set("auto.offset.reset", "earliest");
    // A request that waits at the end of a partition delays a request for another part.
    properties.set("fetch.wait.max.ms", "20");
    properties
}

impl Reader {
    /// Creates the reader. It connects by itself, on the first read.
    pub(super) fn open(config: &KafkaSource) -> Result<Self, KafkaError> {
        let consumer = Consumer::new(&properties(config), "command", Arc::default())?;
        Ok(Self { consumer })
    }

    /// Returns the underlying client, for requests that need no consumer state.
    pub(super) fn native(&self) -> &BaseConsumer<Context> {
        self.consumer.native()
    }

    /// Returns the current ranges of all partitions; empty ones are left out.
    pub(super) fn spans(
        &self,
        topic: &str,
        partitions: usize,
    ) -> Result<BTreeMap<i32, Span>, KafkaError> {
        let mut spans = BTreeMap::new();
        for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
            let native = self.consumer.native();
            let ends = native.fetch_watermarks(topic, partition, ANSWER_WITHIN);
            let (from, end) =
                ends.map_err(|error| KafkaError::of_request("finding the ends", &error))?;
            if from < end {
                spans.insert(partition, Span { from, end });
            }
        }
        Ok(spans)
    }

    /// Returns the group's committed offsets of these partitions.
    pub(super) fn committed(
        &self,
        topic: &str,
        spans: &BTreeMap<i32, Span>,
    ) -> Result<BTreeMap<i32, i64>, KafkaError> {
        let mut list = TopicPartitionList::with_capacity(spans.len());
        for partition in spans.keys() {
            list.add_partition(topic, *partition);
        }
        let native = self.consumer.native();
        let committed = native.committed_offsets(list, ANSWER_WITHIN);
        let committed = committed
            .map_err(|error| KafkaError::of_request("reading the group's commits", &error))?;
        let elements = committed.elements();
        let offsets = elements
            .iter()
            .filter_map(|element| match element.offset() {
                Offset::Offset(offset) => Some((element.partition(), offset)),
                _ => None,
            });
        Ok(offsets.collect())
    }

    /// Reads these ranges of a topic, each in order. A break ends the reading.
    pub(super) fn read(
        &self,
        topic: &str,
        spans: &BTreeMap<i32, Span>,
        mut each: impl FnMut(Stored) -> ControlFlow<()>,
    ) -> Result<(), KafkaError> {
        self.assign(topic, spans)?;
        let mut open = spans.clone();
        let mut heard = Instant::now();
        let mut last = String::from("no more records arrive");
        while !open.is_empty() {
            match self.consumer.native().poll(POLL) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    let (partition, offset) = (message.partition(), message.offset());
                    let end = open.get(&partition).map(|span| span.end);
                    if end.is_some_and(|end| offset < end) && each(stored(&message)).is_break() {
                        break;
                    }
                    if end.is_some_and(|end| offset + 1 >= end) {
                        open.remove(&partition);
                    }
                }
                // The last offsets may be those of markers, or of records that were compacted away.
                Some(Err(Native::PartitionEOF(partition))) => drop(open.remove(&partition)),
                Some(Err(error)) => {
                    last = error::of(&error);
                    if error.rdkafka_error_code() == Some(Code::BadMessage) {
                        tracing::warn!(topic, problem = last, "damaged records are left out");
                    }
                }
                None => {}
            }
            if heard.elapsed() >= RECORD_WITHIN {
                let (topic, why) = (topic.to_owned(), last);
                return Err(CommandError::Unread { topic, why }.into());
            }
        }
        self.assign(topic, &BTreeMap::new())
    }

    fn assign(&self, topic: &str, spans: &BTreeMap<i32, Span>) -> Result<(), KafkaError> {
        const ACTION: &str = "reading records";
        let failed = |error: Native| KafkaError::of_request(ACTION, &error);
        let mut list = TopicPartitionList::with_capacity(spans.len());
        for (partition, span) in spans {
            let added = list.add_partition_offset(topic, *partition, Offset::Offset(span.from));
            added.map_err(failed)?;
        }
        let native = self.consumer.native();
        if spans.is_empty() {
            native.unassign().map_err(failed)
        } else {
            native.assign(&list).map_err(failed)
        }
    }

    /// Starts reading a partition at an offset, for [`Reader::next`].
    pub(super) fn follow(&self, topic: &str, from: i64) -> Result<(), KafkaError> {
        let end = i64::MAX;
        self.assign(topic, &BTreeMap::from([(0, Span { from, end })]))
    }

    /// Returns the next record, or none after a timeout.
    pub(super) fn next(&self, longest: Duration) -> Result<Option<Stored>, KafkaError> {
        match self.consumer.native().poll(longest) {
            Some(Ok(message)) => Ok(Some(stored(&message))),
            Some(Err(Native::PartitionEOF(_))) | None => Ok(None),
            Some(Err(error)) => Err(KafkaError::of_request("reading", &error)),
        }
    }
}

fn stored(message: &BorrowedMessage<'_>) -> Stored {
    Stored {
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis().unwrap_or_default(),
        key: message.key().map(Bytes::copy_from_slice),
        value: message.payload().map(Bytes::copy_from_slice),
        headers: consumer::headers(message),
    }
}
