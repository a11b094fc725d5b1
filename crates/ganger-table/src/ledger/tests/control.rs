//! Runs that operators cancel, send back and resolve, and those that newer slots replace.

use super::*;
use ganger_queue::ledger::{AuditFilter, BackfillRequest, Cancelled, LedgerClient, SkipRequest};

const HOLD: Duration = Duration::from_secs(60);

/// Enters a schedule and dispatches its first slot.
fn dispatched(rig: &Rig, keys: &str) -> Ledger {
    let mut ledger = rig.daemon();
    let definition =
        format!(r#"{{"cron": "* * * * *", "queue": "q", "body": "{{{{ slot }}}}"{keys}}}"#);
    ledger.sync(&[config("m", &definition)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    ledger
}

fn all(ledger: &mut Ledger) -> Vec<Occurrence> {
    let filter = OccurrenceFilter {
        limit: 100,
        ..OccurrenceFilter::default()
    };
    let mut all = ledger.occurrences(&filter).unwrap();
    all.reverse();
    all
}

/// Returns the changes of an occurrence with their notes.
fn events(ledger: &mut Ledger, id: &str) -> Vec<String> {
    let (_, events) = ledger.occurrence(id).unwrap().unwrap();
    let shown = |event: OccurrenceEvent| {
        let note = event.note.map(|note| format!(" {note}"));
        format!("{}{}", event.to.as_str(), note.unwrap_or_default())
    };
    events.into_iter().map(shown).collect()
}

/// Claims the messages of the queue, as a pool does, and shows their runs as running.
fn begin(rig: &Rig) {
    let begin = "UPDATE consumer_messages SET owner = 1, claim = 1;
                 UPDATE occurrences SET state = 1 WHERE state = 0;";
    rig.sql().execute_batch(begin).unwrap();
}

fn is_requested(ledger: &mut Ledger, id: &str) -> bool {
    ledger
        .cancel_requested()
        .unwrap()
        .ids
        .iter()
        .any(|one| one == id)
}

#[test]
fn a_run_ends_at_once_while_only_the_ledger_has_its_message() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "queue""#);
    rig.pass(60);
    run(&mut ledger);
    let [queued, waiting] = &all(&mut ledger)[..] else {
        panic!()
    };
    assert_eq!(
        ledger.cancel(&waiting.id, Some(" a typo ")).unwrap(),
        Cancelled::Ended
    );
    assert_eq!(
        events(&mut ledger, &waiting.id),
        ["waiting", "cancelled a typo"]
    );
    assert_eq!(ledger.cancel(&queued.id, None).unwrap(), Cancelled::Ended);
    assert_eq!(
        events(&mut ledger, &queued.id),
        ["queued", "cancelled cancelled by an operator"]
    );
    assert_eq!(rig.bodies("q"), [""; 0]);
    let letters =
        "SELECT pool || ' ' || queue || ' ' || reason || ' ' || message_id FROM poisoned_messages";
    let letter: String = rig.sql().query_row(letters, [], |row| row.get(0)).unwrap();
    assert_eq!(letter, format!("q q cancelled {}", queued.id));
    let (shown, _) = ledger.occurrence(&queued.id).unwrap().unwrap();
    assert_eq!(
        (shown.state, shown.reason.as_deref(), shown.cancel_request),
        (OccurrenceState::Cancelled, Some("cancelled"), None)
    );
    let again = ledger.cancel(&queued.id, None).unwrap_err().to_string();
    assert!(
        again.ends_with("has ended already: it is cancelled"),
        "{again}"
    );
    let unknown = ledger.cancel("nothing", None).unwrap_err();
    assert!(matches!(unknown, LedgerError::NoOccurrence(_)), "{unknown}");
    // The schedule goes on.
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn a_message_on_its_way_to_another_source_is_taken_back_unless_it_is_being_published() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "source": "rabbit", "overlap": "allow""#);
    rig.pass(60);
    run(&mut ledger);
    let [first, second] = &all(&mut ledger)[..] else {
        panic!()
    };
    assert_eq!(first.source.as_deref(), Some("rabbit"));
    let taken = ledger.take_out("rabbit", 1, HOLD).unwrap();
    assert_eq!(taken[0].occurrence, first.id);
    assert_eq!(
        ledger.cancel(&first.id, None).unwrap(),
        Cancelled::Requested
    );
    assert_eq!(ledger.cancel(&second.id, None).unwrap(), Cancelled::Ended);
    assert!(is_requested(&mut ledger, &first.id));
    assert!(!is_requested(&mut ledger, &second.id));
    // It was not published, and is not tried again.
    let back = [(first.id.clone(), Duration::from_secs(10))];
    ledger.sent_out("rabbit", &[], &back).unwrap();
    assert!(is_requested(&mut ledger, &first.id));
    rig.pass(10);
    assert!(ledger.take_out("rabbit", 1, HOLD).unwrap().is_empty());
    assert!(!is_requested(&mut ledger, &first.id));
    assert!(ledger.outgoing().unwrap().is_empty());
    assert_eq!(
        events(&mut ledger, &first.id),
        ["queued", "cancelled cancelled by an operator"]
    );
}

#[test]
fn a_run_that_a_worker_has_is_cancelled_by_its_daemon_or_when_it_waits_again() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, "");
    begin(&rig);
    let id = all(&mut ledger)[0].id.clone();
    assert_eq!(
        ledger.cancel(&id, Some("too late")).unwrap(),
        Cancelled::Requested
    );
    assert_eq!(
        ledger.cancel(&id, Some("again")).unwrap(),
        Cancelled::Requested
    );
    assert!(is_requested(&mut ledger, &id));
    let (shown, _) = ledger.occurrence(&id).unwrap().unwrap();
    assert_eq!(shown.cancel_request.as_deref(), Some("too late"));
    // Its daemon is lost, and the message is in the queue again.
    let lost = "UPDATE consumer_messages SET owner = NULL, claim = NULL;
                UPDATE occurrences SET state = 6;";
    rig.sql().execute_batch(lost).unwrap();
    assert!(!is_requested(&mut ledger, &id));
    assert_eq!(events(&mut ledger, &id), ["queued", "cancelled too late"]);
    assert_eq!(rig.bodies("q"), [""; 0]);
}

