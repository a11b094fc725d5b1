//! Membership of the consumer group. The group's decisions are carried out one after the other:
//! assigned partitions begin at the group's commits, revoked ones finish what is in flight, are
//! committed and are then released, lost ones are forgotten. A partition whose position is gone resumes
//! by what is left of its log; what cannot be determined now is queried again, and keeps no other
//! partition from being read. Queries are returned: they block.
//!
//! Polling goes on meanwhile: a late answer to a decision costs time, a late poll would cost all
//! partitions.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::assignment::{Assignment, PartNews};
use super::blocking_calls::{Query, aside};
use super::contact::Contact;
use super::group::{AGAIN, Drained, Group, Next};
use super::health::HealthIssue;
use super::incoming::stray;
use super::known_topics::KnownTopics;
use super::partition::Partition;
use super::pool_link::PoolLink;
use super::positions::Positions;
use super::progress::Progress;
use super::whence::{go_on_at, refusal};
use crate::broker::begins;
use crate::broker::begins::{Begin, Begins, LogState, Part};
use crate::broker::commit_metadata::PartitionSeed;
use crate::broker::consumer::{Consumer, Native, Rebalanced, Start, TopicPartition};
use crate::broker::error::{KafkaError, is_refusal, reason};
use crate::broker::rung::Rung;
use crate::broker::settings::Reset;
use crate::broker::statistics::Lag;
use ganger_core::backoff::Backoff;

/// Pauses before the state of a partition is queried again.
const ASTRAY_AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(15),
    jitter: 0.2,
};

/// A consumer as a member of its group.
#[derive(Debug)]
pub(super) struct Member {
    consumer: Consumer,
    contact: Contact,
    group: Group,
    positions: Positions,
    /// Position at which a partition of the pool's topics resumes when its own is gone.
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

    /// Returns the partitions that have received something.
    pub(super) fn rung(&self) -> &Rung {
        self.consumer.rung()
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
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) -> Result<Option<Vec<Lag>>, String> {
        let mut strays = Vec::new();
        let notes = self
            .consumer
            .poll(|message| strays.push(stray(topics, message)));
        if let Some(problem) = notes.fatal {
            // Its other reports concern a consumer that is gone.
            return match self.group.may_join(now) {
                true => Err(problem),
                false => Ok(None),
            };
        }
        for stray in strays {
            let news = assignment.take_stray(stray, now);
            self.take_news(news, assignment, pool, now);
        }
        self.contact.failed(notes.failure);
        for (code, detail) in notes.errors {
            self.consumer_error(code, &detail, pool, now);
        }
        if let Some(is_connected) = notes.connected {
            self.contact.connected(is_connected, pool, now);
        }
        self.group.note(notes.rebalances);
        if let Some(is_in_group) = notes.is_in_group {
            self.is_admitted(is_in_group, pool, now);
        }
        if let Some((kafka, connections)) = notes.figures {
            pool.note_kafka(kafka, connections);
        }
        Ok(notes.lag)
    }

