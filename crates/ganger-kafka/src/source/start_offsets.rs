//! Positions of partitions: on assignment by the group's commits, and when a position is gone by what
//! is left of the log. What cannot be determined now is queried again, and keeps no other partition
//! from being read.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::blocking_calls::Answer;
use super::event_loop::Task;
use super::group::AGAIN;
use super::health::HealthIssue;
use super::partition::Partition;
use super::progress::Progress;
use super::rebalance::names;
use super::whence::{Found, fork, go_on_at};
use crate::broker::begins::{Asked, Begin, Begins, Part, Question, Standing};
use crate::broker::commit_metadata::PartitionSeed;
use crate::broker::consumer::{Start, TopicPartition};
use crate::broker::error::{KafkaError, words};
use crate::broker::settings::Reset;
use crate::broker::{begins, settings};
use ganger_core::backoff::Backoff;

/// Pauses before the state of a partition is queried again.
const ASTRAY_AGAIN: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(15),
    jitter: 0.2,
};

impl Task {
    /// Repeats the queries that could not be answered.
    pub(super) fn ask_again(&mut self, now: Instant) {
        if let Some(partitions) = self.group.take_unasked(now) {
            self.ask_where_they_begin(partitions, now);
        }
        if let Some(unbegun) = self.positions.take_unbegun(now) {
            self.ask_for_unbegun(unbegun, now);
        }
        self.ask_how_they_stand(now);
        self.ask_again_for_topics(now);
        self.look_for_topics(now);
    }

    // -- assigned partitions --

    pub(super) fn ask_where_they_begin(&mut self, partitions: Vec<TopicPartition>, now: Instant) {
        let question = self.begins_of(partitions.clone());
        let failed = Answer::Begins(Err(KafkaError::panicked()));
        let asked = self
            .asking
            .ask("kafka-begins", failed, move || Answer::Begins(question()));
        let again = (!asked).then(|| now + AGAIN);
        self.group.asks(partitions, again);
    }