/// Whether it was queued or running.
#[test]
fn a_run_whose_message_was_deleted_ends_when_it_is_cancelled() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    begin(&rig);
    rig.pass(60);
    run(&mut ledger);
    let delete = "DELETE FROM consumer_messages";
    assert_eq!(rig.sql().execute(delete, []), Ok(2));
    for run in all(&mut ledger) {
        assert_eq!(ledger.cancel(&run.id, None).unwrap(), Cancelled::Ended);
    }
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z cancelled cancelled",
            "2026-12-01T00:02:00Z cancelled cancelled",
        ]
    );
}

#[test]
fn an_occurrence_that_has_ended_is_deleted_for_good() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    let open = all(&mut ledger)[0].id.clone();
    let refused = ledger.delete(&open).unwrap_err().to_string();
    assert!(refused.ends_with("is queued: cancel it first"), "{refused}");
    rig.end_all(OccurrenceState::Failed);
    ledger.set_actor("me");
    ledger.delete(&open).unwrap();
    let gone = ledger.delete(&open).unwrap_err();
    assert!(matches!(gone, LedgerError::NoOccurrence(_)), "{gone}");
    run(&mut ledger);
    assert!(all(&mut ledger).is_empty());
    let left =
        "SELECT (SELECT count(*) FROM occurrence_events) + (SELECT count(*) FROM occurrence_logs)";
    let left: i64 = rig.sql().query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    let filter = AuditFilter {
        subject: Some(open),
        limit: 10,
        ..AuditFilter::default()
    };
    let audit = LedgerClient::audit(&mut ledger, &filter).unwrap();
    let audit = audit.iter().map(|one| (&*one.action, one.actor.as_deref()));
    assert_eq!(audit.collect::<Vec<_>>(), [("delete", Some("me"))]);
}

