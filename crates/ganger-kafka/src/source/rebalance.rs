//! Rebalancing: the decisions of the consumer group are carried out one after the other. Assigned
//! partitions begin where `start_offsets` determines; revoked partitions finish what is in flight, are
//! committed, and are then released; lost ones are forgotten.
//!
//! Polling goes on meanwhile: a late answer to a decision costs time, a late poll would cost all
//! partitions.

use tokio::time::Instant;

use super::blocking_calls::{Answer, Asking, aside};
use super::event_loop::Task;
use super::group::{Drained, Next};
use super::health::HealthIssue;
use super::partition::Partition;
use super::positions::Positions;
use crate::broker::begins::Part;
use crate::broker::consumer::{Consumer, Rebalanced, TopicPartition};

impl Task {
    /// Carries out the group's decisions, as far as possible now.
    pub(super) fn follow_group(&mut self, now: Instant) {
        while let Some(answer) = self.asking.answer() {
            self.take_answer(answer, now);
        }
        self.subscribe(now);
        self.ask_again(now);
        if let Some(partitions) = self.group.take_owed(now) {
            self.give_back(partitions);
        }
        loop {
            match self.group.next() {
                Next::Nothing => return,
                Next::Decided(decision) => self.decided(decision, now),
                Next::Draining => {
                    if !self.drained(now) {
                        return;
                    }
                }
            }
        }
    }

