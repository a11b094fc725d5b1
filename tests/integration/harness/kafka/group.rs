//! Consumer groups: what they have committed, who belongs to them, and members of the tests' own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaResult;
use rdkafka::groups::GroupInfo;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use super::{Kafka, REQUEST, at_last};

/// A group as an operator sees it from outside.
pub(crate) struct Group {
    kafka: Arc<Kafka>,
    name: String,
    /// It never joins.
    consumer: Mutex<BaseConsumer>,
}

/// What a group has committed for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The next offset to be read; none where nothing is committed.
    pub(crate) offset: Option<i64>,
    pub(crate) metadata: String,
}

impl Commit {
    fn of(partition: &TopicPartitionListElem<'_>) -> Self {
        Self {
            offset: partition.offset().to_raw().filter(|offset| *offset >= 0),
            metadata: partition.metadata().to_owned(),
        }
    }
}

impl Group {
    pub(crate) fn of(kafka: &Arc<Kafka>, name: &str) -> Self {
        Self {
            kafka: Arc::clone(kafka),
            name: name.into(),
            consumer: Mutex::new(Self::onlooker(kafka, name)),
        }
    }

    fn onlooker(kafka: &Kafka, name: &str) -> BaseConsumer {
        kafka.client(&[("group.id", name), ("enable.auto.commit", "false")])
    }

    /// After a failure another onlooker asks: the first may be left without the group's coordinator
    /// by a broker that stood still.
    fn ask<T>(&self, ask: impl Fn(&BaseConsumer) -> KafkaResult<T>) -> T {
        at_last(|| {
            let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = ask(&consumer);
            if answer.is_err() {
                *consumer = Self::onlooker(&self.kafka, &self.name);
            }
            answer
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is committed, for each partition of the topic.
    pub(crate) fn committed(&self, topic: &str) -> Vec<Commit> {
        let mut asked = TopicPartitionList::new();
        for partition in 0..self.kafka.partitions(topic) {
            asked.add_partition(topic, partition.try_into().unwrap());
        }
        let told = self.ask(|consumer| consumer.committed_offsets(asked.clone(), REQUEST));
        told.elements().iter().map(Commit::of).collect()
    }

    /// Commits as another program would, while the group has no member.
    pub(crate) fn commit(&self, topic: &str, partition: i32, offset: i64, metadata: &str) {
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(topic, partition);
        element.set_offset(Offset::Offset(offset)).unwrap();
        element.set_metadata(metadata);
        let consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        consumer.commit(&list, CommitMode::Sync).unwrap();
    }

    /// How many offsets of each partition are not committed yet.
    pub(crate) fn lags(&self, topic: &str) -> Vec<i64> {
        // Or it would not know of partitions that are new.
        self.ask(|consumer| consumer.fetch_metadata(Some(topic), REQUEST).map(drop));
        let lag = |(partition, commit): (usize, Commit)| {
            let partition = partition.try_into().unwrap();
            let (first, end) =
                self.ask(|consumer| consumer.fetch_watermarks(topic, partition, REQUEST));
            end - commit.offset.unwrap_or(first)
        };
        self.committed(topic)
            .into_iter()
            .enumerate()
            .map(lag)
            .collect()
    }

    /// The same for the whole topic.
    pub(crate) fn lag(&self, topic: &str) -> i64 {
        self.lags(topic).iter().sum()
    }

    /// The ids of its members, as the broker gave them.
    pub(crate) fn members(&self) -> Vec<String> {
        let list = self.ask(|consumer| consumer.fetch_group_list(Some(&self.name), REQUEST));
        let members = list.groups().iter().flat_map(GroupInfo::members);
        members.map(|member| member.id().to_owned()).collect()
    }

    /// Whether every member knows its partitions.
    pub(crate) fn is_settled(&self) -> bool {
        let list = self.ask(|consumer| consumer.fetch_group_list(Some(&self.name), REQUEST));
        list.groups().iter().all(|group| group.state() == "Stable")
    }

    /// Joins it with a consumer of the tests' own, as a stranger that knows the same protocol.
    pub(crate) fn join(&self, topic: &str, properties: &[(&str, &str)]) -> Member {
        let own = [
            ("group.id", self.name.as_str()),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "earliest"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("session.timeout.ms", "6000"),
        ];
        let config = self.kafka.config(&[&own[..], properties].concat());
        let member = Member(config.create_with_context(Rebalances::default()).unwrap());
        member.0.subscribe(&[topic]).unwrap();
        member
    }
}

/// A member of the tests' own. It leaves the group when it is dropped.
pub(crate) struct Member(BaseConsumer<Rebalances>);

impl Member {
    /// Takes part in the group's life and returns its partitions; what it reads is thrown away.
    pub(crate) fn take_part(&self) -> Vec<i32> {
        drop(self.0.poll(std::time::Duration::from_millis(20)));
        let assignment = self.0.assignment().unwrap();
        let partitions = assignment.elements();
        partitions
            .iter()
            .map(|element| element.partition())
            .collect()
    }

    /// How often its partitions have been given out so far.
    pub(crate) fn rebalances(&self) -> usize {
        self.0.context().0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Rebalances(AtomicUsize);

impl ClientContext for Rebalances {}

impl ConsumerContext for Rebalances {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
