//! Commits the progress of each partition and handles the outcome.

use std::sync::Arc;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::blocking_calls;
use super::blocking_calls::Answer;
use super::commits::{CommitAnswer, Ended, Urgency};
use super::event_loop::Task;
use super::health::HealthIssue;
use crate::broker::error::words;

impl Task {
    pub(super) fn has_something_to_commit(&self) -> Option<Urgency> {
        let probe = self.health.has(HealthIssue::Brokers) || self.health.has(HealthIssue::Commits);
        let is_open = !self.partitions.are_committed();
        match () {
            () if self.partitions.is_empty() => None,
            () if self.standstill.in_doubt() => Some(Urgency::Probe),
            () if self.is_closing() || self.group.is_draining() => {
                is_open.then_some(Urgency::Urgent)
            }
            () if probe => Some(Urgency::Probe),
            () => is_open.then_some(Urgency::Usual),
        }
    }

    /// Commits what there is, if a commit is due.
    pub(super) fn commit(&mut self, now: Instant) {
        let urgency = self.has_something_to_commit();
        if !self.commits.begin(urgency, now) {
            return;
        }
        let anyhow = urgency == Some(Urgency::Probe);
        let metadata = self.commits.metadata_bytes_max();
        let commits = self.partitions.commit(metadata, anyhow);
        if commits.is_empty() {
            return;
        }
        let native = Arc::clone(self.consumer.native());
        let failed = Answer::Committed(CommitAnswer::failed(Code::Fail));
        let commit = move || Answer::Committed(blocking_calls::commit(&native, &commits));
        self.commits.send();
        if !self.asking.ask("kafka-commit", failed, commit) {
            self.committed(CommitAnswer::failed(Code::CriticalSystemResource));
        }
    }

    /// Handles the outcome of a commit.
    pub(super) fn committed(&mut self, answer: CommitAnswer) {
        let CommitAnswer { result, missing } = answer;
        self.partitions.committed(result.is_ok(), &missing);
        let ended = self.commits.ended(result, self.partitions.len());
        if ended.shows_a_member() {
            self.standstill.commit_answered(self.commits.number());
        }
        let pool = self.plan.pool.as_str();
        if !missing.is_empty() {
            tracing::debug!(
                pool,
                ?missing,
                "nothing is committed of topics that are gone"
            );
        }
        let problem = result.err().map(words).unwrap_or_default();
        match ended {
            Ended::Done => {
                self.health.over(&self.end, HealthIssue::Commits);
                self.health.over(&self.end, HealthIssue::Brokers);
                self.health.over(&self.end, HealthIssue::Refused);
            }
            Ended::Shorter(bytes) => tracing::warn!(
                pool,
                bytes,
                "the broker takes less metadata; more may run twice after a crash"
            ),
            Ended::Waits => tracing::debug!(pool, problem, "a commit has to wait"),
            Ended::TooLate => {
                tracing::debug!(pool, problem, "a commit comes too late");
                self.put_out_while_draining();
            }
            Ended::Trouble => self.health.begin(&self.end, HealthIssue::Commits, problem),
            Ended::Missing | Ended::Failed => {}
        }
    }
}
