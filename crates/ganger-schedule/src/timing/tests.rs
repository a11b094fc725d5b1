//! Tests timing by the table of cases, and by hand for periods.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::wall::{Fold, Gap};
use crate::zone::Zones;

fn at(text: &str) -> Timestamp {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn timing(texts: &[&str], zone: &str) -> Timing {
    let parse = |text: &&str| Rule::parse(text, Dialect::Standard, "name").unwrap();
    Timing {
        rules: texts.iter().map(parse).collect(),
        zone: Zones::load().get(zone).unwrap(),
        dst: Dst::Standard,
    }
}

#[test]
fn slots_are_those_of_the_table() {
    let mut cases = 0;
    for line in include_str!("cases.txt").lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [zone, cron, after, until, expected] = fields[..] else {
            panic!("{line}");
        };
        let timing = timing(&[cron], zone);
        let slots = timing.between(at(after), at(until), 10_000).unwrap();
        match expected.strip_prefix("= ") {
            Some(number) => assert_eq!(slots.len().to_string(), number, "{line}"),
            None => {
                let expected: Vec<Timestamp> = expected.split_whitespace().map(at).collect();
                assert_eq!(slots, expected, "{line}");
            }
        }
        // Backwards the same.
        let mut before = at(until) + SignedDuration::from_secs(1);
        for slot in slots.iter().rev() {
            assert_eq!(timing.previous(before).unwrap(), Some(*slot), "{line}");
            before = *slot;
        }
        assert!(
            timing
                .previous(before)
                .unwrap()
                .is_none_or(|slot| slot <= at(after)),
            "{line}"
        );
        cases += 1;
    }
    assert!(cases >= 35, "{cases}");
}

#[test]
fn a_rule_for_summer_time_may_be_chosen() {
    let table = [
        (Gap::After, Fold::First, "30 2 * * *", "2026-03-08T07:00Z"),
        (Gap::Skip, Fold::First, "30 2 * * *", ""),
        (Gap::After, Fold::First, "*/30 2 * * *", "2026-03-08T07:00Z"),
    ];
    let slots = |gap, fold, cron, from: &str, until: &str| {
        let dst = Dst::Explicit { gap, fold };
        let timing = Timing {
            dst,
            ..timing(&[cron], "America/New_York")
        };
        timing.between(at(from), at(until), 10).unwrap()
    };
    for (gap, fold, cron, expected) in table {
        let expected: Vec<Timestamp> = expected.split_whitespace().map(at).collect();
        let slots = slots(gap, fold, cron, "2026-03-08T05:00Z", "2026-03-09T04:00Z");
        assert_eq!(slots, expected, "{gap:?} {fold:?} {cron}");
    }
    let table = [
        (Fold::First, "30 1 * * *", "2026-11-01T05:30Z"),
        (Fold::Last, "30 1 * * *", "2026-11-01T06:30Z"),
        (
            Fold::Both,
            "30 1 * * *",
            "2026-11-01T05:30Z 2026-11-01T06:30Z",
        ),
        (
            Fold::First,
            "*/30 1 * * *",
            "2026-11-01T05:00Z 2026-11-01T05:30Z",
        ),
        (
            Fold::Last,
            "*/30 1 * * *",
            "2026-11-01T06:00Z 2026-11-01T06:30Z",
        ),
    ];
    for (fold, cron, expected) in table {
        let expected: Vec<Timestamp> = expected.split_whitespace().map(at).collect();
        let slots = slots(
            Gap::After,
            fold,
            cron,
            "2026-11-01T04:00Z",
            "2026-11-02T04:00Z",
        );
        assert_eq!(slots, expected, "{fold:?} {cron}");
    }
}

/// A year is the last one, and its last slot is repeated.
#[test]
fn the_last_slot_of_all_may_be_in_a_fold() {
    let timing = timing(&["0 */30 1 1 11 * 2026"], "America/New_York");
    let slots = timing
        .between(at("2026-01-01T00:00Z"), at("2100-01-01T00:00Z"), 100)
        .unwrap();
    assert_eq!(slots.len(), 4);
    assert_eq!(timing.next(slots[3]).unwrap(), None);
    assert_eq!(timing.previous(slots[0]).unwrap(), None);
}

#[test]
fn several_expressions_are_one_schedule() {
    let timing = timing(&["0 9 * * *", "0 */3 * * *", "@every 6h"], "UTC");
    let slots = timing
        .between(at("2026-01-01T00:00Z"), at("2026-01-01T12:00Z"), 100)
        .unwrap();
    let hours: Vec<i64> = slots
        .iter()
        .map(|slot| slot.as_second() / 3600 % 24)
        .collect();
    assert_eq!(hours, [3, 6, 9, 12]);
    assert!(!timing.is_by_elapsed_time());
    assert!(self::timing(&["@every 5m"], "UTC").is_by_elapsed_time());
}

