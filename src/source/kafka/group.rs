//! Following the consumer group: what it decided is done one decision after the other. Partitions
//! that come begin where their commits say; partitions that go finish what is in flight, are
//! committed, and are then let go; those that were lost are forgotten.
//!
//! Polling goes on meanwhile: a decision that we are slow to follow costs time, a poll that we owe
//! would cost all partitions.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::asking::{self, Answer, Begin};
use super::consumer::{Rebalanced, Start, TopicPartition};
use super::error::words;
use super::health::Trouble;
use super::lanes::Part;
use super::metadata;
use super::names::Tier;
use super::partition::{Partition, Progress};
use super::settings::Reset;
use super::task::Task;
use super::topics::Wanted;

/// The pause before a question that failed is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// What of the group's decisions is being done.
#[derive(Debug)]
enum Step {
    Idle,
    /// Finding out where partitions begin: asked, or to be asked again from then on.
    Asking(Vec<TopicPartition>, Option<Instant>),
    /// Finishing what is in flight of these.
    Draining {
        leaving: Vec<TopicPartition>,
        parts: Vec<Part>,
        finish_by: Instant,
        commit_by: Instant,
    },
}

/// Where we stand with the group.
#[derive(Debug)]
pub(super) struct Group {
    subscribed: BTreeSet<String>,
    decisions: VecDeque<Rebalanced>,
    step: Step,
    finish_within: Duration,
    commit_within: Duration,
    /// Partitions whose position is gone, and when to ask where they begin.
    astray: Vec<(Instant, Part)>,
    /// Tiers that are being made.
    wanted: Option<(Wanted, Option<Instant>)>,
}

impl Group {
    pub(super) fn new(max_poll_interval: Duration) -> Self {
        Self {
            subscribed: BTreeSet::new(),
            decisions: VecDeque::new(),
            step: Step::Idle,
            finish_within: max_poll_interval / 2,
            commit_within: max_poll_interval / 4,
            astray: Vec::new(),
            wanted: None,
        }
    }

    /// Takes down what the group decided.
    pub(super) fn note(&mut self, decisions: Vec<Rebalanced>) {
        self.decisions.extend(decisions);
    }

    /// When something falls due by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        let step = match &self.step {
            Step::Idle => None,
            Step::Asking(_, again) => *again,
            Step::Draining {
                finish_by,
                commit_by,
                ..
            } => {
                let next = if Instant::now() < *finish_by {
                    finish_by
                } else {
                    commit_by
                };
                Some(*next)
            }
        };
        let astray = self.astray.iter().map(|(when, _)| *when).min();
        let wanted = self.wanted.as_ref().and_then(|(_, again)| *again);
        [step, astray, wanted].into_iter().flatten().min()
    }

    /// Whether partitions are only kept until they are committed.
    pub(super) fn waits_for_commits(&self) -> bool {
        matches!(self.step, Step::Draining { .. })
    }
}

impl Task {
    /// Does what the group decided, as far as it can be done now.
    pub(super) fn follow_group(&mut self, now: Instant) {
        while let Some(answer) = self.asking.answer() {
            self.take_answer(answer, now);
        }
        self.subscribe();
        self.ask_again(now);
        loop {
            match &self.group.step {
                Step::Idle => {
                    let Some(decision) = self.group.decisions.pop_front() else {
                        return;
                    };
                    self.decided(decision, now);
                }
                Step::Asking(..) => return,
                Step::Draining { .. } => {
                    if !self.drained(now) {
                        return;
                    }
                }
            }
        }
    }

