//! The source's task: it waits for the next event, and then does everything that may be due. It never
//! blocks: blocking requests run on threads of their own, and their answers arrive like other events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::beginning::{Begun, begin};
use super::blocking_calls::{Asking, aside};
use super::commits::Commits;
use super::group::{Group, REFUSAL_LASTS};
use super::health::{Health, HealthIssue};
use super::incoming::stray;
use super::known_topics::KnownTopics;
use super::ordering::Lanes;
use super::partitions::Partitions;
use super::positions::Positions;
use super::purpose::Purpose;
use super::session_gap::{Standstill, boot_time};
use super::strangers::Strangers;
use super::throttle::Throttle;
use crate::broker::consumer::Consumer;
use crate::broker::error::{is_refusal, reason, words};
use crate::broker::out_of_reach::OutOfReach;
use crate::broker::producer::Producer;
use crate::broker::record::Record;
use crate::broker::setup::{Plan, Setup};
use crate::broker::wanted::Found;
use crate::broker::{settings, setup};
use ganger_config::model::PoolConfig;
use ganger_core::budget::Share;
use ganger_queue::backlog::Oldest;
use ganger_queue::credit;
use ganger_queue::credit::intake;
use ganger_queue::delivery::{Intake, Publish, Settlement, SourceEnd};
use ganger_queue::source::link::Link;
use rdkafka::error::RDKafkaErrorCode as Code;

/// Maximum interval between two polls, if `max.poll.interval.ms` is not shorter.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// Timeout for leaving the group before the source ends without it.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The source of one pool.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) end: SourceEnd,
    pub(super) policy: watch::Receiver<Arc<PoolConfig>>,
    pub(super) plan: Plan,
    /// Topics that are read, and those beside them.
    pub(super) topics: KnownTopics,
    pub(super) health: Health,
    pub(super) consumer: Consumer,
    pub(super) producer: Producer<Purpose>,
    pub(super) strangers: Strangers,
    pub(super) bell: Arc<Notify>,
    pub(super) lanes: Lanes<Record>,
    /// Time since which messages wait in the topics.
    pub(super) oldest: Oldest,
    /// Assigned partitions.
    pub(super) partitions: Partitions,
    pub(super) group: Group,
    pub(super) positions: Positions,
    pub(super) throttle: Throttle,
    /// Memory budget for what is read and not done, and what librdkafka holds.
    pub(super) budget: Share,
    pub(super) asking: Asking,
    pub(super) commits: Commits,
    /// True if more is available than one turn takes.
    more: bool,
    pub(super) standstill: Standstill,
    /// Settlements not handled yet.
    arrived: Vec<Settlement>,
    /// Emits not handled yet.
    asked: Vec<Publish>,
    /// Reason of the last connection failure.
    last_failure: Option<String>,
    last_refusal: Option<Instant>,
    /// Time for which the consumer has reached no broker.
    away: OutOfReach,
    /// True once it was logged that long waits leave the order.
    pub(super) told_of_order: bool,
    poll_every: Duration,
    next_poll: Instant,
}

/// Runs a source to its end.
pub(super) async fn run(setup: Setup, found: Option<Found>, mut link: Link) {
    let mut health = Health::new(&setup.plan.pool);
    let (end, bell) = (&mut link.end, Arc::new(Notify::new()));
    if let Some(begun) = begin(setup, found, end, &mut health, &bell).await {
        Task::new(begun, bell, link, health).run().await;
    }
}

impl Task {
    fn new(begun: Begun, bell: Arc<Notify>, link: Link, health: Health) -> Self {
        let Begun {
            plan,
            found,
            consumer,
            producer,
        } = begun;
        let max_poll_interval = settings::max_poll_interval(&plan.config);
        let session_timeout = settings::session_timeout(&plan.config);
        let poll_every = POLL_EVERY.min(max_poll_interval / 4);
        health.tell(&link.end);
        Self {
            consumer,
            producer,
            strangers: Strangers::new(settings::patience(&plan.config)),
            end: link.end,
            policy: link.policy,
            commits: Commits::new(plan.config.commit_interval),
            group: Group::new(max_poll_interval),
            positions: Positions::default(),
            throttle: Throttle::of(&plan, &found),
            budget: link.share,
            asking: Asking::new(),
            health,
            bell,
            topics: KnownTopics::new(
                found,
                settings::topics_every(&plan.config),
                plan.wanted.topics.has_patterns(),
                Instant::now(),
            ),
            lanes: Lanes::new(),
            oldest: Oldest::default(),
            partitions: Partitions::default(),
            more: false,
            last_failure: None,
            last_refusal: None,
            away: OutOfReach::new(settings::out_of_reach_max(&plan.config)),
            told_of_order: false,
            standstill: Standstill::new(session_timeout, boot_time()),
            arrived: Vec::new(),
            asked: Vec::new(),
            poll_every: poll_every.min(Standstill::turn_every_max(session_timeout)),
            next_poll: Instant::now(),
            plan,
        }
    }

