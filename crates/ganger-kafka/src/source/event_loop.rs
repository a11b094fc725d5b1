//! The source's task: it waits for the next event, and then does everything that may be due. It never blocks:
//! blocking requests run on threads of their own, and their answers arrive like other events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::assignment::{Assignment, Limits};
use super::blocking_calls::{Answer, OpenQueries, Query, run_on_thread};
use super::commits::{CommitAnswer, CommitOutcome, Commits, Urgency};
use super::contact::Contact;
use super::external_topics::ExternalTopics;
use super::group::{Group, NextAction};
use super::health::{Health, HealthIssue};
use super::known_topics::KnownTopics;
use super::member::{Member, MemberContext};
use super::outbox::Outbox;
use super::pool_link::PoolLink;
use super::purpose::Publication;
use super::session_gap::{SessionGap, boot_time};
use super::settle::{Rules, emit};
use super::startup::{Startup, begin};
use super::throttle::Throttle;
use crate::broker::error::words;
use crate::broker::out_of_reach::OutOfReach;
use crate::broker::setup::{Plan, Setup};
use crate::broker::start_positions::QueryContext;
use crate::broker::topic_requirements::Found;
use crate::broker::{settings, setup};
use ganger_core::budget::Share;
use ganger_queue::source::link::Link;

/// Maximum interval between two polls, if `max.poll.interval.ms` is not shorter.
const POLL_EVERY: Duration = Duration::from_secs(5);
/// Timeout for leaving the group before the source ends without it.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The source of one pool.
#[derive(Debug)]
struct Task {
    plan: Plan,
    wakeup: Arc<Notify>,
    pool: PoolLink,
    /// Topics that are read, and those beside them.
    topics: KnownTopics,
    member: Member,
    assignment: Assignment,
    outbox: Outbox,
    commits: Commits,
    open_queries: OpenQueries,
    /// Memory budget for messages that are read and not done, and for the data that librdkafka holds.
    budget: Share,
    /// True if more is available than one turn takes.
    more: bool,
    poll_every: Duration,
    next_poll: Instant,
}

/// Runs a source to its end.
pub(super) async fn run(setup: Setup, found: Option<Found>, mut link: Link) {
    let mut health = Health::new(&setup.plan.pool);
    let (end, wakeup) = (&mut link.end, Arc::new(Notify::new()));
    if let Some(begun) = begin(setup, found, end, &mut health, &wakeup).await {
        Task::new(begun, wakeup, link, health).run().await;
    }
}

impl Task {
    fn new(begun: Startup, wakeup: Arc<Notify>, link: Link, health: Health) -> Self {
        let Startup {
            plan,
            found,
            consumer,
            producer,
        } = begun;
        let (config, now) = (&plan.config, Instant::now());
        let max_poll_interval = settings::max_poll_interval(config);
        let session_timeout = settings::session_timeout(config);
        let contact = Contact::new(OutOfReach::new(settings::out_of_reach_max(config)));
        let group = Group::new(max_poll_interval);
        let session_gap = SessionGap::new(session_timeout, boot_time());
        let poll_every = POLL_EVERY.min(max_poll_interval / 4);
        Self {
            pool: PoolLink::new(&plan.pool, link.end, link.policy, health),
            member: Member::new(consumer, contact, group, plan.reset),
            assignment: Assignment::new(&plan, Throttle::of(&plan, &found)),
            outbox: Outbox::new(producer, ExternalTopics::new(settings::patience(config))),
            commits: Commits::new(config.commit_interval, session_gap),
            open_queries: OpenQueries::new(),
            topics: {
                let every = settings::topics_every(config);
                KnownTopics::new(found, plan.wanted.clone(), every, now)
            },
            budget: link.share,
            more: false,
            poll_every: poll_every.min(SessionGap::turn_every_max(session_timeout)),
            next_poll: now,
            wakeup,
            plan,
        }
    }

    async fn run(mut self) {
        self.topics.log_if_no_topics(&self.pool);
        while !self.is_finished() {
            self.event().await;
            self.turn();
        }
        self.close().await;
    }

    /// Returns whether it has to end and nothing is left to settle, to publish or to commit, except
    /// undeliverable publications.
    fn is_finished(&self) -> bool {
        self.pool.is_closing()
            && self.assignment.out() == 0
            && !self.pool.has_publish()
            && !self.outbox.is_still_publishing(Instant::now())
            && self.assignment.are_committed()
    }

    /// Waits for an event. Rare events come first, so that a steady stream of settlements cannot hide
    /// them.
    async fn event(&mut self) {
        let timer = self.timer();
        let takes_publishes = self.takes_publishes();
        let has_new_policy = tokio::select! {
            biased;
            () = self.open_queries.answered() => false,
            is_new = self.pool.event(takes_publishes) => is_new,
            () = self.wakeup.notified() => false,
            () = self.budget.freed() => false,
            () = sleep_until(timer) => false,
        };
        if has_new_policy {
            self.policy_changed();
        }
    }

