//! Slots that operators take out, and those of the past that they run.

use super::*;
use ganger_queue::ledger::shown::BackfillJson;
use ganger_queue::ledger::{AuditFilter, BackfillRequest, ReportRange, SkipRequest};

fn skip(ledger: &mut Ledger, slot: Option<&str>, is_undone: bool) -> Result<String, String> {
    let request = SkipRequest {
        slot: slot.map(str::to_owned),
        is_undone,
        reason: None,
    };
    let skipped = ledger.skip("m", &request);
    let skipped = skipped.map(|skipped| format!("{} {}", skipped.slot, skipped.skips.len()));
    skipped.map_err(|refused| refused.to_string())
}

fn minutely() -> (Rig, Ledger) {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    (rig, ledger)
}

#[test]
fn a_slot_that_is_taken_out_does_not_run() {
    let (rig, mut ledger) = minutely();
    assert_eq!(
        skip(&mut ledger, None, false).unwrap(),
        "2026-12-01T00:01:00Z 1"
    );
    assert_eq!(
        skip(&mut ledger, None, false).unwrap(),
        "2026-12-01T00:02:00Z 2"
    );
    let third = Some("2026-12-01T00:03:00Z");
    assert_eq!(
        skip(&mut ledger, third, false).unwrap(),
        "2026-12-01T00:03:00Z 3"
    );
    assert_eq!(
        skip(&mut ledger, third, false).unwrap(),
        "2026-12-01T00:03:00Z 3"
    );
    assert_eq!(
        skip(&mut ledger, third, true).unwrap(),
        "2026-12-01T00:03:00Z 2"
    );
    assert!(slots(&mut ledger, "m").is_empty());
    for _ in 0..4 {
        rig.pass(60);
        run(&mut ledger);
        rig.end_all(OccurrenceState::Completed);
    }
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z skipped operator",
            "2026-12-01T00:02:00Z skipped operator",
            "2026-12-01T00:03:00Z completed",
            "2026-12-01T00:04:00Z completed",
        ]
    );
    let row = ledger.schedule("m").unwrap();
    assert_eq!((row.skips.len(), row.cursor.unwrap().runs), (0, 2));
}

#[test]
fn slots_that_are_late_run_but_those_taken_out() {
    let (rig, mut ledger) = minutely();
    for slot in ["2026-12-01T00:10:00Z", "2026-12-01T00:05:00Z"] {
        skip(&mut ledger, Some(slot), false).unwrap();
    }
    // The newest of those that are missed runs for the others.
    rig.pass(10 * 60);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(rig.bodies("q"), ["2026-12-01T00:09:00Z"]);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z skipped misfire +7",
            "2026-12-01T00:09:00Z queued +8",
            "2026-12-01T00:10:00Z skipped operator",
        ]
    );
}

#[test]
fn a_slot_that_is_none_is_not_taken_out() {
    let (rig, mut ledger) = minutely();
    let refused = skip(&mut ledger, Some("2026-12-01T00:01:30Z"), false).unwrap_err();
    assert_eq!(
        refused,
        "schedule `m`: it has no slot 2026-12-01T00:01:30Z; these are: 2026-12-01T00:02:00Z, \
         2026-12-01T00:03:00Z, 2026-12-01T00:04:00Z"
    );
    rig.pass(60);
    run(&mut ledger);
    let refused = skip(&mut ledger, Some("2026-12-01T00:01:00"), false).unwrap_err();
    assert!(
        refused.contains("slot 2026-12-01T00:01:00Z is decided already"),
        "{refused}"
    );
    let refused = skip(&mut ledger, Some("noon"), false).unwrap_err();
    assert!(refused.contains("slot: invalid time `noon`"), "{refused}");
    let refused = skip(&mut ledger, None, true).unwrap_err();
    assert!(refused.contains("no slot is skipped"), "{refused}");
    for _ in 0..100 {
        skip(&mut ledger, None, false).unwrap();
    }
    let refused = skip(&mut ledger, None, false).unwrap_err();
    assert!(refused.contains("pause the schedule instead"), "{refused}");
    ledger
        .sync(&[config(
            "m",
            r#"{"at": "2026-12-01T00:02:00", "queue": "q"}"#,
        )])
        .unwrap();
    rig.pass(120);
    run(&mut ledger);
    let refused = skip(&mut ledger, None, false).unwrap_err();
    assert!(refused.contains("there is no further slot"), "{refused}");
}

