//! Backlogs of the queues, as metrics.

use super::family::{Family, Sample};
use ganger_pool::overview::{Status, UnreadQueueStatus};
use ganger_pool::status::{BacklogStatus, PoolStatus};

/// Returns the labels of a pool's queue.
pub(super) fn queue(pool: &PoolStatus) -> Vec<(&'static str, String)> {
    vec![("pool", pool.name.clone()), ("queue", pool.queue.clone())]
}

/// Returns the metrics of the queues' backlogs.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
pub(super) fn families(status: &Status) -> Vec<Family> {
    let of_each = |value: fn(&BacklogStatus) -> Option<f64>| {
        let sample =
            move |one: &PoolStatus| Some(Sample::number(queue(one), value(one.backlog.as_ref()?)?));
        status.pools.iter().filter_map(sample)
    };
    let of_unread = |value: fn(&BacklogStatus) -> Option<f64>| {
        let sample = move |one: &UnreadQueueStatus| {
            let (source, queue) = (one.source.clone(), one.queue.clone());
            let labels = vec![("source", source), ("queue", queue)];
            Some(Sample::number(labels, value(&one.backlog)?))
        };
        status.unread_queues.iter().filter_map(sample)
    };
    vec![
        Family::gauge(
            "ganger_queue_depth",
            "Messages in the queue that are due, without those in flight or taken in; on a table \
             counted up to 100000.",
        )
        .of(of_each(|backlog| Some(backlog.depth as f64))),
        Family::gauge(
            "ganger_queue_oldest_age_seconds",
            "Longest time that a message has waited in the queue; 0 if none waits.",
        )
        .of(of_each(|backlog| backlog.oldest_age_seconds)),
        Family::gauge(
            "ganger_unread_queue_depth",
            "Messages that wait in a queue of a table source that no pool here reads, counted up to 10000.",
        )
        .of(of_unread(|backlog| Some(backlog.depth as f64))),
        Family::gauge(
            "ganger_unread_queue_oldest_age_seconds",
            "Longest time that a message has waited in a queue that no pool here reads.",
        )
        .of(of_unread(|backlog| backlog.oldest_age_seconds)),
    ]
}
