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
        (told(&due).len(), due.wake),
        (0, Wake::At(at("2026-06-02T09:00Z")))
    );
    let none = super::due(&new, due.cursor, at("2026-06-01T10:00Z"), Open::default()).unwrap();
    assert_eq!(told(&none).len(), 0);
    // Slots of the old version that nothing had decided are accounted for.
    let minutely = checked(&cron("* * * * *"));
    let late = change(
        &minutely,
        &new,
        cursor("2026-06-01T09:57:30Z"),
        at("2026-06-01T10:00Z"),
    )
    .unwrap();
    assert_eq!(told(&late), ["skip 09:58:00-10:00:00 x3 Changed"]);
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
        (told(&same).len(), same.cursor),
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
        (told(&next).len(), next.wake),
        (0, Wake::At(at("2026-06-01T10:01Z")))
    );
}

#[test]
fn a_pause_is_made_up_for_only_if_asked() {
    let job = checked(&cron("0 * * * *"));
    let (paused, resumed) = (cursor("2026-06-01T00:30Z"), at("2026-06-01T04:30Z"));
    let skipped = skip_all(&job, paused, resumed, Reason::Paused).unwrap();
    assert_eq!(told(&skipped), ["skip 01:00:00-04:00:00 x4 Paused"]);
    assert_eq!(skipped.wake, Wake::At(at("2026-06-01T05:00Z")));
    let after = due(&job, skipped.cursor, resumed, Open::default()).unwrap();
    assert_eq!(told(&after).len(), 0);
    let made_up = due(&job, paused, resumed, Open::default()).unwrap();
    assert_eq!(
        told(&made_up),
        [
            "skip 01:00:00-03:00:00 x3 Misfire",
            "run 04:00:00 missed 3 made up"
        ]
    );
}