    fn begins_of(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> impl FnOnce() -> Result<Begins, KafkaError> + use<> {
        let (native, question) = (Arc::clone(self.consumer.native()), self.question());
        move || begins::begins(&native, &partitions, &question)
    }

    fn question(&self) -> Question {
        Question {
            pool: self.plan.pool.clone(),
            tiers: self.topics.tiers(),
            cluster: self.topics.found().cluster.clone(),
            reset: self.plan.reset,
            looking: settings::looking(&self.plan.config, &self.plan.pool),
        }
    }

    /// Starts the partitions that the group assigned.
    pub(super) fn begin(&mut self, begins: Result<Begins, KafkaError>, now: Instant) {
        let Some(partitions) = self.group.answered() else {
            return;
        };
        match begins.and_then(|begins| self.begin_all(begins, now)) {
            Ok(()) => {
                self.health.over(&self.end, HealthIssue::Group);
                self.health.over(&self.end, HealthIssue::NotAdmitted);
            }
            Err(error) => {
                self.health
                    .begin(&self.end, HealthIssue::Group, error.to_string());
                self.group.asks(partitions, Some(now + AGAIN));
            }
        }
    }

    fn begin_all(&mut self, begins: Begins, now: Instant) -> Result<(), KafkaError> {
        let begun = begins.begun.into_iter();
        let begun: Vec<(Part, Start)> = begun.filter_map(|begin| self.begin_one(begin)).collect();
        let (parts, starts): (Vec<Part>, Vec<Start>) = begun.into_iter().unzip();
        let assigned = match &begins.commits {
            Some(commits) => self.consumer.begin(&starts, commits),
            None => self.consumer.assign(&starts),
        };
        if let Err(error) = assigned {
            parts
                .iter()
                .for_each(|part| drop(self.partitions.remove(*part)));
            return Err(error);
        }
        for (partition, why) in begins.unknown {
            // The leader of a topic that is just being created is known soon; no problem.
            let name = names(std::slice::from_ref(&partition));
            tracing::debug!(pool = self.plan.pool, partition = name, why, "asked again");
            self.positions.unknown(partition, now);
        }
        for (partition, why) in begins.unread {
            self.can_not_be_read(names(&[partition]), &why);
        }
        Ok(())
    }

    fn begin_one(&mut self, begin: Begin) -> Option<(Part, Start)> {
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
        let origin = self.topics.origin(&topic);
        let place = PartitionSeed::new(&self.topics.found().cluster, &topic, partition);
        let progress = Progress::new(offset, committed, carried);
        let begun = Partition::new((topic, partition), place, origin, inbox, progress);
        let start = begun.at(offset);
        Some((self.partitions.add(begun), start))
    }

    fn ask_for_unbegun(&mut self, unbegun: Vec<TopicPartition>, now: Instant) {
        let question = self.begins_of(unbegun);
        let failed = Answer::Later(Err(KafkaError::panicked()));
        let asked = self
            .asking
            .ask("kafka-begins", failed, move || Answer::Later(question()));
        if !asked {
            self.positions.ask_for_unbegun(now);
        }
    }

    /// Starts partitions that could not start when the group assigned them.
    pub(super) fn begin_later(&mut self, begins: Result<Begins, KafkaError>, now: Instant) {
        self.positions.ask_for_unbegun(now);
        let Ok(begins) = begins else {
            return;
        };
        for (partition, why) in begins.unknown {
            if self.positions.is_unbegun(&partition) {
                self.can_not_be_read(names(&[partition]), &why);
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
            let others = self.starts(None);
            let Some((part, start)) = self.begin_one(begin) else {
                continue;
            };
            if let Err(error) = self.consumer.add(start, others) {
                self.partitions.remove(part);
                self.can_not_be_read(names(&[partition]), &error.to_string());
                continue;
            }
            let begun = [partition];
            self.positions.not_unbegun(&begun);
            self.can_be_read(&names(&begun));
        }
    }

    /// Returns the positions of all partitions but one.
    fn starts(&self, but: Option<Part>) -> Vec<Start> {
        let others = self
            .partitions
            .iter()
            .filter(|(part, _)| Some(*part) != but);
        others
            .map(|(_, partition)| partition.at(partition.progress().position()))
            .collect()
    }

    // -- unreadable partitions --

    fn can_not_be_read(&mut self, name: String, why: &str) {
        let problem = format!("partition {name}: {why}");
        self.positions.unread(name);
        self.health
            .begin(&self.end, HealthIssue::Partitions, problem);
    }

    /// Records that a partition can be read again, or is no longer assigned.
    pub(super) fn can_be_read(&mut self, name: &str) {
        if self.positions.read(name) {
            self.health.over(&self.end, HealthIssue::Partitions);
        }
    }

    /// Handles an error of a partition.
    pub(super) fn partition_error(&mut self, part: Part, code: Code, now: Instant) {
        let Some(partition) = self.partitions.get(part) else {
            return;
        };
        let name = partition.label();
        match code {
            Code::AutoOffsetReset => self.positions.ask_at(part, now),
            Code::PartitionEOF => {}
            Code::BadMessage | Code::BadCompression | Code::NotImplemented => {
                self.is_damaged(part, &words(code), now);
            }
            // Its end is not reported by itself: it is queried.
            code => {
                self.can_not_be_read(name, &words(code));
                if !self.positions.is_astray(part) {
                    self.is_still_astray(part, now);
                }
            }
        }
    }

    /// Handles a damaged record, which librdkafka would skip. Fetched anew it may be sound; otherwise
    /// the partition waits, and reports so, until an operator has repaired it or set the group's offset
    /// past it.
    pub(super) fn is_damaged(&mut self, part: Part, what: &str, now: Instant) {
        let Some(partition) = self.partitions.get(part) else {
            return;
        };
        let (name, next) = (partition.label(), partition.progress().position());
        self.partitions.change(part, Partition::damage);
        let why = format!("what follows offset {next} is damaged: {what}");
        self.can_not_be_read(name, &why);
        if !self.positions.is_astray(part) {
            self.is_still_astray(part, now);
        }
    }

    /// Handles a partition that is not fetched: its report may have been missed.
    pub(super) fn is_not_fetched(&mut self, part: Part, now: Instant) {
        if self.group.is_settled() && !self.positions.is_astray(part) {
            self.positions.ask_at(part, now);
        }
    }

    /// Schedules another query of a partition's state, with growing pauses.
    fn is_still_astray(&mut self, part: Part, now: Instant) {
        if let Some(times) = self.partitions.change(part, Partition::ask_again) {
            let wait = ASTRAY_AGAIN.wait(times, fastrand::f64());
            self.positions.ask_at(part, now + wait);
        }
    }

    /// Queries the state of all partitions for which it is due, together, and of no others before there
    /// is an answer.
    fn ask_how_they_stand(&mut self, now: Instant) {
        let due = self.positions.take_astray(now);
        let ours = due.into_iter();
        let ours = ours.filter_map(|part| Some((part, self.partitions.get(part)?)));
        let asked: Vec<Asked> = ours
            .map(|(part, partition)| Asked {
                part,
                name: partition.name().clone(),
                read_to: partition.progress().read_to(),
            })
            .collect();
        if asked.is_empty() {
            return;
        }
        let (native, question) = (Arc::clone(self.consumer.native()), self.question());
        let panicked = || Err(KafkaError::panicked().to_string());
        let failed = asked.iter().map(|asked| (asked.part, panicked()));
        let failed = Answer::Standings(failed.collect());
        let parts: Vec<Part> = asked.iter().map(|asked| asked.part).collect();
        let ask = move || Answer::Standings(begins::standings(&native, &asked, &question));
        let is_asking = self.asking.ask("kafka-standings", failed, ask);
        self.positions.set_asking(is_asking);
        if !is_asking {
            parts
                .into_iter()
                .for_each(|part| self.is_still_astray(part, now));
        }
    }

    pub(super) fn find_all_back(
        &mut self,
        standings: Vec<(Part, Result<Standing, String>)>,
        now: Instant,
    ) {
        self.positions.set_asking(false);
        for (part, standing) in standings {
            self.find_back(part, standing, now);
        }
    }

    /// Resumes where there is something to read, and logs what is skipped.
    fn find_back(&mut self, part: Part, standing: Result<Standing, String>, now: Instant) {
        let Some(partition) = self.partitions.get(part) else {
            return;
        };
        let name = partition.label();
        let standing = match standing {
            // The restart of one partition would be taken for our answer to the group.
            Ok(_) if !self.group.is_settled() => {
                self.positions.ask_at(part, now + AGAIN);
                return;
            }
            Ok(standing) => standing,
            Err(why) => {
                self.can_not_be_read(name, &why);
                return self.is_still_astray(part, now);
            }
        };
        let was_damaged = partition.is_damaged();
        let progress = partition.progress();
        let (position, committable) = (progress.position(), progress.committable());
        let reset = if partition.is_tier() {
            Reset::Earliest
        } else {
            self.plan.reset
        };
        let found = Found {
            ends: standing.ends,
            fork: fork(&standing, progress.was_committed()),
        };
        let Some(to) = go_on_at(position, committable, found, reset) else {
            let (first, end) = found.ends;
            let why = match found.fork {
                Some(fork) => begins::refusal(position, fork),
                None => format!(
                    "offset {position} is gone, it has {first} to {end}, and auto.offset.reset is \
                     `error`"
                ),
            };
            return self.can_not_be_read(name, &why);
        };
        let part = self.move_to(part, to, found);
        match self.restart(part, to) {
            // A damaged record may still be damaged.
            Ok(()) if was_damaged => {}
            Ok(()) => self.can_be_read(&name),
            Err(error) => {
                self.can_not_be_read(name, &error.to_string());
                self.is_still_astray(part, now);
            }
        }
    }

    /// Moves a partition's recorded position. The partition may be renumbered.
    fn move_to(&mut self, part: Part, to: i64, found: Found) -> Part {
        let Some(partition) = self.partitions.get(part) else {
            return part;
        };
        let position = partition.progress().position();
        if let Some(fork) = found.fork {
            let read_to = partition.progress().read_to();
            begins::tell_of_fork(&self.plan.pool, partition.name(), read_to, fork);
            self.partitions
                .change(part, |each| each.begin_anew(to, fork));
            return self.rename(part);
        }
        if to != position {
            let (first, end) = found.ends;
            tracing::warn!(
                pool = self.plan.pool,
                partition = partition.label(),
                position,
                first,
                end,
                skipped = to.saturating_sub(position),
                "the offset to go on from is gone; reading goes on at another"
            );
            self.partitions.change(part, |each| each.skip_to(to));
        }
        part
    }

    /// Voids the messages of a partition that are out.
    fn rename(&mut self, part: Part) -> Part {
        self.lanes.forget(part);
        self.throttle.forget(part);
        self.resume(&[part]);
        self.end.lost();
        self.partitions.rename(part)
    }

    fn restart(&mut self, part: Part, to: i64) -> Result<(), KafkaError> {
        let others = self.starts(Some(part));
        let Some(partition) = self.partitions.get(part) else {
            return Ok(());
        };
        self.consumer.restart(partition.at(to), others)?;
        self.partitions.change(part, Partition::restarted);
        Ok(())
    }
}