#[test]
fn a_failure_is_resolved_and_a_run_that_goes_on_is_another_story() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    rig.pass(60);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Failed);
    rig.pass(60);
    run(&mut ledger);
    rig.end_all(OccurrenceState::TimedOut);
    rig.pass(60);
    run(&mut ledger);
    let runs = all(&mut ledger);
    let unresolved = |ledger: &mut Ledger| {
        let filter = OccurrenceFilter {
            is_unresolved: true,
            limit: 2,
            ..OccurrenceFilter::default()
        };
        let found = ledger.occurrences(&filter).unwrap();
        found.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(
        unresolved(&mut ledger),
        [runs[2].id.clone(), runs[1].id.clone()]
    );
    ledger.resolve(&runs[1].id, "paid by hand").unwrap();
    ledger.resolve(&runs[1].id, "paid by hand").unwrap();
    assert_eq!(
        unresolved(&mut ledger),
        [runs[2].id.clone(), runs[0].id.clone()]
    );
    let shown = LedgerClient::occurrence(&mut ledger, &runs[1].id)
        .unwrap()
        .unwrap();
    assert_eq!(shown.occurrence.resolved.as_deref(), Some("paid by hand"));
    let open = ledger.resolve(&runs[3].id, "x").unwrap_err().to_string();
    assert!(
        open.ends_with("is queued: only a run that failed or timed out can be resolved"),
        "{open}"
    );
    for wrong in ["", " ", &"x".repeat(10_001)] {
        let refused = ledger.resolve(&runs[1].id, wrong).unwrap_err();
        assert!(matches!(refused, LedgerError::Invalid(_)), "{refused}");
    }
    // It was sent back.
    ledger
        .store
        .write(&mut |tx| tx.sent_back(&runs[1]))
        .unwrap();
    let (shown, _) = ledger.occurrence(&runs[1].id).unwrap().unwrap();
    assert_eq!(
        (shown.state, shown.ended_at, shown.resolved),
        (OccurrenceState::Queued, None, None)
    );
    assert_eq!(
        events(&mut ledger, &runs[1].id).last().unwrap(),
        "queued sent_back"
    );
    // One that has gone on by then stays as it is.
    ledger
        .store
        .write(&mut |tx| tx.sent_back(&runs[1]))
        .unwrap();
    rig.pass(1);
    rig.end_all(OccurrenceState::Failed);
    ledger
        .store
        .write(&mut |tx| tx.sent_back(&runs[1]))
        .unwrap();
    let (shown, _) = ledger.occurrence(&runs[1].id).unwrap().unwrap();
    assert_eq!(shown.state, OccurrenceState::Failed);
}

#[test]
fn a_slot_replaces_a_run_that_no_worker_has() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "replace""#);
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z cancelled replaced",
            "2026-12-01T00:02:00Z queued",
        ]
    );
    assert_eq!(rig.bodies("q"), ["2026-12-01T00:02:00Z"]);
    let first = all(&mut ledger)[0].id.clone();
    assert_eq!(
        events(&mut ledger, &first),
        ["queued", "cancelled replaced"]
    );
}

#[test]
fn a_slot_waits_for_the_end_of_the_run_that_it_replaces() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "replace""#);
    begin(&rig);
    for _ in 0..2 {
        rig.pass(60);
        assert_eq!(run(&mut ledger).sent, 0);
    }
    let first = all(&mut ledger)[0].id.clone();
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z running",
            "2026-12-01T00:02:00Z cancelled replaced",
            "2026-12-01T00:03:00Z waiting overlap",
        ]
    );
    assert!(is_requested(&mut ledger, &first));
    // Its worker gives it up.
    let end = "UPDATE occurrences SET state = 4, ended_at = queued_at WHERE state = 1";
    assert_eq!(rig.sql().execute(end, []), Ok(1));
    assert_eq!(run(&mut ledger).sent, 1);
    let shown = slots(&mut ledger, "m");
    assert_eq!(shown[2], "2026-12-01T00:03:00Z queued");
    // What ends together with the next slot is not waited for.
    begin(&rig);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(rig.sql().execute(end, []), Ok(1));
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(
        slots(&mut ledger, "m")[3..],
        [
            "2026-12-01T00:04:00Z cancelled replaced",
            "2026-12-01T00:05:00Z queued",
        ]
    );
}

