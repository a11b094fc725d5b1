//! Creation of a pool's clients and topics from its configuration: before the start, or repeatedly until it
//! succeeds if no broker was reachable then.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer as _;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::consumer::Consumer;
use super::error::{KafkaError, is_refusal, of, reason};
use super::out_of_reach::OutOfReach;
use super::producer::Producer;
use super::settings::{ProducerProfile, Reset};
use super::topic_names::LADDER;
use super::topic_requirements::{Found, TopicRequirements};
use super::{settings, topic_names, topics};
use ganger_config::model::{KafkaOptions, KafkaSource, Options, Order, PoolConfig};
use ganger_queue::ladder::Tier;

/// Time that a start waits for a broker before it continues without one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of one attempt.
const ATTEMPT_WITHIN: Duration = Duration::from_millis(500);
/// Minimum number of partitions assumed where more topics may appear.
const PATTERN_PARTITIONS_MIN: usize = 32;
/// Minimum and maximum size of a partition's messages kept locally by librdkafka.
const LOCAL_BYTES_MIN: usize = 64 << 10;
const LOCAL_BYTES_MAX: usize = 16 << 20;

/// Creates an event loop for this thread.
pub(crate) fn event_loop() -> Result<Runtime, KafkaError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| KafkaError::Client(format!("no event loop: {error}")))
}

/// Configuration of a source.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: KafkaSource,
    pub(crate) pool: String,
    pub(crate) order: Order,
    pub(crate) reset: Reset,
    pub(crate) wanted: TopicRequirements,
}

/// A source that has not started.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) plan: Plan,
    /// Client that checks whether a broker is reachable. It joins no group.
    probe: Consumer,
    /// Properties of the probe.
    properties: ClientConfig,
    away: OutOfReach,
    /// Last connection failure, kept since librdkafka does not report it each time.
    last_failure: Option<String>,
}

impl Setup {
    /// Checks the properties.
    pub(crate) fn new(config: &KafkaSource, pool: &PoolConfig) -> Result<Self, KafkaError> {
        let options = match &pool.options {
            Options::Kafka(options) => options.clone(),
            Options::Table | Options::RabbitMq(_) => KafkaOptions::default(),
        };
        settings::producer(config, &pool.name, ProducerProfile::default())
            .create_native_config()
            .map_err(KafkaError::of_client)?;
        let mut properties = settings::consumer(config, &pool.name, LOCAL_BYTES_MIN);
        properties.remove("group.id");
        let plan = Plan {
            config: config.clone(),
            pool: pool.name.clone(),
            order: options.order,
            wanted: TopicRequirements {
                topics: options.topics,
                tiers: tiers(options.order, pool),
                dead: options.dead_letter,
            },
            reset: settings::reset(config),
        };
        let probe = Consumer::new(&properties, &pool.name, Arc::default())?;
        Ok(Self {
            away: OutOfReach::new(settings::out_of_reach_max(config)),
            plan,
            probe,
            properties,
            last_failure: None,
        })
    }

    /// Waits up to `patience` for a broker, then checks and creates the topics.
    pub(crate) async fn prepare(&mut self, patience: Duration) -> Result<Found, KafkaError> {
        let reached = reach(&self.probe, &mut self.last_failure, patience);
        match &reached {
            Ok(()) => self.away.is_over(),
            Err(_) => self.begin_again(Instant::now())?,
        }
        reached?;
        topics::prepare(&self.plan.config, &self.plan.wanted, self.probe.native()).await
    }

    /// Recreates the probe if it has reached no broker for a while.
    fn begin_again(&mut self, now: Instant) -> Result<(), KafkaError> {
        self.away.began(now);
        if self.away.due().is_some_and(|due| due <= now) {
            self.away.renewed();
            self.probe = Consumer::new(&self.properties, &self.plan.pool, Arc::default())?;
        }
        Ok(())
    }

    /// Runs `look` on a thread that may block.
    pub(crate) fn prepare_blocking(&mut self, patience: Duration) -> Result<Found, KafkaError> {
        event_loop()?.block_on(self.prepare(patience))
    }
}

impl Plan {
    /// Returns the dead letter topic of a topic.
    pub(crate) fn dead(&self, topic: &str) -> String {
        let dead = self.wanted.dead.clone();
        dead.unwrap_or_else(|| topic_names::dead_topic(topic, &self.config.group))
    }

    /// Creates the consumer, once the number of partitions that share the memory is known.
    pub(crate) fn consumer(
        &self,
        found: &Found,
        wakeup: &Arc<Notify>,
    ) -> Result<Consumer, KafkaError> {
        Consumer::new(&self.properties(found), &self.pool, Arc::clone(wakeup))
    }

    pub(crate) fn properties(&self, found: &Found) -> ClientConfig {
        let mut inboxes = found.partitions();
        if self.wanted.topics.has_patterns() {
            inboxes = inboxes.max(PATTERN_PARTITIONS_MIN);
        }
        // Half of librdkafka's share is for outstanding fetches.
        let local_bytes = self.fetched_bytes_max() / 2 / inboxes.max(1);
        let local_bytes = local_bytes.clamp(LOCAL_BYTES_MIN, LOCAL_BYTES_MAX);
        settings::consumer(&self.config, &self.pool, local_bytes)
    }

    /// Returns the maximum size of the data that librdkafka may hold; the other half is for messages taken
    /// from it.
    pub(crate) fn fetched_bytes_max(&self) -> usize {
        self.config.buffered_bytes_max / 2
    }

    /// Creates the producer.
    pub(crate) fn producer<P>(&self, wakeup: &Arc<Notify>) -> Result<Producer<P>, KafkaError> {
        Producer::new(&self.config, &self.pool, Arc::clone(wakeup))
    }
}

/// Waits up to `patience` for a broker to answer. The last error is kept in `last_failure`, since it is
/// not reported each time.
pub(crate) fn reach(
    probe: &Consumer,
    last_failure: &mut Option<String>,
    patience: Duration,
) -> Result<(), KafkaError> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = probe.native().fetch_metadata(None, ATTEMPT_WITHIN);
        // Also after an answer: another broker may have rejected the client.
        let notes = probe.poll(|_| ());
        let Err(error) = answer else {
            return Ok(());
        };
        *last_failure = notes.failure.or(last_failure.take());
        for (code, detail) in &notes.errors {
            if is_refusal(*code) {
                return Err(KafkaError::Refused(reason(*code, detail)));
            }
        }
        if Instant::now() >= deadline {
            let why = last_failure.clone();
            return Err(unreachable(why.unwrap_or_else(|| of(&error))));
        }
    }
}

/// Returns the error for an unreachable broker. A broker that speaks another protocol does not become usable
/// by waiting.
fn unreachable(last: String) -> KafkaError {
    if last.contains("incorrect security.protocol") {
        return KafkaError::Refused(last);
    }
    KafkaError::Unreachable(last)
}

/// Returns the tiers that a pool's policy may need.
pub(crate) fn tiers(order: Order, pool: &PoolConfig) -> Vec<Tier> {
    let above = match order {
        Order::Key | Order::Partition => Some(pool.retry.in_place_max),
        Order::None => None,
    };
    LADDER.tiers(above, pool.retry.backoff.max)
}
