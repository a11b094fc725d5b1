//! A raw loop to compare with: one consumer of librdkafka's that commits where it is, without
//! waiting, at an interval, and nothing else.

use std::time::Duration;

use miette::{IntoDiagnostic, bail};
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use tokio::time::Instant;

use super::topic::Topic;
use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::watch::{Watch, Watched};

/// The group of every raw consumer; each has a topic of its own.
const GROUP: &str = "raw";

const COMMIT_EVERY: Duration = Duration::from_millis(200);

/// How many messages pass between two looks at the clock.
const LOOK_EVERY: usize = 100;

/// How long a message is waited for, and how often in a row.
const POLL: Duration = Duration::from_secs(1);
const POLLS_MAX: usize = 60;

/// Enough for every partition to be fetched from.
const WARM_UP: usize = 1_000;

/// Measures how fast so many messages are consumed.
pub(crate) fn measure(topic: &Topic<'_>, messages: usize) -> miette::Result<Watched> {
    let consumer = join(topic)?;
    topic.fill(WARM_UP)?;
    work_off(&consumer, WARM_UP)?;
    // Else it would fetch while the topic is filled.
    let partitions = consumer.assignment().into_diagnostic()?;
    consumer.pause(&partitions).into_diagnostic()?;
    topic.fill(messages)?;
    let watch = Watch::begin(|| cpu_seconds("self"), || topic.broker_seconds())?;
    consumer.resume(&partitions).into_diagnostic()?;
    let last_nanos = work_off(&consumer, messages)?;
    commit(&consumer, CommitMode::Sync)?;
    let watched = watch.end(messages, last_nanos)?;
    topic.ensure_committed(GROUP)?;
    Ok(watched)
}

/// A consumer of the topic.
pub(super) fn join(topic: &Topic<'_>) -> miette::Result<BaseConsumer> {
    let consumer: BaseConsumer = topic.client(&[
        ("group.id", GROUP),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
    ])?;
    consumer.subscribe(&[&topic.name]).into_diagnostic()?;
    Ok(consumer)
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
    // A poll ends without one when a rebalance or a commit has come about, too.
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
