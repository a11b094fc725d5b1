//! Commit in flight and time of the next: one at a time, at an interval, sooner when a partition is
//! revoked or the source stops; and whether an answer shows that the assignment still holds. Pure.
//! `partition` determines the content.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::session_gap::SessionGap;
use crate::broker::commit_metadata::TEXT_BYTES_MAX;

/// Minimum interval between two urgent commits.
const URGENT: Duration = Duration::from_millis(20);
/// Minimum interval between two commits that only probe the broker.
const PROBE: Duration = Duration::from_millis(500);

/// Schedule and state of the commits.
#[derive(Debug)]
pub(super) struct Commits {
    interval: Duration,
    is_sent: bool,
    /// Number of commits sent.
    number: u64,
    last: Instant,
    metadata_bytes_max: usize,
    failures: u32,
    session_gap: SessionGap,
}

/// Urgency of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Other work waits for it.
    Urgent,
    /// It shows whether the broker is back, or the membership still holds.
    Probe,
    Usual,
}

/// Outcome of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommitAnswer {
    /// Result for everything that is not in a missing topic; if everything is, the error for that.
    pub(super) result: Result<(), Code>,
    /// Missing topics, for which nothing is committed.
    pub(super) missing: BTreeSet<String>,
}

impl CommitAnswer {
    /// Returns the outcome of a commit that failed as a whole.
    pub(super) fn failed(code: Code) -> Self {
        Self {
            result: Err(code),
            missing: BTreeSet::new(),
        }
    }
}

/// Meaning of a commit's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitOutcome {
    /// It is confirmed.
    Done,
    /// It is retried, with metadata of at most that size in bytes.
    Shorter(usize),
    /// The group is rebalancing; what is still assigned afterwards is committed then.
    Waits,
    /// The membership has ended.
    TooLate,
    /// None of its topics exists. The group is not to blame, and no other commit is blocked.
    Missing,
    /// It failed, and has failed for so long that the failure is reported.
    FailedRepeatedly,
    /// It failed, and is retried.
    Failed,
}

impl CommitOutcome {
    /// Returns whether only a member gets such an answer.
    fn shows_a_member(self) -> bool {
        matches!(self, Self::Done | Self::Waits)
    }
}

impl Commits {
    pub(super) fn new(interval: Duration, session_gap: SessionGap) -> Self {
        Self {
            interval,
            is_sent: false,
            number: 0,
            last: Instant::now(),
            metadata_bytes_max: TEXT_BYTES_MAX,
            failures: 0,
            session_gap,
        }
    }

    /// Records that the daemon is awake, by a clock that runs while the machine sleeps. True if it was not
    /// awake for too long.
    pub(super) fn awake(&mut self, now: Duration) -> bool {
        self.session_gap.awake(now, self.number)
    }

    /// Returns whether the assignment is in doubt: until the group has answered, nothing in flight is
    /// published or done.
    pub(super) fn in_doubt(&self) -> bool {
        self.session_gap.in_doubt()
    }

    /// Records that no partition is assigned that could be another member's.
    pub(super) fn have_no_partition(&mut self) {
        self.session_gap.end_doubt();
    }

    /// Returns the number of the last commit that was sent.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the maximum size of the metadata that the broker accepts, as far as known.
    pub(super) fn metadata_bytes_max(&self) -> usize {
        self.metadata_bytes_max
    }

    /// Returns the time of the next commit, if there is something to commit.
    pub(super) fn due(&self, something: Option<Urgency>) -> Option<Instant> {
        let gap = match something.filter(|_| !self.is_sent)? {
            Urgency::Urgent => self.interval.min(URGENT * (1 << self.failures.min(6))),
            Urgency::Probe => PROBE,
            Urgency::Usual => self.interval,
        };
        Some(self.last + gap)
    }

    /// Returns whether a commit is due, and if so restarts the interval.
    pub(super) fn begin(&mut self, something: Option<Urgency>, now: Instant) -> bool {
        let is_time = self.due(something).is_some_and(|due| due <= now);
        if is_time {
            self.last = now;
        }
        is_time
    }

    /// Records that a commit is sent.
    pub(super) fn send(&mut self) {
        self.number += 1;
        self.is_sent = true;
    }

    /// Drops the commit in flight, whose consumer no longer exists.
    pub(super) fn forget_sent(&mut self) {
        self.is_sent = false;
    }

    /// Handles the outcome of a commit, for a member with that number of partitions.
    pub(super) fn ended(&mut self, result: Result<(), Code>, partitions: usize) -> CommitOutcome {
        self.is_sent = false;
        let ended = self.judge(result, partitions);
        if ended.shows_a_member() {
            self.session_gap.commit_answered(self.number);
        }
        ended
    }

