//! The consequences of the broker's verdict on a publication, by its purpose: acknowledge, retry, publish in
//! another form, or give it up. Pure.

use crate::broker::publisher::Verdict;

/// Purpose of a publication, as far as its treatment depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Sent by a worker that is still processing its message.
    Emit,
    /// Reply with the work's result.
    Reply,
    /// Copy by which a message is returned to the pool's own queue.
    Back,
    /// Copy of a suspect whose turn begins, also for the pool's own queue.
    Turn,
    /// Copy for later, or a dead letter.
    Kept,
}

/// Consequence of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consequence {
    /// It is stored.
    Safe,
    /// It is dropped, as the pool is configured, for this reason.
    Dropped(String),
    /// It is retried: the queue does not accept it now.
    Full,
    /// It is retried: the queue does not exist.
    Missing,
    /// It can't be published in this form, for this reason, but possibly in another.
    Refused(String),
    /// It is not retried in any form, for this reason.
    GivenUp(&'static str),
}

/// Reason of a publication to a queue that does not exist.
const MISSING: &str = "there is no such queue";

impl Purpose {
    /// Returns whether its subject need not wait: a dead letter records the undelivered message, or the
    /// worker that sent it gets the error.
    pub(super) fn is_for_others(self) -> bool {
        matches!(self, Self::Emit | Self::Reply)
    }

    /// Decides on the consequence of a verdict; if `closing`, no more messages are wanted.
    pub(super) fn consequence(
        self,
        verdict: Verdict,
        closing: bool,
        drops_replies: bool,
    ) -> Consequence {
        match (verdict, self) {
            (Verdict::Confirmed, _) => Consequence::Safe,
            // Only processing the messages of the pool's own queue makes room there. A message that is
            // returned to it waits for that, too: otherwise the broker would count it, and drop it in the
            // end.
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
            // Such a reply can't be delivered to any queue.
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
