//! Changes, pauses and resumptions.

use super::*;

/// bullmq #3063, and an edit that must not fire at once.
#[test]
fn a_change_never_fires_a_slot_of_the_past() {
    let (old, new) = (checked(&cron("0 11 * * *")), checked(&cron("0 9 * * *")));
    let due = change(
        &old,
        &new,
        cursor("2026-06-01T00:00Z"),
        at("2026-06-01T10:00Z"),
    )
    .unwrap();
    assert_eq!(
        (lines(&due).len(), due.wake),
        (0, Wake::At(at("2026-06-02T09:00Z")))
    );
    let none = super::due(&new, due.cursor, at("2026-06-01T10:00Z"), Open::default()).unwrap();
    assert_eq!(lines(&none).len(), 0);
    // Slots of the old version that nothing had decided are accounted for.
    let minutely = checked(&cron("* * * * *"));
    let late = change(
        &minutely,
        &new,
        cursor("2026-06-01T09:57:30Z"),
        at("2026-06-01T10:00Z"),
    )
    .unwrap();
    assert_eq!(lines(&late), ["skip 09:58:00-10:00:00 x3 Changed"]);
    assert_eq!(late.cursor.at, at("2026-06-01T10:00Z"));
    // A change of something else keeps the slots, also one that waits for its jitter.
    let overlap = Spec {
        overlap: Overlap::Skip,
        ..minutely.clone()
    };
    let same = change(
        &minutely,
        &overlap,
        cursor("2026-06-01T09:57:30Z"),
        at("2026-06-01T10:00Z"),
    )
    .unwrap();
    assert_eq!(
        (lines(&same).len(), same.cursor),
        (0, cursor("2026-06-01T09:57:30Z"))
    );
    // Removed and added within a slot.
    let added = Cursor::new(at("2026-06-01T10:00:20Z"));
    let next = super::due(
        &minutely,
        added,
        at("2026-06-01T10:00:59Z"),
        Open::default(),
    )
    .unwrap();
    assert_eq!(
        (lines(&next).len(), next.wake),
        (0, Wake::At(at("2026-06-01T10:01Z")))
    );
}

#[test]
fn a_pause_is_made_up_for_only_if_asked() {
    let job = checked(&cron("0 * * * *"));
    let (paused, resumed) = (cursor("2026-06-01T00:30Z"), at("2026-06-01T04:30Z"));
    let skipped = skip_all(&job, paused, resumed, Reason::Paused).unwrap();
    assert_eq!(lines(&skipped), ["skip 01:00:00-04:00:00 x4 Paused"]);
    assert_eq!(skipped.wake, Wake::At(at("2026-06-01T05:00Z")));
    let after = due(&job, skipped.cursor, resumed, Open::default()).unwrap();
    assert_eq!(lines(&after).len(), 0);
    let made_up = due(&job, paused, resumed, Open::default()).unwrap();
    assert_eq!(
        lines(&made_up),
        [
            "skip 01:00:00-03:00:00 x3 Misfire",
            "run 04:00:00 missed 3 made up"
        ]
    );
}

/// The limit was reached on 2 June.
#[test]
fn a_schedule_that_has_ended_makes_nothing_up_when_it_goes_on() {
    let limited = |limit| {
        checked(&Definition {
            limit: Some(limit),
            ..cron("0 9 * * *")
        })
    };
    let ended = Cursor {
        runs: 2,
        ..cursor("2026-06-02T09:00Z")
    };
    let now = "2026-06-10T10:00Z";
    let raised = change(&limited(2), &limited(5), ended, at(now)).unwrap();
    assert_eq!((lines(&raised).len(), raised.cursor.at), (0, at(now)));
    let later = ask(&limited(5), raised.cursor, "2026-06-10T10:00:01Z");
    assert_eq!(lines(&later).len(), 0);
    assert_eq!(later.wake, Wake::At(at("2026-06-11T09:00Z")));
    // It had no slots that could be skipped.
    let other = checked(&cron("0 8 * * *"));
    let edited = change(&limited(2), &other, ended, at(now)).unwrap();
    assert_eq!((lines(&edited).len(), edited.cursor.at), (0, at(now)));
    let resumed = skip_all(&limited(2), ended, at(now), Reason::Paused).unwrap();
    assert_eq!((lines(&resumed).len(), resumed.wake), (0, Wake::Ended));
}

#[test]
fn a_version_that_is_broken_has_no_slots_to_skip() {
    let new = checked(&cron("0 9 * * *"));
    let now = clock(at("2026-06-10T10:00Z"));
    let due = super::super::change(None, &new, cursor("2026-06-02T09:00Z"), now).unwrap();
    assert_eq!((lines(&due).len(), due.cursor.at), (0, now.wall));
    assert_eq!(due.wake, Wake::At(at("2026-06-11T09:00Z")));
}
