//! Following the consumer group: what it decided is done one decision after the other. Partitions
//! that come begin where `start_offsets` finds out; partitions that go finish what is in flight, are
//! committed, and are then let go; those that were lost are forgotten.
//!
//! Polling goes on meanwhile: a decision that we are slow to follow costs time, a poll that we owe
//! would cost all partitions.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::blocking_calls::{Answer, Asking};
use super::event_loop::{REFUSAL_LASTS, Task};
use super::health::HealthIssue;
use super::partition::Partition;
use super::start_offsets::Positions;
use crate::backoff::Backoff;
use crate::broker::kafka::begins::Part;
use crate::broker::kafka::consumer::{Consumer, Rebalanced, TopicPartition};

/// The pause before what failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// So long a group may take to find its coordinator without a word.
const OUTSIDE_MAX: Duration = Duration::from_secs(10);
/// The pauses before a member that was put out for good joins as a new one: long, for two that are
/// called the same would put each other out in turns.
const REJOIN: Backoff = Backoff {
    initial: Duration::from_secs(10),
    factor: 2.0,
    max: Duration::from_secs(300),
    jitter: 0.2,
};

/// What of the group's decisions is being done.
#[derive(Debug)]
pub(super) enum Step {
    Idle,
    /// Finding out where partitions begin: asked, or to be asked again from then on.
    Asking {
        partitions: Vec<TopicPartition>,
        again: Option<Instant>,
    },
    /// Finishing what is in flight of these.
    Draining {
        leaving: Vec<TopicPartition>,
        parts: Vec<Part>,
        finish_by: Instant,
        commit_by: Instant,
        /// The last commit that was sent before.
        commit: u64,
    },
}

/// Where we stand with the group.
#[derive(Debug)]
pub(super) struct Group {
    subscribed: BTreeSet<String>,
    /// We don't join before.
    not_before: Option<Instant>,
    decisions: VecDeque<Rebalanced>,
    /// Since when we have asked to be let in without an answer.
    outside_since: Option<Instant>,
    /// When we were told last that we may not use it.
    refused_at: Option<Instant>,
    pub(super) step: Step,
    /// What could not be given back, and when that is tried again.
    owed: Option<(Instant, Vec<TopicPartition>)>,
    finish_within: Duration,
    commit_within: Duration,
}

impl Group {
    pub(super) fn new(max_poll_interval: Duration) -> Self {
        Self {
            subscribed: BTreeSet::new(),
            not_before: None,
            decisions: VecDeque::new(),
            outside_since: None,
            refused_at: None,
            step: Step::Idle,
            owed: None,
            finish_within: max_poll_interval / 2,
            commit_within: max_poll_interval / 4,
        }
    }

    /// Takes down what the group decided.
    pub(super) fn note(&mut self, decisions: Vec<Rebalanced>) {
        self.decisions.extend(decisions);
    }

    /// When something falls due by itself.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let step = match &self.step {
            Step::Idle => None,
            Step::Asking { again, .. } => *again,
            Step::Draining {
                finish_by,
                commit_by,
                ..
            } => Some(if now < *finish_by {
                *finish_by
            } else {
                *commit_by
            }),
        };
        // Once it is over, whatever else keeps us from joining is told when it ends.
        let join = self.not_before.filter(|not_before| *not_before > now);
        let owed = self.owed.as_ref().map(|(when, _)| *when);
        step.into_iter().chain(join).chain(owed).min()
    }

    /// Whether the pause before we join, if there is one, is over.
    pub(super) fn may_join(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Whether partitions are only kept until they are committed.
    pub(super) fn waits_for_commits(&self) -> bool {
        matches!(self.step, Step::Draining { .. })
    }

    /// Whether it waits for no answer of ours. One about single partitions would be taken for it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.step, Step::Idle) && self.decisions.is_empty() && self.owed.is_none()
    }
}

