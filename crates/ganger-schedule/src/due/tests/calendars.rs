//! Slots outside calendars.

use super::*;

#[test]
fn slots_outside_a_calendar_are_skipped_or_moved() {
    // A Friday evening to Monday.
    let skip = office(Outside::Skip, "0 */6 * * *");
    let due = decide(&skip, "2026-06-05T12:00Z", "2026-06-08T12:00Z");
    assert_eq!(
        lines(&due),
        ["skip 18:00:00-06:00:00 x11 Calendar", "run 12:00:00"]
    );
    let weekend = decide(&skip, "2026-06-05T12:00Z", "2026-06-07T12:00Z");
    assert_eq!(
        (lines(&weekend).len(), weekend.wake),
        (0, Wake::At(at("2026-06-08T12:00Z")))
    );
    let next = office(Outside::Next, "0 */6 * * *");
    let weekend = decide(&next, "2026-06-05T12:00Z", "2026-06-07T12:00Z");
    assert_eq!(
        (lines(&weekend).len(), weekend.wake),
        (0, Wake::At(at("2026-06-08T09:00Z")))
    );
    let due = decide(&next, "2026-06-05T12:00Z", "2026-06-08T09:00Z");
    assert_eq!(
        lines(&due),
        ["skip 18:00:00-00:00:00 x10 Calendar", "run 06:00:00"]
    );
    // One that is on time at the opening stands for those that would be moved there.
    let due = decide(
        &office(Outside::Next, "0 */3 * * *"),
        "2026-06-05T15:30Z",
        "2026-06-08T09:00Z",
    );
    assert_eq!(
        lines(&due),
        ["skip 18:00:00-06:00:00 x21 Calendar", "run 09:00:00"]
    );
    // What the calendar would not have let run was not missed.
    let due = decide(
        &office(Outside::Skip, "* * * * *"),
        "2026-06-03T16:57:30Z",
        "2026-06-05T09:10Z",
    );
    assert_eq!(
        lines(&due),
        [
            "skip 16:58:00-16:59:00 x2 Misfire",
            "skip 17:00:00-08:59:00 x2400 Calendar",
            "skip 09:00:00-09:09:00 x10 Misfire",
            "run 09:10:00 missed 12"
        ]
    );
}

/// Two years without a daemon: the calendar opens every hour, each time for one slot.
#[test]
fn a_call_is_bounded_also_by_openings() {
    let mut job = office(Outside::Skip, "0 * * * *");
    let hours = (0..24).map(|hour| format!("{hour:02}:00-{hour:02}:30"));
    let only = job.only.as_mut().unwrap();
    (only.days, only.hours) = (vec![], hours.collect());
    let due = decide(&job, "2024-06-01T00:30Z", "2026-06-01T00:30Z");
    assert_eq!(lines(&due), ["skip 01:00:00-16:00:00 x10000 Misfire"]);
    assert_eq!((due.wake, due.cursor.missed), (Wake::Again, 10_000));
}

/// Three weeks without a daemon: the Saturdays that Mondays stand for were missed.
#[test]
fn a_slot_that_was_moved_can_be_missed() {
    let job = |policy| {
        let mut job = office(Outside::Next, "0 12 * * SAT");
        job.only.as_mut().unwrap().hours.clear();
        Definition {
            misfire: misfire(policy),
            ..job
        }
    };
    let (from, now) = ("2026-06-08T10:00Z", "2026-06-29T10:00Z");
    let due = decide(&job(Policy::Once), from, now);
    assert_eq!(
        lines(&due),
        [
            "skip 12:00:00-12:00:00 x2 Misfire",
            "run 12:00:00 missed 2 made up"
        ]
    );
    let due = decide(&job(Policy::Skip), from, now);
    assert_eq!(lines(&due), ["skip 12:00:00-12:00:00 x3 Misfire"]);
    // Of a closed span only the one that would have run was missed.
    let hourly = office(Outside::Next, "30 */6 * * *");
    let due = decide(&hourly, "2026-06-05T12:30Z", "2026-06-08T12:30Z");
    assert_eq!(
        lines(&due),
        [
            "skip 18:30:00-00:30:00 x10 Calendar",
            "skip 06:30:00-06:30:00 x1 Misfire",
            "run 12:30:00 missed 1"
        ]
    );
}

/// Jitter parts the slot at an opening from the opening.
#[test]
fn an_opening_has_one_run_however_late_it_is() {
    let job = Definition {
        jitter: seconds(600),
        ..office(Outside::Next, "0 */3 * * *")
    };
    let from = "2026-06-12T09:00Z";
    let early = decide(&job, from, "2026-06-15T09:03Z");
    assert_eq!(lines(&early), ["skip 12:00:00-15:00:00 x2 Misfire"]);
    assert_eq!(early.wake, Wake::At(at("2026-06-15T09:05:11.547Z")));
    let due = ask(&checked(&job), early.cursor, "2026-06-15T09:06Z");
    assert_eq!(
        lines(&due),
        ["skip 18:00:00-06:00:00 x21 Calendar", "run 09:00:00"]
    );
    // Also where each run replaces the one before it.
    let all = Misfire {
        catch_up: 7 * DAY,
        ..misfire(Policy::All)
    };
    let replace = Spec {
        misfire: all,
        overlap: Overlap::Replace,
        ..checked(&job)
    };
    assert_eq!(
        lines(&ask(&replace, cursor(from), "2026-06-15T09:03Z")),
        ["skip 12:00:00-12:00:00 x1 Overlap", "run 15:00:00 made up"]
    );
}

/// An end on a Sunday: its slot runs when the calendar opens, on time or late.
#[test]
fn the_last_slot_before_an_end_may_be_moved_after_it() {
    let job = |text| {
        let mut job = office(Outside::Next, text);
        job.only.as_mut().unwrap().hours.clear();
        Definition {
            end: Some("2026-06-07".to_owned()),
            ..job
        }
    };
    for text in ["0 0 * * *", "0 1 * * *"] {
        let spec = checked(&job(text));
        let from = cursor("2026-06-05T02:00Z");
        let early = ask(&spec, from, "2026-06-06T02:00Z");
        assert_eq!(early.wake, Wake::At(at("2026-06-08T00:00Z")), "{text}");
        for now in ["2026-06-08T00:00Z", "2026-06-08T00:30Z"] {
            let due = ask(&spec, from, now);
            assert!(lines(&due)[0].ends_with("x1 Calendar"), "{text} {due:?}");
            assert!(lines(&due)[1].starts_with("run 0"), "{text} {due:?}");
            assert_eq!(due.wake, Wake::Ended);
        }
    }
}
