//! Figures that a source publishes beside its state. The source records them as it goes, the pool reads
//! them when it reports its status, and nothing is woken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Inverse weight of the newest turn in the moving average.
const TURNS: u64 = 8;

/// The figures, shared by a source and its pool. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts {
    figures: Arc<Mutex<Figures>>,
    turn_us: Arc<AtomicU64>,
}

impl SourceFacts {
    /// Records new figures.
    pub fn note(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.lock());
    }

    /// Returns the last recorded figures.
    pub fn read(&self) -> Figures {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the duration of a turn: settling what was there, and fetching more.
    pub fn took_turn(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 8);
        let before = self.turn_us.load(Ordering::Relaxed);
        let average = match before {
            0 => time,
            before => before - before / TURNS + time / TURNS,
        };
        self.turn_us.store(average, Ordering::Relaxed);
    }

    /// Returns the recent average duration of a turn; zero where messages are pushed.
    pub fn turn(&self) -> Duration {
        Duration::from_micros(self.turn_us.load(Ordering::Relaxed))
    }
}

/// Figures of a source. A figure has no value where the kind of source lacks it or does not know it yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Figures {
    /// Number of settlements that have not taken effect yet.
    pub settlements_pending: Option<u64>,
    /// Number of replies, emits and copies of messages that are not confirmed yet.
    pub publishes_pending: Option<u64>,
    /// Number of messages delayed until a later time: on Kafka in its retry topics, on RabbitMQ in its
    /// delay queues, on a table counted up to 20 000.
    pub delayed: Option<u64>,
    /// Number of connections made to the broker; on Kafka, of connection attempts.
    pub connections: Option<u64>,
    /// Number of messages that were acknowledged without being worked on, since they were repetitions of
    /// finished ones; only for pools that remember finished messages.
    pub repetitions: Option<u64>,
    /// Number of messages without a key, which were worked on although they may be repetitions; only for
    /// pools that remember finished messages.
    pub unkeyed: Option<u64>,
    /// Traffic of librdkafka's consumer.
    pub kafka: Option<KafkaFigures>,
    /// Size of a table's database file.
    pub database: Option<DatabaseFigures>,
}

/// Traffic of librdkafka's consumer since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct KafkaFigures {
    /// Number of requests sent to brokers.
    pub requests: u64,
    /// Number of responses from brokers.
    pub responses: u64,
    /// Bytes sent to brokers.
    pub sent_bytes: u64,
    /// Bytes received from brokers.
    pub received_bytes: u64,
    /// Number of messages fetched.
    pub messages: u64,
    /// Number of fetched messages that were not yet taken from librdkafka.
    pub fetched_ahead: u64,
    /// Number of connected brokers.
    pub brokers_up: u64,
}

/// Size of a database file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct DatabaseFigures {
    /// Size of the database file, in bytes.
    pub file_bytes: u64,
    /// Size of the write-ahead log (SQLite), in bytes.
    pub journal_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_average_of_the_last_ones() {
        let facts = SourceFacts::default();
        assert_eq!(facts.turn(), Duration::ZERO);
        facts.took_turn(Duration::from_millis(8));
        assert_eq!(facts.turn(), Duration::from_millis(8));
        facts.clone().took_turn(Duration::from_millis(16));
        assert_eq!(facts.turn(), Duration::from_millis(9));
        for _ in 0..100 {
            facts.took_turn(Duration::from_millis(2));
        }
        assert_eq!(facts.turn().as_millis(), 2);
    }
}
