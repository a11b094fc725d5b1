//! Membership of the consumer group. The group's decisions are carried out one after the other: assigned
//! partitions begin (`reading`), revoked ones finish their messages in flight, are committed and are then
//! released, lost ones are removed. Queries are returned, since they block.
//!
//! Polling continues meanwhile: a late answer to a decision costs time, a late poll would cost all
//! partitions.

mod reading;

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::assignment::Assignment;
use super::blocking_calls::{Query, run_on_thread};
use super::contact::Contact;
use super::group::{Drained, Group, NextAction};
use super::health::HealthIssue;
use super::incoming::stray;
use super::known_topics::KnownTopics;
use super::pool_link::PoolLink;
use super::positions::Positions;
use crate::broker::arrivals::ArrivalSet;
use crate::broker::consumer::{Consumer, Native, Rebalanced, TopicPartition};
use crate::broker::error::{is_refusal, reason};
use crate::broker::settings::Reset;
use crate::broker::start_positions::Part;
use crate::broker::statistics::Lag;

/// Parts of the task that the membership acts on, at this time.
#[derive(Debug)]
pub(super) struct MemberContext<'a> {
    pub(super) assignment: &'a mut Assignment,
    pub(super) pool: &'a mut PoolLink,
    pub(super) now: Instant,
}

/// A consumer as a member of its group.
#[derive(Debug)]
pub(super) struct Member {
    consumer: Consumer,
    contact: Contact,
    group: Group,
    positions: Positions,
    /// Position at which a partition of the pool's topics resumes when its own no longer exists.
    reset: Reset,
}

impl Member {
    pub(super) fn new(consumer: Consumer, contact: Contact, group: Group, reset: Reset) -> Self {
        Self {
            consumer,
            contact,
            group,
            positions: Positions::default(),
            reset,
        }
    }

    /// Returns the time of the next timer.
    pub(super) fn due(&self, is_closing: bool, now: Instant) -> Option<Instant> {
        let contact = self.contact.due().filter(|_| !is_closing);
        let dues = [self.group.due(now), self.positions.due(), contact];
        dues.into_iter().flatten().min()
    }

    /// Returns the client for queries.
    pub(super) fn native(&self) -> &Arc<Native> {
        self.consumer.native()
    }

    /// Returns the partitions that have received messages.
    pub(super) fn arrivals(&self) -> &ArrivalSet {
        self.consumer.arrivals()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.group.is_draining()
    }

    // -- events of the consumer --

    /// Serves the consumer's events, and returns the statistics of the partitions.
    ///
    /// # Errors
    /// If the consumer is unusable, and another may join.
    pub(super) fn poll(
        &mut self,
        topics: &KnownTopics,
        context: &mut MemberContext<'_>,
    ) -> Result<Option<Vec<Lag>>, String> {
        let mut strays = Vec::new();
        let notes = self
            .consumer
            .poll(|message| strays.push(stray(topics, message)));
        if let Some(problem) = notes.fatal {
            // Its other reports concern a consumer that no longer exists.
            return match self.group.may_join(context.now) {
                true => Err(problem),
                false => Ok(None),
            };
        }
        for stray in strays {
            let news = context.assignment.take_stray(stray, context.now);
            self.take_news(news, context);
        }
        self.contact.failed(notes.failure);
        for (code, detail) in notes.errors {
            self.consumer_error(code, &detail, context.pool, context.now);
        }
        if let Some(is_connected) = notes.connected {
            self.contact
                .connected(is_connected, context.pool, context.now);
        }
        self.group.note(notes.rebalances);
        if let Some(is_in_group) = notes.is_in_group {
            self.is_admitted(is_in_group, context.pool, context.now);
        }
        if let Some((kafka, connections)) = notes.figures {
            context.pool.note_kafka(kafka, connections);
        }
        Ok(notes.lag)
    }

    fn consumer_error(&mut self, code: Code, detail: &str, pool: &mut PoolLink, now: Instant) {
        let reason = reason(code, detail);
        match code {
            Code::AllBrokersDown => self.contact.all_down(pool),
            // One of several brokers may be unreachable.
            Code::BrokerTransportFailure | Code::Resolve | Code::OperationTimedOut => {
                tracing::debug!(pool = pool.name(), reason, "a connection failed");
            }
            Code::GroupAuthorizationFailed => {
                self.group.refused(now);
                pool.begin(HealthIssue::NotAdmitted, reason);
            }
            Code::Fenced | Code::FencedInstanceId => pool.begin(HealthIssue::Group, reason),
            code if is_refusal(code) => self.contact.refused(reason, pool, now),
            _ => tracing::warn!(pool = pool.name(), reason, "Kafka reports an error"),
        }
    }

