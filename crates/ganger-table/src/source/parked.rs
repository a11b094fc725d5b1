//! Settlements that the database permanently rejects, as a user's trigger may. They are kept, so that
//! finished work is not done again, and retried every minute. Their rows stay claimed; other rows are not
//! held up.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::bytes;
use crate::table::Settled;

/// Limits of the kept settlements. Beyond either, the oldest settlement is given up: its row is redelivered
/// after this daemon has ended.
const KEPT_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 20;

const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Rejected settlements of one source.
#[derive(Debug, Default)]
pub(super) struct Parked {
    kept: VecDeque<Settled>,
    bytes: usize,
    next_retry: Option<Instant>,
    /// Reason that the last of them was rejected.
    why: String,
}

impl Parked {
    /// Returns a description for the source's health, if there are any.
    pub(super) fn problem(&self) -> Option<String> {
        let (count, why) = (self.kept.len(), &self.why);
        (count > 0).then(|| format!("{count} settlements are rejected: {why}"))
    }

    /// Returns the time of the next retry.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.next_retry
    }

    /// Keeps a settlement. Returns those that are given up for lack of room.
    pub(super) fn keep(&mut self, settled: Settled, why: &str, now: Instant) -> Vec<Settled> {
        why.clone_into(&mut self.why);
        self.next_retry.get_or_insert(now + RETRY_AFTER);
        self.bytes += bytes(&settled.outcome);
        self.kept.push_back(settled);
        let mut given_up = Vec::new();
        while self.kept.len() > KEPT_MAX || (self.bytes > BYTES_MAX && self.kept.len() > 1) {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.bytes -= bytes(&oldest.outcome);
            given_up.push(oldest);
        }
        given_up
    }

    /// Removes and returns all of them.
    pub(super) fn take(&mut self) -> VecDeque<Settled> {
        std::mem::take(self).kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Claim;
    use ganger_queue::delivery::{Outcome, Outgoing};

    fn reply(row: i64, bytes: usize) -> Settled {
        let body = vec![0; bytes].into();
        let reply = Outgoing {
            body,
            ..Outgoing::default()
        };
        Settled {
            claim: Claim { row, token: row },
            outcome: Outcome::Reply(Box::new(reply)),
            span: None,
            finished: None,
            occurrence: None,
            recorded: None,
        }
    }

    fn rows(settled: impl IntoIterator<Item = Settled>) -> Vec<i64> {
        let rows = settled.into_iter().map(|settled| settled.claim.row);
        rows.collect()
    }

    #[tokio::test]
    async fn the_oldest_goes_when_there_are_too_many_or_too_large_ones() {
        let mut aside = Parked::default();
        let now = Instant::now();
        let given_up = (0..300).flat_map(|row| aside.keep(reply(row, 1), "no", now));
        assert_eq!(rows(given_up), (0..44).collect::<Vec<_>>());
        assert_eq!(aside.next_retry(), Some(now + RETRY_AFTER));
        let problem = aside.problem();
        assert_eq!(problem.as_deref(), Some("256 settlements are rejected: no"));
        assert_eq!(rows(aside.take()).len(), KEPT_MAX);
        assert_eq!((aside.problem(), aside.next_retry()), (None, None));

        assert_eq!(rows(aside.keep(reply(1, BYTES_MAX + 1), "no", now)), [0; 0]);
        assert_eq!(rows(aside.keep(reply(2, 1), "no", now)), [1]);
        assert_eq!(rows(aside.keep(reply(3, BYTES_MAX), "no", now)), [2]);
    }
}
