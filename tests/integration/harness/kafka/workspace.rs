//! A directory whose daemons read Kafka, with a topic and a group of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::Signal;

use super::{Group, Kafka, NewRecord, PATIENCE, USER};
use crate::harness::{Daemon, Event, Pool, Progress, Record, Workspace, field, said};

/// A number for each site of this run.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// What the daemons' connections are told unless a test says otherwise: a dead daemon is soon found
/// missing, and a topic is soon seen to be there.
const CONSUMER: [(&str, &str); 3] = [
    ("session.timeout.ms", "6000"),
    ("heartbeat.interval.ms", "500"),
    ("topic.metadata.refresh.interval.ms", "1000"),
];

/// The directory, the broker, and the names that no other test uses.
pub(crate) struct KafkaSite {
    pub(crate) site: Workspace,
    pub(crate) kafka: Arc<Kafka>,
    pub(crate) topic: String,
    pub(crate) group: Group,
}

/// What a site is to be like.
pub(crate) struct Plan {
    kafka: Arc<Kafka>,
    partitions: usize,
    topic_settings: Vec<(&'static str, &'static str)>,
    source: String,
    consumer: BTreeMap<&'static str, &'static str>,
    tables: String,
    daemon: String,
    group: Option<String>,
}

impl KafkaSite {
    /// On the shared broker, with a topic of so many partitions.
    pub(crate) fn new(partitions: usize) -> Self {
        Plan::new(partitions).make()
    }

    /// The topic of that name, which belongs to this test.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.topic)
    }

    /// Where the group's dead letters are.
    pub(crate) fn dead_topic(&self) -> String {
        format!("{}.{}.dead", self.topic, self.group.name())
    }

    /// The topics of the group's retry tiers that are there.
    pub(crate) fn tier_topics(&self) -> Vec<String> {
        let prefix = format!("{}.{}.retry.", self.topic, self.group.name());
        let mut topics: Vec<String> = self.kafka.topics().into_iter().collect();
        topics.retain(|topic| topic.starts_with(&prefix));
        topics
    }

    /// A pool of modes-workers on the topic.
    pub(crate) fn pool(&self, args: &[&str]) -> Pool {
        Pool::new(args).text("queue", &self.topic)
    }

    /// Starts a daemon with that pool.
    pub(crate) fn start(&self, pool: &Pool) -> Daemon {
        self.site.start(std::slice::from_ref(pool))
    }

    /// A record for the topic.
    pub(crate) fn message(&self, value: &str) -> NewRecord {
        NewRecord::new(&self.topic, value)
    }

    /// Writes such records, without keys, to the topic's first partition.
    pub(crate) fn send<T: AsRef<str>>(&self, values: &[T]) {
        let record = |value: &T| self.message(value.as_ref()).partition(0);
        let records: Vec<NewRecord> = values.iter().map(record).collect();
        self.kafka.send(&records);
    }

    /// What the workers have recorded so far.
    pub(crate) fn record(&self) -> Record {
        self.site.record()
    }

    /// How much the workers have done, for a long record.
    pub(crate) fn progress(&self) -> Progress {
        Progress::of(&self.site)
    }

    /// Waits until workers have recorded that they have begun these messages.
    pub(crate) fn begun<T: AsRef<str> + std::fmt::Debug>(&self, daemon: &Daemon, bodies: &[T]) {
        daemon.eventually(&format!("workers to begin {bodies:?}"), || {
            let record = self.record();
            let has_begun = |body: &T| !record.of(Event::Began, body.as_ref()).is_empty();
            bodies.iter().all(has_begun)
        });
    }

    /// Waits until workers have done so many.
    pub(crate) fn done(&self, daemon: &Daemon, count: usize) {
        daemon.within(PATIENCE, &format!("{count} to be done"), || {
            self.record().all(Event::Done).len() >= count
        });
    }

    /// Waits until everything is committed, in the topic and in the tiers.
    pub(crate) fn settled(&self, daemon: &Daemon) {
        let topics = [vec![self.topic.clone()], self.tier_topics()].concat();
        for topic in topics {
            daemon.within(
                PATIENCE,
                &format!("{topic} to be committed to its end"),
                || self.group.lag(&topic) == 0,
            );
        }
    }

    /// The same, and no message is dead.
    pub(crate) fn all_done(&self, daemon: &Daemon) {
        self.settled(daemon);
        let dead = self.kafka.read(&self.dead_topic());
        assert!(dead.is_empty(), "dead letters: {dead:#?}");
    }
}