    async fn run(mut self) {
        self.tell_of_no_topic();
        while !self.is_finished() {
            self.event().await;
            self.turn();
        }
        self.close().await;
    }

    /// Returns whether it is to end and nothing is left to settle, to publish or to commit, except what
    /// is undeliverable.
    fn is_finished(&self) -> bool {
        self.is_closing()
            && self.lanes.out() == 0
            && self.asked.is_empty()
            && self.end.publishes.is_empty()
            && !self.is_still_publishing(Instant::now())
            && self.partitions.are_committed()
    }

    pub(super) fn is_closing(&self) -> bool {
        intake(&self.end) == Intake::Closed
    }

    /// Returns the number of messages that may still be handed out.
    pub(super) fn room(&self) -> usize {
        credit::room(intake(&self.end), self.lanes.out())
    }

    /// Returns whether the pool wants no messages now.
    pub(super) fn is_unwanted(&self) -> bool {
        credit::room(intake(&self.end), 0) == 0
    }

    /// Waits for an event. Rare events come first, so that a steady stream of settlements cannot hide
    /// them.
    async fn event(&mut self) {
        let timer = self.timer();
        let room_for_publishes = self.has_room_for_publishes();
        let end = &mut self.end;
        tokio::select! {
            biased;
            _ = end.intake.changed(), if end.intake.has_changed().is_ok() => {}
            Ok(()) = self.policy.changed() => self.policy_changed(),
            () = self.asking.answered() => {}
            Some(publish) = end.publishes.recv(), if room_for_publishes => self.asked.push(publish),
            Some(settlement) = end.settlements.recv() => self.arrived.push(settlement),
            () = self.bell.notified() => {}
            () = self.budget.freed() => {}
            () = sleep_until(timer) => {}
        }
    }

    /// Returns the time of the next timer.
    fn timer(&self) -> Instant {
        if self.more {
            return Instant::now();
        }
        let dues = [
            // On the way out nothing is taken in any more.
            self.partitions.next_head().filter(|_| !self.is_closing()),
            self.lanes.next_due(),
            self.producer.next_due(),
            self.next_in_vain(),
            self.group.due(Instant::now()),
            self.positions.due(),
            self.topics.make_at(),
            self.throttle.due().filter(|_| !self.is_closing()),
            self.away.due().filter(|_| !self.is_closing()),
            Some(self.topics.look_at()).filter(|_| !self.is_closing()),
            self.commits.due(self.has_something_to_commit()),
        ];
        dues.into_iter()
            .flatten()
            .fold(self.next_poll, Instant::min)
    }

    /// Does everything that may be due.
    fn turn(&mut self) {
        let now = Instant::now();
        self.next_poll = now + self.poll_every;
        let commit = self.commits.number();
        if self.standstill.awake(boot_time(), commit) {
            tracing::warn!(
                pool = self.plan.pool,
                "the daemon stood still for about as long as its session: what is in hand waits \
                 until the group has answered"
            );
        }
        self.poll(now);
        self.reach_out(now);
        self.follow_group(now);
        self.collect();
        self.published(now);
        self.lanes.release(now);
        let is_cut_short = self.take_in(now);
        self.throttle(now);
        self.budget
            .promise(self.lanes.bytes() + self.throttle.held());
        self.budget.rest();
        self.hand_out();
        self.more = is_cut_short || self.has_more();
        self.commit(now);
        let pending = self.producer.pending() as u64;
        self.end
            .facts
            .note(|figures| figures.publishes_pending = Some(pending));
    }