fn backfill(ledger: &mut Ledger, from: &str, to: &str, is_dry_run: bool) -> BackfillJson {
    let request = BackfillRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        is_dry_run,
        reason: None,
    };
    ledger.backfill("m", &request).unwrap()
}

#[test]
fn slots_of_the_past_run_once() {
    let (rig, mut ledger) = minutely();
    // The newest of five runs for the others.
    rig.pass(5 * 60);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Completed);
    let before = slots(&mut ledger, "m");
    let skipped = "2026-12-01T00:01:00Z skipped misfire +3";
    assert_eq!(before, [skipped, "2026-12-01T00:05:00Z completed +4"]);
    let (from, to) = ("2026-12-01T00:01:00Z", "2026-12-01T00:05:00Z");
    let dry = backfill(&mut ledger, from, to, true);
    assert_eq!(
        (dry.slots.len(), dry.done, dry.occurrences.len()),
        (4, 1, 0)
    );
    assert_eq!(slots(&mut ledger, "m"), before);
    let filled = backfill(&mut ledger, from, to, false);
    assert_eq!(filled.slots, dry.slots);
    assert_eq!(filled.occurrences.len(), 4);
    let mut after = slots(&mut ledger, "m");
    after.sort_unstable();
    assert_eq!(
        after,
        [
            "2026-12-01T00:01:00Z queued backfill",
            "2026-12-01T00:02:00Z queued backfill",
            "2026-12-01T00:03:00Z queued backfill",
            "2026-12-01T00:04:00Z queued backfill",
            "2026-12-01T00:05:00Z completed +4",
        ]
    );
    assert_eq!(rig.bodies("q").len(), 5);
    let again = backfill(&mut ledger, from, to, false);
    assert_eq!((again.slots.len(), again.done), (0, 5));
    // The message is that of the occurrence that was skipped.
    let (_, events) = Ledger::occurrence(&mut ledger, &filled.occurrences[3])
        .unwrap()
        .unwrap();
    let events: Vec<_> = events
        .iter()
        .map(|event| (event.to.as_str(), event.note.as_deref()))
        .collect();
    assert_eq!(events, [("skipped", None), ("queued", Some("backfill"))]);
    let of_message = "SELECT count(*) FROM consumer_messages WHERE message_id = ?1";
    let id = &filled.occurrences[3];
    let found: i64 = rig
        .sql()
        .query_row(of_message, [id], |row| row.get(0))
        .unwrap();
    assert_eq!(found, 1);
    assert_eq!(ledger.schedule("m").unwrap().cursor.unwrap().runs, 1);
}

#[test]
fn a_part_of_a_range_leaves_the_rest_as_it_was() {
    let (rig, mut ledger) = minutely();
    rig.pass(5 * 60);
    run(&mut ledger);
    let (from, to) = ("2026-12-01T00:00:30Z", "2026-12-01T00:02:30Z");
    assert_eq!(backfill(&mut ledger, from, to, false).slots.len(), 2);
    let shown = slots(&mut ledger, "m");
    assert_eq!(shown[0], "2026-12-01T00:01:00Z queued backfill +3");
    assert!(shown.contains(&"2026-12-01T00:02:00Z queued backfill".to_owned()));
}