    fn judge(&mut self, result: Result<(), Code>, partitions: usize) -> CommitOutcome {
        let Err(code) = result else {
            self.failures = 0;
            return CommitOutcome::Done;
        };
        if code == Code::UnknownTopicOrPartition {
            return CommitOutcome::Missing;
        }
        self.failures = self.failures.saturating_add(1);
        match code {
            Code::OffsetMetadataTooLarge => {
                self.metadata_bytes_max /= 2;
                CommitOutcome::Shorter(self.metadata_bytes_max)
            }
            Code::RebalanceInProgress => CommitOutcome::Waits,
            Code::IllegalGeneration | Code::UnknownMemberId | Code::FencedInstanceId => {
                CommitOutcome::TooLate
            }
            _ if is_trouble(self.failures, partitions) => CommitOutcome::FailedRepeatedly,
            _ => CommitOutcome::Failed,
        }
    }
}

/// Returns whether that number of successive failures is reported, for a member with that number of
/// partitions. A broker that restarts rejects commits for a moment. Once all partitions are revoked, no
/// commit could show that the problem is resolved; the last answer may arrive after that.
fn is_trouble(failures: u32, partitions: usize) -> bool {
    failures > 2 && partitions > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits() -> Commits {
        let session_gap = SessionGap::new(Duration::from_secs(30), Duration::ZERO);
        Commits::new(Duration::from_secs(5), session_gap)
    }

    #[test]
    fn an_answer_that_comes_after_all_partitions_went_is_no_trouble() {
        let table = [(2, 1, false), (3, 1, true), (3, 0, false), (30, 0, false)];
        for (failures, partitions, expected) in table {
            let got = is_trouble(failures, partitions);
            assert_eq!(got, expected, "{failures} {partitions}");
        }
    }

    #[test]
    fn one_at_a_time_and_as_soon_as_it_is_wanted() {
        let mut commits = commits();
        let start = commits.last;
        let due = |commits: &Commits, urgency| Some(commits.due(Some(urgency))? - start);
        assert_eq!(commits.due(None), None);
        assert_eq!(due(&commits, Urgency::Urgent), Some(URGENT));
        assert_eq!(due(&commits, Urgency::Probe), Some(PROBE));
        assert_eq!(due(&commits, Urgency::Usual), Some(Duration::from_secs(5)));
        assert!(!commits.begin(Some(Urgency::Urgent), start));
        let now = start + URGENT;
        assert!(commits.begin(Some(Urgency::Urgent), now));
        commits.send();
        assert_eq!(due(&commits, Urgency::Urgent), None, "one is on its way");
        assert_eq!(commits.number(), 1);
        assert_eq!(commits.ended(Err(Code::Fail), 1), CommitOutcome::Failed);
        assert_eq!(due(&commits, Urgency::Urgent), Some(URGENT + 2 * URGENT));
        commits.send();
        commits.forget_sent();
        assert!(commits.due(Some(Urgency::Usual)).is_some());
    }

    #[test]
    fn only_the_answer_to_a_later_commit_ends_the_doubt() {
        let mut commits = commits();
        commits.send();
        assert!(commits.awake(Duration::from_secs(100)) && commits.in_doubt());
        commits.ended(Ok(()), 1);
        assert!(commits.in_doubt(), "it was sent before");
        commits.send();
        commits.ended(Err(Code::UnknownMemberId), 1);
        assert!(commits.in_doubt());
        commits.send();
        commits.ended(Err(Code::RebalanceInProgress), 1);
        assert!(!commits.in_doubt());
        assert!(commits.awake(Duration::from_secs(200)));
        commits.have_no_partition();
        assert!(!commits.in_doubt());
    }

    #[test]
    fn what_an_end_means() {
        let mut commits = commits();
        let table = [
            (
                Err(Code::OffsetMetadataTooLarge),
                CommitOutcome::Shorter(2000),
            ),
            (
                Err(Code::OffsetMetadataTooLarge),
                CommitOutcome::Shorter(1000),
            ),
            (Err(Code::RebalanceInProgress), CommitOutcome::Waits),
            (Err(Code::UnknownMemberId), CommitOutcome::TooLate),
            (Err(Code::NotCoordinator), CommitOutcome::FailedRepeatedly),
            (Ok(()), CommitOutcome::Done),
            (Err(Code::UnknownTopicOrPartition), CommitOutcome::Missing),
            (Err(Code::UnknownTopicOrPartition), CommitOutcome::Missing),
            (Err(Code::UnknownTopicOrPartition), CommitOutcome::Missing),
            (Err(Code::NotCoordinator), CommitOutcome::Failed),
            (Err(Code::NotCoordinator), CommitOutcome::Failed),
            (Err(Code::NotCoordinator), CommitOutcome::FailedRepeatedly),
        ];
        for (result, expected) in table {
            commits.send();
            assert_eq!(commits.ended(result, 1), expected, "{result:?}");
        }
        assert!(CommitOutcome::Waits.shows_a_member() && !CommitOutcome::TooLate.shows_a_member());
        assert!(!CommitOutcome::Missing.shows_a_member(), "it was not asked");
    }
}
