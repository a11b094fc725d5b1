//! A raw loop to compare with: one consumer of librdkafka's that commits where it is, without
//! waiting, at an interval, and nothing else.

use std::time::Duration;

use miette::{IntoDiagnostic, bail};
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use tokio::time::Instant;

use super::topic::Topic;
use crate::common::machine::{cpu_seconds, monotonic_nanos};
use crate::running::Queue;
use crate::watch::{Watch, Watched};

const COMMIT_EVERY: Duration = Duration::from_millis(200);

/// How many messages pass between two looks at the clock.
const LOOK_EVERY: usize = 100;

/// How long a message is waited for, and how often in a row.
const POLL: Duration = Duration::from_secs(1);
const POLLS_MAX: usize = 60;

/// Measures how fast so many messages are consumed. The interval begins with the first of them:
/// before, the consumer joins its group.
pub(crate) fn measure(topic: &Topic<'_>, messages: usize) -> miette::Result<Watched> {
    topic.fill(messages)?;
    let consumer = join(topic)?;
    receive(&consumer)?;
    let watch = Watch::begin(|| cpu_seconds("self"), || topic.broker_seconds())?;
    let last_nanos = work_off(&consumer, messages - 1)?;
    commit(&consumer, CommitMode::Sync)?;
    let watched = watch.end(messages - 1, last_nanos)?;
    topic.ensure_settled()?;
    Ok(watched)
}

/// A consumer of the topic.
pub(super) fn join(topic: &Topic<'_>) -> miette::Result<BaseConsumer> {
    let consumer: BaseConsumer = topic.client(&[
        ("group.id", &topic.group),
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
