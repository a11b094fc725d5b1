//! Tests the decisions by stories, and by properties of all of them.

mod calendars;
mod change;
mod clocks;
mod properties;

use super::*;
use crate::calendar::Outside;
use crate::definition::{CalendarDefinition, Definition};
use crate::zone::Zones;

fn at(text: &str) -> Timestamp {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const HOUR: Duration = seconds(3600);
const DAY: Duration = seconds(86_400);

fn cron(text: &str) -> Definition {
    Definition {
        name: "job".to_owned(),
        cron: vec![text.to_owned()],
        overlap: Overlap::Allow,
        ..Definition::default()
    }
}

fn every(seconds: u64) -> Definition {
    Definition {
        cron: vec![],
        every: Some(Duration::from_secs(seconds)),
        ..cron("")
    }
}

fn office(outside: Outside, text: &str) -> Definition {
    let only = CalendarDefinition {
        days: vec!["MON-FRI".to_owned()],
        hours: vec!["09:00-17:00".to_owned()],
        except: vec!["2026-06-04".to_owned()],
        outside,
        zone: None,
    };
    Definition {
        only: Some(only),
        ..cron(text)
    }
}

fn misfire(policy: Policy) -> Misfire {
    Misfire {
        policy,
        ..Misfire::default()
    }
}

fn checked(definition: &Definition) -> Spec {
    definition.spec(&Zones::bundled()).unwrap()
}

fn cursor(text: &str) -> Cursor {
    Cursor::new(at(text))
}

/// Returns the decisions in a line each: `run HH:MM` with what belongs to it, `skip FIRST-LAST xN reason`.
fn lines(due: &Due) -> Vec<String> {
    let short = |at: Timestamp| at.to_string()[11..].trim_end_matches('Z').to_owned();
    let line = |decision: &Decision| match decision {
        Decision::Dispatch(dispatch) => {
            let marks = [
                (dispatch.missed > 0).then(|| format!(" missed {}", dispatch.missed)),
                dispatch.is_made_up.then(|| " made up".to_owned()),
                dispatch.waits.then(|| " waits".to_owned()),
                dispatch.replaces.then(|| " replaces".to_owned()),
            ];
            let marks: String = marks.into_iter().flatten().collect();
            format!("run {}{marks}", short(dispatch.slot.at))
        }
        Decision::Skip(skip) => {
            let (first, last) = (short(skip.first), short(skip.last));
            format!("skip {first}-{last} x{} {:?}", skip.slots, skip.reason)
        }
    };
    due.decisions.iter().map(line).collect()
}

fn clock(wall: Timestamp) -> Clock {
    let ahead = jiff::SignedDuration::ZERO;
    Clock { wall, ahead }
}

fn due(spec: &Spec, cursor: Cursor, now: Timestamp, open: Open) -> Result<Due, Broken> {
    super::due(spec, cursor, clock(now), open, DECISIONS_MAX)
}

fn skip_all(spec: &Spec, cursor: Cursor, now: Timestamp, reason: Reason) -> Result<Due, Broken> {
    super::skip_all(spec, cursor, clock(now), reason)
}

fn change(old: &Spec, new: &Spec, cursor: Cursor, now: Timestamp) -> Result<Due, Broken> {
    super::change(Some(old), new, cursor, clock(now))
}

fn ask(spec: &Spec, cursor: Cursor, now: &str) -> Due {
    due(spec, cursor, at(now), Open::default()).unwrap()
}

fn decide(definition: &Definition, from: &str, now: &str) -> Due {
    ask(&checked(definition), cursor(from), now)
}

#[test]
fn a_slot_is_dispatched_when_it_is_due() {
    let job = cron("0 9 * * *");
    let early = decide(&job, "2026-06-01T00:00Z", "2026-06-01T08:59:59Z");
    assert_eq!(
        (lines(&early).len(), early.wake),
        (0, Wake::At(at("2026-06-01T09:00Z")))
    );
    let due = decide(&job, "2026-06-01T00:00Z", "2026-06-01T09:00Z");
    assert_eq!(lines(&due), ["run 09:00:00"]);
    assert_eq!(due.wake, Wake::At(at("2026-06-02T09:00Z")));
    assert_eq!(
        due.cursor,
        Cursor {
            runs: 1,
            ..cursor("2026-06-01T09:00Z")
        }
    );
}

#[test]
fn missed_slots_go_by_the_policy() {
    let (from, now) = ("2026-06-01T00:00Z", "2026-06-01T05:30Z");
    let few = Misfire {
        max: 2,
        ..misfire(Policy::All)
    };
    let none = Misfire {
        max: 0,
        ..misfire(Policy::All)
    };
    let recent = |policy| Misfire {
        catch_up: 2 * HOUR,
        ..misfire(policy)
    };
    let patient = |policy| Misfire {
        grace: 3 * HOUR,
        ..misfire(policy)
    };
    let table = [
        (
            misfire(Policy::Once),
            "skip 01:00:00-04:00:00 x4 Misfire; run 05:00:00 missed 4 made up",
        ),
        (misfire(Policy::Skip), "skip 01:00:00-05:00:00 x5 Misfire"),
        (
            misfire(Policy::All),
            "run 01:00:00 made up; run 02:00:00 made up; run 03:00:00 made up; run 04:00:00 made up; run 05:00:00 made up",
        ),
        (
            few,
            "skip 01:00:00-03:00:00 x3 Misfire; run 04:00:00 made up; run 05:00:00 made up",
        ),
        (none, "skip 01:00:00-05:00:00 x5 Misfire"),
        (
            recent(Policy::All),
            "skip 01:00:00-03:00:00 x3 Misfire; run 04:00:00 made up; run 05:00:00 made up",
        ),
        (
            Misfire {
                catch_up: seconds(600),
                ..misfire(Policy::Once)
            },
            "skip 01:00:00-05:00:00 x5 Misfire",
        ),
        (
            patient(Policy::Skip),
            "skip 01:00:00-02:00:00 x2 Misfire; run 03:00:00; run 04:00:00; run 05:00:00",
        ),
        // Those within the grace are as missed as the rest once something is.
        (
            patient(Policy::Once),
            "skip 01:00:00-04:00:00 x4 Misfire; run 05:00:00 missed 4",
        ),
    ];
    for (rules, expected) in table {
        let job = Definition {
            misfire: rules,
            ..cron("0 * * * *")
        };
        let due = decide(&job, from, now);
        assert_eq!(lines(&due).join("; "), expected, "{rules:?}");
        assert_eq!(due.wake, Wake::At(at("2026-06-01T06:00Z")));
        assert_eq!(due.cursor.at, at("2026-06-01T05:00Z"));
    }
}

#[test]
fn a_slot_that_is_taken_out_is_skipped() {
    let with_skips = |policy: Policy, skips: &[&str]| {
        let definition = Definition {
            misfire: Misfire {
                policy,
                ..Misfire::default()
            },
            ..every(60)
        };
        Spec {
            skips: skips.iter().map(|slot| at(slot)).collect(),
            overlap: crate::overlap::Overlap::Allow,
            ..checked(&definition)
        }
    };
    let lines_at = |spec: &Spec, now: &str| {
        let due = due(spec, cursor("2026-06-01T00:00Z"), at(now), Open::default()).unwrap();
        lines(&due)
    };
    let first = "2026-06-01T00:01Z";
    let one = with_skips(Policy::Once, &[first]);
    assert_eq!(
        lines_at(&one, first),
        ["skip 00:01:00-00:01:00 x1 Operator"]
    );
    let late = "2026-06-01T00:05Z";
    let newest = with_skips(Policy::Once, &[late, "2026-06-01T00:04Z"]);
    assert_eq!(
        lines_at(&newest, late),
        [
            "skip 00:01:00-00:02:00 x2 Misfire",
            "run 00:03:00 missed 2 made up",
            "skip 00:04:00-00:05:00 x2 Operator",
        ]
    );
    let all = with_skips(Policy::All, &["2026-06-01T00:02Z"]);
    let run = lines_at(&all, "2026-06-01T00:03Z");
    assert_eq!(run[1], "skip 00:02:00-00:02:00 x1 Operator");
    assert_eq!(run.len(), 3);
}

/// river #791, #1035
#[test]
fn two_weeks_down_are_one_run() {
    let due = decide(&every(5), "2026-06-01T00:00:02Z", "2026-06-15T00:00:02Z");
    assert_eq!(
        lines(&due),
        [
            "skip 00:00:05-23:59:55 x241919 Misfire",
            "run 00:00:00 missed 241919"
        ]
    );
    // A year as well, and by the clock, if in several calls.
    let due = decide(&every(5), "2026-06-01T00:00:02Z", "2027-06-01T00:00:02Z");
    assert_eq!(lines(&due)[1], "run 00:00:00 missed 6307199");
    let several = checked(&Definition {
        cron: vec!["*/5 * * * * *".to_owned(), "0 * * * * *".to_owned()],
        ..cron("")
    });
    let (mut cursor, mut calls) = (cursor("2026-06-01T00:00:02Z"), 0);
    let dispatch = loop {
        let due = self::due(
            &several,
            cursor,
            at("2026-06-03T00:00:02Z"),
            Open::default(),
        )
        .unwrap();
        (cursor, calls) = (due.cursor, calls + 1);
        if due.wake != Wake::Again {
            break lines(&due).pop().unwrap();
        }
    };
    assert_eq!(dispatch, "run 00:00:00 missed 34559");
    assert_eq!((calls, cursor.missed), (4, 0));
}

/// kubernetes #42649
#[test]
fn a_night_off_is_a_range_and_goes_on_at_once() {
    let due = decide(
        &cron("* * * * *"),
        "2026-06-01T22:00:30Z",
        "2026-06-02T06:00:30Z",
    );
    assert_eq!(
        lines(&due),
        [
            "skip 22:01:00-05:59:00 x479 Misfire",
            "run 06:00:00 missed 479"
        ]
    );
    assert_eq!(due.wake, Wake::At(at("2026-06-02T06:01Z")));
}

/// river #791: a timer that each start begins anew never fires.
#[test]
fn a_weekly_period_fires_under_daily_deploys() {
    let spec = checked(&every(7 * 86_400));
    let (mut cursor, mut runs) = (cursor("2026-06-01T12:00Z"), Vec::new());
    for deploy in 0..60 {
        let now = at("2026-06-01T12:00Z") + deploy * DAY;
        let due = due(&spec, cursor, now, Open::default()).unwrap();
        runs.extend(lines(&due));
        cursor = due.cursor;
    }
    assert_eq!(runs.len(), 9);
}

#[test]
fn open_occurrences_stand_in_the_way_as_the_rule_says() {
    let open = |occurrences, waiting| Open {
        occurrences,
        waiting,
    };
    let queue = Overlap::Queue { max: 2 };
    let table: [(Overlap, Open, &[&str]); 8] = [
        (
            Overlap::Allow,
            open(5, 0),
            &["run 00:00:05", "run 00:00:10", "run 00:00:15"],
        ),
        (
            Overlap::Skip,
            open(0, 0),
            &["run 00:00:05", "skip 00:00:10-00:00:15 x2 Overlap"],
        ),
        (
            Overlap::Skip,
            open(1, 0),
            &["skip 00:00:05-00:00:15 x3 Overlap"],
        ),
        (
            queue,
            open(0, 0),
            &["run 00:00:05", "run 00:00:10 waits", "run 00:00:15 waits"],
        ),
        (
            queue,
            open(1, 0),
            &[
                "run 00:00:05 waits",
                "run 00:00:10 waits",
                "skip 00:00:15-00:00:15 x1 Overlap",
            ],
        ),
        (queue, open(3, 2), &["skip 00:00:05-00:00:15 x3 Overlap"]),
        (
            Overlap::Replace,
            open(0, 0),
            &["skip 00:00:05-00:00:10 x2 Overlap", "run 00:00:15"],
        ),
        (
            Overlap::Replace,
            open(1, 0),
            &["skip 00:00:05-00:00:10 x2 Overlap", "run 00:00:15 replaces"],
        ),
    ];
    for (overlap, open, expected) in table {
        let job = checked(&Definition {
            overlap,
            ..every(5)
        });
        let due = due(
            &job,
            cursor("2026-06-01T00:00:02Z"),
            at("2026-06-01T00:00:16Z"),
            open,
        )
        .unwrap();
        assert_eq!(lines(&due), expected, "{overlap:?} {open:?}");
    }
}

#[test]
fn missed_slots_wait_for_the_run_that_stands_for_them() {
    let job = checked(&Definition {
        overlap: Overlap::Skip,
        ..cron("0 * * * *")
    });
    let busy = Open {
        occurrences: 1,
        waiting: 0,
    };
    let first = due(
        &job,
        cursor("2026-06-01T00:00Z"),
        at("2026-06-01T03:10Z"),
        busy,
    )
    .unwrap();
    assert_eq!(
        lines(&first),
        [
            "skip 01:00:00-02:00:00 x2 Misfire",
            "skip 03:00:00-03:00:00 x1 Overlap"
        ]
    );
    let second = due(&job, first.cursor, at("2026-06-01T04:00Z"), Open::default()).unwrap();
    assert_eq!(lines(&second), ["run 04:00:00 missed 2"]);
    assert_eq!(second.cursor.missed, 0);
}

#[test]
fn a_schedule_begins_and_ends() {
    let text = |text: &str| Some(text.to_owned());
    let bounded = Definition {
        start: text("2026-06-02T09:00Z"),
        end: text("2026-06-04T09:00Z"),
        misfire: misfire(Policy::All),
        ..cron("0 9 * * *")
    };
    let wait = decide(&bounded, "2026-06-01T00:00Z", "2026-06-01T10:00Z");
    assert_eq!(
        (lines(&wait).len(), wait.wake),
        (0, Wake::At(at("2026-06-02T09:00Z")))
    );
    let all = Definition {
        misfire: Misfire {
            catch_up: 30 * DAY,
            ..bounded.misfire
        },
        ..bounded.clone()
    };
    let due = decide(&all, "2026-06-01T00:00Z", "2026-06-10T10:00Z");
    assert_eq!(lines(&due).len(), 3);
    assert_eq!(due.wake, Wake::Ended);
    let limited = Definition {
        limit: Some(2),
        ..all
    };
    let due = decide(&limited, "2026-06-01T00:00Z", "2026-06-10T10:00Z");
    assert_eq!(
        (lines(&due).len(), due.wake, due.cursor.runs),
        (2, Wake::Ended, 2)
    );
    let once = Definition {
        cron: vec![],
        at: text("2026-06-02T09:00Z"),
        ..cron("")
    };
    let due = decide(&once, "2026-06-01T00:00Z", "2026-06-02T09:00Z");
    assert_eq!(
        (lines(&due), due.wake),
        (vec!["run 09:00:00".to_owned()], Wake::Ended)
    );
    // A restart is no new beginning.
    let again = self::due(
        &checked(&once),
        due.cursor,
        at("2026-06-09T09:00Z"),
        Open::default(),
    )
    .unwrap();
    assert_eq!((lines(&again).len(), again.wake), (0, Wake::Ended));
}

#[test]
fn jitter_keeps_the_order_and_is_the_same_everywhere() {
    let job = checked(&Definition {
        jitter: seconds(300),
        ..cron("*/2 * * * *")
    });
    let mut slot = job.next(at("2026-06-01T00:00Z")).unwrap().unwrap();
    let mut late = Vec::new();
    for _ in 0..200 {
        let next = job.next(slot.at).unwrap().unwrap();
        assert!(slot.at <= slot.due && slot.due < next.at, "{slot:?}");
        assert_eq!(
            job.newest(slot.due, at("2026-01-01T00:00Z")).unwrap(),
            Some(slot)
        );
        late.push((slot.due - slot.at).total(jiff::Unit::Second).unwrap());
        slot = next;
    }
    let mean = late.iter().sum::<f64>() / 200.0;
    assert!((50.0..70.0).contains(&mean), "{mean}");
    let other = Spec {
        name: "other".to_owned(),
        ..job.clone()
    };
    let due = |spec: &Spec| spec.next(at("2026-06-01T00:00Z")).unwrap().unwrap().due;
    assert_ne!(due(&job), due(&other));
    // Never to change: slots would move.
    assert_eq!(due(&job).to_string(), "2026-06-01T00:03:24.074Z");
}

/// A schedule by the second with a long grace, whose run has been open for three days.
#[test]
fn a_call_is_bounded_also_where_skips_are_one_range() {
    let job = checked(&Definition {
        misfire: Misfire {
            grace: 7 * DAY,
            ..Misfire::default()
        },
        overlap: Overlap::Skip,
        ..cron("* * * * * *")
    });
    let open = Open {
        occurrences: 1,
        waiting: 0,
    };
    let now = at("2026-06-04T00:00Z");
    let due = due(&job, cursor("2026-06-01T00:00Z"), now, open).unwrap();
    assert_eq!(due.wake, Wake::Again);
    assert_eq!(lines(&due), ["skip 00:00:01-02:46:40 x10000 Overlap"]);
}

/// Two slots are due, and runs may overlap: a trial is one of them.
#[test]
fn a_call_decides_no_more_than_it_may() {
    let job = checked(&every(5));
    let now = clock(at("2026-06-01T00:00:11Z"));
    let begin = cursor("2026-06-01T00:00:02Z");
    let trial = super::due(&job, begin, now, Open::default(), 1).unwrap();
    assert_eq!(lines(&trial), ["run 00:00:05"]);
    assert_eq!(trial.wake, Wake::Again);
    let rest = super::due(&job, trial.cursor, now, Open::default(), 2).unwrap();
    assert_eq!(lines(&rest), ["run 00:00:10"]);
    // What it stands for is kept from call to call.
    let minutely = checked(&cron("* * * * *"));
    let late = cursor("2026-06-01T00:00Z");
    let later = clock(at("2026-06-01T09:00Z"));
    let skips = super::due(&minutely, late, later, Open::default(), 1).unwrap();
    assert_eq!(lines(&skips), ["skip 00:01:00-08:59:00 x539 Misfire"]);
    assert_eq!((skips.wake, skips.cursor.missed), (Wake::Again, 539));
    let run = super::due(&minutely, skips.cursor, later, Open::default(), 1).unwrap();
    assert_eq!(lines(&run), ["run 09:00:00 missed 539"]);
}
