//! What a source knows of itself beside how it is doing: figures for whoever watches it. The source
//! writes them down as it goes, the pool reads them when it shows itself, and nobody is woken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// The figures, shared by a source and its pool. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts(Arc<Mutex<Figures>>);

impl SourceFacts {
    /// Takes down what is known now.
    pub fn note(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.lock());
    }

    /// What was taken down last.
    pub fn read(&self) -> Figures {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known; none where a kind of source has nothing of that kind, or does not know yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct Figures {
    /// Settlements that have not taken effect yet.
    pub settlements_pending: Option<u64>,
    /// Replies, emits and copies of messages that are not confirmed yet.
    pub publishes_pending: Option<u64>,
    /// Messages that wait for a later time: on Kafka in its retry topics, on
    /// RabbitMQ in its queues of delayed ones, on a table up to 20 000.
    pub delayed: Option<u64>,
    /// How often a connection was made to the broker, on Kafka tried.
    pub connections: Option<u64>,
    /// Messages that were acknowledged without being worked on, since they had been done before,
    /// where a pool remembers that.
    pub repetitions: Option<u64>,
    /// Messages that were worked on although nothing says whether they had been done before, where a
    /// pool remembers that: they have no key.
    pub unkeyed: Option<u64>,
    /// What librdkafka's consumer has sent and received.
    pub kafka: Option<KafkaFigures>,
    /// How large a table's database file is.
    pub database: Option<DatabaseFigures>,
}

/// What librdkafka counts of its consumer, since that was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct KafkaFigures {
    /// Requests to brokers.
    pub requests: u64,
    /// Answers of theirs.
    pub responses: u64,
    /// Bytes to brokers.
    pub sent_bytes: u64,
    /// Bytes from brokers.
    pub received_bytes: u64,
    /// Messages in what was fetched.
    pub messages: u64,
    /// Those of them that are fetched and not taken from librdkafka.
    pub fetched_ahead: u64,
    /// Brokers that it is connected to.
    pub brokers_up: u64,
}

/// How large a database file is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct DatabaseFigures {
    /// The file, in bytes.
    pub file_bytes: u64,
    /// The journal of what was written last (SQLite's write-ahead log), in bytes.
    pub journal_bytes: u64,
}
