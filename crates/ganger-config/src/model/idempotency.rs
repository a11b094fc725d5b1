//! What a pool remembers of the messages that its workers have finished.

use std::time::Duration;

use super::table::TableSource;

/// How repetitions of a message are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Idempotency {
    /// By what two messages are known to be the same.
    pub key: MessageKey,
    /// For how long after the first was finished.
    pub window: Duration,
    /// The name of the source in whose database that is remembered.
    pub store: String,
    /// That source.
    pub table: TableSource,
    /// By what the pool's own source is known there: two that read the same messages for different
    /// purposes, as two groups of Kafka do, must not take each other's for their own.
    pub scope: String,
}

/// What two messages have in common that are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageKey {
    /// The id that the producer gave it.
    MessageId,
    /// Its correlation id.
    CorrelationId,
    /// The value of the header of that name.
    Header(String),
}