    fn take_answer(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Begins(begins) => self.begin(begins, now),
            Answer::Later(begins) => self.begin_later(begins, now),
            Answer::Standings(standings) => self.find_all_back(standings, now),
            Answer::Topics(number, found) => self.take_topics(number, found, now),
            Answer::There(there) => self.take_there(there, now),
            Answer::Committed(answer) => self.committed(answer),
        }
    }

    /// Joins the group as soon as there is a worker, and again when the topics change.
    fn subscribe(&mut self, now: Instant) {
        let is_new = !self.group.has_asked();
        if self.is_closing() || (is_new && self.is_unwanted()) {
            return;
        }
        if !self.group.may_join(now) {
            return;
        }
        let topics = self.topics.all();
        if self.group.has_asked_for(&topics) {
            return;
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        match self.consumer.subscribe(&names) {
            Ok(()) => self.group.asked_for(topics),
            Err(error) => {
                self.group.could_not_ask(now);
                self.health
                    .begin(&self.end, HealthIssue::Group, error.to_string());
            }
        }
    }

    /// Handles that the broker denies access to the group.
    pub(super) fn not_admitted(&mut self, problem: String, now: Instant) {
        self.group.refused(now);
        self.health
            .begin(&self.end, HealthIssue::NotAdmitted, problem);
    }

    /// Handles whether the group has accepted this member.
    pub(super) fn membership(&mut self, is_in_group: bool, now: Instant) {
        let are_away = self.health.has(HealthIssue::Brokers);
        let seen = self.group.seen(is_in_group, are_away, now);
        if seen.is_admitted {
            self.health.over(&self.end, HealthIssue::NotAdmitted);
        }
        match seen.answers {
            Some(true) => self.health.over(&self.end, HealthIssue::Coordinator),
            Some(false) => {
                let problem =
                    "the group's coordinator is away, or does not know our group.protocol";
                self.health
                    .begin(&self.end, HealthIssue::Coordinator, problem);
            }
            None => {}
        }
    }

    fn decided(&mut self, decision: Rebalanced, now: Instant) {
        let pool = self.plan.pool.as_str();
        match decision {
            Rebalanced::Assigned(partitions) => {
                let names = names(&partitions);
                tracing::info!(pool, partitions = names, "partitions assigned");
                self.ask_where_they_begin(partitions, now);
            }
            Rebalanced::Revoked(partitions) => {
                let names = names(&partitions);
                tracing::info!(pool, partitions = names, "partitions revoked");
                self.begin_to_drain(partitions, now);
            }
            Rebalanced::Lost(partitions) => self.lost(&partitions),
        }
    }

    fn lost(&mut self, partitions: &[TopicPartition]) {
        tracing::warn!(
            pool = self.plan.pool,
            partitions = names(partitions),
            "partitions lost: what is in hand of them may run twice"
        );
        self.let_go(partitions);
        let problem = "the group has put us out".to_owned();
        self.health.begin(&self.end, HealthIssue::Group, problem);
    }

    // -- partitions that go --

    fn begin_to_drain(&mut self, leaving: Vec<TopicPartition>, now: Instant) {
        let parts = self.partitions.all_named(&leaving);
        for part in &parts {
            self.partitions.change(*part, Partition::leave);
        }
        let commit = self.commits.number();
        self.group.drain(leaving, parts, commit, now);
    }

    /// Returns whether draining partitions have been released: once their messages in flight are done
    /// and committed, or time is up.
    fn drained(&mut self, now: Instant) -> bool {
        let parts = self.group.leaving();
        let in_flight = self.in_hand(parts, now);
        let is_committed = |part: &Part| self.partitions.is_committed(*part);
        let are_committed = parts.iter().all(is_committed);
        let Some(drained) = self.group.drained(in_flight, are_committed, now) else {
            return false;
        };
        let Drained {
            partitions,
            in_flight,
        } = drained;
        if in_flight > 0 {
            tracing::warn!(
                pool = self.plan.pool,
                in_flight,
                "partitions leave before all of theirs is done: that may run twice"
            );
        }
        self.let_go(&partitions);
        true
    }

    /// Handles a commit rejected because the membership has ended.
    pub(super) fn put_out_while_draining(&mut self) {
        if let Some(leaving) = self.group.lost_while_draining(self.commits.number()) {
            self.lost(&leaving);
        }
    }

    /// Forgets partitions and gives them back to the group.
    fn let_go(&mut self, partitions: &[TopicPartition]) {
        let parts = self.partitions.all_named(partitions);
        // Otherwise they would still be paused when they come back.
        self.resume(&parts);
        self.forget(&parts);
        self.positions.not_unbegun(partitions);
        // Those that had not begun are another member's to read now, too.
        for partition in partitions {
            self.can_be_read(&names(std::slice::from_ref(partition)));
        }
        if self.partitions.is_empty() {
            // There is nothing left to commit, and so no commit that would show it.
            self.health.over(&self.end, HealthIssue::Commits);
        }
        self.give_back(partitions.to_vec());
    }

    /// Forgets partitions. Their messages held by workers are void, and the workers are notified. What
    /// is done and not committed is delivered again to the next reader.
    fn forget(&mut self, parts: &[Part]) {
        let forgotten = parts.iter().filter_map(|part| self.partitions.get(*part));
        let again = forgotten.map(|one| one.progress().uncommitted()).sum();
        let why = "they were done, and their partitions lost before that was committed";
        self.health.may_run_twice(&self.end, again, why);
        for part in parts {
            self.lanes.forget(*part);
            self.throttle.forget(*part);
            self.positions.forget(*part);
            self.partitions.remove(*part);
        }
        self.end.lost();
    }

    /// Gives partitions back to the group, which waits for that.
    fn give_back(&mut self, partitions: Vec<TopicPartition>) {
        if let Err(error) = self.consumer.unassign(&partitions) {
            self.health
                .begin(&self.end, HealthIssue::Group, error.to_string());
            self.group.owes(partitions, Instant::now());
        }
    }

    /// Answers the group's decisions that are not carried out yet: it waits for the answers, and could
    /// not release this member.
    pub(super) fn leave_nothing_unanswered(&mut self) {
        for decision in self.group.unanswered() {
            match decision {
                Rebalanced::Assigned(_) => {
                    if let Err(error) = self.consumer.assign(&[]) {
                        tracing::debug!(pool = self.plan.pool, %error, "no answer to the group");
                    }
                }
                Rebalanced::Revoked(partitions) | Rebalanced::Lost(partitions) => {
                    self.let_go(&partitions);
                }
            }
        }
    }

    // -- an end of the membership --

    /// Handles an unusable consumer, as when another member has the same name: the assigned partitions
    /// are lost without a report, and after a pause a new consumer joins.
    pub(super) fn begin_again(&mut self, problem: String, now: Instant) {
        self.health.begin(&self.end, HealthIssue::Group, problem);
        let pause = self.group.put_out(fastrand::f64());
        self.join_as_new(Some(now + pause), now);
        tracing::warn!(
            pool = self.plan.pool,
            ?pause,
            "the group is joined anew after a pause"
        );
    }

    /// Replaces the consumer with a new one, which joins no earlier than `not_before`.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>, now: Instant) {
        match self.plan.consumer(self.topics.found(), &self.bell) {
            Ok(consumer) => self.replace_consumer(consumer, now),
            // It worked before, and is tried again: the old one's problem persists.
            Err(error) => {
                tracing::error!(pool = self.plan.pool, %error, "no new consumer could be made");
            }
        }
        self.group.join_as_new(not_before);
    }

    fn replace_consumer(&mut self, consumer: Consumer, now: Instant) {
        let parts: Vec<Part> = self.partitions.iter().map(|(part, _)| part).collect();
        self.forget(&parts);
        self.health.over(&self.end, HealthIssue::Commits);
        self.health.over(&self.end, HealthIssue::Partitions);
        // Answers to the old one's queries are lost.
        self.asking = Asking::new();
        self.topics.ask_again(now);
        self.positions = Positions::default();
        self.commits.forget_sent();
        let old = std::mem::replace(&mut self.consumer, consumer);
        old.begin_to_leave();
        // Its end is not awaited.
        drop(aside("kafka-close", move || drop(old)));
    }
}

pub(super) fn names(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions
        .iter()
        .map(|(topic, number)| format!("{topic}/{number}"))
        .collect();
    names.join(", ")
}
