//! Kinds of rows that a queue seldom has, by the last peek: rows that fall due, and suspects. A claim
//! searches for them only if they are present. Each search is a statement that changes rows, and costs a
//! server as much as dozens of rows even if it finds none. On MySQL it also keeps a lock on the first index
//! entry behind its result, whether or not there is one. That is where the rows claimed by others begin,
//! which those could then settle only one by one between the searches.

use std::time::Duration;

use tokio::time::Instant;

use crate::table::{PeekResult, WriteResult};

/// Findings of the last peek.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RareRows {
    due_at: Option<Instant>,
    suspects_wait: bool,
}

impl RareRows {
    /// Returns the state before the first peek: anything may be present.
    pub(crate) fn unknown() -> Self {
        Self {
            due_at: Some(Instant::now()),
            suspects_wait: true,
        }
    }

    /// Returns the state after a peek just now.
    pub(crate) fn of(outlook: &PeekResult) -> Self {
        Self::seen(outlook.due_in, outlook.suspects_wait)
    }

    /// Returns the state after the peek that ended a claim.
    pub(crate) fn after(claim: &WriteResult) -> Self {
        Self::seen(claim.due_in, claim.suspects_wait)
    }

    fn seen(due_in: Option<Duration>, suspects_wait: bool) -> Self {
        Self {
            due_at: due_in.map(|due_in| Instant::now() + due_in),
            suspects_wait,
        }
    }

    /// Returns the kinds that a claim has to search for now.
    pub(crate) fn searched(self) -> Searched {
        Searched {
            due: self.due_at.is_some_and(|due_at| Instant::now() >= due_at),
            suspects: self.suspects_wait,
        }
    }
}

/// Kinds of rows that a claim searches for in addition to the next ones in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Searched {
    pub(crate) due: bool,
    pub(crate) suspects: bool,
}

impl Searched {
    /// Returns whether the queue has rows that were not searched for.
    pub(crate) fn has_missed(self, outlook: &PeekResult) -> bool {
        let due = outlook.due_in == Some(Duration::ZERO);
        !self.due && due || !self.suspects && outlook.suspects_wait
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn outlook(due_in: Option<u64>, suspects_wait: bool) -> PeekResult {
        PeekResult {
            ready: false,
            suspects_wait,
            due_in: due_in.map(Duration::from_secs),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_delayed_is_searched_for_once_it_may_be_due() {
        assert!(RareRows::unknown().searched().due);
        assert!(!RareRows::of(&outlook(None, false)).searched().due);
        let rare_rows = RareRows::of(&outlook(Some(5), false));
        assert!(!rare_rows.searched().due);
        advance(Duration::from_secs(5)).await;
        assert!(rare_rows.searched().due);
    }

    #[tokio::test]
    async fn what_was_not_searched_for_may_be_missed() {
        let nothing = Searched {
            due: false,
            suspects: false,
        };
        let all = Searched {
            due: true,
            suspects: true,
        };
        let looks = [
            (outlook(None, false), false),
            (outlook(Some(1), false), false),
            (outlook(Some(0), false), true),
            (outlook(None, true), true),
        ];
        for (outlook, missed) in looks {
            assert_eq!(nothing.has_missed(&outlook), missed, "{outlook:?}");
            assert!(!all.has_missed(&outlook), "{outlook:?}");
        }
    }
}