#[test]
fn a_skipped_slot_runs_where_its_schedule_sends_to_now() {
    let (rig, mut ledger) = minutely();
    skip(&mut ledger, None, false).unwrap();
    rig.pass(60);
    run(&mut ledger);
    let elsewhere = r#"{"cron": "* * * * *", "queue": "other", "source": "rabbit"}"#;
    ledger.sync(&[config("m", elsewhere)]).unwrap();
    run(&mut ledger);
    let slot = "2026-12-01T00:01:00Z";
    assert_eq!(backfill(&mut ledger, slot, slot, false).slots.len(), 1);
    let place = "SELECT queue, source FROM occurrences WHERE state = 0";
    let place = rig.sql().query_row(place, [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    assert_eq!(place.unwrap(), ("other".to_owned(), "rabbit".to_owned()));
    assert!(
        ledger
            .outgoing()
            .unwrap()
            .iter()
            .any(|one| one.source == "rabbit")
    );
    assert!(rig.bodies("q").is_empty());
}

#[test]
fn a_message_that_cannot_be_made_is_not_run() {
    let (rig, mut ledger) = minutely();
    rig.pass(5 * 60);
    run(&mut ledger);
    let before = slots(&mut ledger, "m");
    let body = "{% if slot is startingwith('2026-12') %}{{ 'x' | date('%Y') }}{% endif %}";
    let definition = json!({ "cron": "* * * * *", "queue": "q", "body": body }).to_string();
    ledger.sync(&[config("m", &definition)]).unwrap();
    run(&mut ledger);
    let request = BackfillRequest {
        from: "2026-12-01T00:01:00Z".to_owned(),
        to: "2026-12-01T00:03:00Z".to_owned(),
        ..BackfillRequest::default()
    };
    let refused = ledger.backfill("m", &request).unwrap_err();
    assert!(matches!(refused, LedgerError::Broken(..)), "{refused}");
    assert_eq!(slots(&mut ledger, "m"), before);
    assert_eq!(rig.bodies("q").len(), 1);
    assert!(ledger.audit(&AuditFilter::default()).unwrap().is_empty());
}

#[test]
fn a_range_that_is_none_is_not_run() {
    let (rig, mut ledger) = minutely();
    let mut refused = |from: &str, to: &str| {
        let request = BackfillRequest {
            from: from.to_owned(),
            to: to.to_owned(),
            ..BackfillRequest::default()
        };
        ledger.backfill("m", &request).unwrap_err().to_string()
    };
    for (from, to, expected) in [
        (
            "2026-11-01",
            "2026-12-02T00:00",
            "to must be in the past: slots after 2026-12-01T00:00:30Z",
        ),
        (
            "2026-11-02T00:00",
            "2026-11-01T00:00",
            "from must not be after to",
        ),
        (
            "2026-11-01T00:00",
            "2026-11-20T00:00",
            "more than 1000 slots: run a part of them, as up to 2026-11-01T16:39:00Z",
        ),
        ("soon", "2026-11-20T00:00", "from: invalid time `soon`"),
    ] {
        let refused = refused(from, to);
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(rig.bodies("q").is_empty());
}

#[test]
fn a_backfilled_run_is_late_from_its_backfill_on() {
    let (rig, mut ledger) = minutely();
    rig.pass(3600);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Completed);
    // One slot was skipped, one is of no occurrence yet.
    let (from, to) = ("2026-12-01T00:01:00Z", "2026-12-01T00:02:00Z");
    assert_eq!(backfill(&mut ledger, from, to, false).slots.len(), 2);
    let now = rig.now_ms.load(Ordering::SeqCst);
    let start = "UPDATE occurrences SET state = 1, attempt = 1, reason = NULL, started_at = ?1 WHERE state = 0";
    rig.sql().execute(start, [now + 2000]).unwrap();
    rig.pass(10);
    let report = LedgerClient::report(
        &mut ledger,
        &ReportRange {
            limit: 10,
            ..ReportRange::default()
        },
    );
    let late = report.unwrap().rows[0].late.unwrap();
    assert_eq!((late.p50_ms, late.max_ms), (2000, 2000));
}
