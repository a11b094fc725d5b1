//! From a configuration to a pool's clients and topics: before the start, and for as long as it
//! takes when no broker could be reached then.

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
use super::settings::{Reset, Way};
use super::topic_names::LADDER;
use super::wanted::{Found, Wanted};
use super::{settings, topic_names, topics};
use ganger_config::model::{KafkaOptions, KafkaSource, Options, Order, PoolConfig};
use ganger_queue::ladder::Tier;

/// How long a start waits for a broker before it goes on without.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long one look may take.
const LOOK: Duration = Duration::from_millis(500);
/// So many partitions are reckoned with at least where more topics may come.
const PATTERN_PARTITIONS_MIN: usize = 32;
/// The least and the most of a partition's messages that librdkafka keeps at hand.
const LOCAL_BYTES_MIN: usize = 64 << 10;
const LOCAL_BYTES_MAX: usize = 16 << 20;

/// An event loop for this thread.
pub(crate) fn event_loop() -> Result<Runtime, KafkaError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| KafkaError::Client(format!("no event loop: {error}")))
}

/// What a source is to do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) config: KafkaSource,
    pub(crate) pool: String,
    pub(crate) order: Order,
    pub(crate) reset: Reset,
    pub(crate) wanted: Wanted,
}

/// A source that has not begun.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) plan: Plan,
    /// Asks whether a broker is there. It joins no group.
    probe: Consumer,
    /// What it is made with.
    properties: ClientConfig,
    away: OutOfReach,
    /// Why it has not reached one: it is not told each time.
    last_failure: Option<String>,
}

impl Setup {
    /// Checks the properties.
    pub(crate) fn new(config: &KafkaSource, pool: &PoolConfig) -> Result<Self, KafkaError> {
        let options = match &pool.options {
            Options::Kafka(options) => options.clone(),
            Options::Table | Options::RabbitMq(_) => KafkaOptions::default(),
        };
        settings::producer(config, &pool.name, Way::default())
            .create_native_config()
            .map_err(KafkaError::of_client)?;
        let mut properties = settings::consumer(config, &pool.name, LOCAL_BYTES_MIN);
        properties.remove("group.id");
        let plan = Plan {
            config: config.clone(),
            pool: pool.name.clone(),
            order: options.order,
            wanted: Wanted {
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

    /// Looks for a broker for so long, then checks and makes the topics.
    pub(crate) async fn look(&mut self, patience: Duration) -> Result<Found, KafkaError> {
        let reached = reach(&self.probe, &mut self.last_failure, patience);
        match &reached {
            Ok(()) => self.away.is_over(),
            Err(_) => self.begin_again(Instant::now())?,
        }
        reached?;
        topics::prepare(&self.plan.config, &self.plan.wanted, self.probe.native()).await
    }

    /// The probe reaches no broker: after a while a new one looks.
    fn begin_again(&mut self, now: Instant) -> Result<(), KafkaError> {
        self.away.began(now);
        if self.away.due().is_some_and(|due| due <= now) {
            self.away.renewed();
            self.probe = Consumer::new(&self.properties, &self.plan.pool, Arc::default())?;
        }
        Ok(())
    }

    /// The same, for a thread that may block.
    pub(crate) fn look_blocking(&mut self, patience: Duration) -> Result<Found, KafkaError> {
        event_loop()?.block_on(self.look(patience))
    }
}

impl Plan {
    /// The topic of the dead letters of that topic.
    pub(crate) fn dead(&self, topic: &str) -> String {
        let dead = self.wanted.dead.clone();
        dead.unwrap_or_else(|| topic_names::dead_topic(topic, &self.config.group))
    }

    /// The consumer, once it is known how many partitions share the memory.
    pub(crate) fn consumer(
        &self,
        found: &Found,
        bell: &Arc<Notify>,
    ) -> Result<Consumer, KafkaError> {
        Consumer::new(&self.properties(found), &self.pool, Arc::clone(bell))
    }

    pub(crate) fn properties(&self, found: &Found) -> ClientConfig {
        let mut inboxes = found.partitions();
        if self.wanted.topics.has_patterns() {
            inboxes = inboxes.max(PATTERN_PARTITIONS_MIN);
        }
        // Half of what is librdkafka's is for what it has asked for.
        let local_bytes = self.fetched_bytes_max() / 2 / inboxes.max(1);
        let local_bytes = local_bytes.clamp(LOCAL_BYTES_MIN, LOCAL_BYTES_MAX);
        settings::consumer(&self.config, &self.pool, local_bytes)
    }

    /// What librdkafka may hold; the other half is ours.
    pub(crate) fn fetched_bytes_max(&self) -> usize {
        self.config.buffered_bytes_max / 2
    }

    /// The producer.
    pub(crate) fn producer<P>(&self, bell: &Arc<Notify>) -> Result<Producer<P>, KafkaError> {
        Producer::new(&self.config, &self.pool, Arc::clone(bell))
    }
}

/// Waits until a broker answers, for so long. Why it did not before is kept in `last_failure`,
/// since it is not told each time.
pub(crate) fn reach(
    probe: &Consumer,
    last_failure: &mut Option<String>,
    patience: Duration,
) -> Result<(), KafkaError> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = probe.native().fetch_metadata(None, LOOK);
        // Also where it has answered: another broker may have told us off.
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

/// A broker that is there, but of which we speak another language than it, does not become one
/// that we can speak with by waiting.
fn unreachable(last: String) -> KafkaError {
    if last.contains("incorrect security.protocol") {
        return KafkaError::Refused(last);
    }
    KafkaError::Unreachable(last)
}

/// The tiers that a pool's policy may need.
pub(crate) fn tiers(order: Order, pool: &PoolConfig) -> Vec<Tier> {
    let above = match order {
        Order::Key | Order::Partition => Some(pool.retry.in_place_max),
        Order::None => None,
    };
    LADDER.tiers(above, pool.retry.backoff.max)
}
