//! Runs that wait until others of their schedule have ended.

use super::*;
use crate::table::OccurrenceRun;
use ganger_queue::delivery::Begun;

const QUEUED: &str =
    r#"{"cron": "* * * * *", "queue": "q", "body": "{{ slot }}", "overlap": "queue"}"#;

/// Ends the run whose message was sent first, as its settlement does.
fn end_first(rig: &Rig, state: OccurrenceState) {
    let now = rig.now_ms.load(Ordering::SeqCst);
    let end = "UPDATE occurrences SET state = ?1, ended_at = ?2 WHERE id =
               (SELECT min(id) FROM occurrences WHERE state = 0 AND ended_at IS NULL)";
    let ended = rig.sql().execute(end, params![state.code(), now]);
    assert_eq!(ended, Ok(1));
}

/// Dispatches minutes that overlap: the first runs.
fn dispatched(rig: &Rig, ledger: &mut Ledger, minutes: u32) {
    ledger.sync(&[config("m", QUEUED)]).unwrap();
    run(ledger);
    rig.pass(30);
    assert_eq!(run(ledger).sent, 1);
    for _ in 1..minutes {
        rig.pass(60);
        let waiting = run(ledger);
        assert_eq!((waiting.sent, waiting.skipped.len()), (0, 0));
    }
}

#[test]
fn a_run_waits_until_those_before_it_have_ended() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 3);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z queued",
            "2026-12-01T00:02:00Z waiting overlap",
            "2026-12-01T00:03:00Z waiting overlap",
        ]
    );
    assert_eq!(run(&mut ledger).sent, 0);
    // Any daemon sends the next one, and only that.
    end_first(&rig, OccurrenceState::Failed);
    let mut other = rig.daemon();
    assert_eq!(run(&mut other).sent, 1);
    assert_eq!(run(&mut ledger).sent, 0);
    assert_eq!(
        rig.bodies("q"),
        ["2026-12-01T00:01:00Z", "2026-12-01T00:02:00Z"]
    );
    // A slot does not overtake those that wait.
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 0);
    end_first(&rig, OccurrenceState::Completed);
    assert_eq!(run(&mut ledger).sent, 1);
    let shown = slots(&mut ledger, "m");
    assert_eq!(shown[1], "2026-12-01T00:02:00Z completed");
    assert_eq!(shown[2], "2026-12-01T00:03:00Z queued");
    assert_eq!(shown[3], "2026-12-01T00:04:00Z waiting overlap");
    let id = ledger.occurrences(&OccurrenceFilter {
        limit: 2,
        ..OccurrenceFilter::default()
    });
    let (_, events) = ledger.occurrence(&id.unwrap()[1].id).unwrap().unwrap();
    let changes: Vec<_> = events.iter().map(|event| (event.from, event.to)).collect();
    assert_eq!(
        changes,
        [
            (None, OccurrenceState::Waiting),
            (Some(OccurrenceState::Waiting), OccurrenceState::Queued),
        ]
    );
}

/// Nobody has told the end of the first: its row was deleted.
#[test]
fn a_run_that_is_gone_is_not_waited_for() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 2);
    let delete = "DELETE FROM occurrences WHERE state = 0";
    assert_eq!(rig.sql().execute(delete, []), Ok(1));
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:02:00Z queued",
            "2026-12-01T00:03:00Z waiting overlap",
        ]
    );
}

#[test]
fn what_waits_stands_still_with_its_schedule() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 3);
    ledger.pause("m", None).unwrap();
    end_first(&rig, OccurrenceState::Completed);
    assert_eq!(run(&mut ledger).sent, 0);
    ledger.resume("m", false).unwrap();
    assert_eq!(run(&mut ledger).sent, 1);
    ledger.set_hold(Some("an incident")).unwrap();
    end_first(&rig, OccurrenceState::Completed);
    let held = ledger.dispatch().unwrap();
    assert_eq!((held.sent, held.wait), (0, None));
    ledger.set_hold(None).unwrap();
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn what_waits_ends_with_its_schedule() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 2);
    ledger.sync(&[]).unwrap();
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z queued",
            "2026-12-01T00:02:00Z cancelled removed",
        ]
    );
    // A schedule that has had its last slot still lets its runs go on.
    let limited = QUEUED.replace("\"queue\":", "\"limit\": 2, \"queue\":");
    ledger.sync(&[config("limited", &limited)]).unwrap();
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(
        ledger.schedule("limited").unwrap().state,
        ScheduleState::Ended
    );
    end_first(&rig, OccurrenceState::Completed);
    end_first(&rig, OccurrenceState::Completed);
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn only_so_many_wait() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 101);
    rig.pass(60);
    let skipped = run(&mut ledger);
    assert_eq!((skipped.sent, skipped.skipped["overlap"]), (0, 1));
    // A run that is triggered does not wait.
    let triggered = ledger.trigger("m", None, None, false).unwrap();
    assert_eq!(triggered, Triggered::Overlaps);
}

#[test]
fn a_message_that_can_not_be_made_breaks_the_schedule() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let body = "{{ range(slot | unix) | join }}";
    let definition = QUEUED.replace("{{ slot }}", body);
    ledger.sync(&[config("m", &definition)]).unwrap();
    run(&mut ledger);
    let enter =
        "INSERT INTO occurrences (id, schedule, version, slot, queue, state, reason, queued_at)
                 VALUES ('1', 'm', 1, 1796083201000, 'q', 8, 'overlap', 1)";
    rig.sql().execute(enter, []).unwrap();
    rig.pass(30);
    let broken = run(&mut ledger).broken;
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Broken);
}

