//! What a source knows of itself beside how it is doing: figures for whoever watches it. The source
//! writes them down as it goes, the pool reads them when it shows itself, and nobody is woken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A turn counts for that much of the average beside those before it.
const TURNS: u64 = 8;

/// The figures, shared by a source and its pool. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts {
    figures: Arc<Mutex<Figures>>,
    turn_us: Arc<AtomicU64>,
}

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
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has taken so long to settle what there was, and to fetch more.
    pub fn took_turn(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX >> 8);
        let before = self.turn_us.load(Ordering::Relaxed);
        let average = match before {
            0 => time,
            before => before - before / TURNS + time / TURNS,
        };
        self.turn_us.store(average, Ordering::Relaxed);
    }

    /// How long that takes of late; nothing where messages come by themselves.
    pub fn turn(&self) -> Duration {
        Duration::from_micros(self.turn_us.load(Ordering::Relaxed))
    }
}

/// What is known; none where a kind of source has nothing of that kind, or does not know yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct DatabaseFigures {
    /// The file, in bytes.
    pub file_bytes: u64,
    /// The journal of what was written last (SQLite's write-ahead log), in bytes.
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
