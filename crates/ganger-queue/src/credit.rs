//! Credit: the number of further messages that a source may hand to its pool.

use crate::delivery::{Backlog, CREDIT_MAX, Intake, SourceEnd};

/// Returns the pool's current intake. A pool that is gone wants no more.
pub fn intake(end: &SourceEnd) -> Intake {
    if end.intake.has_changed().is_err() {
        return Intake::Closed;
    }
    *end.intake.borrow()
}

/// Returns the number of further messages that may be handed out, with `out` in flight.
pub fn room(intake: Intake, out: usize) -> usize {
    match intake {
        Intake::Closed => 0,
        Intake::Credit(credit) => credit.min(CREDIT_MAX).saturating_sub(out),
    }
}

/// Reports the queue's backlog to the pool; none if it is not known.
pub fn report_backlog(end: &SourceEnd, backlog: Option<Backlog>) {
    end.state
        .send_if_modified(|state| std::mem::replace(&mut state.backlog, backlog) != backlog);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::link;
    use proptest::prelude::*;

    #[test]
    fn room_is_what_the_credit_leaves() {
        let table = [
            (Intake::Closed, 0, 0),
            (Intake::Credit(0), 0, 0),
            (Intake::Credit(10), 4, 6),
            (Intake::Credit(4), 10, 0),
            (Intake::Credit(usize::MAX), 0, CREDIT_MAX),
            (Intake::Credit(usize::MAX), CREDIT_MAX - 1, 1),
        ];
        for (intake, out, expected) in table {
            assert_eq!(room(intake, out), expected, "{intake:?} {out}");
        }
    }

    #[test]
    fn a_pool_that_is_gone_wants_nothing() {
        let (end, pool) = link();
        pool.intake.send(Intake::Credit(7)).unwrap();
        assert_eq!(intake(&end), Intake::Credit(7));
        drop(pool);
        assert_eq!(intake(&end), Intake::Closed);
    }

    proptest! {
        /// A source that asks never has more in flight than the channel of settlements has places for.
        #[test]
        fn never_more_out_than_there_are_places(credit: usize, out in 0..=CREDIT_MAX) {
            prop_assert!(out + room(Intake::Credit(credit), out) <= CREDIT_MAX);
        }
    }
}
