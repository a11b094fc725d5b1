//! A topic, and the work that other programs do with it: it is created, filled, and its committed offsets are
//! checked. Nothing here is part of a measurement.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use miette::{IntoDiagnostic, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::common::{machine, one_thread};
use crate::running::Queue;
use crate::servers::kafka::Broker;
use crate::servers::look;

pub(crate) const PARTITIONS: i32 = 6;

/// Number of keys.
const KEYS: usize = 1_000;

/// Bytes of each value.
pub(crate) const VALUE_BYTES: usize = 200;

/// Pause before the next attempt when the producer's queue is full.
const ROOM_WITHIN: Duration = Duration::from_millis(5);

/// Timeout of a request.
pub(crate) const REQUEST: Duration = Duration::from_secs(30);

/// The topic. On drop it is deleted, with the topics that a daemon has created for it.
pub(crate) struct Topic<'a> {
    broker: &'a Broker,
    pub(crate) name: String,
    /// The consumer group.
    pub(crate) group: String,
}

impl<'a> Topic<'a> {
    pub(crate) fn make(broker: &'a Broker) -> miette::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("bench{}-", NEXT.fetch_add(1, Ordering::Relaxed));
        let group = format!("{name}group");
        let topic = Self {
            broker,
            name,
            group,
        };
        let new = NewTopic::new(&topic.name, PARTITIONS, TopicReplication::Fixed(1));
        let admin: AdminClient<DefaultClientContext> = topic.client(&[])?;
        let options = AdminOptions::new().operation_timeout(Some(REQUEST));
        let made = one_thread()?.block_on(admin.create_topics([&new], &options));
        for made in made.into_diagnostic()? {
            ensure!(made.is_ok(), "no topic: {made:?}");
        }
        let ready = look(|| topic.is_ready(&admin).then_some(()));
        ensure!(ready.is_some(), "the topic is never ready");
        Ok(topic)
    }

    fn is_ready(&self, admin: &AdminClient<DefaultClientContext>) -> bool {
        let told = admin.inner().fetch_metadata(Some(&self.name), REQUEST);
        told.is_ok_and(|told| {
            let partitions = told.topics().iter().flat_map(|topic| topic.partitions());
            let ready = partitions.filter(|partition| partition.error().is_none());
            i32::try_from(ready.count()) == Ok(PARTITIONS)
        })
    }

    pub(crate) fn client<T: FromClientConfig>(
        &self,
        properties: &[(&str, &str)],
    ) -> miette::Result<T> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.broker.plain());
        for (name, value) in properties {
            config.set(*name, *value);
        }
        config.create().into_diagnostic()
    }

    /// Deletes the topic and all topics whose names begin with its name.
    fn delete(&self) -> miette::Result<()> {
        let admin: AdminClient<DefaultClientContext> = self.client(&[])?;
        let told = admin
            .inner()
            .fetch_metadata(None, REQUEST)
            .into_diagnostic()?;
        let names = told.topics().iter().map(|topic| topic.name());
        let names: Vec<&str> = names.filter(|name| name.starts_with(&self.name)).collect();
        let delete = admin.delete_topics(&names, &AdminOptions::new());
        let deleted = one_thread()?.block_on(delete);
        deleted.map(drop).into_diagnostic()
    }
}

const QUEUE_FULL: KafkaError = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);

impl Queue for Topic<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> String {
        format!(
            "kind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"{}\"\n\
             consumer = {{ \"auto.offset.reset\" = \"earliest\" }}\n",
            self.broker.plain(),
            self.group
        )
    }

    fn broker_seconds(&self) -> miette::Result<f64> {
        machine::cpu_seconds(&self.broker.pid().to_string())
    }

    /// Produces messages with all keys in turn.
    fn fill(&self, messages: usize) -> miette::Result<()> {
        let producer: BaseProducer = self.client(&[("linger.ms", "5")])?;
        let value = [b'x'; VALUE_BYTES];
        for number in 0..messages {
            let key = (number % KEYS).to_string();
            let mut record = BaseRecord::to(&self.name).key(&key).payload(&value);
            while let Err((error, back)) = producer.send(record) {
                ensure!(error == QUEUE_FULL, "filling {}: {error}", self.name);
                producer.poll(ROOM_WITHIN);
                record = back;
            }
        }
        producer.flush(REQUEST).into_diagnostic()
    }

    /// Checks that the group has committed all messages.
    fn ensure_settled(&self) -> miette::Result<()> {
        let consumer: BaseConsumer = self.client(&[("group.id", &self.group)])?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.name, 0, PARTITIONS - 1);
        let committed = consumer
            .committed_offsets(asked, REQUEST)
            .into_diagnostic()?;
        for partition in committed.elements() {
            let number = partition.partition();
            let ends = consumer.fetch_watermarks(&self.name, number, REQUEST);
            let (_, end) = ends.into_diagnostic()?;
            let offset = partition.offset();
            if end > 0 && offset != Offset::Offset(end) {
                bail!("partition {number} is committed to {offset:?}, not to {end}");
            }
        }
        Ok(())
    }
}

impl Drop for Topic<'_> {
    fn drop(&mut self) {
        // A topic that remains takes up space, but disturbs no later measurement.
        drop(self.delete());
    }
}