    /// Handles whether the group has accepted this member.
    fn is_admitted(&mut self, is_in_group: bool, pool: &mut PoolLink, now: Instant) {
        let are_away = pool.has(HealthIssue::Brokers);
        let admission = self.group.admission(is_in_group, are_away, now);
        if admission.is_admitted {
            pool.over(HealthIssue::NotAdmitted);
        }
        match admission.answers {
            Some(true) => pool.over(HealthIssue::Coordinator),
            Some(false) => {
                let problem = "the group's coordinator is unavailable, or does not support this \
                               group.protocol";
                pool.begin(HealthIssue::Coordinator, problem);
            }
            None => {}
        }
    }

    // -- joining --

    /// Joins the group as soon as there is a worker, and again when the topics change.
    pub(super) fn subscribe(&mut self, topics: &KnownTopics, pool: &mut PoolLink, now: Instant) {
        let is_unwanted = !self.group.is_subscribed() && pool.room(0) == 0;
        if pool.is_closing() || is_unwanted || !self.group.may_join(now) {
            return;
        }
        let topics = topics.all();
        if self.group.is_subscribed_to(&topics) {
            return;
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        match self.consumer.subscribe(&names) {
            Ok(()) => self.group.subscribed_to(topics),
            Err(error) => {
                self.group.subscribe_failed(now);
                pool.begin(HealthIssue::Group, error.to_string());
            }
        }
    }

    /// Handles an unusable consumer, as when another member has the same name: the assigned partitions
    /// are lost without a report. Returns the pause before a new one joins.
    pub(super) fn handle_unusable(&mut self, problem: String, pool: &mut PoolLink) -> Duration {
        pool.begin(HealthIssue::Group, problem);
        self.group.record_unusable(fastrand::f64())
    }

    /// Returns whether the consumer has reached no broker for so long that it may know of none.
    pub(super) fn is_lost(&mut self, pool: &mut PoolLink, now: Instant) -> bool {
        !pool.is_closing() && self.contact.is_lost(pool, now)
    }

    /// Resets the membership: the next consumer joins no earlier than `not_before`.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>) {
        self.group.join_as_new(not_before);
    }

    /// Replaces the consumer, whose partitions can no longer be used.
    pub(super) fn replace(&mut self, consumer: Consumer, context: &mut MemberContext<'_>) {
        context
            .assignment
            .forget(&context.assignment.parts(), context.pool);
        context.pool.over(HealthIssue::Commits);
        context.pool.over(HealthIssue::Partitions);
        self.positions = Positions::default();
        let old = std::mem::replace(&mut self.consumer, consumer);
        old.begin_to_leave();
        // Its end is not awaited.
        drop(run_on_thread("kafka-close", move || drop(old)));
    }

    /// Answers the group's decisions that are not carried out yet: the group waits for the answers, and could
    /// not release this member. Returns the consumer, which then leaves.
    pub(super) fn close(mut self, context: &mut MemberContext<'_>) -> Consumer {
        self.consumer.begin_to_leave();
        for decision in self.group.unanswered() {
            match decision {
                Rebalanced::Assigned(_) => {
                    if let Err(error) = self.consumer.assign(&[]) {
                        tracing::debug!(
                            pool = context.pool.name(),
                            %error,
                            "the group's decision could not be answered"
                        );
                    }
                }
                Rebalanced::Revoked(partitions) | Rebalanced::Lost(partitions) => {
                    self.release_partitions(&partitions, context);
                }
            }
        }
        self.consumer
    }

    // -- decisions of the group --

    /// Returns the next action for the group.
    pub(super) fn next(&mut self) -> NextAction {
        self.group.next()
    }

    /// Carries out a decision of the group. `commit` is the last commit that was sent before it.
    pub(super) fn decided(
        &mut self,
        decision: Rebalanced,
        commit: u64,
        context: &mut MemberContext<'_>,
    ) -> Option<Query> {
        match decision {
            Rebalanced::Assigned(partitions) => {
                let names = names(&partitions);
                tracing::info!(
                    pool = context.pool.name(),
                    partitions = names,
                    "partitions assigned"
                );
                return Some(self.query_start_positions(partitions));
            }
            Rebalanced::Revoked(partitions) => {
                let names = names(&partitions);
                tracing::info!(
                    pool = context.pool.name(),
                    partitions = names,
                    "partitions revoked"
                );
                let parts = context.assignment.all_named(&partitions);
                context.assignment.leave(&parts);
                self.group.drain(partitions, parts, commit, context.now);
            }
            Rebalanced::Lost(partitions) => self.lost(&partitions, context),
        }
        None
    }

