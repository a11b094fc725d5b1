//! The consumer: librdkafka's, with callbacks that only record events, a queue for each partition, and one
//! notification that fires when any of them has messages or events. The task decides on the actions.
//!
//! A queue for each partition lets one wait without the others: records not taken from it stay in
//! librdkafka's local buffer, and when that is full no more is fetched. The consumer's own queue, which then
//! holds only events, is polled in any case. Pausing and resuming would discard the local buffer each time.

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

use super::arrivals::{ArrivalFlag, ArrivalSet};
use super::error::{KafkaError, reason, without_times};
use super::headers::Raw;
use super::statistics;
use super::statistics::Lag;
use ganger_queue::delivery::KafkaFigures;

/// Client behind a consumer.
pub(crate) type Native = BaseConsumer<Context>;
/// A partition of a topic.
pub(crate) type TopicPartition = (String, i32);

/// A decision of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rebalanced {
    /// Partitions assigned once the consumer acknowledges it.
    Assigned(Vec<TopicPartition>),
    /// Partitions revoked once the consumer acknowledges it.
    Revoked(Vec<TopicPartition>),
    /// Partitions that already belong to another member.
    Lost(Vec<TopicPartition>),
}

/// Events recorded by the callbacks, for the task to handle.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) rebalances: Vec<Rebalanced>,
    /// Errors, with librdkafka's detail.
    pub(crate) errors: Vec<(Code, String)>,
    pub(crate) lag: Option<Vec<Lag>>,
    /// Figures of librdkafka, and the number of its connection attempts.
    pub(crate) figures: Option<(KafkaFigures, u64)>,
    /// True if the group was seen to accept this member.
    pub(crate) is_in_group: Option<bool>,
    /// Reason of the last connection failure.
    pub(crate) failure: Option<String>,
    /// True if a broker is connected, by the last report.
    pub(crate) connected: Option<bool>,
    /// Reason why the consumer is unusable.
    pub(crate) fatal: Option<String>,
}

/// Context with the callbacks.
pub(crate) struct Context {
    pool: String,
    notes: Mutex<Notes>,
    /// Number of events served: a poll that served one may have left others.
    served: AtomicU64,
    /// True while leaving: revocations are acknowledged at once, since nothing else will acknowledge them any
    /// more.
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
                    // Earlier statistics are out of date.
                    notes.connected = Some(false);
                }
                notes.errors.push((code, reason.to_owned()));
            });
        }
    }
}

/// librdkafka's log facility for a failed connection. Its error callback does not report each one.
const FAILURE: &str = "FAIL";

/// Returns the text of such a log line, without the thread's name.
fn connection_failure(line: &str) -> String {
    let text = line.split_once("]: ").map_or(line, |(_, text)| text);
    let closed_at_once = text.contains("in state APIVERSION_QUERY");
    let text = without_times(text);
    if closed_at_once {
        return format!("{text}; does the broker want another `security.protocol`?");
    }
    text.to_owned()
}

/// Forwards a line of librdkafka's own log.
pub(crate) fn log(pool: &str, level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        // Reported elsewhere, if it is relevant.
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
                tracing::debug!(pool = self.pool, error, "partitions could not be released");
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

/// Offset and metadata to commit for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

/// Start offset of an assigned partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// A consumer.
pub(crate) struct Consumer {
    native: Arc<BaseConsumer<Context>>,
    wakeup: Arc<Notify>,
    arrivals: ArrivalSet,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}

/// Queue of the messages of one partition.
pub(crate) struct Inbox {
    queue: PartitionQueue<Context>,
    flag: ArrivalFlag,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("flag", &self.flag)
            .finish_non_exhaustive()
    }
}

impl Inbox {
    /// Returns the next message, or the partition's error; none if the queue is empty: the partition is in
    /// the set of arrivals once it has messages.
    pub(crate) fn next(&self) -> Option<Result<BorrowedMessage<'_>, Code>> {
        // Cleared before the check, or an arrival right after it would go unnoticed.
        self.flag.clear();
        let polled = self.queue.poll(Duration::ZERO)?;
        self.flag.set();
        Some(polled.map_err(|error| match error {
            // The only error for which the library has no code.
            Fault::PartitionEOF(_) => Code::PartitionEOF,
            error => error.rdkafka_error_code().unwrap_or(Code::Fail),
        }))
    }
}

impl Consumer {
    /// Creates a consumer. It connects by itself.
    pub(crate) fn new(
        properties: &ClientConfig,
        pool: &str,
        wakeup: Arc<Notify>,
    ) -> Result<Self, KafkaError> {
        let context = Context {
            pool: pool.to_owned(),
            notes: Mutex::default(),
            served: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
        };
        let native = BaseConsumer::from_config_and_context(properties, context);
        let mut native = native.map_err(KafkaError::of_client)?;
        let ring = Arc::clone(&wakeup);
        native.set_nonempty_callback(move || ring.notify_one());
        Ok(Self {
            native: Arc::new(native),
            wakeup,
            arrivals: ArrivalSet::default(),
        })
    }

    /// Returns the underlying client, for requests that need no consumer state.
    pub(crate) fn native(&self) -> &Arc<BaseConsumer<Context>> {
        &self.native
    }

