//! Figures of the sources, as metrics.

use super::family::{Family, Sample};
use ganger_pool::overview::Status;
use ganger_pool::status::PoolStatus;
use ganger_queue::delivery::Figures;

/// Adds a series for each pool whose source knows the value.
fn known(status: &Status, family: Family, value: impl Fn(&Figures) -> Option<u64>) -> Family {
    let sample = |one: &PoolStatus| {
        let labels = vec![("pool", one.name.clone())];
        Some(Sample::count(labels, value(&one.source_figures)?))
    };
    family.of(status.pools.iter().filter_map(sample))
}

/// Reads a figure of a source, if known.
type Figure = fn(&Figures) -> Option<u64>;

/// Gauges: name, help and value.
const GAUGES: [(&str, &str, Figure); 7] = [
    (
        "ganger_source_settlements_pending",
        "Settlements that have not yet taken effect.",
        |all| all.settlements_pending,
    ),
    (
        "ganger_source_publishes_pending",
        "Replies, emits and copies of messages that are not yet confirmed.",
        |all| all.publishes_pending,
    ),
    (
        "ganger_source_delayed",
        "Messages that wait for a later time, such as retries: on Kafka in its retry topics, on \
             RabbitMQ in its queues of delayed ones, on a table up to 20000.",
        |all| all.delayed,
    ),
    (
        "ganger_table_file_bytes",
        "Size of the database file.",
        |all| Some(all.database?.file_bytes),
    ),
    (
        "ganger_table_journal_bytes",
        "Size of the journal beside the database file.",
        |all| Some(all.database?.journal_bytes),
    ),
    (
        "ganger_kafka_fetched_ahead",
        "Messages that librdkafka has fetched and the source has not yet read.",
        |all| Some(all.kafka?.fetched_ahead),
    ),
    (
        "ganger_kafka_brokers_up",
        "Brokers that the consumer is connected to.",
        |all| Some(all.kafka?.brokers_up),
    ),
];

/// Counters: name, help and value.
const COUNTERS: [(&str, &str, Figure); 8] = [
    (
        "ganger_source_connections_total",
        "Connections to the broker, on Kafka including failed attempts.",
        |all| all.connections,
    ),
    (
        "ganger_repetitions_total",
        "Messages acknowledged without being processed, because they had been done before.",
        |all| all.repetitions,
    ),
    (
        "ganger_unkeyed_total",
        "Messages processed without a key by which a repetition would be detected.",
        |all| all.unkeyed,
    ),
    (
        "ganger_kafka_requests_total",
        "Requests of the consumer to brokers.",
        |all| Some(all.kafka?.requests),
    ),
    (
        "ganger_kafka_responses_total",
        "Responses of brokers to the consumer.",
        |all| Some(all.kafka?.responses),
    ),
    (
        "ganger_kafka_sent_bytes_total",
        "Bytes that the consumer has sent to brokers.",
        |all| Some(all.kafka?.sent_bytes),
    ),
    (
        "ganger_kafka_received_bytes_total",
        "Bytes that the consumer has received from brokers.",
        |all| Some(all.kafka?.received_bytes),
    ),
    (
        "ganger_kafka_received_messages_total",
        "Messages that the consumer has fetched.",
        |all| Some(all.kafka?.messages),
    ),
];

/// Returns the metrics of the sources' figures.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let gauges = GAUGES.map(|(name, help, of)| known(status, Family::gauge(name, help), of));
    let counters = COUNTERS.map(|(name, help, of)| known(status, Family::counter(name, help), of));
    gauges.into_iter().chain(counters).collect()
}
