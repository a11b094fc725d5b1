//! Simulates schedules for a year in seconds: daemons share a ledger, die, come back stale; machines are off for days;
//! clocks jump. Each slot of a list that is worked out day by day must have exactly one decision. `GANGER_TEST_LONG`
//! makes it a hundred thousand schedules, if it is optimised.

use std::collections::BTreeMap;

use fastrand::Rng;
use jiff::civil::{Date, DateTime, time};
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::*;
use crate::clock::{Clock, Reading, step};
use crate::definition::Definition;
use crate::zone::{Zone, Zones};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// DayTimes of day; those of an interval are repeated with the clock.
#[derive(Debug, Clone, Copy)]
struct DayTimes {
    cron: &'static str,
    hours: &'static [i8],
    minutes: &'static [i8],
    is_interval: bool,
}

const ALL_HOURS: &[i8] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
];

/// Mostly daily, as schedules are.
const TIMES: [DayTimes; 6] = [
    DayTimes {
        cron: "30 2 * * *",
        hours: &[2],
        minutes: &[30],
        is_interval: false,
    },
    DayTimes {
        cron: "0 0 * * *",
        hours: &[0],
        minutes: &[0],
        is_interval: false,
    },
    DayTimes {
        cron: "15,45 1 * * *",
        hours: &[1],
        minutes: &[15, 45],
        is_interval: false,
    },
    DayTimes {
        cron: "59 23 * * *",
        hours: &[23],
        minutes: &[59],
        is_interval: false,
    },
    DayTimes {
        cron: "10 */6 * * *",
        hours: &[0, 6, 12, 18],
        minutes: &[10],
        is_interval: true,
    },
    DayTimes {
        cron: "20 * * * *",
        hours: ALL_HOURS,
        minutes: &[20],
        is_interval: true,
    },
];

impl DayTimes {
    /// Returns the slots of a year, day by day.
    fn slots(self, zone: &Zone, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let mut slots = Vec::new();
        let mut date = zone.civil(from - days(2)).date();
        while date <= zone.civil(until + days(2)).date() {
            for (hour, minute) in self
                .hours
                .iter()
                .flat_map(|hour| self.minutes.iter().map(|m| (*hour, *m)))
            {
                slots.extend(self.instants(zone, date.to_datetime(time(hour, minute, 0, 0))));
            }
            date = date.saturating_add(1.day());
        }
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|slot| from < *slot && *slot <= until);
        slots
    }

    fn instants(self, zone: &Zone, civil: DateTime) -> Vec<Timestamp> {
        let first = zone.instant(civil).unwrap();
        let later = [30, 60, 120, 180].map(|minutes| first + SignedDuration::from_mins(minutes));
        let mut all = vec![first];
        all.extend(later);
        match self.is_interval {
            true => all.retain(|at| zone.civil(*at) == civil),
            false => all.truncate(1),
        }
        all
    }
}

/// Decisions about a slot.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    dispatches: u32,
    skips: u32,
}

/// The rows of one schedule.
#[derive(Debug)]
struct Ledger {
    cursor: Cursor,
    entries: BTreeMap<Timestamp, Entry>,
    refused: u32,
}

impl Ledger {
    /// Writes decisions in one transaction: refused if the cursor is not what they were made from.
    fn commit(&mut self, spec: &Spec, read: Cursor, due: &Due) -> bool {
        if self.cursor != read {
            self.refused += 1;
            return false;
        }
        for decision in &due.decisions {
            match decision {
                Decision::Dispatch(dispatch) => {
                    let entry = self.entries.entry(dispatch.slot.at).or_default();
                    entry.dispatches += 1;
                }
                Decision::Skip(skip) => {
                    let slots = spec
                        .timing
                        .between(just_before(skip.first), skip.last, usize::MAX);
                    for slot in slots.unwrap() {
                        self.entries.entry(slot).or_default().skips += 1;
                    }
                }
            }
        }
        self.cursor = due.cursor;
        true
    }
}

