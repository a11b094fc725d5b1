//! Records: written and read as any other program does it.

use std::sync::Mutex;

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Kafka, REQUEST};

/// A header's name and its value, which may be null.
type HeaderPair = (String, Option<Vec<u8>>);

/// A record to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewRecord {
    topic: String,
    partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<HeaderPair>,
    timestamp: Option<i64>,
}

impl NewRecord {
    /// Without a key, for any partition.
    pub(crate) fn new(topic: &str, value: &str) -> Self {
        Self::binary(topic, value.as_bytes())
    }

    /// With a value that need not be text.
    pub(crate) fn binary(topic: &str, value: &[u8]) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::tombstone(topic)
        }
    }

    /// Without a value.
    pub(crate) fn tombstone(topic: &str) -> Self {
        Self {
            topic: topic.into(),
            ..Self::default()
        }
    }

    pub(crate) fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().into());
        self
    }

    pub(crate) fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Adds a header; a name may come more than once.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers
            .push((name.into(), Some(value.as_ref().into())));
        self
    }

    /// Adds a header whose value is null.
    pub(crate) fn null_header(mut self, name: &str) -> Self {
        self.headers.push((name.into(), None));
        self
    }

    /// When it was made, in milliseconds since 1970.
    pub(crate) fn timestamp(mut self, millis: i64) -> Self {
        self.timestamp = Some(millis);
        self
    }

    fn native(&self) -> BaseRecord<'_, [u8], [u8]> {
        let mut record = BaseRecord::to(&self.topic);
        record.partition = self.partition;
        record.key = self.key.as_deref();
        record.payload = self.value.as_deref();
        record.timestamp = self.timestamp;
        let add = |headers: OwnedHeaders, (key, value): &HeaderPair| {
            let value = value.as_ref();
            headers.insert(Header { key, value })
        };
        record.headers(self.headers.iter().fold(OwnedHeaders::new(), add))
    }
}

/// A record that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<HeaderPair>,
    /// Milliseconds since 1970.
    pub(crate) timestamp: Option<i64>,
}

impl Stored {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map(|headers| {
            let pair = |header: Header<'_, &[u8]>| {
                (header.key.to_owned(), header.value.map(<[u8]>::to_vec))
            };
            headers.iter().map(pair).collect()
        });
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp: message.timestamp().to_millis(),
        }
    }

    /// Its value as text; empty where it has none.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }

    /// The first value of that header, as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        let value = found.and_then(|(_, value)| value.as_deref());
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

impl Kafka {
    /// Writes the records in this order and waits until the broker has confirmed all.
    pub(crate) fn send(&self, records: &[NewRecord]) {
        self.send_with(&[], records);
    }

    /// The same by a producer with these properties.
    pub(crate) fn send_with(&self, properties: &[(&str, &str)], records: &[NewRecord]) {
        let producer = self.producer(properties);
        enqueue(&producer, records);
        producer.flush(REQUEST).unwrap();
        let failures = producer.context().0.lock().unwrap();
        assert!(failures.is_empty(), "not written: {failures:?}");
    }

    /// Writes the records in one transaction, which is committed or not.
    pub(crate) fn send_in_transaction(&self, records: &[NewRecord], commit: bool) {
        // Of two producers with the same id, the older one is fenced off.
        let id = &records.first().expect("something to write").topic;
        let producer = self.producer(&[("transactional.id", id)]);
        producer.init_transactions(REQUEST).unwrap();
        producer.begin_transaction().unwrap();
        enqueue(&producer, records);
        producer.flush(REQUEST).unwrap();
        if commit {
            producer.commit_transaction(REQUEST).unwrap();
        } else {
            producer.abort_transaction(REQUEST).unwrap();
        }
    }

    fn producer(&self, properties: &[(&str, &str)]) -> BaseProducer<Failures> {
        let mut config = self.config(properties);
        // One request at a time keeps the order; an idempotent producer would keep it, too, but
        // waits half a second before it begins.
        config.set("max.in.flight.requests.per.connection", "1");
        config.set("message.max.bytes", "10000000");
        config.create_with_context(Failures::default()).unwrap()
    }

    /// All records of a topic that are committed, by partition and offset; none if it is not there.
    pub(crate) fn read(&self, topic: &str) -> Vec<Stored> {
        let partitions = i32::try_from(self.partitions(topic)).unwrap();
        if partitions == 0 {
            return Vec::new();
        }
        let consumer: BaseConsumer = self.client(&[
            ("group.id", "a-reader-of-the-tests"),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
        ]);
        let mut all = TopicPartitionList::new();
        all.add_partition_range(topic, 0, partitions - 1);
        all.set_all_offsets(Offset::Beginning).unwrap();
        consumer.assign(&all).unwrap();
        let mut records = to_the_end(&consumer, partitions);
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }

    /// The values of a topic's records, as text.
    pub(crate) fn texts(&self, topic: &str) -> Vec<String> {
        self.read(topic).iter().map(Stored::text).collect()
    }
}

fn to_the_end(consumer: &BaseConsumer, partitions: i32) -> Vec<Stored> {
    let mut records = Vec::new();
    let mut left = partitions;
    while left > 0 {
        match consumer.poll(REQUEST) {
            Some(Ok(message)) => records.push(Stored::of(&message)),
            Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
            other => panic!("reading: {:?}", other.map(|read| read.err())),
        }
    }
    records
}

fn enqueue(producer: &BaseProducer<Failures>, records: &[NewRecord]) {
    for record in records {
        let mut native = record.native();
        while let Err((error, back)) = producer.send(native) {
            assert_eq!(error, QUEUE_FULL, "{record:?}");
            producer.poll(REQUEST);
            native = back;
        }
    }
}

const QUEUE_FULL: KafkaError = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);

/// What could not be written.
#[derive(Default)]
struct Failures(Mutex<Vec<KafkaError>>);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.0.lock().unwrap().push(error.clone());
        }
    }
}