    /// Carries out settlements and publications.
    fn collect(&mut self) {
        while let Ok(settlement) = self.end.settlements.try_recv() {
            self.arrived.push(settlement);
        }
        if self.partitions.is_empty() {
            self.standstill.is_over();
        }
        if self.standstill.in_doubt() {
            return;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        for settlement in arrived.drain(..) {
            self.settle(settlement);
        }
        // Its capacity is reused.
        self.arrived = arrived;
        for publish in std::mem::take(&mut self.asked) {
            self.emit(publish);
        }
        // Once no message is out, no emit is awaited: the rest is dropped.
        let is_over = self.is_closing() && self.lanes.out() == 0;
        while is_over || self.has_room_for_publishes() {
            match self.end.publishes.try_recv() {
                Ok(publish) => self.emit(publish),
                Err(_) => break,
            }
        }
    }

    /// Serves the consumer's events.
    fn poll(&mut self, now: Instant) {
        let mut strays = Vec::new();
        let topics = &self.topics;
        let notes = self
            .consumer
            .poll(|message| strays.push(stray(topics, message)));
        if let Some(problem) = notes.fatal {
            // Its other reports concern a consumer that is gone.
            if self.group.may_join(now) {
                self.begin_again(problem, now);
            }
            return;
        }
        for stray in strays {
            self.take_stray(stray, now);
        }
        if notes.failure.is_some() {
            self.last_failure = notes.failure;
        }
        for (code, detail) in notes.errors {
            self.consumer_error(code, &detail, now);
        }
        if notes.connected == Some(false) {
            self.away.began(now);
        }
        if notes.connected == Some(true) {
            self.away.is_over();
            self.health.over(&self.end, HealthIssue::Brokers);
            let lately = |refused| now < refused + REFUSAL_LASTS;
            if !self.last_refusal.is_some_and(lately) {
                self.health.over(&self.end, HealthIssue::Refused);
            }
        }
        self.group.note(notes.rebalances);
        if let Some(is_in_group) = notes.is_in_group {
            self.membership(is_in_group, now);
        }
        if let Some((kafka, connects)) = notes.figures {
            self.end.facts.note(|figures| {
                (figures.kafka, figures.connections) = (Some(kafka), Some(connects));
            });
        }
        if let Some(statistics) = notes.lag {
            self.take_statistics(&statistics, now);
        }
    }

    /// Recreates the consumer after so long without a broker that it may know of none.
    fn reach_out(&mut self, now: Instant) {
        if self.is_closing() || self.away.due().is_none_or(|due| due > now) {
            return;
        }
        self.away.renewed();
        // A rejection is the better explanation.
        if !self.health.has(HealthIssue::Brokers) && !self.health.has(HealthIssue::Refused) {
            self.all_brokers_down();
        }
        tracing::warn!(
            pool = self.plan.pool,
            "no broker was reached for long: the consumer is made anew, and what was in hand may run \
             twice"
        );
        self.join_as_new(None, now);
    }

    fn all_brokers_down(&mut self) {
        let last = self.last_failure.clone();
        let why = last.unwrap_or_else(|| words(Code::AllBrokersDown));
        self.health.begin(&self.end, HealthIssue::Brokers, why);
    }

    fn consumer_error(&mut self, code: Code, detail: &str, now: Instant) {
        let reason = reason(code, detail);
        match code {
            Code::AllBrokersDown => self.all_brokers_down(),
            // One of several may be away.
            Code::BrokerTransportFailure | Code::Resolve | Code::OperationTimedOut => {
                tracing::debug!(pool = self.plan.pool, reason, "a connection failed");
            }
            Code::GroupAuthorizationFailed => self.not_admitted(reason, now),
            Code::Fenced | Code::FencedInstanceId => {
                self.health.begin(&self.end, HealthIssue::Group, reason);
            }
            code if is_refusal(code) => {
                self.last_refusal = Some(now);
                self.health.begin(&self.end, HealthIssue::Refused, reason);
            }
            _ => tracing::warn!(pool = self.plan.pool, reason, "Kafka reports an error"),
        }
    }

    fn policy_changed(&mut self) {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let tiers = setup::tiers(self.plan.order, &policy);
        self.need_tiers(tiers, Instant::now());
    }

    /// Leaves the group and drops the clients, on a thread of its own: it may take as long as a broker
    /// takes to answer.
    async fn close(mut self) {
        self.tell_of_what_is_left();
        self.consumer.begin_to_leave();
        self.leave_nothing_unanswered();
        let Self {
            consumer,
            producer,
            partitions,
            plan,
            end,
            ..
        } = self;
        drop(partitions);
        // All is settled: the pool need not wait for the rest.
        drop(end);
        let is_static = settings::is_static_member(&plan.config);
        let left = aside("kafka-close", move || {
            consumer.leave(is_static);
            drop(producer);
        });
        if let Some(left) = left
            && timeout(LEAVE_WITHIN, left).await.is_err()
        {
            tracing::warn!(
                pool = plan.pool,
                "leaving the group takes too long; its other members will notice in time"
            );
        }
    }
}