    /// Returns the time of the next timer.
    fn timer(&self) -> Instant {
        let now = Instant::now();
        if self.more {
            return now;
        }
        let is_closing = self.pool.is_closing();
        let dues = [
            self.assignment.due(is_closing),
            self.outbox.due(is_closing || self.member.is_draining()),
            self.member.due(is_closing, now),
            self.topics.due(is_closing),
            self.commits.due(self.urgency()),
        ];
        dues.into_iter()
            .flatten()
            .fold(self.next_poll, Instant::min)
    }

    /// Does everything that may be due.
    fn turn(&mut self) {
        let now = Instant::now();
        self.next_poll = now + self.poll_every;
        self.check_clock();
        self.poll(now);
        self.take_answers(now);
        self.member.subscribe(&self.topics, &mut self.pool, now);
        self.ask_what_is_due(now);
        self.follow_group(now);
        self.settle();
        self.published(now);
        self.assignment.release(now);
        let is_cut_short = self.take_in(now);
        self.keep_to_budget(now);
        self.hand_out();
        self.more = is_cut_short || self.has_more();
        self.commit(now);
        self.pool.note_pending(self.outbox.pending());
    }

    fn check_clock(&mut self) {
        if self.commits.awake(boot_time()) {
            tracing::warn!(
                pool = self.plan.pool,
                "daemon was suspended for about as long as its session timeout: messages in hand \
                 wait until the group has answered"
            );
        }
    }

    // -- the consumer and its group --

    /// Returns the membership, the topics and the parts on which the membership acts.
    fn membership(&mut self, now: Instant) -> (&mut Member, &mut KnownTopics, MemberContext<'_>) {
        let context = MemberContext {
            assignment: &mut self.assignment,
            pool: &mut self.pool,
            now,
        };
        (&mut self.member, &mut self.topics, context)
    }

    /// Serves the consumer's events.
    fn poll(&mut self, now: Instant) {
        let (member, topics, mut context) = self.membership(now);
        match member.poll(topics, &mut context) {
            Ok(None) => {}
            Ok(Some(statistics)) => {
                let summary = self.assignment.take_statistics(&statistics);
                self.member.check_unfetched(&summary.idle, now);
                self.pool.report_lag(summary, self.assignment.out());
            }
            Err(problem) => {
                let pause = self.member.handle_unusable(problem, &mut self.pool);
                self.join_as_new(Some(now + pause), now);
                tracing::warn!(
                    pool = self.plan.pool,
                    ?pause,
                    "rejoining the group after a pause"
                );
            }
        }
        if self.member.is_lost(&mut self.pool, now) {
            tracing::warn!(
                pool = self.plan.pool,
                "no broker was reached for long: the consumer is recreated, and messages in hand \
                 may run twice"
            );
            self.join_as_new(None, now);
        }
    }

    /// Replaces the consumer with a new one, which joins no earlier than `not_before`.
    fn join_as_new(&mut self, not_before: Option<Instant>, now: Instant) {
        match self.plan.consumer(self.topics.found(), &self.wakeup) {
            Ok(consumer) => {
                let (member, _, mut context) = self.membership(now);
                member.replace(consumer, &mut context);
                // Answers to the old one's queries are lost.
                self.open_queries = OpenQueries::new();
                self.topics.ask_again(now);
                self.commits.forget_sent();
            }
            // It worked before, and is tried again: the problem of the old consumer persists.
            Err(error) => {
                tracing::error!(pool = self.plan.pool, %error, "no new consumer could be created");
            }
        }
        self.member.join_as_new(not_before);
    }

    /// Carries out the group's decisions, as far as possible now.
    fn follow_group(&mut self, now: Instant) {
        self.member.give_back_again(&mut self.pool, now);
        loop {
            match self.member.next() {
                NextAction::Nothing => return,
                NextAction::Decided(decision) => {
                    let commit = self.commits.number();
                    let (member, _, mut context) = self.membership(now);
                    let query = member.decided(decision, commit, &mut context);
                    self.ask(query);
                }
                NextAction::Draining => {
                    let undeliverable = self.outbox.held_undeliverable(now);
                    let in_hand = self
                        .assignment
                        .in_hand(self.member.leaving(), undeliverable);
                    let (member, _, mut context) = self.membership(now);
                    if !member.drained(in_hand, &mut context) {
                        return;
                    }
                }
            }
        }
    }

    // -- queries --

