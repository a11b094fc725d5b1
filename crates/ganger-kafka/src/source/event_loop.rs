//! The source's task: it waits for whatever comes next, and then goes round all that may be to do.
//! Nothing it does waits: requests that block run on threads of their own, and their answers come
//! like anything else.

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

/// The longest time between two polls, if `max.poll.interval.ms` is not shorter.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// How long leaving the group may take before we go without.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The source of one pool.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) end: SourceEnd,
    pub(super) policy: watch::Receiver<Arc<PoolConfig>>,
    pub(super) plan: Plan,
    /// Those that are read, and those beside them.
    pub(super) topics: KnownTopics,
    pub(super) health: Health,
    pub(super) consumer: Consumer,
    pub(super) producer: Producer<Purpose>,
    pub(super) strangers: Strangers,
    pub(super) bell: Arc<Notify>,
    pub(super) lanes: Lanes<Record>,
    /// Since when messages wait in the topics.
    pub(super) oldest: Oldest,
    /// The partitions that are ours.
    pub(super) partitions: Partitions,
    pub(super) group: Group,
    pub(super) positions: Positions,
    pub(super) throttle: Throttle,
    /// For what is read and not done, and what librdkafka holds.
    pub(super) budget: Share,
    pub(super) asking: Asking,
    pub(super) commits: Commits,
    /// There is more at hand than a turn takes.
    more: bool,
    pub(super) standstill: Standstill,
    /// Settlements that were not looked at yet.
    arrived: Vec<Settlement>,
    /// Likewise emits.
    asked: Vec<Publish>,
    /// Why a connection failed last.
    last_failure: Option<String>,
    last_refusal: Option<Instant>,
    /// Whether the consumer reaches a broker.
    away: OutOfReach,
    /// It was said that long waits leave the order.
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

    /// Told to end, and nothing is left to settle, to publish or to commit, but for what nobody
    /// takes.
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

    /// How many more messages may be handed out.
    pub(super) fn room(&self) -> usize {
        credit::room(intake(&self.end), self.lanes.out())
    }

    /// The pool wants none just now.
    pub(super) fn is_unwanted(&self) -> bool {
        credit::room(intake(&self.end), 0) == 0
    }

    /// Waits for something to happen. What comes seldom comes first, so that a steady stream of
    /// settlements can't hide it.
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

    /// When something falls due by itself.
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

    /// Goes round all that may be to do.
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

    /// Carries out what has been settled and what is to be published.
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
        // Its room is used again.
        self.arrived = arrived;
        for publish in std::mem::take(&mut self.asked) {
            self.emit(publish);
        }
        // Once nobody has a message any more, no emit is waited for: what is left is thrown away.
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
            // Whatever else it told was of what is no more.
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

    /// Makes the consumer anew that has reached no broker for so long that it may know of none.
    fn reach_out(&mut self, now: Instant) {
        if self.is_closing() || self.away.due().is_none_or(|due| due > now) {
            return;
        }
        self.away.renewed();
        // Why it is not let in is worth more.
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

    /// Leaves the group and lets the clients go, on a thread of its own: it may take as long as a
    /// broker takes to answer.
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