    /// Serves the pending events and returns them. Messages should not arrive on this path; one that does is
    /// passed to `stray`.
    pub(crate) fn poll(&self, mut stray: impl FnMut(&BorrowedMessage<'_>)) -> Notes {
        let context = self.native.context();
        loop {
            let before = context.served.load(Ordering::Relaxed);
            match self.native.poll(Duration::ZERO) {
                Some(Ok(message)) => stray(&message),
                // The error callback reports it.
                Some(Err(_)) => {}
                None if context.served.load(Ordering::Relaxed) == before => break,
                None => {}
            }
        }
        let mut notes =
            std::mem::take(&mut *context.notes.lock().unwrap_or_else(PoisonError::into_inner));
        // Checked each time: the code of a fatal error need not show that it is one.
        let fatal = self.native.client().fatal_error();
        notes.fatal = fatal.map(|(code, detail)| reason(code, &detail));
        notes
    }

    /// Subscribes the group member to exactly these topics.
    pub(crate) fn subscribe(&self, topics: &[&str]) -> Result<(), KafkaError> {
        if topics.is_empty() {
            self.native.unsubscribe();
            return Ok(());
        }
        let subscribed = self.native.subscribe(topics);
        subscribed.map_err(|error| KafkaError::of_request("subscribing", &error))
    }

    /// Returns the partitions that have received messages.
    pub(crate) fn arrivals(&self) -> &ArrivalSet {
        &self.arrivals
    }

    /// Opens a partition's own queue. This happens before the assignment, so that no message bypasses it.
    pub(crate) fn inbox(&self, topic: &str, partition: i32) -> Option<Inbox> {
        let mut queue = self.native.split_partition_queue(topic, partition)?;
        let flag = ArrivalFlag::new(topic, partition, &self.arrivals);
        let (arrived, wakeup) = (flag.clone(), Arc::clone(&self.wakeup));
        queue.set_nonempty_callback(move || {
            arrived.mark();
            wakeup.notify_one();
        });
        Some(Inbox { queue, flag })
    }

    /// Acknowledges an assignment of partitions whose commits are known, keeping their leader epochs.
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
            // Otherwise its metadata would be committed again with positions that have none. The library
            // leaks the memory of the old text, at most 4 KiB.
            element.set_metadata("");
        }
        let assigned = assign(&self.native, &list);
        assigned.map_err(|error| KafkaError::of_request("assigning partitions", &error))
    }

    /// Acknowledges an assignment.
    pub(crate) fn assign(&self, starts: &[Start]) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::with_capacity(starts.len());
        for start in starts {
            let mut element = list.add_partition(&start.topic, start.partition);
            let offset = element.set_offset(Offset::Offset(start.offset));
            offset.map_err(|error| KafkaError::of_request("assigning", &error))?;
        }
        let assigned = assign(&self.native, &list);
        assigned.map_err(|error| KafkaError::of_request("assigning partitions", &error))
    }

    /// Acknowledges a revocation.
    pub(crate) fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        const ACTION: &str = "releasing partitions";
        let ours = self.native.assignment();
        let ours = ours.map_err(|error| KafkaError::of_request(ACTION, &error))?;
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            // One partition that never began would make the call fail for all.
            if ours.find_partition(topic, *partition).is_some() {
                list.add_partition(topic, *partition);
            }
        }
        let unassigned = unassign(&self.native, &list);
        unassigned.map_err(|error| KafkaError::of_request(ACTION, &error))
    }

    /// Starts a partition of an acknowledged assignment. `others` holds the positions of all others.
    pub(crate) fn add(&self, start: Start, mut others: Vec<Start>) -> Result<(), KafkaError> {
        match self.native.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.assign(&[start]),
            RebalanceProtocol::Eager | RebalanceProtocol::None => {
                others.push(start);
                self.assign(&others)
            }
        }
    }

    /// Moves an assigned partition to another offset. A seek is not enough: librdkafka stops reading a
    /// partition whose position no longer exists. `others` holds the positions of all others.
    pub(crate) fn restart(&self, start: Start, others: Vec<Start>) -> Result<(), KafkaError> {
        if matches!(
            self.native.rebalance_protocol(),
            RebalanceProtocol::Cooperative
        ) {
            self.unassign(&[(start.topic.clone(), start.partition)])?;
        }
        self.add(start, others)
    }

    /// Pauses fetching of partitions. Their local buffers are discarded.
    pub(crate) fn pause(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let paused = self.native.pause(&listed(partitions));
        paused.map_err(|error| KafkaError::of_request("pausing partitions", &error))
    }

    /// Resumes fetching of partitions.
    pub(crate) fn resume(&self, partitions: &[TopicPartition]) -> Result<(), KafkaError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let resumed = self.native.resume(&listed(partitions));
        resumed.map_err(|error| KafkaError::of_request("resuming partitions", &error))
    }

    /// Acknowledges all further decisions of the group at once, since nothing else will acknowledge them any
    /// more.
    pub(crate) fn begin_to_leave(&self) {
        self.native.context().leaving.store(true, Ordering::Relaxed);
    }

    /// Leaves the group and closes the consumer. May take as long as a broker takes to answer.
    pub(crate) fn leave(self, is_static: bool) {
        if !is_static {
            // Closing does not notify the group if no partition is assigned, and then all others would wait
            // until the session times out. The group should wait for a static member.
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

/// Returns the headers of a message. A header whose name is not text cannot be read and is left out.
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
                "header left out: its name is not UTF-8"
            ),
        }
    }
    raw
}
