//! Settlements of rows that another program has locked. They wait until the lock is released, without
//! holding up others.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::table::Settled;

/// Interval between checks for released locks, while nothing else is to be settled.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waiting settlements of one source.
#[derive(Debug, Default)]
pub(super) struct LockedRows {
    waiting: Vec<Settled>,
    next_look: Option<Instant>,
}

impl LockedRows {
    /// Returns the time of the next check, if any wait.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Number of messages that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the rows that they wait for.
    pub(super) fn rows(&self) -> impl Iterator<Item = i64> {
        self.waiting.iter().map(|settled| settled.claim.row)
    }

    /// Sorts the waiting settlements and those in `settled` anew, by the rows that are locked now.
    /// Returns whether any settlement began to wait.
    pub(super) fn sort(
        &mut self,
        settled: &mut Vec<Settled>,
        locked: &HashSet<i64>,
        now: Instant,
    ) -> bool {
        let waited: HashSet<i64> = self.rows().collect();
        let all = self.waiting.drain(..).chain(settled.drain(..));
        (self.waiting, *settled) = all.partition(|settled| locked.contains(&settled.claim.row));
        self.next_look = (self.len() > 0).then(|| now + LOOK_EVERY);
        self.rows().any(|row| !waited.contains(&row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Claim;
    use ganger_queue::delivery::Outcome;

    fn settled(rows: &[i64]) -> Vec<Settled> {
        let settled = |row: &i64| Settled {
            claim: Claim {
                row: *row,
                token: *row,
            },
            outcome: Outcome::Done,
            span: None,
            finished: None,
            occurrence: None,
            recorded: None,
        };
        rows.iter().map(settled).collect()
    }

    #[tokio::test]
    async fn what_is_locked_waits_and_what_is_not_is_settled() {
        let (mut locked, now) = (LockedRows::default(), Instant::now());
        for (adds, are_locked, waits, is_news) in [
            (&[1, 2, 3][..], &[2][..], &[2][..], true),
            (&[4], &[2], &[2], false),
            (&[5], &[2, 5], &[2, 5], true),
            (&[], &[5], &[5], false),
            (&[6], &[6], &[6], true),
            (&[], &[], &[], false),
        ] {
            let mut all = settled(adds);
            let before: HashSet<i64> = locked.rows().chain(adds.iter().copied()).collect();
            let are_locked = are_locked.iter().copied().collect();
            assert_eq!(locked.sort(&mut all, &are_locked, now), is_news);
            assert_eq!(locked.rows().collect::<Vec<_>>(), waits);
            let is_due = !waits.is_empty();
            assert_eq!(locked.next_look(), is_due.then(|| now + LOOK_EVERY));
            let free = all.iter().map(|settled| settled.claim.row);
            assert_eq!(free.chain(locked.rows()).collect::<HashSet<_>>(), before);
        }
    }
}
