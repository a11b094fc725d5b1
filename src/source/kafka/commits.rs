//! Writing down how far each partition is done: one commit at a time, at an interval, sooner when a
//! partition goes to someone else or the source ends. What is written is `partition`'s business.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::blocking_calls;
use super::blocking_calls::Answer;
use super::event_loop::Task;
use super::health::HealthIssue;
use crate::broker::kafka::commit_metadata::TEXT_BYTES_MAX;
use crate::broker::kafka::error::words;

/// The least time between two commits when they are urgent.
const URGENT: Duration = Duration::from_millis(20);
/// The least time between two commits that only ask whether the broker is there.
const PROBE: Duration = Duration::from_millis(500);

/// Which commit is on its way, and when the next may be.
#[derive(Debug)]
pub(super) struct Commits {
    interval: Duration,
    is_sent: bool,
    /// How many were sent.
    number: u64,
    last: Instant,
    metadata_bytes_max: usize,
    failures: u32,
}

impl Commits {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            is_sent: false,
            number: 0,
            last: Instant::now(),
            metadata_bytes_max: TEXT_BYTES_MAX,
            failures: 0,
        }
    }

    /// The number of the last commit that was sent.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The one that is on its way was sent by a consumer that is no more.
    pub(super) fn forget_sent(&mut self) {
        self.is_sent = false;
    }

    /// When to go on, if there is something to commit.
    pub(super) fn due(&self, something: Option<Urgency>) -> Option<Instant> {
        let gap = match something.filter(|_| !self.is_sent)? {
            Urgency::Urgent => self.interval.min(URGENT * (1 << self.failures.min(6))),
            Urgency::Probe => PROBE,
            Urgency::Usual => self.interval,
        };
        Some(self.last + gap)
    }
}

/// How soon a commit is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Someone waits for it.
    Urgent,
    /// It shows whether the broker is back, or we are members still.
    Probe,
    Usual,
}

impl Task {
    pub(super) fn has_something_to_commit(&self) -> Option<Urgency> {
        let probe = self.health.has(HealthIssue::Brokers) || self.health.has(HealthIssue::Commits);
        let is_open = !self.partitions.are_committed();
        match () {
            () if self.partitions.is_empty() => None,
            () if self.standstill.in_doubt() => Some(Urgency::Probe),
            () if self.is_closing() || self.group.waits_for_commits() => {
                is_open.then_some(Urgency::Urgent)
            }
            () if probe => Some(Urgency::Probe),
            () => is_open.then_some(Urgency::Usual),
        }
    }

    /// Commits what there is, if it is time.
    pub(super) fn commit(&mut self, now: Instant) {
        let urgency = self.has_something_to_commit();
        if self.commits.due(urgency).is_none_or(|due| now < due) {
            return;
        }
        let anyhow = urgency == Some(Urgency::Probe);
        let metadata = self.commits.metadata_bytes_max;
        let commits = self.partitions.commit(metadata, anyhow);
        self.commits.last = now;
        if commits.is_empty() {
            return;
        }
        let native = Arc::clone(self.consumer.native());
        let failed = Answer::Committed(Err(Code::Fail));
        let commit = move || Answer::Committed(blocking_calls::commit(&native, &commits));
        self.commits.number += 1;
        if self.asking.ask("kafka-commit", failed, commit) {
            self.commits.is_sent = true;
        } else {
            self.committed(Err(Code::CriticalSystemResource));
        }
    }

    /// Takes in how a commit ended.
    pub(super) fn committed(&mut self, result: Result<(), Code>) {
        self.commits.is_sent = false;
        self.partitions.committed(result.is_ok());
        // Only a member is told so.
        if matches!(result, Ok(()) | Err(Code::RebalanceInProgress)) {
            self.standstill.commit_answered(self.commits.number);
        }
        match result {
            Err(code) => self.commit_failed(code),
            Ok(()) => {
                self.commits.failures = 0;
                self.health.over(&self.end, HealthIssue::Commits);
                self.health.over(&self.end, HealthIssue::Brokers);
                self.health.over(&self.end, HealthIssue::Refused);
            }
        }
    }

    fn commit_failed(&mut self, code: Code) {
        self.commits.failures = self.commits.failures.saturating_add(1);
        let pool = self.plan.pool.as_str();
        match code {
            Code::OffsetMetadataTooLarge => {
                self.commits.metadata_bytes_max /= 2;
                let bytes = self.commits.metadata_bytes_max;
                tracing::warn!(
                    pool,
                    bytes,
                    "the broker takes less metadata; more may run twice after a crash"
                );
            }
            // The group is deciding anew; what is ours then is committed then.
            Code::RebalanceInProgress => {
                tracing::debug!(pool, problem = words(code), "a commit has to wait");
            }
            Code::IllegalGeneration | Code::UnknownMemberId | Code::FencedInstanceId => {
                tracing::debug!(pool, problem = words(code), "a commit comes too late");
                self.put_out_while_draining();
            }
            code => {
                if is_trouble(self.commits.failures, self.partitions.len()) {
                    self.health
                        .begin(&self.end, HealthIssue::Commits, words(code));
                }
            }
        }
    }
}

/// Whether so many failures in a row are something to tell, by a member with so many partitions. A
/// broker that restarts refuses for a moment. Once all partitions are another's nothing is committed
/// any more that could show that it is over; the last answer may come after they went.
fn is_trouble(failures: u32, partitions: usize) -> bool {
    failures > 2 && partitions > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_after_all_partitions_went_is_no_trouble() {
        let table = [(2, 1, false), (3, 1, true), (3, 0, false), (30, 0, false)];
        for (failures, partitions, expected) in table {
            let got = is_trouble(failures, partitions);
            assert_eq!(got, expected, "{failures} {partitions}");
        }
    }
}
