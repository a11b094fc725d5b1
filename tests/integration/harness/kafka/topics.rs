//! Topics: made, changed and deleted as an operator does it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use rdkafka::admin::{AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::{Kafka, REQUEST, at_last};

impl Kafka {
    /// Makes a topic and waits until it can be used.
    pub(crate) fn make_topic(&self, name: &str, partitions: usize) {
        self.make_topic_with(name, partitions, &[]);
    }

    /// The same with settings of the topic.
    pub(crate) fn make_topic_with(&self, name: &str, partitions: usize, settings: &[(&str, &str)]) {
        let count = i32::try_from(partitions).unwrap();
        let mut topic = NewTopic::new(name, count, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        all_well(self.admin.create_topics([&topic], &options()));
        self.has_partitions(name, partitions);
    }

    /// Makes a topic of one partition that takes nothing unless all these nodes are there.
    pub(crate) fn make_topic_on_all(&self, name: &str, nodes: &[i32]) {
        let replicas = [nodes];
        let topic = NewTopic::new(name, 1, TopicReplication::Variable(&replicas));
        let all = nodes.len().to_string();
        let topic = topic.set("min.insync.replicas", &all);
        all_well(self.admin.create_topics([&topic], &options()));
        self.has_partitions(name, 1);
    }

    /// Deletes a topic and waits until it is gone.
    pub(crate) fn delete_topic(&self, name: &str) {
        all_well(self.admin.delete_topics(&[name], &options()));
        let gone = super::super::look(|| (!self.topics().contains(name)).then_some(()));
        gone.expect("the topic to be gone");
    }

    /// Gives a topic more partitions.
    pub(crate) fn widen_topic(&self, name: &str, partitions: usize) {
        let wider = NewPartitions::new(name, partitions);
        all_well(self.admin.create_partitions([&wider], &options()));
        self.has_partitions(name, partitions);
    }

    /// Gives a topic of one partition a second one, on that node alone.
    pub(crate) fn widen_topic_onto(&self, name: &str, node: i32) {
        let replicas: [&[i32]; 1] = [&[node]];
        let wider = NewPartitions::new(name, 2).assign(&replicas);
        all_well(self.admin.create_partitions([&wider], &options()));
        self.has_partitions(name, 2);
    }

    /// Waits until a topic has a partition that nobody leads.
    pub(crate) fn lacks_a_leader(&self, name: &str) {
        let lacks = super::super::look(|| {
            let metadata = at_last(|| self.admin.inner().fetch_metadata(Some(name), REQUEST));
            let mut partitions = metadata
                .topics()
                .iter()
                .flat_map(|topic| topic.partitions());
            partitions.any(|each| each.leader() < 0).then_some(())
        });
        lacks.expect("a partition without a leader");
    }

    /// Deletes the records of a partition before that offset.
    pub(crate) fn delete_records(&self, topic: &str, partition: i32, offset: i64) {
        let mut before = TopicPartitionList::new();
        let offset = Offset::Offset(offset);
        before
            .add_partition_offset(topic, partition, offset)
            .unwrap();
        let deleted = wait(self.admin.delete_records(&before, &options())).unwrap();
        assert!(
            deleted.elements().iter().all(|e| e.error().is_ok()),
            "{deleted:?}"
        );
    }

    /// All topics' names, Kafka's own left out.
    pub(crate) fn topics(&self) -> BTreeSet<String> {
        let metadata = at_last(|| self.admin.inner().fetch_metadata(None, REQUEST));
        let names = metadata
            .topics()
            .iter()
            .map(|topic| topic.name().to_owned());
        names.filter(|name| !name.starts_with("__")).collect()
    }

    /// How many partitions a topic has, once all of them can be used; none if it is not there.
    pub(crate) fn partitions(&self, name: &str) -> usize {
        at_last(|| {
            let metadata = self.admin.inner().fetch_metadata(Some(name), REQUEST)?;
            let topics = metadata.topics().iter();
            let Some(topic) = topics
                .filter(|topic| {
                    topic.error() != Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
                })
                .find(|topic| topic.name() == name)
            else {
                return Ok(0);
            };
            // One without a leader must not be taken for one that is not there.
            let partitions = topic.partitions().iter();
            let mut errors = topic
                .error()
                .into_iter()
                .chain(partitions.filter_map(|each| each.error()));
            match errors.next() {
                Some(error) => Err(KafkaError::MetadataFetch(error.into())),
                None => Ok(topic.partitions().len()),
            }
        })
    }

    /// A topic's settings as the broker has them, by name.
    pub(crate) fn topic_settings(&self, name: &str) -> BTreeMap<String, String> {
        let topic = ResourceSpecifier::Topic(name);
        let mut described = wait(self.admin.describe_configs([&topic], &options())).unwrap();
        let settings = described.remove(0).unwrap().entries.into_iter();
        settings
            .map(|entry| (entry.name, entry.value.unwrap_or_default()))
            .collect()
    }

    fn has_partitions(&self, name: &str, partitions: usize) {
        let has = super::super::look(|| (self.partitions(name) == partitions).then_some(()));
        has.expect("the topic to have its partitions");
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST))
        .operation_timeout(Some(REQUEST))
}

fn all_well<T: std::fmt::Debug>(
    request: impl Future<Output = KafkaResult<Vec<Result<T, (T, RDKafkaErrorCode)>>>>,
) {
    let done = wait(request).unwrap();
    assert!(done.iter().all(Result::is_ok), "{done:?}");
}

/// The admin client's futures are woken by its own thread; nothing else is needed.
pub(super) fn wait<T>(request: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(request)
}
