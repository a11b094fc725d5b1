//! Positions from which partitions are read: assigned ones begin at the group's commits; one whose position
//! no longer exists resumes by the rest of its log; positions that cannot be determined now are queried
//! again, and no other partition has to wait for them.

use std::time::Duration;

use tokio::time::Instant;

use super::{Member, MemberContext, name};
use crate::broker::commit_metadata::PartitionSeed;
use crate::broker::consumer::{Start, TopicPartition};
use crate::broker::error::KafkaError;
use crate::broker::settings::Reset;
use crate::broker::start_positions;
use crate::broker::start_positions::{LogState, Part, StartPosition, StartPositions};
use crate::source::assignment::{Assignment, PartNews};
use crate::source::blocking_calls::Query;
use crate::source::group::AGAIN;
use crate::source::health::HealthIssue;
use crate::source::known_topics::KnownTopics;
use crate::source::partition::Partition;
use crate::source::pool_link::PoolLink;
use crate::source::progress::Progress;
use crate::source::resume_position::{refusal, resume_at};
use ganger_core::backoff::Backoff;

/// Pauses before the state of a partition is queried again.
const STATE_QUERY_BACKOFF: Backoff = Backoff {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_secs(15),
    jitter: 0.2,
};

impl Member {
    // -- starting partitions --

    /// Returns the queries that are due: for start positions that are not known yet, and for the states of
    /// partitions.
    pub(crate) fn queries(&mut self, assignment: &Assignment, now: Instant) -> Vec<Query> {
        let unasked = self.group.take_due_query(now);
        let begins = unasked.map(|partitions| self.query_start_positions(partitions));
        let later = self.positions.take_unstarted(now).map(Query::Later);
        let asked = assignment.asked(self.positions.take_lost_positions(now));
        let states = (!asked.is_empty()).then(|| {
            self.positions.set_asking(true);
            Query::LogStates(asked)
        });
        [begins, later, states].into_iter().flatten().collect()
    }

    pub(super) fn query_start_positions(&mut self, partitions: Vec<TopicPartition>) -> Query {
        self.group.begin_query(partitions.clone(), None);
        Query::StartPositions(partitions)
    }

    /// Starts the partitions that the group assigned.
    pub(crate) fn begin(
        &mut self,
        begins: Result<StartPositions, KafkaError>,
        topics: &KnownTopics,
        context: &mut MemberContext<'_>,
    ) {
        let Some(partitions) = self.group.answered() else {
            return;
        };
        let begun = begins.and_then(|begins| self.begin_all(begins, topics, context));
        match begun {
            Ok(()) => {
                context.pool.over(HealthIssue::Group);
                context.pool.over(HealthIssue::NotAdmitted);
            }
            Err(error) => {
                context.pool.begin(HealthIssue::Group, error.to_string());
                self.group
                    .begin_query(partitions, Some(context.now + AGAIN));
            }
        }
    }

    fn begin_all(
        &mut self,
        begins: StartPositions,
        topics: &KnownTopics,
        context: &mut MemberContext<'_>,
    ) -> Result<(), KafkaError> {
        let begun = begins.begun.into_iter();
        let begun = begun.filter_map(|begin| self.begin_one(begin, topics, context.assignment));
        let (parts, starts): (Vec<Part>, Vec<Start>) = begun.unzip();
        let assigned = match &begins.commits {
            Some(commits) => self.consumer.begin(&starts, commits),
            None => self.consumer.assign(&starts),
        };
        if let Err(error) = assigned {
            parts
                .iter()
                .for_each(|part| context.assignment.remove(*part));
            return Err(error);
        }
        for (partition, why) in begins.unknown {
            // The leader of a topic that is just being created will be known soon, so this is no problem.
            let name = name(&partition);
            tracing::debug!(
                pool = context.pool.name(),
                partition = name,
                why,
                "start position unknown; asking again"
            );
            self.positions.unknown(partition, context.now);
        }
        for (partition, why) in begins.unread {
            self.mark_unreadable(name(&partition), &why, context.pool);
        }
        Ok(())
    }