/// A year of one schedule.
#[derive(Debug)]
struct Year {
    rng: Rng,
    /// Elapsed time, by which nothing jumps.
    elapsed: SignedDuration,
    begin: Timestamp,
    skew: SignedDuration,
    ahead: SignedDuration,
    was_corrected: bool,
}

impl Year {
    fn wall(&self) -> Timestamp {
        self.begin + self.elapsed + self.skew
    }

    fn clock(&self) -> Clock {
        Clock {
            wall: self.wall(),
            ahead: self.ahead,
        }
    }

    fn reading(&self) -> Reading {
        let monotonic = Duration::try_from(self.elapsed).unwrap();
        Reading {
            clock: self.clock(),
            sent: monotonic,
            received: monotonic,
        }
    }

    /// Lets the clock jump, which the ledger records.
    fn jump(&mut self, by: SignedDuration) {
        let before = self.reading();
        self.skew += by;
        self.ahead = step(before, self.reading()).ahead;
    }

    fn disturb(&mut self) {
        let minutes = self.rng.i64(1..300);
        match self.rng.u32(..2000) {
            // Off for hours or days.
            0..=7 => self.elapsed += MINUTE * i32::try_from(minutes).unwrap() * 10,
            8 | 9 => self.jump(SignedDuration::from_mins(minutes)),
            10 | 11 => self.jump(-SignedDuration::from_mins(minutes.min(180))),
            12 => self.jump(-SignedDuration::from_mins(180 + minutes)),
            _ => {}
        }
    }
}

/// Plays a year; returns the entries, and true if the clock was corrected.
fn play(spec: &Spec, begin: Timestamp, seed: u64) -> (Ledger, bool) {
    let mut ledger = Ledger {
        cursor: Cursor::new(begin),
        entries: BTreeMap::new(),
        refused: 0,
    };
    let mut year = Year {
        rng: Rng::with_seed(seed),
        elapsed: SignedDuration::ZERO,
        begin,
        skew: SignedDuration::ZERO,
        ahead: SignedDuration::ZERO,
        was_corrected: false,
    };
    let mut stale = None;
    while year.elapsed < days(365) {
        year.disturb();
        let read = ledger.cursor;
        let open = Open {
            occurrences: u32::from(year.rng.u8(..10) == 0),
            waiting: 0,
        };
        let due = due(spec, read, year.clock(), open, DECISIONS_MAX).unwrap();
        year.was_corrected |= due.is_corrected;
        let wake = due.wake;
        match year.rng.u32(..50) {
            // It dies before it commits.
            0 => continue,
            // It is stopped before it commits; the next one decides anew.
            1 => {
                stale = Some((read, due));
                continue;
            }
            _ => assert!(ledger.commit(spec, read, &due)),
        }
        if let Some((read, due)) = stale.take()
            && ledger.cursor != read
        {
            assert!(!ledger.commit(spec, read, &due));
        }
        if let Wake::At(at) = wake {
            let wait = at.duration_since(year.wall());
            assert!(wait.is_positive(), "{at}");
            // A clock that is set back is looked at again and again.
            year.elapsed += wait.min(days(1));
        }
    }
    (ledger, year.was_corrected)
}

fn definition(rng: &mut Rng, times: DayTimes, zone: &str) -> Definition {
    let mut pick = |bound| rng.u64(..bound);
    let policies = [Policy::Once, Policy::All, Policy::Skip];
    let overlaps = [
        Overlap::Allow,
        Overlap::Skip,
        Overlap::Replace,
        Overlap::Queue { max: 3 },
    ];
    let policy = policies[usize::try_from(pick(3)).unwrap()];
    Definition {
        name: format!("job-{}", pick(1000)),
        cron: vec![times.cron.to_owned()],
        zone: Some(zone.to_owned()),
        jitter: Duration::from_secs([0, 0, 300][usize::try_from(pick(3)).unwrap()]),
        misfire: Misfire {
            policy,
            ..Misfire::default()
        },
        overlap: match policy {
            Policy::All => Overlap::Queue { max: 3 },
            Policy::Once | Policy::Skip => overlaps[usize::try_from(pick(4)).unwrap()],
        },
        ..Definition::default()
    }
}