    fn lost(&mut self, partitions: &[TopicPartition], context: &mut MemberContext<'_>) {
        tracing::warn!(
            pool = context.pool.name(),
            partitions = names(partitions),
            "partitions lost: their messages in hand may run twice"
        );
        self.release_partitions(partitions, context);
        context
            .pool
            .begin(HealthIssue::Group, "the group has expelled this member");
    }

    /// Returns the partitions that are draining.
    pub(super) fn leaving(&self) -> &[Part] {
        self.group.leaving()
    }

    /// Returns whether draining partitions have been released: once their messages in flight are done and
    /// committed, or the time limit has passed.
    pub(super) fn drained(&mut self, in_flight: usize, context: &mut MemberContext<'_>) -> bool {
        let are_committed = context.assignment.are_all_committed(self.group.leaving());
        let Some(drained) = self.group.drained(in_flight, are_committed, context.now) else {
            return false;
        };
        let Drained {
            partitions,
            in_flight,
        } = drained;
        if in_flight > 0 {
            tracing::warn!(
                pool = context.pool.name(),
                in_flight,
                "partitions released before all their messages were done: those may run twice"
            );
        }
        self.release_partitions(&partitions, context);
        true
    }

    /// Handles that this commit was rejected because the membership has ended.
    pub(super) fn evicted_while_draining(&mut self, commit: u64, context: &mut MemberContext<'_>) {
        if let Some(leaving) = self.group.lost_while_draining(commit) {
            self.lost(&leaving, context);
        }
    }

    /// Removes partitions and releases them to the group.
    fn release_partitions(
        &mut self,
        partitions: &[TopicPartition],
        context: &mut MemberContext<'_>,
    ) {
        let parts = context.assignment.all_named(partitions);
        // Otherwise they would still be paused when they are assigned again.
        self.wake(&parts, context);
        context.assignment.forget(&parts, context.pool);
        self.positions.forget(&parts, partitions);
        // Partitions that had not begun are now read by another member, too.
        for partition in partitions {
            self.mark_readable(&name(partition), context.pool);
        }
        if context.assignment.is_empty() {
            // There is nothing left to commit, and so no commit that would show the end of the problem.
            context.pool.over(HealthIssue::Commits);
        }
        self.give_back(partitions.to_vec(), context.pool, context.now);
    }

    /// Releases partitions to the group, which waits for that.
    fn give_back(&mut self, partitions: Vec<TopicPartition>, pool: &mut PoolLink, now: Instant) {
        if let Err(error) = self.consumer.unassign(&partitions) {
            pool.begin(HealthIssue::Group, error.to_string());
            self.group.not_released(partitions, now);
        }
    }

    /// Releases the partitions that could not be released before, if that is due.
    pub(super) fn give_back_again(&mut self, pool: &mut PoolLink, now: Instant) {
        if let Some(partitions) = self.group.take_unreleased(now) {
            self.give_back(partitions, pool, now);
        }
    }

    // -- fetching --

    /// Pauses and resumes partitions, so that librdkafka holds no more than its limit. `bytes` is the memory
    /// that the daemon has left for them.
    pub(super) fn throttle(&self, bytes: usize, context: &mut MemberContext<'_>) {
        let Some(fetching) = context.assignment.throttle(bytes, context.now) else {
            return;
        };
        if let Err(error) = self.consumer.pause(&fetching.pause) {
            tracing::warn!(pool = context.pool.name(), %error, "partitions could not be paused");
        }
        self.fetch(&fetching.resume, context.pool);
    }

    fn wake(&self, parts: &[Part], context: &mut MemberContext<'_>) {
        self.fetch(&context.assignment.wake(parts), context.pool);
    }

    fn fetch(&self, partitions: &[TopicPartition], pool: &PoolLink) {
        if let Err(error) = self.consumer.resume(partitions) {
            tracing::error!(pool = pool.name(), %error, "partitions could not be resumed");
        }
    }
}

fn name((topic, number): &TopicPartition) -> String {
    format!("{topic}/{number}")
}

fn names(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().map(name).collect();
    names.join(", ")
}