/// What the daemon's status says of its pool, asked for until it is as wanted.
fn status(daemon: &Daemon, what: &str, wanted: impl Fn(&str, &str) -> bool) {
    daemon.within(PATIENCE, what, || {
        daemon.signal(Signal::SIGUSR1);
        let all = daemon.records(|record| said(record, "status of the pool"));
        let last = all.last();
        last.is_some_and(|last| wanted(&field(last, "state"), &field(last, "source_problem")))
    });
}

/// Waits until the daemon says that its source has this problem, whose words are in lower case.
pub(crate) fn in_trouble(daemon: &Daemon, words: &str) {
    status(daemon, &format!("a problem: {words}"), |state, problem| {
        state == "source down" && problem.to_lowercase().contains(words)
    });
}

/// Waits until it says that its source has none.
pub(crate) fn is_well(daemon: &Daemon) {
    status(daemon, "no problem", |state, _| state == "running");
}

/// Waits until it has heard of the stop and begins nothing more.
pub(crate) fn is_draining(daemon: &Daemon) {
    status(daemon, "the stop", |state, _| state == "draining");
}

impl Plan {
    /// For a topic of so many partitions on the shared broker.
    pub(crate) fn new(partitions: usize) -> Self {
        Self::on(Kafka::shared(), partitions)
    }

    /// For one on that broker. With no partitions there is no topic yet.
    pub(crate) fn on(kafka: Arc<Kafka>, partitions: usize) -> Self {
        Self {
            kafka,
            partitions,
            topic_settings: Vec::new(),
            source: String::new(),
            consumer: CONSUMER.into(),
            tables: String::new(),
            daemon: r#"drain_timeout = "10s""#.into(),
            group: None,
        }
    }

    /// With a setting of the topic.
    pub(crate) fn topic(mut self, key: &'static str, value: &'static str) -> Self {
        self.topic_settings.push((key, value));
        self
    }

    /// With keys of the source.
    pub(crate) fn source(mut self, keys: &str) -> Self {
        self.source += &format!("{keys}\n");
        self
    }

    /// With a property of librdkafka for the consumer.
    pub(crate) fn consumer(mut self, property: &'static str, value: &'static str) -> Self {
        self.consumer.insert(property, value);
        self
    }

    /// With other tables, such as librdkafka's properties of the producer.
    pub(crate) fn tables(mut self, tables: &str) -> Self {
        self.tables += &format!("{tables}\n");
        self
    }

    /// With these settings of the daemon.
    pub(crate) fn daemon(mut self, settings: &str) -> Self {
        self.daemon = settings.into();
        self
    }

    /// Through the listener that wants TLS and a password, with these.
    pub(crate) fn secure(self, password: &str, mechanism: &str, certificate: &Path) -> Self {
        let address = self.kafka.secure_address();
        let certificate = certificate.display();
        let client = format!(
            r#"
            [sources.main.client]
            "security.protocol" = "sasl_ssl"
            "sasl.mechanisms" = "{mechanism}"
            "sasl.username" = "{USER}"
            "sasl.password" = "{password}"
            "ssl.ca.location" = "{certificate}"
            "#
        );
        self.source(&format!("brokers = \"{address}\""))
            .tables(&client)
    }

    /// By the newer protocol of groups, in which the broker sets the times.
    pub(crate) fn newer_protocol(mut self) -> Self {
        self.consumer.remove("session.timeout.ms");
        self.consumer.remove("heartbeat.interval.ms");
        self.consumer("group.protocol", "consumer")
    }

    /// For a group that another site has, too.
    pub(crate) fn group(mut self, name: &str) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Makes the topic and the directory.
    pub(crate) fn make(self) -> KafkaSite {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let topic = format!("topic-{number}");
        let group = self.group.clone();
        let group = group.unwrap_or_else(|| format!("group-{number}"));
        if self.partitions > 0 {
            self.kafka
                .make_topic_with(&topic, self.partitions, &self.topic_settings);
        }
        KafkaSite {
            site: Workspace::make(&self.daemon, &self.section(&group)),
            group: Group::of(&self.kafka, &group),
            kafka: self.kafka,
            topic,
        }
    }

    fn section(&self, group: &str) -> String {
        let brokers = if self.source.contains("brokers") {
            String::new()
        } else {
            format!("brokers = \"{}\"", self.kafka.address())
        };
        let property = |(name, value)| format!("\"{name}\" = \"{value}\"\n");
        let consumer: String = self.consumer.iter().map(property).collect();
        format!(
            "[sources.main]\nkind = \"kafka\"\n{brokers}\ngroup = \"{group}\"\n{}\n\
             [sources.main.consumer]\n{consumer}\n{}",
            self.source, self.tables
        )
    }
}