#[test]
fn a_period_is_counted_from_1970_on() {
    let table = [
        ("5m", "0s", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"),
        (
            "5m",
            "0s",
            "2026-01-01T00:04:59.999Z",
            "2026-01-01T00:05:00Z",
        ),
        ("5m", "1m", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("5m", "1m", "2026-01-01T00:01:00Z", "2026-01-01T00:06:00Z"),
        ("7d", "0s", "2026-01-01T00:00:00Z", "2026-01-08T00:00:00Z"),
        ("1d", "12h", "1969-12-30T13:00:00Z", "1969-12-31T12:00:00Z"),
    ];
    for (period, offset, after, next) in table {
        let duration =
            |text: &str| SignedDuration::try_from(ganger_core::units::duration(text).unwrap());
        let every = Every::new(duration(period).unwrap(), duration(offset).unwrap()).unwrap();
        assert_eq!(
            every.next(at(after)),
            Some(at(next)),
            "{period} {offset} {after}"
        );
    }
    let long = |hours| SignedDuration::from_hours(hours);
    let none = SignedDuration::ZERO;
    assert!(Every::new(SignedDuration::from_millis(1500), none).is_err());
    assert!(Every::new(none, none).is_err());
    assert!(Every::new(long(1_000_000), none).is_err());
    assert!(Every::new(long(1), long(1)).is_err());
    let problem = Every::new(long(1), long(2)).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "offset: invalid offset `2h` of a period of 1h: write whole seconds, less than the period"
    );
}

#[test]
fn every_among_expressions_says_where_it_is_wrong() {
    for (text, expected) in [
        ("@every", "invalid duration `` (byte 6): write `@every 5m`"),
        (
            "@every 5",
            "invalid duration `5` (byte 6): write `@every 5m`",
        ),
        (
            " @every 0s",
            "invalid period `0s` (byte 7): write whole seconds, from `1s` to 100 years",
        ),
    ] {
        let problem = Rule::parse(text, Dialect::Standard, "name").unwrap_err();
        assert_eq!(problem.to_string(), expected, "{text}");
    }
}

#[test]
fn two_weeks_of_seconds_are_counted_in_no_time() {
    let timing = timing(&["@every 5s"], "UTC");
    let count = timing.count(at("2026-01-01T00:00:03Z"), at("2026-01-15T00:00:03Z"), 10);
    let last = Some(at("2026-01-15T00:00:00Z"));
    assert_eq!(
        count.unwrap(),
        Count {
            slots: 241_920,
            last,
            steps: 0,
            is_cut: false
        }
    );
    let count = timing.count(at("2026-01-01T00:00:01Z"), at("2026-01-01T00:00:04Z"), 10);
    assert_eq!(
        count.unwrap(),
        Count {
            slots: 0,
            last: None,
            steps: 0,
            is_cut: false
        }
    );
    // Also by the clock, through a change of it.
    let secondly = self::timing(&["* * * * * *"], "Europe/Berlin");
    let count = secondly
        .count(at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"), 10)
        .unwrap();
    assert_eq!(count.slots, 365 * 86_400);
    // Of several rules as far as it is asked for.
    let both = self::timing(&["* * * * *", "*/2 * * * *"], "UTC");
    let count = both.count(at("2026-01-01T00:00Z"), at("2026-01-01T08:00Z"), 100);
    let last = Some(at("2026-01-01T01:40Z"));
    assert_eq!(
        count.unwrap(),
        Count {
            slots: 100,
            last,
            steps: 100,
            is_cut: true
        }
    );
}

proptest! {
    #[test]
    fn a_period_goes_on(period in 1..100_000i64, offset in 0..100_000i64, nanos in -10i64.pow(18)..10i64.pow(18)) {
        let offset = SignedDuration::from_secs(offset % period);
        let every = Every::new(SignedDuration::from_secs(period), offset).unwrap();
        let at = Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
        let (next, previous) = (every.next(at).unwrap(), every.previous(at).unwrap());
        prop_assert!(previous < at && at < next);
        prop_assert_eq!(every.previous(next), Some(if every.next(previous) == Some(next) { previous } else { at }));
        prop_assert_eq!(every.count(previous, next), if every.next(previous) == Some(next) { 1 } else { 2 });
    }
}
