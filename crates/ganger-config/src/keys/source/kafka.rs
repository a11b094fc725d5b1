//! The keys of a connection to Kafka.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::keys::shared::MILLISECOND;
use crate::model::{Argument, KafkaSource};
use crate::reader::Reader;
use crate::value_types::{Wrong, duration, integer, plain, size, word};

const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Properties of librdkafka that a source sets by itself, and the reason that no other value works.
const OWN: &[(&str, &str)] = &[
    ("bootstrap.servers", "is set by `brokers`"),
    ("metadata.broker.list", "is set by `brokers`"),
    ("group.id", "is set by `group`"),
    (
        "enable.auto.commit",
        "would commit messages that are not done: commits follow the work",
    ),
    (
        "enable.auto.offset.store",
        "would commit messages that are not done: commits follow the work",
    ),
    (
        "auto.commit.interval.ms",
        "has no effect: see `commit_interval`",
    ),
    (
        "acks",
        "is `all`: a reply or a retry that one broker alone has can be lost",
    ),
    (
        "request.required.acks",
        "is `all`: a reply or a retry that one broker alone has can be lost",
    ),
    (
        "enable.idempotence",
        "is `true`: without it what is sent again may come twice or out of order",
    ),
    (
        "enable.partition.eof",
        "is set by the source, which has its own use for it",
    ),
    (
        "isolation.level",
        "is `read_committed`: messages of aborted transactions are none",
    ),
    (
        "check.crcs",
        "is `true`: what is damaged would be passed over, or given to a worker",
    ),
    (
        "statistics.interval.ms",
        "is set by the source: by its statistics it sees which partitions stand still",
    ),
    (
        "delivery.report.only.error",
        "would keep from us that a reply is safe",
    ),
    (
        "message.max.bytes",
        "would lose what the topic takes: how large a message may be is for its `max.message.bytes` to \
         say",
    ),
    (
        "transactional.id",
        "would fence off the other pools of the daemon",
    ),
];

/// Reads a connection.
pub(super) fn read(t: &mut Reader<'_>, declare: bool) -> KafkaSource {
    let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    KafkaSource {
        brokers: t.must(
            "brokers",
            word(),
            "Where it listens: `HOST:PORT`, several with commas between them.",
        ),
        group: t.must(
            "group",
            word(),
            "The consumer group: it names the tier and dead-letter topics too.",
        ),
        declare,
        partitions: t.maybe(
            "partitions",
            integer(1..=100_000),
            "How many partitions a topic gets that is made; the broker's default if left out.",
        ),
        replication: t.maybe(
            "replication",
            integer(1..=1_000),
            "How many replicas a topic gets that is made; the broker's default if left out.",
        ),
        commit_interval: t.or(
            "commit_interval",
            duration(MILLISECOND..=MINUTE),
            "500ms",
            "How often what is done is committed.",
        ),
        buffered_bytes_max: bytes(t.or(
            "buffered_bytes_max",
            size(1 << 20..=1 << 36),
            "64MiB",
            "The most bytes of messages that a pool holds in memory.",
        )),
        retry_retention: t.or(
            "retry_retention",
            duration(MINUTE..=YEAR),
            "7d",
            "How long tier topics keep a message at least; longer than the longest delay.",
        ),
        client: properties(
            t,
            "client",
            "Properties of librdkafka for every connection, such as `security.protocol`.",
        ),
        consumer: properties(t, "consumer", "Properties of librdkafka for consumers."),
        producer: properties(t, "producer", "Properties of librdkafka for producers."),
    }
}

fn properties(
    t: &mut Reader<'_>,
    key: &'static str,
    meaning: &'static str,
) -> BTreeMap<String, String> {
    let properties = t.map(key, "a property's name", property, plain(), meaning);
    let text = |(name, value)| match value {
        Argument::Text(text) => (name, text),
        Argument::Integer(integer) => (name, integer.to_string()),
        Argument::Boolean(boolean) => (name, boolean.to_string()),
    };
    properties.into_iter().map(text).collect()
}

fn property(name: &str) -> Result<String, Wrong> {
    match OWN.iter().find(|(own, _)| *own == name) {
        Some((_, why)) => Err(Wrong::new(*why, "leave it out")),
        None => Ok(name.to_owned()),
    }
}
