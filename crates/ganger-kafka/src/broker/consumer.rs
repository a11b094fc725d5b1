//! The consumer: librdkafka's, with callbacks that only take down what happened, a queue for each
//! partition, and one bell that rings when any of them has something. What is to be done about it
//! is the task's business.
//!
//! A queue for each partition is what lets one wait without the others: what is not taken from it
//! stays in librdkafka's local buffer, and when that is full no more is fetched. The consumer's own
//! queue, which has nothing but events then, is polled whatever happens. Pausing and resuming would
//! throw the local buffer away each time.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError as Fault, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::Notify;

use super::error::{KafkaError, reason, without_times};
use super::headers::Raw;
use super::rung::{News, Rung};
use super::statistics;
use super::statistics::Lag;
use ganger_queue::delivery::KafkaFigures;

/// The client behind a consumer.
pub(crate) type Native = BaseConsumer<Context>;
/// A partition of a topic.
pub(crate) type TopicPartition = (String, i32);

/// What the group decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rebalanced {
    /// These are ours as soon as we say so.
    Assigned(Vec<TopicPartition>),
    /// These go as soon as we say so.
    Revoked(Vec<TopicPartition>),
    /// These are someone else's already.
    Lost(Vec<TopicPartition>),
}

/// What the callbacks took down, for the task to deal with.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) rebalances: Vec<Rebalanced>,
    /// What is wrong, with librdkafka's detail.
    pub(crate) errors: Vec<(Code, String)>,
    pub(crate) lag: Option<Vec<Lag>>,
    /// What librdkafka has counted, and how often it has tried to connect.
    pub(crate) figures: Option<(KafkaFigures, u64)>,
    /// Whether we were seen to belong to the group.
    pub(crate) is_in_group: Option<bool>,
    /// Why a connection failed last.
    pub(crate) failure: Option<String>,
    /// Whether a broker is connected, by the last word on it.
    pub(crate) connected: Option<bool>,
    /// Why the consumer is of no use any more.
    pub(crate) fatal: Option<String>,
}

/// The callbacks.
pub(crate) struct Context {
    pool: String,
    notes: Mutex<Notes>,
    /// How many events were served: a poll that served one may have left others.
    served: AtomicU64,
    /// We are leaving: what is revoked goes at once, for nobody will say so any more.
    leaving: AtomicBool,
}

impl Context {
    fn note(&self, note: impl FnOnce(&mut Notes)) {
        self.served.fetch_add(1, Ordering::Relaxed);
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let failure = (facility == FAILURE).then(|| connection_failure(message));
        self.note(|notes| notes.failure = failure.or(notes.failure.take()));
        log(&self.pool, level, facility, message);
    }

    fn stats_raw(&self, json: &[u8]) {
        let stats = statistics::read(json);
        self.note(|notes| {
            if let Some(stats) = stats {
                notes.connected = Some(stats.connected);
                notes.is_in_group = Some(stats.is_in_group);
                notes.lag = Some(stats.lag);
                notes.figures = Some((stats.figures, stats.connects));
            }
        });
    }

    fn error(&self, error: Fault, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.note(|notes| {
                if code == Code::AllBrokersDown {
                    // Whatever the statistics said before is of the past.
                    notes.connected = Some(false);
                }
                notes.errors.push((code, reason.to_owned()));
            });
        }
    }
}

/// What librdkafka calls it when a connection fails. Its error callback does not tell of each.
const FAILURE: &str = "FAIL";

/// What such a line says, without the thread's name.
fn connection_failure(line: &str) -> String {
    let text = line.split_once("]: ").map_or(line, |(_, text)| text);
    let closed_at_once = text.contains("in state APIVERSION_QUERY");
    let text = without_times(text);
    if closed_at_once {
        return format!("{text}; does the broker want another `security.protocol`?");
    }
    text.to_owned()
}

/// A line of librdkafka's own log.
pub(crate) fn log(pool: &str, level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        // Told where it matters.
        _ if facility == FAILURE => tracing::debug!(pool, text, "a connection failed"),
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(pool, facility, text, "librdkafka says"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(pool, facility, text, "librdkafka says");
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        if self.leaving.load(Ordering::Relaxed) {
            self.note(|_| ());
            let gone = unassign(consumer, list);
            if let Err(error) = gone {
                let error = super::error::of(&error);
                tracing::debug!(
                    pool = self.pool,
                    error,
                    "partitions could not be given back"
                );
            }
            return;
        }
        let partitions = partitions(list);
        let rebalanced = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                Rebalanced::Assigned(partitions)
            }
            _ if consumer.assignment_lost() => Rebalanced::Lost(partitions),
            _ => Rebalanced::Revoked(partitions),
        };
        self.note(|notes| notes.rebalances.push(rebalanced));
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let elements = list.elements();
    elements
        .iter()
        .map(|each| (each.topic().to_owned(), each.partition()))
        .collect()
}

