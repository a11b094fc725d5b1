//! Membership in the consumer group: decisions of the group that are not carried out yet, handled one
//! after the other. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::consumer::{Rebalanced, TopicPartition};
use crate::broker::start_positions::Part;
use ganger_core::backoff::Backoff;

/// Pause before a failed request is retried.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Time within which a rejection is repeated as long as it applies.
pub(super) const REFUSAL_LASTS: Duration = Duration::from_secs(15);
/// Time that a group may take to find its coordinator without a report.
const OUTSIDE_MAX: Duration = Duration::from_secs(10);
/// Pauses before a permanently expelled member joins as a new one. They are long, since two members with the
/// same name would expel each other in turn.
const REJOIN: Backoff = Backoff {
    initial: Duration::from_secs(10),
    factor: 2.0,
    max: Duration::from_secs(300),
    jitter: 0.2,
};

/// Decision of the group that is being carried out.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Determining start positions: queried, or to be queried again at `again`.
    Querying {
        partitions: Vec<TopicPartition>,
        again: Option<Instant>,
    },
    /// Finishing the messages of these partitions that are in flight.
    Draining {
        leaving: Vec<TopicPartition>,
        parts: Vec<Part>,
        finish_by: Instant,
        commit_by: Instant,
        /// Number of the last commit sent before.
        commit: u64,
    },
}

/// Next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// None until another event.
    Nothing,
    /// Carry out this decision.
    Decided(Rebalanced),
    /// Partitions are draining; it may be time to release them.
    Draining,
}

/// Conclusions drawn from whether the group has accepted this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    /// True if the group admits this member.
    pub(super) is_admitted: bool,
    /// True if the group answers; none if it is too early to decide.
    pub(super) answers: Option<bool>,
}

/// Partitions that have been released.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) partitions: Vec<TopicPartition>,
    /// Number of their messages still in flight.
    pub(super) in_flight: usize,
}

/// State of the membership.
#[derive(Debug)]
pub(super) struct Group {
    subscribed: BTreeSet<String>,
    /// Earliest time to join.
    not_before: Option<Instant>,
    decisions: VecDeque<Rebalanced>,
    /// Time since which a request to join has had no answer.
    outside_since: Option<Instant>,
    /// Time of the last report that access to the group is denied.
    refused_at: Option<Instant>,
    phase: Phase,
    /// Partitions that could not be released, and the time of the next attempt.
    unreleased: Option<(Instant, Vec<TopicPartition>)>,
    finish_within: Duration,
    commit_within: Duration,
    /// Number of times the group was rejoined.
    rejoins: u32,
}

impl Group {
    pub(super) fn new(max_poll_interval: Duration) -> Self {
        Self {
            subscribed: BTreeSet::new(),
            not_before: None,
            decisions: VecDeque::new(),
            outside_since: None,
            refused_at: None,
            phase: Phase::Idle,
            unreleased: None,
            finish_within: max_poll_interval / 2,
            commit_within: max_poll_interval / 4,
            rejoins: 0,
        }
    }

    /// Queues the group's decisions.
    pub(super) fn note(&mut self, decisions: Vec<Rebalanced>) {
        self.decisions.extend(decisions);
    }

