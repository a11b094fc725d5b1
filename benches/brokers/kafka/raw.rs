//! A raw loop to compare with: one consumer of librdkafka's that commits where it is, without
//! waiting, at an interval, and nothing else.

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

/// How many messages pass between two looks at the clock.
const LOOK_EVERY: usize = 100;

/// How long a message is waited for, and how often in a row.
const POLL: Duration = Duration::from_secs(1);
const POLLS_MAX: usize = 60;

/// Measures how fast so many messages are consumed. The interval begins before anything is fetched.
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

/// A consumer that knows where the topic is.
pub(super) fn connect(topic: &Topic<'_>) -> miette::Result<BaseConsumer> {
    let consumer: BaseConsumer =
        topic.client(&[("group.id", &topic.group), ("enable.auto.commit", "false")])?;
    let metadata = consumer.fetch_metadata(Some(&topic.name), REQUEST);
    metadata.into_diagnostic()?;
    Ok(consumer)
}

/// Takes all partitions from their beginning, without asking the group.
pub(super) fn begin(consumer: &BaseConsumer, topic: &Topic<'_>) -> miette::Result<()> {
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_range(&topic.name, 0, PARTITIONS - 1);
    let first = partitions.set_all_offsets(Offset::Offset(0));
    first.into_diagnostic()?;
    consumer.assign(&partitions).into_diagnostic()
}

/// Returns when the last message came.
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
    // A poll ends without one when a commit has come about, too.
    for _ in 0..POLLS_MAX {
        if let Some(polled) = consumer.poll(POLL) {
            std::hint::black_box(polled.into_diagnostic()?.payload());
            return Ok(());
        }
    }
    bail!("no message comes");
}

/// Commits all that has been received.
pub(super) fn commit(consumer: &BaseConsumer, mode: CommitMode) -> miette::Result<()> {
    consumer.commit_consumer_state(mode).into_diagnostic()
}
