//! Tests definitions: what is refused, with which words, and what is taken.

use jiff::Timestamp;

use super::*;

fn spec(definition: &Definition) -> Result<Spec, Vec<String>> {
    let spec = definition.spec(&Zones::bundled());
    spec.map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

fn cron(text: &str) -> Definition {
    Definition {
        name: "invoices".to_owned(),
        cron: vec![text.to_owned()],
        ..Definition::default()
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn all_problems_are_reported_at_once_with_their_keys() {
    let definition = Definition {
        name: String::new(),
        cron: vec![
            "0 24 * * *".to_owned(),
            "0 9 * * *".to_owned(),
            "0 0 31 2 *".to_owned(),
        ],
        zone: text("Europe/Berlim"),
        jitter: Duration::from_secs(8 * 86_400),
        start: text("soon"),
        end: text("2026-02-30"),
        limit: Some(0),
        only: Some(CalendarDefinition {
            zone: text("Mars/Base"),
            days: vec!["MON-FRI".to_owned(), "DAY".to_owned()],
            hours: vec!["9-5".to_owned()],
            except: vec![
                "Christmas".to_owned(),
                "2026-12-26..2026-12-24".to_owned(),
                "2026-12-24T12:00".to_owned(),
            ],
            ..CalendarDefinition::default()
        }),
        misfire: Misfire {
            max: 1001,
            ..Misfire::default()
        },
        ..Definition::default()
    };
    let day = "write `2026-12-24` or `2026-12-24..2026-12-26`";
    let time = "write `2027-01-31T08:00:00`, with `Z`, `+01:00` or `[Europe/Berlin]` at its end";
    assert_eq!(
        spec(&definition).unwrap_err(),
        [
            "zone: time zone `Europe/Berlim` is unknown (bundled): did you mean `Europe/Berlin`?",
            "cron[0]: hour `24` is out of range (byte 2): write 0 to 23",
            "cron[2]: there is no such day in any year, so it never fires (byte 4): choose a day that one of the months has",
            &format!("start: invalid time `soon`: {time}"),
            &format!("end: invalid time `2026-02-30`: {time}"),
            "only.zone: time zone `Mars/Base` is unknown (bundled): write a name such as `Europe/Berlin` or `UTC`",
            "only.days[1]: invalid day of the week `DAY`: write SUN to SAT, or a range such as MON-FRI",
            "only.hours[0]: invalid hours `9-5`: write `09:00-17:30`",
            &format!("only.except[0]: invalid day `Christmas`: {day}"),
            "only.except[1]: 2026-12-24 is before 2026-12-26: write the first day, then the last",
            &format!("only.except[2]: invalid day `2026-12-24T12:00`: {day}"),
            "name: invalid name ``: write 1 to 64 letters, digits, `_`, `.` and `-`, but not `.` or `..`",
            "limit: 0 is out of range: write at least 1",
            "misfire.max: 1001 is out of range: write 0 to 1000",
            "jitter: 691200s is too long: write at most `7d`",
        ]
    );
}

#[test]
fn a_schedule_has_one_kind_of_time() {
    let minute = Some(Duration::from_secs(60));
    for (definition, expected) in [
        (
            Definition {
                cron: vec![],
                ..cron("")
            },
            "schedule has no time: write one of `cron`, `every` and `at`",
        ),
        (
            Definition {
                every: minute,
                ..cron("@daily")
            },
            "schedule has cron and every: write one of `cron`, `every` and `at`",
        ),
        (
            Definition {
                offset: minute,
                ..cron("@daily")
            },
            "offset: `cron` has no offset: remove it",
        ),
        (
            Definition {
                cron: vec![],
                every: Some(Duration::from_millis(1)),
                ..cron("")
            },
            "every: invalid period `1ms`: write whole seconds, from `1s` to 100 years",
        ),
    ] {
        assert_eq!(spec(&definition).unwrap_err(), [expected]);
    }
}

#[test]
fn an_instant_is_read_by_offset_zone_or_schedule() {
    for (at, expected) in [
        (
            "2027-01-31T08:00:00[Europe/Istanbul]",
            "2027-01-31T05:00:00Z",
        ),
        (
            "2027-01-31T08:00:00+03:00[Europe/Istanbul]",
            "2027-01-31T05:00:00Z",
        ),
        ("2027-01-31T08:00:00Z", "2027-01-31T08:00:00Z"),
        ("2027-01-31T08:00+01:00", "2027-01-31T07:00:00Z"),
        ("2027-01-31 08:00", "2027-01-31T13:00:00Z"),
        // In the gap, and twice.
        ("2026-03-08T02:30", "2026-03-08T07:00:00Z"),
        ("2026-11-01T01:30", "2026-11-01T05:30:00Z"),
        ("2026-11-01T01:30-05:00", "2026-11-01T06:30:00Z"),
        ("2027-01-31", "2027-01-31T05:00:00Z"),
    ] {
        let definition = Definition {
            cron: vec![],
            at: text(at),
            zone: text("America/New_York"),
            ..cron("")
        };
        let rules = spec(&definition).unwrap().timing.rules;
        assert_eq!(rules, [Rule::At(expected.parse().unwrap())], "{at}");
    }
    for (at, expected) in [
        (
            "2027-01-31T08:00:00+01:00[Europe/Istanbul]",
            "has an offset that its zone has not then: leave out the offset",
        ),
        (
            "2027-01-31T08:00:00.5Z",
            "has a part of a second: write whole seconds",
        ),
        ("2027-01-31T08:00:00[Mars/Base]", "is unknown (bundled)"),
        ("08:00", "invalid time"),
        ("2027-02-29T08:00", "invalid time"),
    ] {
        let definition = Definition {
            cron: vec![],
            at: text(at),
            ..cron("")
        };
        let problems = spec(&definition).unwrap_err();
        assert!(
            problems[0].starts_with("at: ") && problems[0].contains(expected),
            "{problems:?}"
        );
    }
}

#[test]
fn a_day_as_an_end_belongs_to_the_schedule() {
    let definition = Definition {
        start: text("2026-12-01"),
        end: text("2026-12-31"),
        zone: text("Europe/Berlin"),
        ..cron("0 9 * * *")
    };
    let spec = spec(&definition).unwrap();
    assert_eq!(spec.start, Some("2026-11-30T23:00:00Z".parse().unwrap()));
    assert_eq!(spec.end, Some("2026-12-31T22:59:59Z".parse().unwrap()));
    let backwards = Definition {
        end: text("2026-11-30T12:00"),
        ..definition
    };
    assert_eq!(
        self::spec(&backwards).unwrap_err(),
        ["end: 2026-11-30T11:00:00Z is before start, 2026-11-30T23:00:00Z: write a later end"]
    );
}

#[test]
fn a_policy_that_would_skip_what_it_makes_up_is_refused() {
    let refused = |policy, overlap| {
        let misfire = Misfire {
            policy,
            ..Misfire::default()
        };
        let definition = Definition {
            misfire,
            overlap,
            ..cron("@daily")
        };
        spec(&definition).err()
    };
    let queue = Overlap::Queue { max: 5 };
    for (policy, overlap) in [
        (Policy::All, Overlap::Allow),
        (Policy::All, queue),
        (Policy::Once, Overlap::Skip),
        (Policy::Skip, Overlap::Replace),
    ] {
        assert_eq!(refused(policy, overlap), None, "{policy:?} {overlap:?}");
    }
    for overlap in [Overlap::Skip, Overlap::Replace] {
        let expected = format!(
            "misfire.policy: policy `all` with overlap `{}` runs one slot of several: set overlap to `queue` or `allow`, or the policy to `once`",
            overlap.as_str()
        );
        assert_eq!(refused(Policy::All, overlap), Some(vec![expected]));
    }
}

#[test]
fn names_numbers_and_durations_have_bounds() {
    let zero = Some(Duration::ZERO);
    let definition = Definition {
        name: "a/b".to_owned(),
        overlap: Overlap::Queue { max: 0 },
        misfire: Misfire {
            grace: Duration::from_secs(8 * 86_400),
            ..Misfire::default()
        },
        auto_disable: Some(auto_disable::Rules {
            failures: 0,
            window: Duration::ZERO,
            retry_after: zero,
        }),
        expect: Expect {
            within: zero,
            finish: zero,
            every: zero,
        },
        ..cron("@daily")
    };
    let keys: Vec<String> = definition
        .spec(&Zones::bundled())
        .unwrap_err()
        .into_iter()
        .map(|problem| problem.key)
        .collect();
    assert_eq!(
        keys.join(" "),
        "name overlap.max auto_disable.failures misfire.grace auto_disable.window auto_disable.retry_after expect.within expect.finish expect.every"
    );
}

/// Santiago, where the last hour of 4 April comes twice.
#[test]
fn a_day_as_an_end_has_all_its_hours() {
    let definition = Definition {
        end: text("2026-04-04"),
        zone: text("America/Santiago"),
        ..cron("0 * * * *")
    };
    let spec = spec(&definition).unwrap();
    assert_eq!(spec.end, Some("2026-04-05T03:59:59Z".parse().unwrap()));
}

#[test]
fn what_never_runs_is_found_when_it_is_saved() {
    let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let closed = CalendarDefinition {
        days: vec!["SUN".to_owned()],
        ..CalendarDefinition::default()
    };
    for (definition, never_runs) in [
        (cron("0 9 * * *"), false),
        (
            Definition {
                end: text("2026-05-31"),
                ..cron("0 9 * * *")
            },
            true,
        ),
        (
            Definition {
                end: text("2026-06-01"),
                ..cron("0 9 2 * *")
            },
            true,
        ),
        (
            Definition {
                cron: vec![],
                at: text("2026-05-31"),
                ..cron("")
            },
            true,
        ),
        (cron("0 0 0 1 1 * 2025"), true),
        // An interval that is always in the gap.
        (
            Definition {
                zone: text("America/New_York"),
                ..cron("*/30 2 * 3 SUN#2")
            },
            true,
        ),
        (
            Definition {
                only: Some(closed.clone()),
                ..cron("0 9 * * MON")
            },
            true,
        ),
        (
            Definition {
                only: Some(CalendarDefinition {
                    outside: Outside::Next,
                    ..closed
                }),
                ..cron("0 9 * * MON")
            },
            false,
        ),
    ] {
        let problem = spec(&definition).unwrap().never_runs(now);
        assert_eq!(problem.is_some(), never_runs, "{definition:?}");
    }
}
