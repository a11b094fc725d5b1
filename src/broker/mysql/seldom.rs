//! What a queue seldom has, by the last look: rows that fall due, and suspects. It is searched for only when it
//! is there. A search that locks keeps a lock on the first entry behind what it finds, or would have found,
//! whoever that belongs to: there begin the rows that others have claimed, who could settle them only one
//! by one between the searches.

use std::time::Duration;

use tokio::time::Instant;

use crate::broker::table::{Outlook, Written};

/// What the last look has found of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seldom {
    due_at: Option<Instant>,
    suspects_wait: bool,
}

impl Seldom {
    /// Before the first look there may be anything.
    pub(super) fn unknown() -> Self {
        Self {
            due_at: Some(Instant::now()),
            suspects_wait: true,
        }
    }

    /// By a look just now.
    pub(super) fn of(outlook: &Outlook) -> Self {
        Self::seen(outlook.due_in, outlook.suspects_wait)
    }

    /// By the look that ended a claim.
    pub(super) fn after(claim: &Written) -> Self {
        Self::seen(claim.due_in, claim.suspects_wait)
    }

    fn seen(due_in: Option<Duration>, suspects_wait: bool) -> Self {
        Self {
            due_at: due_in.map(|due_in| Instant::now() + due_in),
            suspects_wait,
        }
    }

    /// Something may have fallen due.
    pub(super) fn is_due(self) -> bool {
        self.due_at.is_some_and(|due_at| Instant::now() >= due_at)
    }

    pub(super) fn suspects_wait(self) -> bool {
        self.suspects_wait
    }
}

/// What a claim has searched for beside what is simply next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Searched {
    pub(super) due: bool,
    pub(super) suspects: bool,
}

impl Searched {
    /// Something is there that was not searched for.
    pub(super) fn has_missed(self, outlook: &Outlook) -> bool {
        let due = outlook.due_in == Some(Duration::ZERO);
        !self.due && due || !self.suspects && outlook.suspects_wait
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn outlook(due_in: Option<u64>, suspects_wait: bool) -> Outlook {
        Outlook {
            ready: false,
            suspects_wait,
            due_in: due_in.map(Duration::from_secs),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_delayed_is_searched_for_once_it_may_be_due() {
        assert!(Seldom::unknown().is_due());
        assert!(!Seldom::of(&outlook(None, false)).is_due());
        let seldom = Seldom::of(&outlook(Some(5), false));
        assert!(!seldom.is_due());
        advance(Duration::from_secs(5)).await;
        assert!(seldom.is_due());
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
