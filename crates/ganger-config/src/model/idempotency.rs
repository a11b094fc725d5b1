//! A pool's memory of the messages that its workers have finished.

use std::time::Duration;

use super::table::TableSource;

/// Rules by which repetitions of a message are recognised.
#[derive(Debug, Clone, PartialEq)]
pub struct Idempotency {
    /// Property by which two messages are the same.
    pub key: MessageKey,
    /// Time for which a finished message is remembered.
    pub window: Duration,
    /// Name of the source whose database holds the memory.
    pub store: String,
    /// That source.
    pub table: TableSource,
    /// Name of the pool's own source in that memory: two that read the same messages for different
    /// purposes, as two groups of Kafka do, must not take each other's for their own.
    pub scope: String,
}

/// Property that makes two messages the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageKey {
    /// The message id that the producer gave it.
    MessageId,
    /// Its correlation id.
    CorrelationId,
    /// The value of the header of that name.
    Header(String),
}