#[test]
fn a_year_has_each_slot_once() {
    let count = match std::env::var_os("GANGER_TEST_LONG") {
        // About two hours without optimisation, by what forty take.
        Some(_) if cfg!(debug_assertions) => 1_000,
        Some(_) => 100_000,
        None => 40,
    };
    let zones = Zones::load();
    let names = zones.names();
    let mut rng = Rng::with_seed(36);
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let (mut slots, mut refused) = (0, 0);
    for number in 0..count {
        let zone = &names[number * 7 % names.len()];
        let times = TIMES[if number % 20 == 0 { 5 } else { number % 5 }];
        let definition = definition(&mut rng, times, zone);
        let spec = definition.spec(&zones).unwrap();
        let (ledger, was_corrected) = play(&spec, begin, rng.u64(..));
        refused += ledger.refused;
        let last = ledger
            .entries
            .last_key_value()
            .map_or(begin, |(slot, _)| *slot);
        let entered: Vec<Timestamp> = ledger.entries.keys().copied().collect();
        // A clock that is corrected at the beginning may show the day before.
        let first = entered.first().filter(|_| was_corrected);
        let from = first.map_or(begin, |first| begin.min(just_before(*first)));
        let expected = times.slots(&spec.timing.zone, from, last);
        let is_once = |entry: &Entry| match was_corrected {
            // Slots that a clock in the future has decided come again; their keys settle it.
            true => true,
            false => entry.dispatches + entry.skips == 1,
        };
        let twice = ledger.entries.iter().find(|(_, entry)| !is_once(entry));
        assert!(twice.is_none(), "{definition:?} {twice:?}");
        assert_eq!(entered, expected, "{definition:?}");
        slots += entered.len();
    }
    assert!(slots > count * 300 && refused > 0, "{slots} {refused}");
}

/// Periods go on by elapsed time: no two runs further apart than one while nothing is off.
#[test]
fn a_period_goes_on_when_clocks_are_set_back() {
    let zones = Zones::bundled();
    let definition = Definition {
        name: "period".to_owned(),
        every: Some(Duration::from_secs(300)),
        ..Definition::default()
    };
    let spec = definition.spec(&zones).unwrap();
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut ledger = Ledger {
        cursor: Cursor::new(begin),
        entries: BTreeMap::new(),
        refused: 0,
    };
    let mut year = Year {
        rng: Rng::with_seed(1),
        elapsed: SignedDuration::ZERO,
        begin,
        skew: SignedDuration::ZERO,
        ahead: SignedDuration::ZERO,
        was_corrected: false,
    };
    let mut runs = Vec::new();
    for turn in 1..500 {
        if turn % 50 == 0 {
            year.jump(-SignedDuration::from_mins(37));
        }
        let read = ledger.cursor;
        let due = due(&spec, read, year.clock(), Open::default(), DECISIONS_MAX).unwrap();
        runs.extend(due.decisions.iter().map(|_| year.elapsed));
        assert!(ledger.commit(&spec, read, &due));
        let Wake::At(at) = due.wake else {
            panic!("{due:?}")
        };
        year.elapsed += at.duration_since(year.wall());
    }
    let apart = |pair: &[SignedDuration]| pair[1] - pair[0];
    assert!(
        runs.windows(2).all(|pair| apart(pair) == MINUTE * 5),
        "{runs:?}"
    );
    assert!(ledger.entries.values().all(|entry| entry.dispatches == 1));
}

/// A date, so that the list above does not depend on what it checks.
#[test]
fn the_list_of_a_year_is_right() {
    let zone = Zones::bundled().get("America/New_York").unwrap();
    let day = |date: Date| zone.instant(date.to_datetime(time(0, 0, 0, 0))).unwrap();
    let (from, until) = (
        day(jiff::civil::date(2026, 1, 1)),
        day(jiff::civil::date(2027, 1, 1)),
    );
    assert_eq!(TIMES[0].slots(&zone, from, until).len(), 365);
    assert_eq!(TIMES[5].slots(&zone, from, until).len(), 365 * 24);
}
