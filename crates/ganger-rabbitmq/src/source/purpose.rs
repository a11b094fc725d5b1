//! The consequences of the broker's verdict on a publication, by what it is for: acknowledge, retry, publish
//! in another form, or give it up. Pure.

use crate::broker::publisher::Verdict;

/// Purpose of a publication, as far as its fate depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A worker sends it in the middle of its work.
    Emit,
    /// Reply with the work's result.
    Reply,
    /// Copy by which a message goes back to our own queue.
    Back,
    /// Copy of a suspect whose turn begins, for our own queue, too.
    Turn,
    /// Copy for later, or a dead letter.
    Kept,
}

/// Consequence of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consequence {
    /// It is safe.
    Safe,
    /// It is dropped, as the pool wants it, for this reason.
    Dropped(String),
    /// It is tried again: the queue does not take it now,
    Full,
    /// or does not exist.
    Missing,
    /// It can't be published like this, for this reason: in another form perhaps.
    Refused(String),
    /// It is not tried again in any form, for this reason.
    GivenUp(&'static str),
}

/// Reason of a publication to a queue that does not exist.
const MISSING: &str = "there is no such queue";

impl Purpose {
    /// Returns whether its subject need not wait: a dead letter records what was not delivered, or
    /// the worker that asked gets the error.
    pub(super) fn is_for_others(self) -> bool {
        matches!(self, Self::Emit | Self::Reply)
    }

    /// Decides what follows from a verdict, while nothing more is wanted if `closing`.
    pub(super) fn consequence(
        self,
        verdict: Verdict,
        closing: bool,
        drops_replies: bool,
    ) -> Consequence {
        match (verdict, self) {
            (Verdict::Confirmed, _) => Consequence::Safe,
            // Only working on the messages of our own queue makes room there. One that goes back to it
            // waits for that, too: the broker would count it, and drop it at last.
            (Verdict::NotNow, Self::Turn) => Consequence::GivenUp("the queue is full"),
            (Verdict::NotNow, Self::Back) if closing => Consequence::GivenUp("the queue is full"),
            (Verdict::NotNow, _) => Consequence::Full,
            (Verdict::Returned, Self::Back | Self::Turn) => Consequence::GivenUp(MISSING),
            (Verdict::Returned, Self::Kept) => Consequence::Missing,
            (Verdict::Returned, Self::Reply) if drops_replies => {
                Consequence::Dropped(MISSING.to_owned())
            }
            (Verdict::Returned, Self::Reply | Self::Emit) => {
                Consequence::Refused(MISSING.to_owned())
            }
            // Such a reply can't be delivered to anybody.
            (Verdict::EndsConnection(why), Self::Reply) if drops_replies => {
                Consequence::Dropped(why)
            }
            (Verdict::Refused(why) | Verdict::EndsConnection(why), _) => Consequence::Refused(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consequences_by_verdict_and_purpose() {
        use Purpose::{Back, Emit, Kept, Reply, Turn};
        let full = || Consequence::GivenUp("the queue is full");
        let gone = || Consequence::Refused(MISSING.to_owned());
        let ends = || Consequence::Refused("why".to_owned());
        let never = || Consequence::GivenUp(MISSING);
        let end = || Verdict::EndsConnection("why".to_owned());
        let table = [
            (Verdict::Confirmed, Kept, false, Consequence::Safe),
            (Verdict::NotNow, Turn, false, full()),
            (Verdict::NotNow, Back, false, Consequence::Full),
            (Verdict::NotNow, Back, true, full()),
            (Verdict::NotNow, Reply, true, Consequence::Full),
            (Verdict::NotNow, Emit, false, Consequence::Full),
            (Verdict::NotNow, Kept, true, Consequence::Full),
            (Verdict::Returned, Turn, false, never()),
            (Verdict::Returned, Back, false, never()),
            (Verdict::Returned, Kept, false, Consequence::Missing),
            (Verdict::Returned, Reply, false, gone()),
            (Verdict::Returned, Emit, false, gone()),
            (Verdict::Refused("why".to_owned()), Turn, false, ends()),
            (end(), Reply, false, ends()),
            (end(), Kept, true, ends()),
        ];
        for (verdict, purpose, closing, expected) in table {
            let found = purpose.consequence(verdict.clone(), closing, false);
            assert_eq!(found, expected, "{verdict:?} {purpose:?}");
        }
        for (verdict, why) in [(Verdict::Returned, MISSING), (end(), "why")] {
            let found = Reply.consequence(verdict.clone(), false, true);
            assert_eq!(found, Consequence::Dropped(why.to_owned()));
            let found = Emit.consequence(verdict, false, true);
            assert_eq!(found, Consequence::Refused(why.to_owned()), "no reply");
        }
    }
}
