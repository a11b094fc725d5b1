//! Tests slots around each change of each zone's clock against a slow search, which looks at every
//! minute; and forwards against backwards.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use proptest::prelude::*;

use super::*;
use crate::cron::Dialect;
use crate::zone::Zones;

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// An expression, and the same by hand.
type Pattern = (&'static str, fn(DateTime) -> bool);

const PATTERNS: [Pattern; 9] = [
    ("30 2 * * *", |at| (at.hour(), at.minute()) == (2, 30)),
    ("*/30 * * * *", |at| at.minute() % 30 == 0),
    ("0 * * * *", |at| at.minute() == 0),
    ("15,45 0-3 * * *", |at| {
        at.hour() < 4 && (at.minute() == 15 || at.minute() == 45)
    }),
    ("10 */5 * * *", |at| at.hour() % 5 == 0 && at.minute() == 10),
    ("0 0 * * *", |at| (at.hour(), at.minute()) == (0, 0)),
    ("59 23 * * SAT-SUN", |at| {
        let weekday = at.weekday().to_sunday_zero_offset();
        (at.hour(), at.minute()) == (23, 59) && (weekday == 0 || weekday == 6)
    }),
    ("*/7 1 1-7 * *", |at| {
        at.hour() == 1 && at.minute() % 7 == 0 && at.day() < 8
    }),
    ("5 0,1,2,3 * * *", |at| at.hour() < 4 && at.minute() == 5),
];

const RULES: [Dst; 7] = [
    Dst::Standard,
    explicit(Gap::After, Fold::First),
    explicit(Gap::After, Fold::Last),
    explicit(Gap::After, Fold::Both),
    explicit(Gap::Skip, Fold::First),
    explicit(Gap::Skip, Fold::Last),
    explicit(Gap::Skip, Fold::Both),
];

const fn explicit(gap: Gap, fold: Fold) -> Dst {
    Dst::Explicit { gap, fold }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the zones, without those that have the same clocks as another one.
fn zones() -> Vec<(Zone, Vec<Stretch>)> {
    let zones = Zones::load();
    let mut known = BTreeSet::new();
    let all = zones
        .names()
        .into_iter()
        .map(|name| zones.get(&name).unwrap());
    let all = all.map(|zone| {
        let stretches = stretches(&zone);
        (zone, stretches)
    });
    let is_new = |(_, stretches): &(Zone, Vec<Stretch>)| known.insert(format!("{stretches:?}"));
    all.filter(is_new).collect()
}

/// Returns the stretches of a zone until 2040.
fn stretches(zone: &Zone) -> Vec<Stretch> {
    let mut stretches = vec![zone.stretch(at("1800-01-01T00:00Z")).unwrap()];
    while let Some((until, _)) = stretches.last().unwrap().until
        && until < at("2040-01-01T00:00Z")
    {
        stretches.push(zone.stretch(until).unwrap());
    }
    stretches
}

/// Returns the slots within a time, found minute by minute.
fn slow(
    pattern: Pattern,
    wall: Wall<'_>,
    from: Timestamp,
    until: Timestamp,
) -> BTreeSet<Timestamp> {
    let (gap, fold) = wall.rules();
    let minutes = |from: Timestamp, until: Timestamp| {
        std::iter::successors(Some(from), |at| Some(*at + MINUTE))
            .take_while(move |at| *at <= until)
    };
    let mut slots = BTreeSet::new();
    // Every instant whose civil time counts.
    for at in minutes(from, until) {
        let civil = wall.zone.civil(at);
        let comes_again = || {
            let mut later = minutes(at + MINUTE, at + MARGIN);
            later.any(|at| wall.zone.civil(at) == civil)
        };
        let counts = || match fold {
            Fold::First => wall.zone.instant(civil).unwrap() == at,
            Fold::Last => !comes_again(),
            Fold::Both => true,
        };
        if (pattern.1)(civil) && counts() {
            slots.insert(at);
        }
    }
    // Every civil time that does not exist.
    if gap == Gap::After {
        let civil = |at: Timestamp| jiff::tz::Offset::UTC.to_datetime(at);
        let civils = minutes(from - MARGIN / 2, until + MARGIN / 2).map(civil);
        for civil in civils.filter(|civil| (pattern.1)(*civil)) {
            let at = wall.zone.instant(civil).unwrap();
            if wall.zone.civil(at) != civil && from <= at && at <= until {
                slots.insert(at);
            }
        }
    }
    slots
}

fn forwards(wall: Wall<'_>, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let next = |after: &Timestamp| wall.next(*after).unwrap();
    let first = next(&(from - SECOND));
    let slots = std::iter::successors(first, next).take_while(|slot| *slot <= until);
    slots.collect()
}

fn backwards(wall: Wall<'_>, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let previous = |before: &Timestamp| wall.previous(*before).unwrap();
    let last = previous(&(until + SECOND));
    let slots = std::iter::successors(last, previous).take_while(|slot| *slot >= from);
    let mut slots: Vec<Timestamp> = slots.collect();
    slots.reverse();
    slots
}

/// Returns true if all changes are looked at, or some of each zone.
fn is_long() -> bool {
    std::env::var_os("GANGER_TEST_LONG").is_some()
}

/// No change repeats a time that is already repeated: a stretch is longer than what the changes at
/// both its ends repeat.
#[test]
fn changes_of_a_clock_do_not_meet() {
    for (zone, stretches) in zones() {
        for stretch in stretches {
            let (Some((from, before)), Some((until, after))) = (stretch.from, stretch.until) else {
                continue;
            };
            let begin = repeated_until(from, before, stretch.offset).unwrap();
            let repeated = repeated_until(until, stretch.offset, after).unwrap() - until;
            assert!(begin <= until - repeated, "{} {from}", zone.name());
        }
    }
}

#[test]
fn slots_around_a_change_are_those_of_a_slow_search() {
    let crons = PATTERNS.map(|(text, _)| Cron::parse(text, Dialect::Standard, "").unwrap());
    let (mut changes, mut turn) = (0, 0);
    for (zone, stretches) in zones() {
        // Times in whole minutes, as the slow search needs them.
        let is_usable = |stretch: &&Stretch| {
            let in_minutes = |offset: jiff::tz::Offset| offset.seconds() % 60 == 0;
            let change = stretch.from.filter(|(_, before)| *before != stretch.offset);
            in_minutes(stretch.offset) && change.is_some_and(|(_, before)| in_minutes(before))
        };
        let usable = stretches.iter().filter(is_usable);
        let few = if is_long() { usize::MAX } else { 1 };
        for stretch in usable.rev().take(few) {
            let (change, _) = stretch.from.unwrap();
            let (from, until) = (change - MINUTE * 60 * 15, change + MINUTE * 60 * 15);
            let (which, dst) = (turn % PATTERNS.len(), RULES[turn % RULES.len()]);
            let cron = &crons[which];
            let wall = Wall {
                cron,
                zone: &zone,
                dst,
            };
            let name = format!("{} {change} {} {dst:?}", zone.name(), cron.text());
            let expected: Vec<Timestamp> = slow(PATTERNS[which], wall, from, until)
                .into_iter()
                .collect();
            assert_eq!(forwards(wall, from, until), expected, "{name}");
            assert_eq!(backwards(wall, from, until), expected, "{name}");
            (changes, turn) = (changes + 1, turn + 1);
        }
    }
    assert!(changes > 150, "{changes}");
}

/// Every zone, every change, also those of local mean time with its seconds.
#[test]
fn each_slot_is_after_the_one_before_it_in_every_zone() {
    let texts = [
        "30 2 * * *",
        "0 * * * *",
        "*/30 1-3 * * *",
        "0 0 29 2 *",
        "59 59 23 L * *",
        "1 1-3 1 1 *",
    ];
    let crons = texts.map(|text| Cron::parse(text, Dialect::Standard, "").unwrap());
    let mut turn = 0;
    for (zone, stretches) in zones() {
        let few = if is_long() { usize::MAX } else { 5 };
        let step = (stretches.len() / few).max(1);
        for (change, _) in stretches
            .iter()
            .step_by(step)
            .filter_map(|stretch| stretch.from)
        {
            let (from, until) = (change - MARGIN, change + MARGIN);
            let cron = &crons[turn % crons.len()];
            let dst = RULES[turn / crons.len() % RULES.len()];
            let wall = Wall {
                cron,
                zone: &zone,
                dst,
            };
            let name = format!("{} {change} {} {dst:?}", zone.name(), cron.text());
            let slots = forwards(wall, from, until);
            assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
            assert_eq!(backwards(wall, from, until), slots, "{name}");
            assert_eq!(
                wall.count(from - SECOND, until).unwrap(),
                slots.len() as u64,
                "{name}"
            );
            // Parts from the change on, where a slot may be moved to.
            let rest = slots.iter().filter(|slot| **slot >= change).count();
            assert_eq!(
                wall.count(change - SECOND, until).unwrap(),
                rest as u64,
                "{name}"
            );
            let next = wall.next(until).unwrap().unwrap();
            assert!(next > until, "{name}");
            let previous = wall.previous(next).unwrap();
            assert_eq!(
                previous.and_then(|slot| wall.next(slot).unwrap()),
                Some(next),
                "{name}"
            );
            turn += 1;
        }
    }
    assert!(turn > 1000, "{turn}");
}

proptest! {
    /// From any instant, with any part of a second.
    #[test]
    fn next_and_previous_are_inverse(
        second in 0i64..4_000_000_000,
        nanos in prop::sample::select(vec![0, 1, 500_000_000, 999_999_999]),
        which in 0..PATTERNS.len(),
        rule in 0..RULES.len(),
        zone in prop::sample::select(vec![
            "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
            "Africa/Casablanca", "Asia/Kathmandu", "America/Sao_Paulo", "Antarctica/Troll",
        ]),
    ) {
        let zone = Zones::bundled().get(zone).unwrap();
        let cron = Cron::parse(PATTERNS[which].0, Dialect::Standard, "").unwrap();
        let wall = Wall { cron: &cron, zone: &zone, dst: RULES[rule] };
        let at = Timestamp::new(second, nanos).unwrap();
        let next = wall.next(at).unwrap().unwrap();
        prop_assert!(next > at);
        let previous = wall.previous(next).unwrap().unwrap();
        prop_assert!(previous <= at);
        prop_assert_eq!(wall.next(previous).unwrap(), Some(next));
        prop_assert_eq!(wall.previous(at).unwrap(), Some(previous).filter(|slot| *slot < at).or_else(|| wall.previous(previous).unwrap()));
    }
}