    fn policy_changed(&mut self) {
        let policy = self.pool.policy();
        let query = self.topics.need(setup::tiers(self.plan.order, &policy));
        if query.is_none() {
            self.pool.over(HealthIssue::Setup);
        }
        self.ask(query);
    }

    fn ask_what_is_due(&mut self, now: Instant) {
        let of_member = self.member.queries(&self.assignment, now);
        self.ask(of_member);
        let of_topics = self.topics.queries(now);
        self.ask(of_topics);
    }

    fn ask(&mut self, queries: impl IntoIterator<Item = Query>) {
        for query in queries {
            let query_context = QueryContext {
                pool: self.plan.pool.clone(),
                tiers: self.topics.tiers(),
                cluster: self.topics.found().cluster.clone(),
                reset: self.plan.reset,
                looking: settings::looking(&self.plan.config, &self.plan.pool),
            };
            let native = self.member.native();
            self.open_queries
                .ask(query, native, query_context, &self.plan.config);
        }
    }

    fn take_answers(&mut self, now: Instant) {
        while let Some(answer) = self.open_queries.answer() {
            let (member, topics, mut context) = self.membership(now);
            match answer {
                Answer::StartPositions(begins) => member.begin(begins, topics, &mut context),
                Answer::Later(begins) => member.begin_later(begins, topics, &mut context),
                Answer::LogStates(states) => member.resume_all(states, &mut context),
                Answer::Topics(number, found) => {
                    topics.take_topics(number, found, context.pool, now);
                }
                Answer::Existing(there) => {
                    let query = topics.take_there(there, context.pool);
                    self.ask(query);
                }
                Answer::Committed(answer) => self.committed(answer, now),
            }
        }
    }

    // -- messages --

    /// Carries out settlements and emits.
    fn settle(&mut self) {
        if self.assignment.is_empty() {
            self.commits.have_no_partition();
        }
        if self.commits.in_doubt() {
            return;
        }
        while let Some(settlement) = self.pool.settlement() {
            let (rules, now) = (rules(&self.plan, &self.topics, &self.pool), Instant::now());
            let publication = self.assignment.settle(settlement, rules, &self.pool, now);
            self.publish(publication);
        }
        // Once no message is in flight, no emit is awaited: the rest is dropped.
        let is_over = self.pool.is_closing() && self.assignment.out() == 0;
        while let Some(publish) = self.pool.publish(is_over || self.takes_publishes()) {
            self.publish(emit(publish));
        }
    }

    fn takes_publishes(&self) -> bool {
        !self.commits.in_doubt() && !self.outbox.is_full()
    }

    /// Publishes a record, and the records that follow if no broker would accept it.
    fn publish(&mut self, publication: Option<Publication>) {
        let mut next = publication;
        while let Some(publication) = next {
            let rejected = self.outbox.send(publication);
            next = rejected.and_then(|report| {
                let rules = rules(&self.plan, &self.topics, &self.pool);
                self.assignment
                    .published(report, rules, &self.pool, Instant::now())
            });
        }
    }

    /// Handles confirmations and rejections.
    fn published(&mut self, now: Instant) {
        let (assignment, pool) = (&self.assignment, &mut self.pool);
        let is_void = |place| assignment.is_void(place);
        let reports = self.outbox.reports(is_void, pool, now);
        let mut ended = reports.ended.into_iter();
        while let Some(report) = ended
            .next()
            .or_else(|| self.outbox.make_room(&self.pool, now))
        {
            let rules = rules(&self.plan, &self.topics, &self.pool);
            let next = self.assignment.published(report, rules, &self.pool, now);
            self.publish(next);
        }
        self.outbox
            .report_errors(reports.errors, &mut self.pool, now);
    }

    /// Takes in messages as far as there is room. True if there may be more.
    fn take_in(&mut self, now: Instant) -> bool {
        if self.pool.is_closing() {
            return false;
        }
        let (limits, arrivals) = (self.limits(), self.member.arrivals());
        let (is_cut_short, news) = self.assignment.take_in(arrivals, limits, now);
        let (member, _, mut context) = self.membership(now);
        member.take_news(news, &mut context);
        is_cut_short
    }

    fn limits(&self) -> Limits {
        Limits {
            room: self.room(),
            bytes: self.budget.room(),
        }
    }

    /// Returns the number of messages that may still be handed out.
    fn room(&self) -> usize {
        self.pool.room(self.assignment.out())
    }

    /// Ensures that no more is held, here and in librdkafka, than the limit allows.
    fn keep_to_budget(&mut self, now: Instant) {
        if !self.pool.is_closing() {
            let bytes = self.budget.most() / 2;
            let (member, _, mut context) = self.membership(now);
            member.throttle(bytes, &mut context);
        }
        self.budget.promise(self.assignment.bytes());
        self.budget.rest();
    }

