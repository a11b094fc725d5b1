//! Where we stand with the consumer group: what it has decided and we have not done yet, one decision
//! after the other. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::begins::Part;
use crate::broker::consumer::{Rebalanced, TopicPartition};
use ganger_core::backoff::Backoff;

/// The pause before what failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Who was refused is told so again within that, while he is.
pub(super) const REFUSAL_LASTS: Duration = Duration::from_secs(15);
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
enum Step {
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

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, before something else happens.
    Nothing,
    /// That is to be done.
    Decided(Rebalanced),
    /// Partitions leave; it may be time to let them go.
    Draining,
}

/// What it means that the group knows us, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// It lets us in.
    pub(super) is_admitted: bool,
    /// Whether it answers; none if it is too early to tell.
    pub(super) answers: Option<bool>,
}

/// Partitions that have been let go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drained {
    pub(super) partitions: Vec<TopicPartition>,
    /// How many messages of theirs are in flight still.
    pub(super) in_flight: usize,
}

/// Where we stand.
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
    step: Step,
    /// What could not be given back, and when that is tried again.
    owed: Option<(Instant, Vec<TopicPartition>)>,
    finish_within: Duration,
    commit_within: Duration,
    /// How often it was joined anew.
    rebirths: u32,
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
            rebirths: 0,
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

    /// What comes next.
    pub(super) fn next(&mut self) -> Next {
        match self.step {
            Step::Idle => match self.decisions.pop_front() {
                Some(decision) => Next::Decided(decision),
                None => Next::Nothing,
            },
            Step::Asking { .. } => Next::Nothing,
            Step::Draining { .. } => Next::Draining,
        }
    }

    /// Whether it waits for no answer of ours. One about single partitions would be taken for it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.step, Step::Idle) && self.decisions.is_empty() && self.owed.is_none()
    }

    // -- joining --

    /// Whether the pause before we join, if there is one, is over.
    pub(super) fn may_join(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Whether we have asked to be let in.
    pub(super) fn has_asked(&self) -> bool {
        !self.subscribed.is_empty()
    }

    /// Whether we have asked for just these topics.
    pub(super) fn has_asked_for(&self, topics: &BTreeSet<String>) -> bool {
        self.subscribed == *topics
    }

    /// We have asked for these topics.
    pub(super) fn asked_for(&mut self, topics: BTreeSet<String>) {
        self.not_before = None;
        self.subscribed = topics;
    }

    /// We could not.
    pub(super) fn could_not_ask(&mut self, now: Instant) {
        self.not_before = Some(now + AGAIN);
    }

    /// The broker says that we may not use it.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused_at = Some(now);
    }

    /// Takes in whether it knows us. librdkafka keeps silent about a coordinator that is away, or that
    /// does not speak our `group.protocol`; where all brokers are away it can't be blamed.
    pub(super) fn seen(&mut self, is_in_group: bool, are_away: bool, now: Instant) -> Seen {
        // What shows that it knows us may have been on its way when we were refused.
        let lately = |refused: Instant| now < refused + REFUSAL_LASTS;
        let is_admitted = is_in_group && !self.refused_at.is_some_and(lately);
        if is_in_group || !self.has_asked() || are_away {
            self.outside_since = None;
            return Seen {
                is_admitted,
                answers: Some(true),
            };
        }
        let since = *self.outside_since.get_or_insert(now);
        Seen {
            is_admitted,
            answers: (now >= since + OUTSIDE_MAX).then_some(false),
        }
    }

    /// The consumer is of no use any more: how long the next one waits before it joins.
    pub(super) fn put_out(&mut self, dice: f64) -> Duration {
        self.rebirths = self.rebirths.saturating_add(1);
        REJOIN.wait(self.rebirths, dice)
    }

    /// A new consumer joins, not before that time.
    pub(super) fn join_as_new(&mut self, not_before: Option<Instant>) {
        let max_poll_interval = self.finish_within * 2;
        *self = Self {
            not_before,
            rebirths: self.rebirths,
            ..Self::new(max_poll_interval)
        };
    }

    // -- partitions that come --

    /// It is asked where they begin, or will be from then on.
    pub(super) fn asks(&mut self, partitions: Vec<TopicPartition>, again: Option<Instant>) {
        // Whatever we owed, it is settled, and these are ours.
        self.owed = None;
        self.step = Step::Asking { partitions, again };
    }

    /// Those of which it is to be asked again.
    pub(super) fn take_unasked(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        match &mut self.step {
            Step::Asking {
                partitions,
                again: Some(again),
            } if *again <= now => Some(std::mem::take(partitions)),
            _ => None,
        }
    }

    /// Those of which an answer has come; none if none was waited for.
    pub(super) fn answered(&mut self) -> Option<Vec<TopicPartition>> {
        if !matches!(self.step, Step::Asking { .. }) {
            return None;
        }
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Asking { partitions, .. } => Some(partitions),
            Step::Idle | Step::Draining { .. } => None,
        }
    }

    // -- partitions that go --

    /// These leave once what is in flight of them is done and committed, or time is up. `commit` is the
    /// last that was sent.
    pub(super) fn drain(
        &mut self,
        leaving: Vec<TopicPartition>,
        parts: Vec<Part>,
        commit: u64,
        now: Instant,
    ) {
        let finish_by = now + self.finish_within;
        self.step = Step::Draining {
            leaving,
            parts,
            finish_by,
            commit_by: finish_by + self.commit_within,
            commit,
        };
    }

    /// Whether partitions are only kept until they are committed.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.step, Step::Draining { .. })
    }

    /// Those that leave.
    pub(super) fn leaving(&self) -> &[Part] {
        match &self.step {
            Step::Draining { parts, .. } => parts,
            Step::Idle | Step::Asking { .. } => &[],
        }
    }

    /// Those that leave now, of which so many messages are in flight; none if it is not time.
    pub(super) fn drained(
        &mut self,
        in_flight: usize,
        is_committed: bool,
        now: Instant,
    ) -> Option<Drained> {
        let Step::Draining {
            leaving,
            finish_by,
            commit_by,
            ..
        } = &mut self.step
        else {
            return None;
        };
        if in_flight > 0 && now < *finish_by || !is_committed && now < *commit_by {
            return None;
        }
        let partitions = std::mem::take(leaving);
        self.step = Step::Idle;
        Some(Drained {
            partitions,
            in_flight,
        })
    }

    /// A commit was refused because we are no member any more, the one of that number: what of that was
    /// about to leave. While librdkafka waits for us to let partitions go, it does not say so by itself.
    pub(super) fn lost_while_draining(&mut self, number: u64) -> Option<Vec<TopicPartition>> {
        match &mut self.step {
            Step::Draining {
                leaving, commit, ..
            } if number > *commit => {
                let leaving = std::mem::take(leaving);
                self.step = Step::Idle;
                Some(leaving)
            }
            _ => None,
        }
    }

    /// These could not be given back.
    pub(super) fn owes(&mut self, partitions: Vec<TopicPartition>, now: Instant) {
        self.owed = Some((now + AGAIN, partitions));
    }

    /// Those that are to be given back once more.
    pub(super) fn take_owed(&mut self, now: Instant) -> Option<Vec<TopicPartition>> {
        let owed = self.owed.take_if(|(when, _)| *when <= now);
        owed.map(|(_, partitions)| partitions)
    }

    /// All that it waits for, since we are leaving.
    pub(super) fn unanswered(&mut self) -> Vec<Rebalanced> {
        let pending = match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => None,
            Step::Asking { partitions, .. } => Some(Rebalanced::Assigned(partitions)),
            Step::Draining { leaving, .. } => Some(Rebalanced::Revoked(leaving)),
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
        group.could_not_ask(now);
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
        assert_eq!(group.next(), Next::Decided(assigned));
        group.asks(some(), None);
        assert_eq!(group.next(), Next::Nothing);
        assert_eq!(group.answered(), Some(some()));
        assert_eq!(group.answered(), None, "it was not asked again");
        assert_eq!(group.next(), Next::Decided(revoked.clone()));
        group.drain(some(), vec![7], 4, now);
        assert_eq!((group.next(), group.leaving()), (Next::Draining, &[7][..]));
        group.note(vec![Rebalanced::Assigned(some())]);
        assert_eq!(
            group.unanswered(),
            [revoked, Rebalanced::Assigned(some())],
            "in their order"
        );
        assert!(group.is_settled() && group.next() == Next::Nothing);
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
        group.owes(some(), now);
        assert!(!group.is_settled());
        assert_eq!(group.due(now), Some(now + AGAIN));
        assert_eq!(group.take_owed(now), None);
        assert_eq!(group.take_owed(now + AGAIN), Some(some()));
        group.owes(some(), now);
        group.asks(some(), None);
        assert_eq!(group.take_owed(now + AGAIN), None);
    }

    #[test]
    fn silence_counts_once_we_have_asked_and_a_refusal_for_a_while() {
        let (mut group, now) = group();
        let seen = |group: &mut Group, is_in_group, are_away, after| {
            let seen = group.seen(is_in_group, are_away, now + after);
            (seen.is_admitted, seen.answers)
        };
        let none = Duration::ZERO;
        assert_eq!(seen(&mut group, false, false, none), (false, Some(true)));
        group.asked_for(["orders".to_owned()].into());
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
        let first = group.put_out(0.5);
        group.join_as_new(Some(now + first));
        assert!(group.may_join(now + first) && !group.may_join(now));
        assert!(group.put_out(0.5) > first && !group.has_asked());
    }
}