    fn consumer_error(&mut self, code: Code, detail: &str, pool: &mut PoolLink, now: Instant) {
        let reason = reason(code, detail);
        match code {
            Code::AllBrokersDown => self.contact.all_down(pool),
            // One of several may be away.
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
                let problem =
                    "the group's coordinator is away, or does not know our group.protocol";
                pool.begin(HealthIssue::Coordinator, problem);
            }
            None => {}
        }
    }

    // -- joining --

    /// Joins the group as soon as there is a worker, and again when the topics change.
    pub(super) fn subscribe(&mut self, topics: &KnownTopics, pool: &mut PoolLink, now: Instant) {
        let is_unwanted = !self.group.has_asked() && pool.room(0) == 0;
        if pool.is_closing() || is_unwanted || !self.group.may_join(now) {
            return;
        }
        let topics = topics.all();
        if self.group.has_asked_for(&topics) {
            return;
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        match self.consumer.subscribe(&names) {
            Ok(()) => self.group.asked_for(topics),
            Err(error) => {
                self.group.could_not_ask(now);
                pool.begin(HealthIssue::Group, error.to_string());
            }
        }
    }

    /// Handles an unusable consumer, as when another member has the same name: the assigned partitions
    /// are lost without a report. Returns the pause before a new one joins.
    pub(super) fn put_out(&mut self, problem: String, pool: &mut PoolLink) -> Duration {
        pool.begin(HealthIssue::Group, problem);
        self.group.put_out(fastrand::f64())
    }

    /// Returns whether the consumer has reached no broker for so long that it may know of none.
    pub(super) fn is_lost(&mut self, pool: &mut PoolLink, now: Instant) -> bool {
        !pool.is_closing() && self.contact.is_lost(pool, now)
    }

    /// Resets the membership: the next consumer joins no earlier than `not_before`.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>) {
        self.group.join_as_new(not_before);
    }

    /// Replaces the consumer, with whose partitions nothing more can be done.
    pub(super) fn replace(
        &mut self,
        consumer: Consumer,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
    ) {
        assignment.forget(&assignment.parts(), pool);
        pool.over(HealthIssue::Commits);
        pool.over(HealthIssue::Partitions);
        self.positions = Positions::default();
        let old = std::mem::replace(&mut self.consumer, consumer);
        old.begin_to_leave();
        // Its end is not awaited.
        drop(aside("kafka-close", move || drop(old)));
    }

    /// Answers the group's decisions that are not carried out yet: it waits for the answers, and could
    /// not release this member. Returns the consumer, to leave.
    pub(super) fn close(mut self, assignment: &mut Assignment, pool: &mut PoolLink) -> Consumer {
        self.consumer.begin_to_leave();
        for decision in self.group.unanswered() {
            match decision {
                Rebalanced::Assigned(_) => {
                    if let Err(error) = self.consumer.assign(&[]) {
                        tracing::debug!(pool = pool.name(), %error, "no answer to the group");
                    }
                }
                Rebalanced::Revoked(partitions) | Rebalanced::Lost(partitions) => {
                    self.let_go(&partitions, assignment, pool, Instant::now());
                }
            }
        }
        self.consumer
    }

    // -- decisions of the group --

    /// Returns what is to be done next for the group.
    pub(super) fn next(&mut self) -> Next {
        self.group.next()
    }

    /// Carries out a decision of the group, before which `commit` was the last that was sent.
    pub(super) fn decided(
        &mut self,
        decision: Rebalanced,
        commit: u64,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) -> Option<Query> {
        match decision {
            Rebalanced::Assigned(partitions) => {
                let names = names(&partitions);
                tracing::info!(
                    pool = pool.name(),
                    partitions = names,
                    "partitions assigned"
                );
                return Some(self.ask_where_they_begin(partitions));
            }
            Rebalanced::Revoked(partitions) => {
                let names = names(&partitions);
                tracing::info!(pool = pool.name(), partitions = names, "partitions revoked");
                let parts = assignment.all_named(&partitions);
                assignment.leave(&parts);
                self.group.drain(partitions, parts, commit, now);
            }
            Rebalanced::Lost(partitions) => self.lost(&partitions, assignment, pool, now),
        }
        None
    }

    fn lost(
        &mut self,
        partitions: &[TopicPartition],
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        tracing::warn!(
            pool = pool.name(),
            partitions = names(partitions),
            "partitions lost: what is in hand of them may run twice"
        );
        self.let_go(partitions, assignment, pool, now);
        pool.begin(HealthIssue::Group, "the group has put us out");
    }

    /// Returns the partitions that are draining.
    pub(super) fn leaving(&self) -> &[Part] {
        self.group.leaving()
    }

    /// Returns whether draining partitions have been released: once their messages in flight are done
    /// and committed, or time is up.
    pub(super) fn drained(
        &mut self,
        in_flight: usize,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) -> bool {
        let are_committed = assignment.are_all_committed(self.group.leaving());
        let Some(drained) = self.group.drained(in_flight, are_committed, now) else {
            return false;
        };
        let Drained {
            partitions,
            in_flight,
        } = drained;
        if in_flight > 0 {
            tracing::warn!(
                pool = pool.name(),
                in_flight,
                "partitions leave before all of theirs is done: that may run twice"
            );
        }
        self.let_go(&partitions, assignment, pool, now);
        true
    }

    /// Handles that this commit was rejected because the membership has ended.
    pub(super) fn put_out_while_draining(
        &mut self,
        commit: u64,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        if let Some(leaving) = self.group.lost_while_draining(commit) {
            self.lost(&leaving, assignment, pool, now);
        }
    }

    /// Forgets partitions and gives them back to the group.
    fn let_go(
        &mut self,
        partitions: &[TopicPartition],
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        let parts = assignment.all_named(partitions);
        // Otherwise they would still be paused when they come back.
        self.wake(&parts, assignment, pool);
        assignment.forget(&parts, pool);
        self.positions.forget(&parts, partitions);
        // Those that had not begun are another member's to read now, too.
        for partition in partitions {
            self.can_be_read(&name(partition), pool);
        }
        if assignment.is_empty() {
            // There is nothing left to commit, and so no commit that would show it.
            pool.over(HealthIssue::Commits);
        }
        self.give_back(partitions.to_vec(), pool, now);
    }

    /// Gives partitions back to the group, which waits for that.
    fn give_back(&mut self, partitions: Vec<TopicPartition>, pool: &mut PoolLink, now: Instant) {
        if let Err(error) = self.consumer.unassign(&partitions) {
            pool.begin(HealthIssue::Group, error.to_string());
            self.group.owes(partitions, now);
        }
    }

    /// Gives back again what could not be given back, if it is time.
    pub(super) fn give_back_again(&mut self, pool: &mut PoolLink, now: Instant) {
        if let Some(partitions) = self.group.take_owed(now) {
            self.give_back(partitions, pool, now);
        }
    }

    // -- partitions that begin --

    /// Returns the queries that are due: those that could not be answered, and the states of partitions.
    pub(super) fn queries(&mut self, assignment: &Assignment, now: Instant) -> Vec<Query> {
        let unasked = self.group.take_unasked(now);
        let begins = unasked.map(|partitions| self.ask_where_they_begin(partitions));
        let later = self.positions.take_unbegun(now).map(Query::Later);
        let asked = assignment.asked(self.positions.take_astray(now));
        let states = (!asked.is_empty()).then(|| {
            self.positions.set_asking(true);
            Query::LogStates(asked)
        });
        [begins, later, states].into_iter().flatten().collect()
    }

    fn ask_where_they_begin(&mut self, partitions: Vec<TopicPartition>) -> Query {
        self.group.asks(partitions.clone(), None);
        Query::Begins(partitions)
    }

    /// Starts the partitions that the group assigned.
    pub(super) fn begin(
        &mut self,
        begins: Result<Begins, KafkaError>,
        topics: &KnownTopics,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        let Some(partitions) = self.group.answered() else {
            return;
        };
        let begun = begins.and_then(|begins| self.begin_all(begins, topics, assignment, pool, now));
        match begun {
            Ok(()) => {
                pool.over(HealthIssue::Group);
                pool.over(HealthIssue::NotAdmitted);
            }
            Err(error) => {
                pool.begin(HealthIssue::Group, error.to_string());
                self.group.asks(partitions, Some(now + AGAIN));
            }
        }
    }

    fn begin_all(
        &mut self,
        begins: Begins,
        topics: &KnownTopics,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) -> Result<(), KafkaError> {
        let begun = begins.begun.into_iter();
        let begun = begun.filter_map(|begin| self.begin_one(begin, topics, assignment));
        let (parts, starts): (Vec<Part>, Vec<Start>) = begun.unzip();
        let assigned = match &begins.commits {
            Some(commits) => self.consumer.begin(&starts, commits),
            None => self.consumer.assign(&starts),
        };
        if let Err(error) = assigned {
            parts.iter().for_each(|part| assignment.remove(*part));
            return Err(error);
        }
        for (partition, why) in begins.unknown {
            // The leader of a topic that is just being created is known soon; no problem.
            let name = name(&partition);
            tracing::debug!(pool = pool.name(), partition = name, why, "asked again");
            self.positions.unknown(partition, now);
        }
        for (partition, why) in begins.unread {
            self.can_not_be_read(name(&partition), &why, pool);
        }
        Ok(())
    }

    fn begin_one(
        &self,
        begin: Begin,
        topics: &KnownTopics,
        assignment: &mut Assignment,
    ) -> Option<(Part, Start)> {
        let Begin {
            topic,
            partition,
            offset,
            committed,
            carried,
        } = begin;
        let Some(inbox) = self.consumer.inbox(&topic, partition) else {
            tracing::error!(
                topic,
                partition,
                "the partition has no queue; it can't be read"
            );
            return None;
        };
        let origin = topics.origin(&topic);
        let place = PartitionSeed::new(&topics.found().cluster, &topic, partition);
        let progress = Progress::new(offset, committed, carried);
        let begun = Partition::new((topic, partition), place, origin, inbox, progress);
        let start = begun.at(offset);
        Some((assignment.add(begun), start))
    }

    /// Starts partitions that could not start when the group assigned them.
    pub(super) fn begin_later(
        &mut self,
        begins: Result<Begins, KafkaError>,
        topics: &KnownTopics,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        self.positions.ask_for_unbegun(now);
        let Ok(begins) = begins else {
            return;
        };
        for (partition, why) in begins.unknown {
            if self.positions.is_unbegun(&partition) {
                self.can_not_be_read(name(&partition), &why, pool);
            }
        }
        if !self.group.is_settled() {
            return;
        }
        for begin in begins.begun {
            let partition = (begin.topic.clone(), begin.partition);
            if !self.positions.is_unbegun(&partition) {
                // Revoked meanwhile.
                continue;
            }
            let others = assignment.starts(None);
            let Some((part, start)) = self.begin_one(begin, topics, assignment) else {
                continue;
            };
            if let Err(error) = self.consumer.add(start, others) {
                assignment.remove(part);
                let problem = error.to_string();
                self.can_not_be_read(name(&partition), &problem, pool);
                continue;
            }
            self.positions.begun(&partition);
            self.can_be_read(&name(&partition), pool);
        }
    }

    // -- partitions that cannot be read --

    fn can_not_be_read(&mut self, name: String, why: &str, pool: &mut PoolLink) {
        let problem = format!("partition {name}: {why}");
        self.positions.unread(name);
        pool.begin(HealthIssue::Partitions, problem);
    }

    /// Records that a partition can be read again, or is no longer assigned.
    fn can_be_read(&mut self, name: &str, pool: &mut PoolLink) {
        if self.positions.read(name) {
            pool.over(HealthIssue::Partitions);
        }
    }

    /// Handles news of partitions.
    pub(super) fn take_news(
        &mut self,
        news: impl IntoIterator<Item = (Part, PartNews)>,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        for (part, news) in news {
            let Some(partition) = assignment.partition(part) else {
                continue;
            };
            match news {
                PartNews::Read if !self.positions.has_unread() => {}
                PartNews::Read => self.can_be_read(&partition.label(), pool),
                PartNews::Astray => self.positions.ask_at(part, now),
                PartNews::Unreadable(why) => {
                    self.can_not_be_read(partition.label(), &why, pool);
                    if !self.positions.is_astray(part) {
                        self.ask_again(part, assignment, now);
                    }
                }
            }
        }
    }

    /// Handles partitions that are not fetched: their reports may have been missed.
    pub(super) fn are_not_fetched(&mut self, parts: &[Part], now: Instant) {
        for part in parts {
            if self.group.is_settled() && !self.positions.is_astray(*part) {
                self.positions.ask_at(*part, now);
            }
        }
    }

    /// Schedules another query of a partition's state, with growing pauses.
    fn ask_again(&mut self, part: Part, assignment: &mut Assignment, now: Instant) {
        if let Some(times) = assignment.ask_again(part) {
            let wait = ASTRAY_AGAIN.wait(times, fastrand::f64());
            self.positions.ask_at(part, now + wait);
        }
    }

    /// Handles the states of partitions: reading resumes where there is something to read.
    pub(super) fn find_back(
        &mut self,
        states: Vec<(Part, Result<LogState, String>)>,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        self.positions.set_asking(false);
        for (part, state) in states {
            let Some(partition) = assignment.partition(part) else {
                continue;
            };
            match state {
                // The restart of one partition would be taken for our answer to the group.
                Ok(_) if !self.group.is_settled() => self.positions.ask_at(part, now + AGAIN),
                Ok(state) => self.resume(part, state, assignment, pool, now),
                Err(why) => {
                    self.can_not_be_read(partition.label(), &why, pool);
                    self.ask_again(part, assignment, now);
                }
            }
        }
    }

    /// Resumes a partition, and logs what is skipped.
    fn resume(
        &mut self,
        part: Part,
        state: LogState,
        assignment: &mut Assignment,
        pool: &mut PoolLink,
        now: Instant,
    ) {
        let Some(partition) = assignment.partition(part) else {
            return;
        };
        let (name, was_damaged) = (partition.label(), partition.is_damaged());
        let progress = partition.progress();
        let (position, committable) = (progress.position(), progress.committable());
        let reset = match partition.is_tier() {
            true => Reset::Earliest,
            false => self.reset,
        };
        let state = state.known_of(progress.was_committed());
        let Some(to) = go_on_at(position, committable, state, reset) else {
            return self.can_not_be_read(name, &refusal(position, state), pool);
        };
        let part = self.move_to(part, to, state, assignment, pool);
        match self.restart(part, to, assignment) {
            // A damaged record may still be damaged.
            Ok(()) if was_damaged => {}
            Ok(()) => self.can_be_read(&name, pool),
            Err(error) => {
                self.can_not_be_read(name, &error.to_string(), pool);
                self.ask_again(part, assignment, now);
            }
        }
    }

    /// Moves a partition's recorded position. The partition may be renumbered.
    fn move_to(
        &self,
        part: Part,
        to: i64,
        state: LogState,
        assignment: &mut Assignment,
        pool: &PoolLink,
    ) -> Part {
        let Some(partition) = assignment.partition(part) else {
            return part;
        };
        let position = partition.progress().position();
        if let Some(fork) = state.fork {
            let read_to = partition.progress().read_to();
            begins::tell_of_fork(pool.name(), partition.name(), read_to, fork);
            self.wake(&[part], assignment, pool);
            return assignment.begin_anew(part, to, fork, pool);
        }
        if to != position {
            let (first, end) = state.ends;
            tracing::warn!(
                pool = pool.name(),
                partition = partition.label(),
                position,
                first,
                end,
                skipped = to.saturating_sub(position),
                "the offset to go on from is gone; reading goes on at another"
            );
            assignment.skip_to(part, to);
        }
        part
    }

    fn restart(&self, part: Part, to: i64, assignment: &mut Assignment) -> Result<(), KafkaError> {
        let others = assignment.starts(Some(part));
        let Some(partition) = assignment.partition(part) else {
            return Ok(());
        };
        self.consumer.restart(partition.at(to), others)?;
        assignment.restarted(part);
        Ok(())
    }

    // -- fetching --

    /// Pauses and resumes partitions, so that librdkafka holds no more than it may. `bytes` is what the
    /// daemon has left for them.
    pub(super) fn throttle(
        &self,
        assignment: &mut Assignment,
        bytes: usize,
        pool: &PoolLink,
        now: Instant,
    ) {
        let Some(fetching) = assignment.throttle(bytes, now) else {
            return;
        };
        if let Err(error) = self.consumer.pause(&fetching.pause) {
            tracing::warn!(pool = pool.name(), %error, "partitions could not be paused");
        }
        self.fetch(&fetching.resume, pool);
    }

    fn wake(&self, parts: &[Part], assignment: &mut Assignment, pool: &PoolLink) {
        self.fetch(&assignment.wake(parts), pool);
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