/// Its schedule has had its last slot, so that only the end of the run before sends it.
#[test]
fn a_message_that_is_refused_holds_up_no_other_schedule() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let limited = QUEUED.replace("\"queue\":", "\"limit\": 2, \"queue\":");
    let other = QUEUED.replace("\"q\"", "\"other\"");
    ledger
        .sync(&[config("refused", &limited), config("other", &other)])
        .unwrap();
    run(&mut ledger);
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 2);
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 0);
    let guard = "CREATE TRIGGER guard BEFORE INSERT ON consumer_messages WHEN NEW.queue = 'q'
                 BEGIN SELECT RAISE(ABORT, 'no more of that'); END";
    rig.sql().execute_batch(guard).unwrap();
    end_first(&rig, OccurrenceState::Completed);
    end_first(&rig, OccurrenceState::Completed);
    let dispatched = run(&mut ledger);
    assert_eq!((dispatched.sent, dispatched.unreviewed), (1, None));
    assert_eq!(dispatched.broken.len(), 1);
    rig.sql().execute_batch("DROP TRIGGER guard").unwrap();
    ledger.resume("refused", false).unwrap();
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn what_waits_goes_on_when_no_other_would_wait() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 3);
    let skipping = QUEUED.replace("\"queue\"}", "\"skip\"}");
    assert_ne!(skipping, QUEUED);
    ledger.sync(&[config("m", &skipping)]).unwrap();
    run(&mut ledger);
    for _ in 0..2 {
        end_first(&rig, OccurrenceState::Completed);
        assert_eq!(run(&mut ledger).sent, 1);
    }
}

#[test]
fn what_is_to_wait_from_now_on_goes_on_at_the_end_of_runs_before() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let allowing = QUEUED.replace("\"queue\"}", "\"allow\"}");
    assert_ne!(allowing, QUEUED);
    ledger.sync(&[config("m", &allowing)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 1);
    ledger.sync(&[config("m", QUEUED)]).unwrap();
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 0);
    end_first(&rig, OccurrenceState::Completed);
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn what_is_expected_of_a_run_is_looked_at_no_more_often_while_others_wait() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let expecting = QUEUED.replace(
        "\"queue\"}",
        "\"queue\", \"expect\": {\"within\": \"30s\"}}",
    );
    ledger.sync(&[config("m", &expecting)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    // It comes to an end, with a run that is open.
    assert_eq!(run(&mut ledger).sent, 1);
    rig.pass(60);
    assert_eq!(run(&mut ledger).overdue.len(), 1);
}

#[test]
fn a_run_that_goes_on_after_its_end_is_waited_for_again() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    dispatched(&rig, &mut ledger, 1);
    end_first(&rig, OccurrenceState::Failed);
    run(&mut ledger);
    let id = ledger.occurrences(&OccurrenceFilter {
        limit: 1,
        ..OccurrenceFilter::default()
    });
    let id = id.unwrap().remove(0).id;
    // As a pool notes it when `ganger dead retry` has sent the message back.
    let attempt = OccurrenceRun {
        id: id.clone().into(),
        attempt: 1,
        begun: Some(Begun {
            at: tokio::time::Instant::now(),
            worker: "{}".into(),
            trace: None,
        }),
        result: bytes::Bytes::new(),
    };
    let begun = change::Change::begun(&attempt);
    let now_ms = rig.now_ms.load(Ordering::SeqCst);
    let begun = rusqlite::params_from_iter(begun.change(now_ms));
    assert_eq!(rig.sql().execute(change::CHANGE, begun), Ok(1));
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 0);
    let end = "UPDATE occurrences SET state = 2, ended_at = 1 WHERE id = ?1";
    assert_eq!(rig.sql().execute(end, [&id]), Ok(1));
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn a_schedule_that_has_ended_is_kept_while_runs_wait() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let limited = QUEUED.replace("\"queue\":", "\"limit\": 2, \"queue\":");
    let insert = "INSERT INTO schedules (name, definition) VALUES ('m', ?1)";
    rig.sql().execute(insert, [&limited]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Ended);
    rig.pass(7200);
    while ledger
        .expire(&Keep::all(Duration::from_secs(3600)))
        .unwrap()
    {}
    for _ in 0..2 {
        assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Ended);
        end_first(&rig, OccurrenceState::Completed);
        run(&mut ledger);
    }
    rig.pass(7200);
    while ledger
        .expire(&Keep::all(Duration::from_secs(3600)))
        .unwrap()
    {}
    assert!(ledger.schedule("m").is_err());
}

#[test]
fn a_trial_waits_for_none_of_the_runs_that_wait() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let disabling = QUEUED.replace(
        "\"queue\"}",
        "\"queue\", \"auto_disable\": {\"failures\": 1, \"retry_after\": \"5m\"}}",
    );
    ledger.sync(&[config("m", &disabling)]).unwrap();
    run(&mut ledger);
    for minutes in [30, 60, 60] {
        rig.pass(minutes);
        run(&mut ledger);
    }
    end_first(&rig, OccurrenceState::Failed);
    assert_eq!(run(&mut ledger).changed.len(), 1);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Disabled);
    for _ in 0..6 {
        rig.pass(60);
        if run(&mut ledger).sent == 1 {
            // The trial, beside two runs that wait.
            end_first(&rig, OccurrenceState::Completed);
            assert_eq!(run(&mut ledger).changed.len(), 1);
            assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Active);
            run(&mut ledger);
            end_first(&rig, OccurrenceState::Completed);
            assert_eq!(run(&mut ledger).sent, 1);
            return;
        }
    }
    panic!("there was no trial: {:?}", slots(&mut ledger, "m"));
}