#[test]
fn a_message_has_the_limits_of_its_schedule() {
    let rig = Rig::new();
    dispatched(&rig, r#", "timeout": "1h 30m", "retry": {"attempts": 3}"#);
    let headers = "SELECT headers FROM consumer_messages";
    let headers: String = rig.sql().query_row(headers, [], |row| row.get(0)).unwrap();
    let headers: serde_json::Value = serde_json::from_str(&headers).unwrap();
    assert_eq!(headers["TimeoutMilliseconds"], "5400000");
    assert_eq!(headers["x-ganger-attempts-max"], "3");
}

/// A daemon that stops leaves its claims; no state says so.
#[test]
fn a_run_whose_daemon_has_stopped_is_cancelled_with_its_message() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    begin(&rig);
    let id = all(&mut ledger)[0].id.clone();
    let left = "UPDATE consumer_messages SET owner = NULL, claim = NULL";
    rig.sql().execute(left, []).unwrap();
    assert_eq!(ledger.cancel(&id, None).unwrap(), Cancelled::Ended);
    assert!(rig.bodies("q").is_empty());
    let dead = "SELECT reason FROM poisoned_messages";
    let dead: String = rig.sql().query_row(dead, [], |row| row.get(0)).unwrap();
    assert_eq!(dead, "cancelled");
}

#[test]
fn long_logs_are_removed_in_several_transactions() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    for _ in 0..5 {
        rig.pass(60);
        run(&mut ledger);
    }
    rig.end_all(OccurrenceState::Completed);
    run(&mut ledger);
    let long = "UPDATE occurrences SET log_lines = 3000";
    rig.sql().execute(long, []).unwrap();
    rig.pass(7200);
    let keep = Keep::all(Duration::from_secs(3600));
    let mut rounds = 0;
    while ledger.expire(&keep).unwrap() {
        rounds += 1;
    }
    // Two at a time; the newest stays.
    assert_eq!((rounds, all(&mut ledger).len()), (2, 1));
}

#[test]
fn reasons_are_checked_before_anything_is_written() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, "");
    let id = all(&mut ledger)[0].id.clone();
    let audit = AuditFilter {
        limit: 100,
        ..AuditFilter::default()
    };
    let before = ledger.audit(&audit).unwrap().len();
    for (wrong, expected) in [
        (" ".to_owned(), "must not be empty"),
        ("x".repeat(501), "at most 500 characters: it has 501"),
        ("a\0b".to_owned(), "must not have a NUL"),
    ] {
        let reason = Some(wrong.as_str());
        let skip = SkipRequest {
            reason: Some(wrong.clone()),
            ..SkipRequest::default()
        };
        let backfill = BackfillRequest {
            from: "2026-11-30T00:00".to_owned(),
            to: "2026-11-30T00:01".to_owned(),
            reason: Some(wrong.clone()),
            ..BackfillRequest::default()
        };
        let client: &mut dyn LedgerClient = &mut ledger;
        for done in [
            client.set_hold(reason),
            client.pause("m", reason),
            client.trigger("m", None, reason, true).map(drop),
            client.skip("m", &skip).map(drop),
            client.backfill("m", &backfill).map(drop),
            client.cancel(&id, reason).map(drop),
        ] {
            let refused = done.unwrap_err();
            assert!(matches!(refused, LedgerError::Invalid(_)), "{refused}");
            assert!(refused.to_string().contains(expected), "{refused}");
        }
    }
    assert_eq!(ledger.audit(&audit).unwrap().len(), before);
}

#[test]
fn a_run_is_named_by_its_message_too() {
    let rig = Rig::new();
    let mut ledger = dispatched(&rig, r#", "overlap": "allow""#);
    let id = all(&mut ledger)[0].id.clone();
    let named = "UPDATE occurrences SET message_id = 'a'";
    rig.sql().execute(named, []).unwrap();
    let cancelled = LedgerClient::cancel(&mut ledger, "a", None);
    assert!(cancelled.is_ok(), "{cancelled:?}");
    rig.end_all(OccurrenceState::Failed);
    let failed = "UPDATE occurrences SET state = 3, ended_at = 1";
    rig.sql().execute(failed, []).unwrap();
    ledger.resolve("a", "paid by hand").unwrap();
    let (shown, _) = ledger.occurrence(&id).unwrap().unwrap();
    assert_eq!(shown.resolved.as_deref(), Some("paid by hand"));
    let unknown = ledger.resolve("b", "x").unwrap_err();
    assert!(matches!(unknown, LedgerError::NoOccurrence(id) if id == "b"));
}