impl Task {
    /// Does what the group decided, as far as it can be done now.
    pub(super) fn follow_group(&mut self, now: Instant) {
        while let Some(answer) = self.asking.answer() {
            self.take_answer(answer, now);
        }
        self.subscribe(now);
        self.ask_again(now);
        if let Some((_, partitions)) = self.group.owed.take_if(|(when, _)| *when <= now) {
            self.give_back(partitions);
        }
        loop {
            match &self.group.step {
                Step::Idle => {
                    let Some(decision) = self.group.decisions.pop_front() else {
                        return;
                    };
                    self.decided(decision, now);
                }
                Step::Asking { .. } => return,
                Step::Draining { .. } => {
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
            Answer::Tiers(there) => self.take_tiers(there),
            Answer::Committed(result) => self.committed(result),
        }
    }

    /// Joins the group as soon as there is a worker to work, and again when there are more tiers.
    fn subscribe(&mut self, now: Instant) {
        let is_new = self.group.subscribed.is_empty();
        if self.is_closing() || (is_new && self.is_unwanted()) {
            return;
        }
        if !self.group.may_join(now) {
            return;
        }
        let mut topics: BTreeSet<String> = self.found.tiers.values().cloned().collect();
        topics.insert(self.plan.topic.to_string());
        if topics == self.group.subscribed {
            return;
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        match self.consumer.subscribe(&names) {
            Ok(()) => {
                self.group.not_before = None;
                self.group.subscribed = topics;
            }
            Err(error) => {
                self.group.not_before = Some(now + AGAIN);
                self.health
                    .begin(&self.end, HealthIssue::Group, error.to_string());
            }
        }
    }

    /// The broker says that we may not use the group.
    pub(super) fn not_admitted(&mut self, problem: String, now: Instant) {
        self.group.refused_at = Some(now);
        self.health
            .begin(&self.end, HealthIssue::NotAdmitted, problem);
    }

    /// Takes in whether the group knows us. librdkafka keeps silent about a coordinator that is away,
    /// or that does not speak our `group.protocol`.
    pub(super) fn membership(&mut self, is_in_group: bool, now: Instant) {
        // What shows that it knows us may have been on its way when we were refused.
        let lately = |refused: Instant| now < refused + REFUSAL_LASTS;
        if is_in_group && !self.group.refused_at.is_some_and(lately) {
            self.health.over(&self.end, HealthIssue::NotAdmitted);
        }
        let has_asked = !self.group.subscribed.is_empty();
        if is_in_group || !has_asked || self.health.has(HealthIssue::Brokers) {
            self.group.outside_since = None;
            self.health.over(&self.end, HealthIssue::Coordinator);
            return;
        }
        let since = *self.group.outside_since.get_or_insert(now);
        if now >= since + OUTSIDE_MAX {
            let problem = "the group's coordinator is away, or does not know our group.protocol";
            self.health
                .begin(&self.end, HealthIssue::Coordinator, problem.to_owned());
        }
    }

    fn decided(&mut self, decision: Rebalanced, now: Instant) {
        let pool = self.plan.pool.as_str();
        match decision {
            Rebalanced::Assigned(partitions) => {
                // Whatever we owed, it is settled, and these are ours.
                self.group.owed = None;
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
        let finish_by = now + self.group.finish_within;
        self.group.step = Step::Draining {
            leaving,
            parts,
            finish_by,
            commit_by: finish_by + self.group.commit_within,
            commit: self.commits.number(),
        };
    }

    /// Whether partitions that leave have been let go: once all of theirs that was in flight is
    /// done and committed, or time is up.
    fn drained(&mut self, now: Instant) -> bool {
        let Step::Draining {
            leaving,
            parts,
            finish_by,
            commit_by,
            ..
        } = &self.group.step
        else {
            return true;
        };
        let in_flight = self.in_hand(parts, now);
        if in_flight > 0 && now < *finish_by {
            return false;
        }
        let is_committed = |part: &Part| self.partitions.is_committed(*part);
        if now < *commit_by && !parts.iter().all(is_committed) {
            return false;
        }
        if in_flight > 0 {
            tracing::warn!(
                pool = self.plan.pool,
                in_flight,
                "partitions leave before all of theirs is done: that may run twice"
            );
        }
        let leaving = leaving.clone();
        self.group.step = Step::Idle;
        self.let_go(&leaving);
        true
    }

    /// A commit was refused because we are no member any more. While librdkafka waits for us to let
    /// partitions go, it does not say so by itself.
    pub(super) fn put_out_while_draining(&mut self) {
        if let Step::Draining {
            leaving, commit, ..
        } = &self.group.step
            && self.commits.number() > *commit
        {
            let leaving = leaving.clone();
            self.group.step = Step::Idle;
            self.lost(&leaving);
        }
    }

    /// Forgets partitions and tells the group so.
    fn let_go(&mut self, partitions: &[TopicPartition]) {
        let parts = self.partitions.all_named(partitions);
        // Or they would be paused still when they come back.
        self.resume(&parts);
        self.forget(&parts);
        self.forget_positions(partitions);
        // Also those that had not even begun are another's to read now.
        for partition in partitions {
            self.can_be_read(&names(std::slice::from_ref(partition)));
        }
        if self.partitions.is_empty() {
            // There is nothing to commit any more, and so no commit that would show it.
            self.health.over(&self.end, HealthIssue::Commits);
        }
        self.give_back(partitions.to_vec());
    }

    /// What workers still have of these is void, and they are told.
    fn forget(&mut self, parts: &[Part]) {
        for part in parts {
            self.lanes.forget(*part);
            self.throttle.forget(*part);
            self.positions.forget(*part);
            self.partitions.remove(*part);
        }
        self.end.lost();
    }

    /// Tells the group that partitions are not ours any more. It waits for that.
    fn give_back(&mut self, partitions: Vec<TopicPartition>) {
        if let Err(error) = self.consumer.unassign(&partitions) {
            self.health
                .begin(&self.end, HealthIssue::Group, error.to_string());
            self.group.owed = Some((Instant::now() + AGAIN, partitions));
        }
    }

    /// Answers what the group has decided and we were about to do: it waits for us, and could not
    /// let us go.
    pub(super) fn leave_nothing_unanswered(&mut self) {
        let pending = match std::mem::replace(&mut self.group.step, Step::Idle) {
            Step::Idle => None,
            Step::Asking { partitions, .. } => Some(Rebalanced::Assigned(partitions)),
            Step::Draining { leaving, .. } => Some(Rebalanced::Revoked(leaving)),
        };
        let decisions = std::mem::take(&mut self.group.decisions);
        for decision in pending.into_iter().chain(decisions) {
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

    /// The consumer is of no use any more, as when another member has our name: what was ours is
    /// lost without a word, and after a pause a new consumer joins.
    pub(super) fn begin_again(&mut self, problem: String, now: Instant) {
        self.health.begin(&self.end, HealthIssue::Group, problem);
        self.rebirths = self.rebirths.saturating_add(1);
        let pause = REJOIN.wait(self.rebirths, fastrand::f64());
        self.join_as_new(Some(now + pause), now);
        tracing::warn!(
            pool = self.plan.pool,
            ?pause,
            "the group is joined anew after a pause"
        );
    }

    /// A new consumer takes the place of the old, and joins, not before that time.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>, now: Instant) {
        match self.plan.consumer(&self.found, &self.bell) {
            Ok(consumer) => self.replace_consumer(consumer, now),
            // It worked before, and is tried again: what is wrong with the old one stays wrong.
            Err(error) => {
                tracing::error!(pool = self.plan.pool, %error, "no new consumer could be made");
            }
        }
        let finish_within = self.group.finish_within;
        self.group = Group::new(finish_within * 2);
        self.group.not_before = not_before;
    }

    fn replace_consumer(&mut self, consumer: Consumer, now: Instant) {
        let parts: Vec<Part> = self.partitions.iter().map(|(part, _)| part).collect();
        self.forget(&parts);
        self.unread.clear();
        self.health.over(&self.end, HealthIssue::Commits);
        self.health.over(&self.end, HealthIssue::Partitions);
        // Answers to the old one's questions reach nobody.
        self.asking = Asking::new();
        self.making.ask_again(now);
        self.positions = Positions::default();
        self.commits.forget_sent();
        let old = std::mem::replace(&mut self.consumer, consumer);
        old.begin_to_leave();
        // Nobody waits for its end.
        drop(super::blocking_calls::aside("kafka-close", move || {
            drop(old)
        }));
    }
}

pub(super) fn names(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions
        .iter()
        .map(|(topic, number)| format!("{topic}/{number}"))
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_before_joining_ends_once() {
        let now = Instant::now();
        let mut group = Group::new(Duration::from_secs(300));
        assert!(group.may_join(now) && group.due(now).is_none());
        let over = now + AGAIN;
        group.not_before = Some(over);
        assert!(!group.may_join(now));
        assert_eq!(group.due(now), Some(over));
        assert!(group.may_join(over));
        assert_eq!(
            group.due(over),
            None,
            "or the source would turn at full speed"
        );
    }
}
