//! Clocks that were wrong.

use super::*;

#[test]
fn a_clock_that_was_set_back_repeats_nothing() {
    let due = decide(&cron("0 * * * *"), "2026-06-01T12:00Z", "2026-06-01T10:30Z");
    assert_eq!(
        (lines(&due).len(), due.wake),
        (0, Wake::At(at("2026-06-01T13:00Z")))
    );
    assert_eq!(due.cursor, cursor("2026-06-01T12:00Z"));
}

/// A host was started with a wrong clock, which was put right while no daemon ran.
#[test]
fn a_cursor_of_a_wrong_clock_starts_anew() {
    let job = checked(&cron("0 * * * *"));
    let (wrong, now) = (cursor("2036-01-01T00:00Z"), "2026-06-01T10:30Z");
    let due = ask(&job, wrong, now);
    assert_eq!(due.wake, Wake::At(at("2026-06-01T11:00Z")));
    assert_eq!((due.cursor.at, due.is_corrected), (at(now), true));
    let skipped = skip_all(&job, wrong, at(now), Reason::Paused).unwrap();
    assert_eq!(skipped.wake, Wake::At(at("2026-06-01T11:00Z")));
    let changed = change(&job, &checked(&cron("30 * * * *")), wrong, at(now)).unwrap();
    assert_eq!(changed.wake, Wake::At(at("2026-06-01T11:30Z")));
    // A clock may be set back by as much.
    let due = ask(&job, cursor("2026-06-01T13:30Z"), now);
    assert_eq!(due.wake, Wake::At(at("2026-06-01T14:00Z")));
    assert!(!due.is_corrected);
}

/// The clock was set back by an hour: intervals are ahead of it by that.
#[test]
fn the_clocks_of_both_versions_count_in_a_change() {
    let set_back = Clock {
        ahead: jiff::SignedDuration::from_hours(1),
        ..clock(at("2026-06-01T10:00Z"))
    };
    let interval = checked(&every(600));
    let minutely = checked(&cron("* * * * *"));
    let due = super::super::due(
        &interval,
        cursor("2026-06-01T10:50Z"),
        set_back,
        Open::default(),
        10,
    );
    let due = due.unwrap();
    assert_eq!(lines(&due), ["run 11:00:00"]);
    assert_eq!(due.wake, Wake::At(at("2026-06-01T10:10Z")));
    let change = |old, new, cursor| super::super::change(Some(old), new, cursor, set_back).unwrap();
    let to_cron = change(&interval, &minutely, due.cursor);
    assert_eq!(to_cron.cursor.at, at("2026-06-01T10:00Z"));
    assert_eq!(to_cron.wake, Wake::At(at("2026-06-01T10:01Z")));
    let to_interval = change(&minutely, &interval, cursor("2026-06-01T10:00Z"));
    assert_eq!(to_interval.cursor.at, at("2026-06-01T11:00Z"));
    assert_eq!(to_interval.wake, Wake::At(at("2026-06-01T10:10Z")));
}
