//! A raw loop for comparison: one consumer of librdkafka that commits its position at an interval, without
//! waiting, and does nothing else.

use std::time::Duration;

use miette::{IntoDiagnostic, bail};
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use super::topic::{PARTITIONS, REQUEST, Topic};
use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::running::Queue;
use crate::watch::{Watch, Watched};

const COMMIT_EVERY: Duration = Duration::from_millis(200);

/// Number of messages between two reads of the clock.
const LOOK_EVERY: usize = 100;

/// Timeout of a poll, and maximum number of polls in a row for one message.
const POLL: Duration = Duration::from_secs(1);
const POLLS_MAX: usize = 60;

/// Measures the throughput of consuming `messages` messages. The interval begins before anything is fetched.
pub(crate) fn measure(topic: &Topic<'_>, messages: usize) -> miette::Result<Watched> {
    topic.fill(messages)?;
    let consumer = connect(topic)?;
    let watch = Watch::begin(|| cpu_seconds("self"), || topic.broker_seconds())?;
    begin(&consumer, topic)?;
    let last_nanos = work_off(&consumer, messages)?;
    commit(&consumer, CommitMode::Sync)?;
    let watched = watch.end(messages, last_nanos)?;
    topic.ensure_settled()?;
    Ok(watched)
}

/// Returns a consumer that knows the partitions of the topic.
pub(super) fn connect(topic: &Topic<'_>) -> miette::Result<BaseConsumer> {
    let consumer: BaseConsumer =
        topic.client(&[("group.id", &topic.group), ("enable.auto.commit", "false")])?;
    let metadata = consumer.fetch_metadata(Some(&topic.name), REQUEST);
    metadata.into_diagnostic()?;
    Ok(consumer)
}

/// Assigns all partitions from their beginning, without joining the group.
pub(super) fn begin(consumer: &BaseConsumer, topic: &Topic<'_>) -> miette::Result<()> {
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_range(&topic.name, 0, PARTITIONS - 1);
    let first = partitions.set_all_offsets(Offset::Offset(0));
    first.into_diagnostic()?;
    consumer.assign(&partitions).into_diagnostic()
}

/// Consumes the messages. Returns the time at which the last one came.
fn work_off(consumer: &BaseConsumer, messages: usize) -> miette::Result<i64> {
    let mut committed = Instant::now();
    for number in 1..=messages {
        receive(consumer)?;
        if number % LOOK_EVERY == 0 && committed.elapsed() > COMMIT_EVERY {
            commit(consumer, CommitMode::Async)?;
            committed = Instant::now();
        }
    }
    Ok(monotonic_nanos())
}

/// Waits for a message.
pub(super) fn receive(consumer: &BaseConsumer) -> miette::Result<()> {
    // A poll also returns without a message after a commit.
    for _ in 0..POLLS_MAX {
        if let Some(polled) = consumer.poll(POLL) {
            std::hint::black_box(polled.into_diagnostic()?.payload());
            return Ok(());
        }
    }
    bail!("no message comes");
}

/// Commits everything that has been received.
pub(super) fn commit(consumer: &BaseConsumer, mode: CommitMode) -> miette::Result<()> {
    consumer.commit_consumer_state(mode).into_diagnostic()
}
