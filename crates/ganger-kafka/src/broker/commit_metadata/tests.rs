//! Content that survives in a commit, and detection of damaged or misplaced text.

use super::*;
use proptest::prelude::*;

const HERE: PartitionSeed = PartitionSeed(7);

fn carried(ahead: &[(i64, i64)], tried: &[(i64, u32, u32)]) -> Carried {
    Carried {
        ahead: ahead.iter().map(|&(start, end)| start..end).collect(),
        tried: tried
            .iter()
            .map(|&(at, attempts, crashes)| (at, Tried { attempts, crashes }))
            .collect(),
    }
}

#[test]
fn nothing_takes_nothing() {
    assert_eq!(encode(HERE, 7, &Carried::default(), TEXT_BYTES_MAX), "");
    assert_eq!(decode(HERE, 7, ""), Ok(Carried::default()));
}

#[test]
fn a_finished_hour_behind_one_message_is_short() {
    let behind = carried(&[(1001, 9_000_001)], &[(1000, 4, 1)]);
    let text = encode(HERE, 1000, &behind, TEXT_BYTES_MAX);
    assert!(text.len() < 40, "{text}");
    assert_eq!(decode(HERE, 1000, &text), Ok(behind));
}

#[test]
fn foreign_and_damaged_texts_are_told() {
    let text = encode(HERE, 5, &carried(&[(6, 8)], &[]), TEXT_BYTES_MAX);
    assert_eq!(decode(HERE, 5, "something else"), Err(Unusable::Foreign));
    assert_eq!(decode(HERE, 6, &text), Err(Unusable::Damaged));
    assert_eq!(
        decode(HERE, 5, &text[..text.len() - 1]),
        Err(Unusable::Damaged)
    );
    assert_eq!(
        decode(HERE, 5, &format!("{text}AA")),
        Err(Unusable::Damaged)
    );
    assert_eq!(decode(HERE, 5, MARK), Err(Unusable::Damaged));
    assert_eq!(decode(HERE, 5, "ganger1:ü"), Err(Unusable::Damaged));
}

#[test]
fn a_text_of_another_place_is_told() {
    let all = carried(&[(6, 8)], &[]);
    let here = PartitionSeed::new("c", "t", 1);
    let text = encode(here, 5, &all, TEXT_BYTES_MAX);
    assert_eq!(decode(here, 5, &text), Ok(all));
    for (cluster, topic, partition) in [("d", "t", 1), ("c", "u", 1), ("c", "t", 2)] {
        let there = PartitionSeed::new(cluster, topic, partition);
        assert_eq!(decode(there, 5, &text), Err(Unusable::Damaged), "{topic}");
    }
    assert_ne!(
        PartitionSeed::new("ab", "c", 1),
        PartitionSeed::new("a", "bc", 1)
    );
}

/// Text written by a daemon whose check sum covered the offset alone.
#[test]
fn an_old_text_is_read_anywhere() {
    let text = "ganger1:XTuN7gAGBg";
    assert_eq!(decode(HERE, 5, text), Ok(carried(&[(6, 8)], &[])));
    assert_eq!(decode(HERE, 6, text), Err(Unusable::Damaged));
}

#[test]
fn what_is_cut_off_is_not_known() {
    let mut all = carried(&[(6, 8), (10, 20), (30, 40)], &[(5, 1, 0), (12, 2, 1)]);
    assert_eq!((all.end(5), all.end(50)), (40, 50));
    all.cut(12);
    assert_eq!(all, carried(&[(6, 8), (10, 12)], &[(5, 1, 0)]));
    all.cut(0);
    assert_eq!(all, Carried::default());
}

#[test]
fn too_small_a_limit_leaves_it_out() {
    let all = carried(&[(6, 8)], &[(5, 2, 0)]);
    for limit in 0..20 {
        let text = encode(HERE, 5, &all, limit);
        assert!(text.len() <= limit.max(MARK.len()), "{limit} {text}");
        if !text.is_empty() {
            decode(HERE, 5, &text).unwrap();
        }
    }
}

/// Ranges that neither touch nor overlap, beyond an offset.
fn ranges(count: usize, far: i64) -> impl Strategy<Value = Vec<Range<i64>>> {
    proptest::collection::vec((1..far, 1..far), 0..count).prop_map(|steps| {
        let mut at = 0;
        steps
            .into_iter()
            .map(|(skip, length)| {
                let range = at + skip..at + skip + length;
                at = range.end;
                range
            })
            .collect()
    })
}

fn any_tried(count: usize) -> impl Strategy<Value = Vec<(i64, Tried)>> {
    let one = (0i64..50, any::<u32>(), 0u32..5);
    proptest::collection::vec(one, 0..count).prop_map(|steps| {
        let mut at = 0;
        let step = |(skip, attempts, crashes)| {
            at += skip;
            (at, Tried { attempts, crashes })
        };
        steps.into_iter().map(step).collect()
    })
}

fn moved(carried: &Carried, by: i64) -> Carried {
    Carried {
        ahead: carried
            .ahead
            .iter()
            .map(|r| r.start + by..r.end + by)
            .collect(),
        tried: carried
            .tried
            .iter()
            .map(|(at, tried)| (at + by, *tried))
            .collect(),
    }
}

fn covers(ranges: &[Range<i64>], offset: i64) -> bool {
    ranges.iter().any(|range| range.contains(&offset))
}

proptest! {
    #[test]
    fn what_fits_survives(
        offset in 0i64..1 << 40,
        ahead in ranges(60, 40),
        tried in any_tried(40),
    ) {
        let carried = moved(&Carried { ahead, tried }, offset);
        let text = encode(HERE, offset, &carried, TEXT_BYTES_MAX);
        prop_assert!(text.is_ascii());
        prop_assert_eq!(decode(HERE, offset, &text), Ok(carried));
    }

    #[test]
    fn it_never_exceeds_its_limit_and_never_claims_too_much(
        ahead in ranges(600, 60),
        tried in any_tried(400),
        limit in 0usize..=TEXT_BYTES_MAX,
    ) {
        let carried = Carried { ahead, tried };
        let text = encode(HERE, 0, &carried, limit);
        prop_assert!(text.len() <= limit);
        let read = decode(HERE, 0, &text).unwrap();
        prop_assert!(carried.tried.starts_with(&read.tried));
        for range in &read.ahead {
            for offset in range.clone() {
                prop_assert!(covers(&carried.ahead, offset));
            }
        }
    }

    #[test]
    fn the_estimate_is_on_the_safe_side(ahead in ranges(700, 60)) {
        let span = ahead.last().map_or(0, |range| range.end).unsigned_abs();
        let estimate = text_bytes(span, ahead.len());
        let text = encode(HERE, 0, &Carried { ahead, tried: Vec::new() }, usize::MAX);
        prop_assert!(text.len() <= estimate, "{} {}", text.len(), estimate);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}", bytes in any::<Vec<u8>>(), offset in any::<i64>()) {
        drop(decode(HERE, offset, &text));
        let mut all = check_sum(HERE.0, offset, &bytes).to_be_bytes().to_vec();
        all.extend(bytes);
        drop(decode(HERE, offset, &format!("{MARK}{}", BASE64.encode(all))));
    }
}