    /// Joins the group as soon as there is a worker to work, and again when there are more tiers.
    fn subscribe(&mut self) {
        if self.is_closing() || (self.credit() == 0 && self.group.subscribed.is_empty()) {
            return;
        }
        let mut topics: BTreeSet<String> = self.found.tiers.values().cloned().collect();
        topics.insert(self.plan.topic.to_string());
        if topics == self.group.subscribed {
            return;
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        match self.consumer.subscribe(&names) {
            Ok(()) => self.health.over(&self.end, Trouble::Group),
            Err(error) => self
                .health
                .trouble(&self.end, Trouble::Group, error.to_string()),
        }
        self.group.subscribed = topics;
    }

    fn decided(&mut self, decision: Rebalanced, now: Instant) {
        match decision {
            Rebalanced::Assigned(partitions) => {
                let names = names(&partitions);
                tracing::info!(
                    pool = self.plan.pool,
                    partitions = names,
                    "partitions assigned"
                );
                self.health.over(&self.end, Trouble::Group);
                self.ask_where_they_begin(partitions);
            }
            Rebalanced::Revoked(partitions) => {
                let names = names(&partitions);
                tracing::info!(
                    pool = self.plan.pool,
                    partitions = names,
                    "partitions revoked"
                );
                self.begin_to_drain(partitions, now);
            }
            Rebalanced::Lost(partitions) => {
                let names = names(&partitions);
                tracing::warn!(
                    pool = self.plan.pool,
                    partitions = names,
                    "partitions lost: what is in hand of them may run twice"
                );
                self.let_go(&partitions);
                let problem = "the group has put us out".to_owned();
                self.health.trouble(&self.end, Trouble::Group, problem);
            }
        }
    }

    // -- partitions that come --

    fn ask_where_they_begin(&mut self, partitions: Vec<TopicPartition>) {
        let native = Arc::clone(self.consumer.native());
        let (topic, reset) = (self.plan.topic.to_string(), self.plan.reset);
        let these = partitions.clone();
        let asked = self.asking.ask("kafka-begins", move || {
            Answer::Begins(asking::begins(&native, &these, &topic, reset))
        });
        let again = (!asked).then(|| Instant::now() + ASK_AGAIN);
        self.group.step = Step::Asking(partitions, again);
    }

    fn ask_again(&mut self, now: Instant) {
        if let Step::Asking(partitions, Some(again)) = &mut self.group.step
            && *again <= now
        {
            let partitions = std::mem::take(partitions);
            self.ask_where_they_begin(partitions);
        }
        let astray = &mut self.group.astray;
        let due: Vec<Part> = astray
            .iter()
            .filter(|(when, _)| *when <= now)
            .map(|(_, part)| *part)
            .collect();
        astray.retain(|(when, _)| *when > now);
        due.into_iter()
            .for_each(|part| self.ask_where_it_ends(part));
        if let Some((wanted, Some(again))) = &self.group.wanted
            && *again <= now
        {
            let wanted = wanted.clone();
            self.ask_for_topics(wanted);
        }
    }

    fn take_answer(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Begins(Ok(begins)) => self.begin(begins),
            Answer::Begins(Err(error)) => {
                self.health
                    .trouble(&self.end, Trouble::Group, error.to_string());
                if let Step::Asking(_, again) = &mut self.group.step {
                    *again = Some(now + ASK_AGAIN);
                }
            }
            Answer::Ends(part, Ok(ends)) => self.find_back(part, ends),
            Answer::Ends(part, Err(error)) => {
                self.health
                    .trouble(&self.end, Trouble::Partitions, error.to_string());
                self.group.astray.push((now + ASK_AGAIN, part));
            }
            Answer::Committed(result) => self.committed(result),
            Answer::Topics(Ok(found)) => {
                self.group.wanted = None;
                self.health.over(&self.end, Trouble::Setup);
                self.found = found;
            }
            Answer::Topics(Err(error)) => {
                self.health
                    .trouble(&self.end, Trouble::Setup, error.to_string());
                if let Some((_, again)) = &mut self.group.wanted {
                    *again = Some(now + ASK_AGAIN);
                }
            }
        }
    }

    fn begin(&mut self, begins: Vec<Begin>) {
        self.group.step = Step::Idle;
        let mut starts = Vec::with_capacity(begins.len());
        for begin in begins {
            starts.extend(self.begin_one(begin));
        }
        match self.consumer.assign(&starts) {
            Ok(()) => self.health.over(&self.end, Trouble::Group),
            Err(error) => self
                .health
                .trouble(&self.end, Trouble::Group, error.to_string()),
        }
    }

    fn begin_one(&mut self, begin: Begin) -> Option<Start> {
        let Begin {
            topic,
            partition,
            offset,
            committed,
        } = begin;
        let Some(inbox) = self.consumer.inbox(&topic, partition) else {
            tracing::error!(
                topic,
                partition,
                "the partition has no queue; it can't be read"
            );
            return None;
        };
        let text = committed.as_deref().unwrap_or_default();
        let carried = metadata::decode(offset, text).unwrap_or_else(|why| {
            tracing::warn!(
                pool = self.plan.pool,
                topic,
                partition,
                offset,
                "the commit's metadata is ignored: {why}; more may run twice"
            );
            metadata::Carried::default()
        });
        let part = self.new_part();
        let begun = Partition {
            is_tier: *topic != *self.plan.topic,
            number: partition,
            inbox,
            progress: Progress::new(offset, committed, carried),
            parked: None,
            leaving: false,
            is_full: false,
            topic,
        };
        let start = begun.at(offset);
        self.partitions.insert(part, begun);
        Some(start)
    }

    pub(super) fn new_part(&mut self) -> Part {
        self.last_part = self.last_part.wrapping_add(1);
        self.last_part
    }

    // -- partitions that go --

    fn parts(&self, partitions: &[TopicPartition]) -> Vec<Part> {
        let meant = |partition: &Partition| {
            partitions
                .iter()
                .any(|(topic, number)| partition.is(topic, *number))
        };
        let ours = self.partitions.iter();
        ours.filter(|(_, partition)| meant(partition))
            .map(|(part, _)| *part)
            .collect()
    }