    /// Returns the time of the next timer.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Idle => None,
            Phase::Querying { again, .. } => *again,
            Phase::Draining {
                finish_by,
                commit_by,
                ..
            } => Some(if now < *finish_by {
                *finish_by
            } else {
                *commit_by
            }),
        };
        // Once it has passed, the end of any other obstacle to joining is an event of its own.
        let join = self.not_before.filter(|not_before| *not_before > now);
        let unreleased = self.unreleased.as_ref().map(|(when, _)| *when);
        phase.into_iter().chain(join).chain(unreleased).min()
    }

    /// Returns the next action.
    pub(super) fn next(&mut self) -> NextAction {
        match self.phase {
            Phase::Idle => match self.decisions.pop_front() {
                Some(decision) => NextAction::Decided(decision),
                None => NextAction::Nothing,
            },
            Phase::Querying { .. } => NextAction::Nothing,
            Phase::Draining { .. } => NextAction::Draining,
        }
    }

    /// Returns whether the group waits for no answer. An answer about single partitions would be taken for
    /// it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Idle) && self.decisions.is_empty() && self.unreleased.is_none()
    }

    // -- joining --

    /// Returns whether the pause before joining, if any, is over.
    pub(super) fn may_join(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Returns whether topics are subscribed.
    pub(super) fn is_subscribed(&self) -> bool {
        !self.subscribed.is_empty()
    }

    /// Returns whether exactly these topics are subscribed.
    pub(super) fn is_subscribed_to(&self, topics: &BTreeSet<String>) -> bool {
        self.subscribed == *topics
    }

    /// Records that these topics are subscribed.
    pub(super) fn subscribed_to(&mut self, topics: BTreeSet<String>) {
        self.not_before = None;
        self.subscribed = topics;
    }

    /// Records that subscribing failed.
    pub(super) fn subscribe_failed(&mut self, now: Instant) {
        self.not_before = Some(now + AGAIN);
    }

    /// Records that the broker denies access to the group.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused_at = Some(now);
    }

    /// Handles whether the group has accepted this member. librdkafka does not report a coordinator that is
    /// unreachable, or that does not support the `group.protocol`; if all brokers are unreachable, the
    /// coordinator is not to blame.
    pub(super) fn admission(
        &mut self,
        is_in_group: bool,
        are_away: bool,
        now: Instant,
    ) -> Admission {
        // The evidence of membership may have been in flight when access was denied.
        let lately = |refused: Instant| now < refused + REFUSAL_LASTS;
        let is_admitted = is_in_group && !self.refused_at.is_some_and(lately);
        if is_in_group || !self.is_subscribed() || are_away {
            self.outside_since = None;
            return Admission {
                is_admitted,
                answers: Some(true),
            };
        }
        let since = *self.outside_since.get_or_insert(now);
        Admission {
            is_admitted,
            answers: (now >= since + OUTSIDE_MAX).then_some(false),
        }
    }

    /// Records that the consumer is unusable; returns how long the next one waits before it joins.
    pub(super) fn record_unusable(&mut self, dice: f64) -> Duration {
        self.rejoins = self.rejoins.saturating_add(1);
        REJOIN.wait(self.rejoins, dice)
    }

    /// Resets the state for a new consumer, which joins no earlier than `not_before`.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>) {
        let max_poll_interval = self.finish_within * 2;
        *self = Self {
            not_before,
            rejoins: self.rejoins,
            ..Self::new(max_poll_interval)
        };
    }

    // -- assigned partitions --

    /// Records that start positions are queried, or will be at `again`.
    pub(super) fn begin_query(&mut self, partitions: Vec<TopicPartition>, again: Option<Instant>) {
        // Any earlier obligation is met, and these are assigned.
        self.unreleased = None;
        self.phase = Phase::Querying { partitions, again };
    }

    /// Takes the partitions to query again, if it is time.
    pub(super) fn take_due_query(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        match &mut self.phase {
            Phase::Querying {
                partitions,
                again: Some(again),
            } if *again <= now => Some(std::mem::take(partitions)),
            _ => None,
        }
    }

    /// Takes the partitions whose query was answered; none if no answer was expected.
    pub(super) fn answered(&mut self) -> Option<Vec<TopicPartition>> {
        if !matches!(self.phase, Phase::Querying { .. }) {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Querying { partitions, .. } => Some(partitions),
            Phase::Idle | Phase::Draining { .. } => None,
        }
    }

    // -- revoked partitions --

    /// Begins to drain partitions: they are released once their messages in flight are done and committed, or
    /// the time limit has passed. `commit` is the last that was sent.
    pub(super) fn drain(
        &mut self,
        leaving: Vec<TopicPartition>,
        parts: Vec<Part>,
        commit: u64,
        now: Instant,
    ) {
        let finish_by = now + self.finish_within;
        self.phase = Phase::Draining {
            leaving,
            parts,
            finish_by,
            commit_by: finish_by + self.commit_within,
            commit,
        };
    }

    /// Returns whether partitions are draining.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// Returns the partitions that are draining.
    pub(super) fn leaving(&self) -> &[Part] {
        match &self.phase {
            Phase::Draining { parts, .. } => parts,
            Phase::Idle | Phase::Querying { .. } => &[],
        }
    }

    /// Releases the draining partitions, which have that many messages in flight; none if it is not time yet.
    pub(super) fn drained(
        &mut self,
        in_flight: usize,
        is_committed: bool,
        now: Instant,
    ) -> Option<Drained> {
        let Phase::Draining {
            leaving,
            finish_by,
            commit_by,
            ..
        } = &mut self.phase
        else {
            return None;
        };
        if in_flight > 0 && now < *finish_by || !is_committed && now < *commit_by {
            return None;
        }
        let partitions = std::mem::take(leaving);
        self.phase = Phase::Idle;
        Some(Drained {
            partitions,
            in_flight,
        })
    }

    /// Handles the rejection of this commit because the membership has ended; returns the draining partitions
    /// lost by it. While librdkafka waits for partitions to be released, it does not report the loss by
    /// itself.
    pub(super) fn lost_while_draining(&mut self, number: u64) -> Option<Vec<TopicPartition>> {
        match &mut self.phase {
            Phase::Draining {
                leaving, commit, ..
            } if number > *commit => {
                let leaving = std::mem::take(leaving);
                self.phase = Phase::Idle;
                Some(leaving)
            }
            _ => None,
        }
    }

    /// Records that these partitions could not be released.
    pub(super) fn not_released(&mut self, partitions: Vec<TopicPartition>, now: Instant) {
        self.unreleased = Some((now + AGAIN, partitions));
    }

    /// Takes the partitions to release again, if that is due.
    pub(super) fn take_unreleased(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        let unreleased = self.unreleased.take_if(|(when, _)| *when <= now);
        unreleased.map(|(_, partitions)| partitions)
    }

    /// Takes all decisions that the group awaits an answer to, in order to leave.
    pub(super) fn unanswered(&mut self) -> Vec<Rebalanced> {
        let pending = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => None,
            Phase::Querying { partitions, .. } => Some(Rebalanced::Assigned(partitions)),
            Phase::Draining { leaving, .. } => Some(Rebalanced::Revoked(leaving)),
        };
        let decisions = std::mem::take(&mut self.decisions);
        pending.into_iter().chain(decisions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> (Group, Instant) {
        (Group::new(Duration::from_secs(300)), Instant::now())
    }

    fn some() -> Vec<TopicPartition> {
        vec![("orders".to_owned(), 3)]
    }

    #[test]
    fn a_pause_before_joining_ends_once() {
        let (mut group, now) = group();
        assert!(group.may_join(now) && group.due(now).is_none());
        group.subscribe_failed(now);
        let over = now + AGAIN;
        assert!(!group.may_join(now));
        assert_eq!(group.due(now), Some(over));
        assert!(group.may_join(over));
        assert_eq!(
            group.due(over),
            None,
            "or the source would turn at full speed"
        );
    }

    #[test]
    fn one_decision_is_done_after_the_other() {
        let (mut group, now) = group();
        let (assigned, revoked) = (Rebalanced::Assigned(some()), Rebalanced::Revoked(some()));
        group.note(vec![assigned.clone(), revoked.clone()]);
        assert!(!group.is_settled());
        assert_eq!(group.next(), NextAction::Decided(assigned));
        group.begin_query(some(), None);
        assert_eq!(group.next(), NextAction::Nothing);
        assert_eq!(group.answered(), Some(some()));
        assert_eq!(group.answered(), None, "it was not asked again");
        assert_eq!(group.next(), NextAction::Decided(revoked.clone()));
        group.drain(some(), vec![7], 4, now);
        assert_eq!(
            (group.next(), group.leaving()),
            (NextAction::Draining, &[7][..])
        );
        group.note(vec![Rebalanced::Assigned(some())]);
        assert_eq!(
            group.unanswered(),
            [revoked, Rebalanced::Assigned(some())],
            "in their order"
        );
        assert!(group.is_settled() && group.next() == NextAction::Nothing);
    }

    #[test]
    fn partitions_leave_when_all_is_done_and_committed_or_time_is_up() {
        let seconds = Duration::from_secs;
        let table = [
            (0, true, 0, true),
            (1, true, 0, false),
            (0, false, 0, false),
            (1, true, 149, false),
            (1, true, 150, true),
            (0, false, 150, false),
            (1, false, 224, false),
            (1, false, 225, true),
        ];
        for (in_flight, is_committed, after, leaves) in table {
            let (mut group, now) = group();
            group.drain(some(), vec![7], 4, now);
            let drained = group.drained(in_flight, is_committed, now + seconds(after));
            let expected = leaves.then(|| Drained {
                partitions: some(),
                in_flight,
            });
            assert_eq!(drained, expected, "{in_flight} {is_committed} {after}");
            assert_eq!(group.is_draining(), !leaves);
        }
    }

    #[test]
    fn only_a_commit_sent_since_shows_that_we_were_put_out() {
        let (mut group, now) = group();
        assert_eq!(group.lost_while_draining(9), None);
        group.drain(some(), vec![7], 4, now);
        assert_eq!(group.lost_while_draining(4), None);
        assert_eq!(group.lost_while_draining(5), Some(some()));
        assert!(!group.is_draining());
    }

    #[test]
    fn what_could_not_be_given_back_is_owed_until_it_is_ours_again() {
        let (mut group, now) = group();
        group.not_released(some(), now);
        assert!(!group.is_settled());
        assert_eq!(group.due(now), Some(now + AGAIN));
        assert_eq!(group.take_unreleased(now), None);
        assert_eq!(group.take_unreleased(now + AGAIN), Some(some()));
        group.not_released(some(), now);
        group.begin_query(some(), None);
        assert_eq!(group.take_unreleased(now + AGAIN), None);
    }

    #[test]
    fn silence_counts_once_we_have_asked_and_a_refusal_for_a_while() {
        let (mut group, now) = group();
        let seen = |group: &mut Group, is_in_group, are_away, after| {
            let admission = group.admission(is_in_group, are_away, now + after);
            (admission.is_admitted, admission.answers)
        };
        let none = Duration::ZERO;
        assert_eq!(seen(&mut group, false, false, none), (false, Some(true)));
        group.subscribed_to(["orders".to_owned()].into());
        assert_eq!(seen(&mut group, false, false, none), (false, None));
        assert_eq!(
            seen(&mut group, false, false, OUTSIDE_MAX),
            (false, Some(false))
        );
        assert_eq!(
            seen(&mut group, false, true, OUTSIDE_MAX),
            (false, Some(true))
        );
        assert_eq!(seen(&mut group, false, false, OUTSIDE_MAX), (false, None));
        group.refused(now);
        assert_eq!(seen(&mut group, true, false, none), (false, Some(true)));
        assert_eq!(
            seen(&mut group, true, false, REFUSAL_LASTS),
            (true, Some(true))
        );
    }

    #[test]
    fn each_time_it_is_put_out_the_pause_is_longer() {
        let (mut group, now) = group();
        let first = group.record_unusable(0.5);
        group.join_as_new(Some(now + first));
        assert!(group.may_join(now + first) && !group.may_join(now));
        assert!(group.record_unusable(0.5) > first && !group.is_subscribed());
    }
}