fn assign(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.assign(list),
    }
}

fn unassign(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    }
}

/// What is committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

/// Where a partition that is assigned begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// A consumer.
pub(crate) struct Consumer {
    native: Arc<BaseConsumer<Context>>,
    bell: Arc<Notify>,
    rung: Rung,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}

/// The messages of one partition, as they come.
pub(crate) struct Inbox {
    queue: PartitionQueue<Context>,
    news: News,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}

impl Inbox {
    /// The next message, or what is wrong with the partition; none if there is nothing at hand: the
    /// partition is among those that have rung once there is.
    pub(crate) fn next(&self) -> Option<Result<BorrowedMessage<'_>, Code>> {
        // Before the look, or what comes right after it would go unnoticed.
        self.news.look();
        let polled = self.queue.poll(Duration::ZERO)?;
        self.news.found();
        Some(polled.map_err(|error| match error {
            // The only one that the library gives no code.
            Fault::PartitionEOF(_) => Code::PartitionEOF,
            error => error.rdkafka_error_code().unwrap_or(Code::Fail),
        }))
    }
}

impl Consumer {
    /// Makes one. It connects by itself.
    pub(crate) fn new(
        properties: &ClientConfig,
        pool: &str,
        bell: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let context = Context {
            pool: pool.to_owned(),
            notes: Mutex::default(),
            served: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
        };
        let native = BaseConsumer::from_config_and_context(properties, context);
        let mut native = native.map_err(KafkaError::of_client)?;
        let ring = Arc::clone(&bell);
        native.set_nonempty_callback(move || ring.notify_one());
        Ok(Self {
            native: Arc::new(native),
            bell,
            rung: Rung::default(),
        })
    }

    /// The client behind it, for requests that anyone may make.
    pub(crate) fn native(&self) -> &Arc<BaseConsumer<Context>> {
        &self.native
    }

    /// Serves the events that are at hand and tells what they were. Messages don't come this way;
    /// one that does all the same is handed to `stray`.
    pub(crate) fn poll(&self, mut stray: impl FnMut(&BorrowedMessage<'_>)) -> Notes {
        let context = self.native.context();
        loop {
            let before = context.served.load(Ordering::Relaxed);
            match self.native.poll(Duration::ZERO) {
                Some(Ok(message)) => stray(&message),
                // The error callback has it.
                Some(Err(_)) => {}
                None if context.served.load(Ordering::Relaxed) == before => break,
                None => {}
            }
        }
        let mut notes =
            std::mem::take(&mut *context.notes.lock().unwrap_or_else(PoisonError::into_inner));
        // Asked each time: the code of such an error need not say that it is one.
        let fatal = self.native.client().fatal_error();
        notes.fatal = fatal.map(|(code, detail)| reason(code, &detail));
        notes
    }

    /// Asks the group for its share of these topics, and no longer for any other.
    pub(crate) fn subscribe(&self, topics: &[&str]) -> Result<(), KafkaError> {
        if topics.is_empty() {
            self.native.unsubscribe();
            return Ok(());
        }
        let subscribed = self.native.subscribe(topics);
        subscribed.map_err(|error| KafkaError::of_request("subscribing", &error))
    }

    /// Which partitions have got something.
    pub(crate) fn rung(&self) -> &Rung {
        &self.rung
    }

    /// Opens a partition's own queue: before it is assigned, so that nothing goes past it.
    pub(crate) fn inbox(&self, topic: &str, partition: i32) -> Option<Inbox> {
        let mut queue = self.native.split_partition_queue(topic, partition)?;
        let news = News::new(topic, partition, &self.rung);
        let (told, bell) = (news.clone(), Arc::clone(&self.bell));
        queue.set_nonempty_callback(move || {
            told.ring();
            bell.notify_one();
        });
        Some(Inbox { queue, news })
    }

    /// Says yes to an assignment of partitions whose commits are known: their epochs are kept.
    pub(crate) fn begin(
        &self,
        starts: &[Start],
        commits: &TopicPartitionList,
    ) -> Result<(), KafkaError> {
        let mut left: HashMap<TopicPartition, i64> = starts
            .iter()
            .map(|start| ((start.topic.clone(), start.partition), start.offset))
            .collect();
        if commits.count() != starts.len() {
            return self.assign(starts);
        }
        let list = commits.clone();
        for mut element in list.elements() {
            let at = (element.topic().to_owned(), element.partition());
            let Some(offset) = left.remove(&at) else {
                return self.assign(starts);
            };
            let set = element.set_offset(Offset::Offset(offset));
            set.map_err(|error| KafkaError::of_request("assigning", &error))?;
            // Or it would be committed again with what has none. The library forgets the old text
            // without giving its memory back, at most 4 KiB.
            element.set_metadata("");
        }
        let assigned = assign(&self.native, &list);
        assigned.map_err(|error| KafkaError::of_request("taking partitions", &error))
    }

    /// Says yes to an assignment.
    pub(crate) fn assign(&self, starts: &[Start]) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::with_capacity(starts.len());
        for start in starts {
            let mut element = list.add_partition(&start.topic, start.partition);
            let offset = element.set_offset(Offset::Offset(start.offset));
            offset.map_err(|error| KafkaError::of_request("assigning", &error))?;
        }
        let assigned = assign(&self.native, &list);
        assigned.map_err(|error| KafkaError::of_request("taking partitions", &error))
    }