    fn begin_to_drain(&mut self, leaving: Vec<TopicPartition>, now: Instant) {
        let parts = self.parts(&leaving);
        for part in &parts {
            if let Some(partition) = self.partitions.get_mut(part) {
                partition.leaving = true;
            }
        }
        let finish_by = now + self.group.finish_within;
        self.group.step = Step::Draining {
            leaving,
            parts,
            finish_by,
            commit_by: finish_by + self.group.commit_within,
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
        } = &self.group.step
        else {
            return true;
        };
        let in_flight: usize = parts.iter().map(|part| self.lanes.count(*part).out).sum();
        if in_flight > 0 && now < *finish_by {
            return false;
        }
        let mut ours = parts.iter().filter_map(|part| self.partitions.get(part));
        if now < *commit_by && !ours.all(|partition| partition.progress.is_committed()) {
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

    /// Forgets partitions and tells the group so.
    fn let_go(&mut self, partitions: &[TopicPartition]) {
        for part in self.parts(partitions) {
            self.lanes.forget(part);
            self.partitions.remove(&part);
        }
        self.health.over(&self.end, Trouble::Partitions);
        if let Err(error) = self.consumer.unassign(partitions) {
            self.health
                .trouble(&self.end, Trouble::Group, error.to_string());
        }
    }

    /// Answers what the group has decided and we were about to do: it waits for us, and could not
    /// let us go.
    pub(super) fn leave_nothing_unanswered(&mut self) {
        let pending = match std::mem::replace(&mut self.group.step, Step::Idle) {
            Step::Idle => None,
            Step::Asking(partitions, _) => Some(Rebalanced::Assigned(partitions)),
            Step::Draining { leaving, .. } => Some(Rebalanced::Revoked(leaving)),
        };
        let decisions = std::mem::take(&mut self.group.decisions);
        for decision in pending.into_iter().chain(decisions) {
            match decision {
                Rebalanced::Assigned(_) => self.begin(Vec::new()),
                Rebalanced::Revoked(partitions) | Rebalanced::Lost(partitions) => {
                    self.let_go(&partitions);
                }
            }
        }
    }

    // -- partitions that can't be read --

    /// Takes in what is wrong with a partition.
    pub(super) fn partition_error(&mut self, part: Part, code: Code) {
        let Some(partition) = self.partitions.get(&part) else {
            return;
        };
        match code {
            Code::AutoOffsetReset => self.ask_where_it_ends(part),
            Code::PartitionEOF => {}
            code => {
                let problem = format!("partition {}: {}", partition.name(), words(code));
                self.health.trouble(&self.end, Trouble::Partitions, problem);
            }
        }
    }

    fn ask_where_it_ends(&mut self, part: Part) {
        let Some(partition) = self.partitions.get(&part) else {
            return;
        };
        let native = Arc::clone(self.consumer.native());
        let (topic, number) = (partition.topic.clone(), partition.number);
        let asked = self.asking.ask("kafka-ends", move || {
            Answer::Ends(part, asking::ends(&native, &topic, number))
        });
        if !asked {
            self.group.astray.push((Instant::now() + ASK_AGAIN, part));
        }
    }

    /// Goes on where there is something to read, and says what is skipped.
    fn find_back(&mut self, part: Part, (first, end): (i64, i64)) {
        let Some(partition) = self.partitions.get(&part) else {
            return;
        };
        let position = partition.progress.mark.position();
        let is_gone = position < first || position > end;
        let to = match (is_gone, self.plan.reset) {
            (false, _) => position,
            (true, Reset::Latest) if !partition.is_tier => end,
            (true, Reset::Refuse) if !partition.is_tier => {
                let problem = format!(
                    "partition {}: offset {position} is gone, it has {first} to {end}, and \
                     auto.offset.reset is `error`",
                    partition.name()
                );
                self.health.trouble(&self.end, Trouble::Partitions, problem);
                return;
            }
            (true, _) => first,
        };
        if is_gone {
            let skipped = to.saturating_sub(position).max(0);
            tracing::warn!(
                pool = self.plan.pool,
                partition = partition.name(),
                position,
                first,
                end,
                skipped,
                "the offset to go on from is gone; reading goes on at another"
            );
        }
        let start = partition.at(to);
        let others = self.partitions.iter().filter(|(other, _)| **other != part);
        let others = others.map(|(_, partition)| partition.at(partition.progress.mark.position()));
        let restarted = self.consumer.restart(start, others.collect());
        if to < position {
            self.begin_anew(part, to);
        }
        if let Err(error) = restarted {
            self.health
                .trouble(&self.end, Trouble::Partitions, error.to_string());
        }
    }

    // -- topics --

    /// The policy may need tiers that are not there yet. Those that it needs no more stay: they may
    /// hold messages.
    pub(super) fn need_tiers(&mut self, tiers: Vec<Tier>) {
        if tiers.iter().all(|tier| self.found.tiers.contains_key(tier)) {
            return;
        }
        let wanted = Wanted {
            tiers,
            ..self.plan.wanted.clone()
        };
        self.ask_for_topics(wanted);
    }

    fn ask_for_topics(&mut self, wanted: Wanted) {
        let native = Arc::clone(self.consumer.native());
        let (config, these) = (self.plan.config.clone(), wanted.clone());
        let asked = self.asking.ask("kafka-topics", move || {
            Answer::Topics(asking::topics(&config, &these, &native))
        });
        let again = (!asked).then(|| Instant::now() + ASK_AGAIN);
        self.group.wanted = Some((wanted, again));
    }
}

fn names(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions
        .iter()
        .map(|(topic, number)| format!("{topic}/{number}"))
        .collect();
    names.join(", ")
}
