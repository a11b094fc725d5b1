//! Link to the pool: its intake, policy, settlements and emits come in; deliveries and the source's health
//! and figures go out.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::health::{Health, HealthIssue};
use crate::broker::record::Record;
use crate::broker::start_positions::Part;
use ganger_config::model::PoolConfig;
use ganger_queue::backlog::Oldest;
use ganger_queue::credit;
use ganger_queue::credit::intake;
use ganger_queue::delivery::{
    Backlog, Claim, Intake, KafkaFigures, Publish, Settlement, SourceEnd,
};

/// The pool, as its source sees it.
#[derive(Debug)]
pub(super) struct PoolLink {
    name: String,
    end: SourceEnd,
    policy: watch::Receiver<Arc<PoolConfig>>,
    health: Health,
    /// Time since which messages wait in the topics.
    oldest: Oldest,
    /// Settlement that ended the last wait.
    settlement: Option<Settlement>,
    /// Emit that ended the last wait.
    publish: Option<Publish>,
}

/// Summary of the partitions.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Lag of each partition, by name.
    pub(super) lag: Vec<(String, u64)>,
    /// Number of messages that are not done, without those that wait for a later time.
    pub(super) unfinished: u64,
    /// Number of messages that wait for a later time.
    pub(super) delayed: u64,
    /// Partitions that are not fetched.
    pub(super) idle: Vec<Part>,
    /// Send time of the oldest waiting message, in milliseconds since 1970, as far as known.
    pub(super) oldest_ms: Option<i64>,
}

impl PoolLink {
    pub(super) fn new(
        name: &str,
        end: SourceEnd,
        policy: watch::Receiver<Arc<PoolConfig>>,
        health: Health,
    ) -> Self {
        health.publish(&end);
        Self {
            name: name.to_owned(),
            end,
            policy,
            health,
            oldest: Oldest::default(),
            settlement: None,
            publish: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    // -- input from the pool --

    /// Waits for an event. Rare events come first, so that a steady stream of settlements cannot hide
    /// them. True if the policy has changed.
    pub(super) async fn event(&mut self, takes_publishes: bool) -> bool {
        let end = &mut self.end;
        tokio::select! {
            biased;
            _ = end.intake.changed(), if end.intake.has_changed().is_ok() => {}
            Ok(()) = self.policy.changed() => return true,
            Some(publish) = end.publishes.recv(), if takes_publishes && self.publish.is_none() => {
                self.publish = Some(publish);
            }
            Some(settlement) = end.settlements.recv(), if self.settlement.is_none() => {
                self.settlement = Some(settlement);
            }
            else => std::future::pending().await,
        }
        false
    }

    /// Returns the name of the pool's queue.
    pub(super) fn queue(&self) -> Arc<str> {
        Arc::clone(&self.policy.borrow().queue)
    }

    /// Returns the current policy, and marks it as seen.
    pub(super) fn policy(&mut self) -> Arc<PoolConfig> {
        Arc::clone(&self.policy.borrow_and_update())
    }

    /// Returns the longest delay for which a message keeps its place in the order.
    pub(super) fn in_place_max(&self) -> Duration {
        self.policy.borrow().retry.in_place_max
    }

    pub(super) fn is_closing(&self) -> bool {
        intake(&self.end) == Intake::Closed
    }

    /// Returns the number of messages that may still be handed out, with `out` in flight.
    pub(super) fn room(&self, out: usize) -> usize {
        credit::room(intake(&self.end), out)
    }

    /// Returns the next settlement that has arrived.
    pub(super) fn settlement(&mut self) -> Option<Settlement> {
        let arrived = self.settlement.take();
        arrived.or_else(|| self.end.settlements.try_recv().ok())
    }

    /// Returns the next emit that has arrived, if there is room for it. Room is already reserved for an emit
    /// that ended a wait.
    pub(super) fn publish(&mut self, has_room: bool) -> Option<Publish> {
        let arrived = self.publish.take();
        arrived.or_else(|| {
            let next = has_room.then(|| self.end.publishes.try_recv().ok());
            next.flatten()
        })
    }

    /// Returns whether an emit has arrived.
    pub(super) fn has_publish(&self) -> bool {
        self.publish.is_some() || !self.end.publishes.is_empty()
    }

    // -- output to the pool --

    /// Delivers a message, which is void once the claim to its partition is dropped.
    pub(super) fn deliver(&self, claim: &Claim, token: u64, record: &Record) {
        let (message, history) = (record.message(), record.history());
        self.end.deliver_under(claim, token, message, history);
    }

    /// Makes the pool check which messages are void.
    pub(super) fn lost(&self) {
        self.end.lost();
    }

    /// Counts messages that were processed and may be processed again, and logs the reason.
    pub(super) fn may_run_twice(&self, count: u64, why: &str) {
        self.health.may_run_twice(&self.end, count, why);
    }

    /// Counts a message that was settled too late.
    pub(super) fn settled_too_late(&self, partition: i32, offset: i64) {
        self.end.may_run_twice(1);
        tracing::warn!(
            pool = self.name,
            partition,
            offset,
            "settled too late: the partition was lost, so the message may run twice"
        );
    }

    // -- health and figures --

    pub(super) fn has(&self, issue: HealthIssue) -> bool {
        self.health.has(issue)
    }

    /// Records that a problem began, or has another reason than before.
    pub(super) fn begin(&mut self, issue: HealthIssue, problem: impl Into<String>) {
        self.health.begin(&self.end, issue, problem);
    }

    /// Records that a problem is resolved, if it was present.
    pub(super) fn over(&mut self, issue: HealthIssue) {
        self.health.resolve(&self.end, issue);
    }

    pub(super) fn note_pending(&self, publishes: usize) {
        let pending = Some(publishes as u64);
        self.end
            .facts
            .note(|figures| figures.publishes_pending = pending);
    }

    /// Records librdkafka's figures and the number of its connection attempts.
    pub(super) fn note_kafka(&self, kafka: KafkaFigures, connections: u64) {
        self.end.facts.note(|figures| {
            (figures.kafka, figures.connections) = (Some(kafka), Some(connections));
        });
    }

    /// Reports the lag, with `out` messages in flight.
    pub(super) fn report_lag(&mut self, summary: Summary, out: usize) {
        let (lag, delayed) = (summary.lag, summary.delayed);
        self.end
            .facts
            .note(|figures| figures.delayed = Some(delayed));
        let depth = summary.unfinished.saturating_sub(out as u64);
        let sent = summary.oldest_ms.and_then(|ms| u64::try_from(ms).ok());
        let sent = sent.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        let backlog = Backlog {
            depth,
            is_limit: false,
            oldest: self.oldest.since(depth, sent, SystemTime::now()),
        };
        self.end.state.send_if_modified(|state| {
            let news = state.lag != lag || state.backlog != Some(backlog);
            (state.lag, state.backlog) = (lag, Some(backlog));
            news
        });
    }
}