    /// Says yes to a revocation.
    pub(crate) fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        const WHAT: &str = "giving partitions back";
        let ours = self.native.assignment();
        let ours = ours.map_err(|error| KafkaError::of_request(WHAT, &error))?;
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            // One that we never began would make it fail for all.
            if ours.find_partition(topic, *partition).is_some() {
                list.add_partition(topic, *partition);
            }
        }
        let unassigned = unassign(&self.native, &list);
        unassigned.map_err(|error| KafkaError::of_request(WHAT, &error))
    }

    /// Begins a partition of an assignment that we said yes to. `others` is where all others go on.
    pub(crate) fn add(&self, start: Start, mut others: Vec<Start>) -> Result<(), KafkaError> {
        match self.native.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.assign(&[start]),
            RebalanceProtocol::Eager | RebalanceProtocol::None => {
                others.push(start);
                self.assign(&others)
            }
        }
    }

    /// Goes to another offset of a partition that is ours. Seeking would not do: librdkafka reads a
    /// partition no more whose position is gone. `others` is where all others go on.
    pub(crate) fn restart(&self, start: Start, others: Vec<Start>) -> Result<(), KafkaError> {
        if matches!(
            self.native.rebalance_protocol(),
            RebalanceProtocol::Cooperative
        ) {
            self.unassign(&[(start.topic.clone(), start.partition)])?;
        }
        self.add(start, others)
    }

    /// Has partitions not fetched. What is at hand of them is thrown away.
    pub(crate) fn pause(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let paused = self.native.pause(&listed(partitions));
        paused.map_err(|error| KafkaError::of_request("pausing partitions", &error))
    }

    /// Has them fetched again.
    pub(crate) fn resume(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let resumed = self.native.resume(&listed(partitions));
        resumed.map_err(|error| KafkaError::of_request("resuming partitions", &error))
    }

    /// From now on whatever the group decides is done at once, for nobody will any more.
    pub(crate) fn begin_to_leave(&self) {
        self.native.context().leaving.store(true, Ordering::Relaxed);
    }

    /// Leaves the group, and closes. May take as long as a broker takes to answer.
    pub(crate) fn leave(self, is_static: bool) {
        if !is_static {
            // Closing does not tell the group if we have no partition, and then all others would
            // wait for us until our session ends. A static member is to be waited for.
            self.native.unsubscribe();
        }
        drop(self);
    }
}

fn listed(partitions: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    list
}

/// The headers of a message. One whose name is no text can't be read and is left out.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Raw {
    let Some(native) = message.headers() else {
        return Raw::new();
    };
    let mut raw = Raw::with_capacity(native.count());
    for index in 0..native.count() {
        // The library panics over a name that is not UTF-8.
        let header = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let header = native.try_get(index)?;
            let value = header.value.map(bytes::Bytes::copy_from_slice);
            Some((header.key.to_owned(), value))
        }));
        match header {
            Ok(Some(header)) => raw.push(header),
            Ok(None) => {}
            Err(_) => tracing::warn!(
                topic = message.topic(),
                partition = message.partition(),
                offset = message.offset(),
                "a header is left out: its name is not UTF-8"
            ),
        }
    }
    raw
}
