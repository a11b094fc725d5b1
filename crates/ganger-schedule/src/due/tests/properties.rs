//! Properties of all decisions.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;

/// Any schedule of some kinds.
fn any_definition() -> impl Strategy<Value = Definition> {
    let times = prop::sample::select(vec![
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0 0 * * MON",
        "15,45 1-3 * * *",
        "0 */6 * * *",
        "0 0 L * *",
        "@every 11m",
        "@every 3h",
    ]);
    let zones = prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe"]);
    let policy = prop::sample::select(vec![Policy::Once, Policy::All, Policy::Skip]);
    let overlap = prop::sample::select(vec![
        Overlap::Allow,
        Overlap::Skip,
        Overlap::Replace,
        Overlap::Queue { max: 2 },
    ]);
    let outside = prop::option::of(prop::sample::select(vec![Outside::Skip, Outside::Next]));
    let jitter = prop::sample::select(vec![0, 40, 600]);
    let misfire =
        (policy, 0..4000u64, 0..100_000u64, 0..20u32).prop_map(|(policy, grace, catch_up, max)| {
            Misfire {
                policy,
                grace: seconds(grace),
                catch_up: seconds(catch_up),
                max,
            }
        });
    (
        prop::collection::vec(times, 1..3),
        zones,
        misfire,
        overlap,
        outside,
        jitter,
    )
        .prop_map(
            |(times, zone, misfire, overlap, outside, jitter)| Definition {
                cron: times.into_iter().map(str::to_owned).collect(),
                zone: Some(zone.to_owned()),
                misfire,
                overlap: match misfire.policy {
                    Policy::All => Overlap::Queue { max: 2 },
                    Policy::Once | Policy::Skip => overlap,
                },
                jitter: seconds(jitter),
                only: outside.and_then(|outside| office(outside, "").only),
                ..cron("")
            },
        )
}

/// Enters decisions slot by slot; none may have one already.
fn enter(book: &mut BTreeMap<Timestamp, Option<Reason>>, spec: &Spec, due: &Due, now: Timestamp) {
    for decision in &due.decisions {
        match decision {
            Decision::Dispatch(dispatch) => {
                assert!(dispatch.slot.due <= now, "{dispatch:?} {now}");
                assert_eq!(book.insert(dispatch.slot.at, None), None, "{dispatch:?}");
            }
            Decision::Skip(skip) => {
                let slots = spec
                    .timing
                    .between(just_before(skip.first), skip.last, usize::MAX)
                    .unwrap();
                // Ranges of one reason are joined over slots of none.
                assert_eq!(slots.len() as u64, skip.slots, "{skip:?}");
                for slot in slots {
                    assert_eq!(book.insert(slot, Some(skip.reason)), None, "{skip:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Each slot has one decision, in order, when it is due, whatever happens between.
    #[test]
    fn each_slot_has_one_decision(
        definition in any_definition(),
        start in 1_767_225_600i64..1_798_761_600,
        steps in prop::collection::vec((1..60_000i64, 0..3u32, 0..12u8), 1..12),
        days in prop::option::of(1..4i64),
        limit in prop::option::of(1..30u64),
        max in 1..40usize,
    ) {
        let begin = Timestamp::from_second(start).unwrap();
        let end = days.map(|days| begin + SignedDuration::from_hours(24 * days));
        let spec = Spec { end, limit, ..checked(&definition) };
        // Not an assumption: of a hundred thousand cases too many would be rejected.
        if spec.never_runs(begin).is_some() {
            return Ok(());
        }
        let (mut now, mut cursor, mut book) = (begin, Cursor::new(begin), BTreeMap::new());
        'steps: for (step, occurrences, kind) in steps {
            now += SignedDuration::from_secs(step);
            let open = Open { occurrences, waiting: occurrences.saturating_sub(1) };
            loop {
                let due = match kind {
                    0 => skip_all(&spec, cursor, now, Reason::Paused).unwrap(),
                    _ => super::super::due(&spec, cursor, clock(now), open, max).unwrap(),
                };
                enter(&mut book, &spec, &due, now);
                prop_assert!(due.cursor.at >= cursor.at && due.cursor.at <= now);
                cursor = due.cursor;
                match due.wake {
                    Wake::Again => {}
                    // By its limit it has no further slots.
                    Wake::Ended if spec.is_over(cursor.runs) => break 'steps,
                    Wake::Ended => break,
                    Wake::At(wake) => {
                        prop_assert!(wake > now, "{wake} {now}");
                        break;
                    }
                }
            }
        }
        prop_assert!(limit.is_none_or(|limit| cursor.runs <= limit));
        let last = end.map_or(cursor.at, |end| end.min(cursor.at));
        let slots = spec.timing.between(begin, last, usize::MAX).unwrap();
        let entered: Vec<Timestamp> = book.into_keys().collect();
        prop_assert_eq!(entered, slots);
    }

    /// Slots are the same forwards and backwards, by their names and by when they are due.
    #[test]
    fn a_slot_is_the_one_before_the_next(
        definition in any_definition(),
        start in 1_767_225_600i64..1_798_761_600,
        days in prop::option::of(1..9i64),
    ) {
        let begin = Timestamp::from_second(start).unwrap();
        let end = days.map(|days| begin + SignedDuration::from_hours(24 * days));
        let spec = Spec { end, ..checked(&definition) };
        // Not an assumption: of a hundred thousand cases too many would be rejected.
        if spec.never_runs(begin).is_some() {
            return Ok(());
        }
        let mut before = None;
        for _ in 0..40 {
            let after = before.map_or(begin, |before: Slot| before.at);
            let Some(slot) = spec.next(after).unwrap() else { break };
            let earlier = spec.previous(slot.at).unwrap().filter(|earlier| earlier.at > begin);
            prop_assert_eq!(earlier, before);
            prop_assert_eq!(spec.newest(slot.due, begin).unwrap(), Some(slot));
            let early = back(slot.due, Duration::from_nanos(1));
            prop_assert_eq!(spec.newest(early, begin).unwrap(), before);
            before = Some(slot);
        }
    }
}