    /// Hands out messages to the pool as far as it has credit.
    fn hand_out(&mut self) {
        let room = self.room().min(self.assignment.ready());
        if room > 0 && !self.is_held_up() {
            self.assignment.hand_out(room, &self.pool);
        }
    }

    /// Returns whether more is available than was handed out, so that another turn follows at once.
    fn has_more(&mut self) -> bool {
        let limits = self.limits();
        limits.room > 0 && !self.is_held_up() && self.assignment.has_more(limits)
    }

    /// Returns whether progress could not be committed or replies not be published, so that no more work is
    /// begun.
    fn is_held_up(&self) -> bool {
        let troubles = [HealthIssue::Brokers, HealthIssue::Commits];
        troubles.into_iter().any(|trouble| self.pool.has(trouble))
            || self.commits.in_doubt()
            || self.outbox.holds_up(self.plan.config.buffered_bytes_max)
    }

    // -- commits --

    /// Returns the urgency of the pending commit, if any.
    fn urgency(&self) -> Option<Urgency> {
        let probe = self.pool.has(HealthIssue::Brokers) || self.pool.has(HealthIssue::Commits);
        let is_open = !self.assignment.are_committed();
        match () {
            () if self.assignment.is_empty() => None,
            () if self.commits.in_doubt() => Some(Urgency::Probe),
            () if self.pool.is_closing() || self.member.is_draining() => {
                is_open.then_some(Urgency::Urgent)
            }
            () if probe => Some(Urgency::Probe),
            () => is_open.then_some(Urgency::Usual),
        }
    }

    /// Commits the progress of each partition, if a commit is due.
    fn commit(&mut self, now: Instant) {
        let urgency = self.urgency();
        if !self.commits.begin(urgency, now) {
            return;
        }
        let force = urgency == Some(Urgency::Probe);
        let metadata = self.commits.metadata_bytes_max();
        let commits = self.assignment.commit(metadata, force);
        if !commits.is_empty() {
            self.commits.send();
            self.ask([Query::Commit(commits)]);
        }
    }

    /// Handles the outcome of a commit.
    fn committed(&mut self, answer: CommitAnswer, now: Instant) {
        let CommitAnswer { result, missing } = answer;
        self.assignment.committed(result.is_ok(), &missing);
        let (pool, name) = (&mut self.pool, self.plan.pool.as_str());
        if !missing.is_empty() {
            tracing::debug!(
                pool = name,
                ?missing,
                "topics no longer exist; nothing is committed for them"
            );
        }
        let problem = result.err().map(words).unwrap_or_default();
        match self.commits.ended(result, self.assignment.len()) {
            CommitOutcome::Done => {
                pool.over(HealthIssue::Commits);
                pool.over(HealthIssue::Brokers);
                pool.over(HealthIssue::Refused);
            }
            CommitOutcome::Shorter(bytes) => tracing::warn!(
                pool = name,
                bytes,
                "broker accepts less commit metadata; more messages may run twice after a crash"
            ),
            CommitOutcome::Waits => tracing::debug!(pool = name, problem, "commit postponed"),
            CommitOutcome::TooLate => {
                tracing::debug!(
                    pool = name,
                    problem,
                    "commit rejected: the membership has ended"
                );
                let commit = self.commits.number();
                let (member, _, mut context) = self.membership(now);
                member.evicted_while_draining(commit, &mut context);
            }
            CommitOutcome::FailedRepeatedly => pool.begin(HealthIssue::Commits, problem),
            CommitOutcome::Missing | CommitOutcome::Failed => {}
        }
    }

    // -- the end --

    /// Leaves the group and drops the clients, on a thread of its own, since it may take as long as a broker
    /// takes to answer.
    async fn close(mut self) {
        self.outbox.log_unfinished(&self.pool);
        let mut context = MemberContext {
            assignment: &mut self.assignment,
            pool: &mut self.pool,
            now: Instant::now(),
        };
        let consumer = self.member.close(&mut context);
        let Self {
            outbox,
            assignment,
            plan,
            pool,
            ..
        } = self;
        drop(assignment);
        // All messages are settled: the pool need not wait for the rest.
        drop(pool);
        let is_static = settings::is_static_member(&plan.config);
        let left = run_on_thread("kafka-close", move || {
            consumer.leave(is_static);
            drop(outbox);
        });
        if let Some(left) = left
            && timeout(LEAVE_WITHIN, left).await.is_err()
        {
            tracing::warn!(
                pool = plan.pool,
                "leaving the group takes too long; its other members continue after the session \
                 timeout"
            );
        }
    }
}

fn rules<'a>(plan: &'a Plan, topics: &'a KnownTopics, pool: &PoolLink) -> Rules<'a> {
    Rules {
        plan,
        topics,
        in_place_max: pool.in_place_max(),
    }
}