    fn begin_one(
        &self,
        begin: StartPosition,
        topics: &KnownTopics,
        assignment: &mut Assignment,
    ) -> Option<(Part, Start)> {
        let StartPosition {
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
    pub(crate) fn begin_later(
        &mut self,
        begins: Result<StartPositions, KafkaError>,
        topics: &KnownTopics,
        context: &mut MemberContext<'_>,
    ) {
        self.positions.ask_for_unstarted(context.now);
        let Ok(begins) = begins else {
            return;
        };
        for (partition, why) in begins.unknown {
            if self.positions.is_unstarted(&partition) {
                self.mark_unreadable(name(&partition), &why, context.pool);
            }
        }
        if !self.group.is_settled() {
            return;
        }
        for begin in begins.begun {
            let partition = (begin.topic.clone(), begin.partition);
            if !self.positions.is_unstarted(&partition) {
                // Revoked meanwhile.
                continue;
            }
            let others = context.assignment.starts(None);
            let Some((part, start)) = self.begin_one(begin, topics, context.assignment) else {
                continue;
            };
            if let Err(error) = self.consumer.add(start, others) {
                context.assignment.remove(part);
                let problem = error.to_string();
                self.mark_unreadable(name(&partition), &problem, context.pool);
                continue;
            }
            self.positions.begun(&partition);
            self.mark_readable(&name(&partition), context.pool);
        }
    }

    // -- partitions that cannot be read --

    fn mark_unreadable(&mut self, name: String, why: &str, pool: &mut PoolLink) {
        let problem = format!("partition {name}: {why}");
        self.positions.unread(name);
        pool.begin(HealthIssue::Partitions, problem);
    }

    /// Records that a partition can be read again, or is no longer assigned.
    pub(super) fn mark_readable(&mut self, name: &str, pool: &mut PoolLink) {
        if self.positions.read(name) {
            pool.over(HealthIssue::Partitions);
        }
    }

    /// Handles news of partitions.
    pub(crate) fn take_news(
        &mut self,
        news: impl IntoIterator<Item = (Part, PartNews)>,
        context: &mut MemberContext<'_>,
    ) {
        for (part, news) in news {
            let Some(partition) = context.assignment.partition(part) else {
                continue;
            };
            match news {
                PartNews::Read if !self.positions.has_unread() => {}
                PartNews::Read => self.mark_readable(&partition.label(), context.pool),
                PartNews::PositionLost => self.positions.ask_at(part, context.now),
                PartNews::Unreadable(why) => {
                    self.mark_unreadable(partition.label(), &why, context.pool);
                    if !self.positions.has_lost_position(part) {
                        self.ask_again(part, context.assignment, context.now);
                    }
                }
            }
        }
    }

    /// Handles partitions that are not fetched: their reports may have been missed.
    pub(crate) fn check_unfetched(&mut self, parts: &[Part], now: Instant) {
        for part in parts {
            if self.group.is_settled() && !self.positions.has_lost_position(*part) {
                self.positions.ask_at(*part, now);
            }
        }
    }

    /// Schedules another query of a partition's state, with growing pauses.
    fn ask_again(&mut self, part: Part, assignment: &mut Assignment, now: Instant) {
        if let Some(times) = assignment.ask_again(part) {
            let wait = STATE_QUERY_BACKOFF.wait(times, fastrand::f64());
            self.positions.ask_at(part, now + wait);
        }
    }

    /// Handles the states of partitions: reading resumes where there are messages to read.
    pub(crate) fn resume_all(
        &mut self,
        states: Vec<(Part, Result<LogState, String>)>,
        context: &mut MemberContext<'_>,
    ) {
        self.positions.set_asking(false);
        for (part, state) in states {
            let Some(partition) = context.assignment.partition(part) else {
                continue;
            };
            match state {
                // The restart of one partition would be taken for the answer to the group.
                Ok(_) if !self.group.is_settled() => {
                    self.positions.ask_at(part, context.now + AGAIN)
                }
                Ok(state) => self.resume(part, state, context),
                Err(why) => {
                    self.mark_unreadable(partition.label(), &why, context.pool);
                    self.ask_again(part, context.assignment, context.now);
                }
            }
        }
    }

    /// Resumes a partition, and logs skipped messages.
    fn resume(&mut self, part: Part, state: LogState, context: &mut MemberContext<'_>) {
        let Some(partition) = context.assignment.partition(part) else {
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
        let Some(to) = resume_at(position, committable, state, reset) else {
            return self.mark_unreadable(name, &refusal(position, state), context.pool);
        };
        let part = self.move_to(part, to, state, context);
        match self.restart(part, to, context.assignment) {
            // A damaged record may still be damaged.
            Ok(()) if was_damaged => {}
            Ok(()) => self.mark_readable(&name, context.pool),
            Err(error) => {
                self.mark_unreadable(name, &error.to_string(), context.pool);
                self.ask_again(part, context.assignment, context.now);
            }
        }
    }

    /// Moves a partition's recorded position. The partition may be renumbered.
    fn move_to(
        &self,
        part: Part,
        to: i64,
        state: LogState,
        context: &mut MemberContext<'_>,
    ) -> Part {
        let Some(partition) = context.assignment.partition(part) else {
            return part;
        };
        let position = partition.progress().position();
        if let Some(fork) = state.fork {
            let read_to = partition.progress().read_to();
            start_positions::log_fork(context.pool.name(), partition.name(), read_to, fork);
            self.wake(&[part], context);
            return context.assignment.switch_log(part, to, fork, context.pool);
        }
        if to != position {
            let (first, end) = state.ends;
            tracing::warn!(
                pool = context.pool.name(),
                partition = partition.label(),
                position,
                first,
                end,
                skipped = to.saturating_sub(position),
                "offset to resume from no longer exists; resuming at another"
            );
            context.assignment.skip_to(part, to);
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
}
