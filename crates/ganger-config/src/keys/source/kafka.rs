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
        "would commit messages that are not done: offsets are committed after the work",
    ),
    (
        "enable.auto.offset.store",
        "would commit messages that are not done: offsets are committed after the work",
    ),
    (
        "auto.commit.interval.ms",
        "has no effect: see `commit_interval`",
    ),
    (
        "acks",
        "is always `all`: a reply or a retry stored on one broker only can be lost",
    ),
    (
        "request.required.acks",
        "is always `all`: a reply or a retry stored on one broker only can be lost",
    ),
    (
        "enable.idempotence",
        "is always `true`: without it messages that are sent again may be duplicated or reordered",
    ),
    (
        "enable.partition.eof",
        "is set by the source, which uses it itself",
    ),
    (
        "isolation.level",
        "is always `read_committed`: messages of aborted transactions must not be processed",
    ),
    (
        "check.crcs",
        "is always `true`: otherwise damaged messages would be skipped, or given to a worker",
    ),
    (
        "statistics.interval.ms",
        "is set by the source, which detects stalled partitions by the statistics",
    ),
    (
        "delivery.report.only.error",
        "would hide from the source whether a reply is stored",
    ),
    (
        "message.max.bytes",
        "would lose messages that the topic accepts: their size is limited by its \
         `max.message.bytes`",
    ),
    (
        "transactional.id",
        "would fence the other pools of the daemon",
    ),
];

/// Reads a connection.
pub(super) fn read(t: &mut Reader<'_>, declare: bool) -> KafkaSource {
    let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    KafkaSource {
        brokers: t.must(
            "brokers",
            word(),
            "Bootstrap brokers: `HOST:PORT`, several separated by commas.",
        ),
        group: t.must(
            "group",
            word(),
            "Consumer group; the names of tier and dead-letter topics contain it, too.",
        ),
        declare,
        partitions: t.maybe(
            "partitions",
            integer(1..=100_000),
            "Number of partitions of a topic that is created; the broker's default if omitted.",
        ),
        replication: t.maybe(
            "replication",
            integer(1..=1_000),
            "Number of replicas of a topic that is created; the broker's default if omitted.",
        ),
        commit_interval: t.or(
            "commit_interval",
            duration(MILLISECOND..=MINUTE),
            "500ms",
            "Interval at which offsets of finished messages are committed.",
        ),
        buffered_bytes_max: bytes(t.or(
            "buffered_bytes_max",
            size(1 << 20..=1 << 36),
            "64MiB",
            "Maximum size of the messages that a pool holds in memory.",
        )),
        retry_retention: t.or(
            "retry_retention",
            duration(MINUTE..=YEAR),
            "7d",
            "Minimum retention time of tier topics; longer than the longest delay.",
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
