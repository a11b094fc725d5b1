//! Tests of `blame`.

use super::*;

const TWO: Version = Version::Two { concurrency: 8 };
const DIED: Cause = Cause::Died;

fn place(head: bool, begun: bool, begun_in_all: usize) -> HeldState {
    HeldState {
        head,
        begun,
        left_unread: false,
        left_well: false,
        alone: false,
        begun_in_all,
    }
}

fn unsure(head: bool, begun_in_all: usize) -> HeldState {
    HeldState {
        left_unread: true,
        ..place(head, true, begun_in_all)
    }
}

#[test]
fn a_worker_that_leaves_well_took_nothing_that_it_had_not_read() {
    let well = |place| HeldState {
        left_well: true,
        ..place
    };
    let alone = |place| HeldState {
        alone: true,
        ..place
    };
    let table = [
        // Not read in full, so not begun, whatever it is suspected of.
        (Version::One, well(unsure(true, 1)), Blame::Returned),
        (Version::One, well(unsure(true, 3)), Blame::Returned),
        (Version::One, alone(well(unsure(true, 1))), Blame::Returned),
        (TWO, well(unsure(true, 1)), Blame::Returned),
        // Read, with no other message in the worker: it exited in the middle of it.
        (Version::One, well(place(true, true, 1)), Blame::Charged),
        (TWO, well(place(true, true, 1)), Blame::Charged),
        // Read, or only read ahead.
        (Version::One, well(place(true, true, 3)), Blame::Suspect),
        (Version::One, well(place(false, true, 3)), Blame::Returned),
        (TWO, well(unsure(true, 3)), Blame::Suspect),
        // Any other end.
        (Version::One, unsure(true, 1), Blame::Suspect),
        (Version::One, alone(unsure(true, 1)), Blame::Charged),
    ];
    for (version, place, blamed) in table {
        assert_eq!(
            blame(&DIED, version, 7, place),
            blamed,
            "{version:?} {place:?}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn only_what_a_worker_had_begun_is_blamed_for_its_end() {
    let table = [
        (DIED, Version::One, place(true, true, 3), Blame::Charged),
        (DIED, Version::One, place(false, true, 3), Blame::Returned),
        (DIED, Version::One, place(true, false, 0), Blame::Returned),
        (DIED, Version::Unknown, place(true, true, 1), Blame::Charged),
        (DIED, TWO, place(true, true, 1), Blame::Charged),
        (DIED, TWO, place(true, true, 2), Blame::Suspect),
        (DIED, TWO, place(false, true, 2), Blame::Suspect),
        (DIED, TWO, place(false, false, 2), Blame::Returned),
        (
            Cause::Stalled(Late::Only(7)),
            TWO,
            place(true, true, 1),
            Blame::Charged,
        ),
        (
            Cause::Stalled(Late::Only(6)),
            Version::One,
            place(true, true, 1),
            Blame::Returned,
        ),
        (
            Cause::Stalled(Late::Any),
            TWO,
            place(true, true, 1),
            Blame::Suspect,
        ),
        (
            Cause::Stalled(Late::Any),
            TWO,
            place(true, false, 0),
            Blame::Returned,
        ),
        (
            Cause::ProtocolError(String::new()),
            Version::One,
            place(true, true, 1),
            Blame::Charged,
        ),
        (
            Cause::TimedOut(Late::Only(7)),
            TWO,
            place(false, true, 3),
            Blame::Charged,
        ),
        (
            Cause::TimedOut(Late::Only(8)),
            TWO,
            place(true, true, 3),
            Blame::Returned,
        ),
        (
            Cause::TimedOut(Late::Among(7)),
            TWO,
            place(false, true, 3),
            Blame::Suspect,
        ),
        (
            Cause::TimedOut(Late::Among(8)),
            TWO,
            place(true, true, 3),
            Blame::Returned,
        ),
        (
            Cause::TimedOut(Late::Any),
            TWO,
            place(false, true, 3),
            Blame::Suspect,
        ),
        (
            Cause::TimedOut(Late::Any),
            TWO,
            place(true, true, 1),
            Blame::Suspect,
        ),
        (
            Cause::TimedOut(Late::Any),
            TWO,
            place(false, false, 3),
            Blame::Returned,
        ),
        (
            Cause::Stopped,
            Version::One,
            place(true, true, 1),
            Blame::Returned,
        ),
        (Cause::Stopped, TWO, place(true, true, 1), Blame::Returned),
    ];
    for (cause, version, place, blamed) in table {
        assert_eq!(
            blame(&cause, version, 7, place),
            blamed,
            "{cause:?} {version:?} {place:?}"
        );
    }
}

#[test]
fn a_message_that_may_have_been_left_unread_is_suspected_first() {
    let table = [
        (Version::One, unsure(true, 1), Blame::Suspect),
        (Version::One, unsure(true, 3), Blame::Suspect),
        (Version::One, unsure(false, 3), Blame::Returned),
        (TWO, unsure(true, 1), Blame::Suspect),
    ];
    for (version, place, blamed) in table {
        assert_eq!(
            blame(&DIED, version, 7, place),
            blamed,
            "{version:?} {place:?}"
        );
    }
}

#[test]
fn a_new_build_that_dies_on_trial_has_itself_to_blame() {
    let table = [
        (Blame::Charged, true, DIED, 0, Blame::Returned),
        (Blame::Suspect, true, DIED, 0, Blame::Returned),
        (Blame::Charged, true, DIED, 1, Blame::Charged),
        (
            Blame::Charged,
            true,
            Cause::TimedOut(Late::Only(7)),
            0,
            Blame::Charged,
        ),
        (Blame::Charged, false, DIED, 0, Blame::Charged),
        (Blame::Suspect, false, DIED, 0, Blame::Suspect),
    ];
    for (blame, on_trial, cause, crashes, expected) in table {
        let judged = blame.on_trial(on_trial, &cause, crashes);
        assert_eq!(judged, expected, "{blame:?} {on_trial} {cause:?} {crashes}");
    }
}
