//! Schedules that are stopped: paused, on hold, broken, disabled; and what lets them go on.

use super::*;

#[test]
fn a_paused_schedule_runs_nothing_and_makes_nothing_up_unasked() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    ledger.pause("m", Some("maintenance")).unwrap();
    rig.pass(150);
    let paused = run(&mut ledger);
    assert_eq!((paused.sent, paused.wait), (0, None));
    let row = ledger.schedule("m").unwrap();
    assert_eq!(row.state_reason.as_deref(), Some("maintenance"));
    // A trigger works all the same, and leaves it paused.
    ledger.trigger("m", None, None, false).unwrap();
    rig.end_all(OccurrenceState::Completed);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Paused);
    ledger.resume("m", false).unwrap();
    assert_eq!(run(&mut ledger).sent, 0);
    rig.pass(30);
    ledger.pause("m", None).unwrap();
    rig.pass(120);
    ledger.resume("m", true).unwrap();
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            " completed",
            "2026-12-01T00:01:00Z skipped paused +2",
            "2026-12-01T00:04:00Z skipped misfire",
            "2026-12-01T00:05:00Z queued +1",
        ]
    );
    assert!(matches!(
        ledger.pause("nobody", None),
        Err(LedgerError::NoSchedule(_))
    ));
}

#[test]
fn one_switch_stops_all() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    ledger.set_hold(Some("an incident")).unwrap();
    rig.pass(30);
    let mut other = rig.daemon();
    for _ in 0..2 {
        for daemon in [&mut ledger, &mut other] {
            let held = daemon.dispatch().unwrap();
            assert_eq!((held.sent, held.wait), (0, None));
        }
    }
    assert_eq!(other.hold().unwrap().as_deref(), Some("an incident"));
    other.set_hold(None).unwrap();
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn a_broken_schedule_goes_on_when_it_is_corrected() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let insert = "INSERT INTO schedules (name, definition) VALUES ('m', '{}')";
    rig.sql().execute(insert, []).unwrap();
    assert_eq!(run(&mut ledger).broken.len(), 1);
    assert!(matches!(
        ledger.resume("m", false),
        Err(LedgerError::Broken(_, _))
    ));
    let correct = "UPDATE schedules SET definition = ?1, wake_at = 0";
    rig.sql().execute(correct, [MINUTELY]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Active);
}

#[test]
fn a_message_that_the_database_refuses_breaks_its_schedule_alone() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let of = |queue: &str| {
        let definition = format!(r#"{{"cron": "* * * * *", "queue": "{queue}"}}"#);
        config(queue, &definition)
    };
    ledger.sync(&[of("a"), of("b"), of("c")]).unwrap();
    let guard = "CREATE TRIGGER guard BEFORE INSERT ON consumer_messages WHEN NEW.queue = 'b'
                 BEGIN SELECT RAISE(ABORT, 'no more of that'); END";
    rig.sql().execute_batch(guard).unwrap();
    run(&mut ledger);
    rig.pass(30);
    let dispatched = run(&mut ledger);
    assert_eq!(dispatched.sent, 2);
    let [(name, why)] = &dispatched.broken[..] else {
        panic!("{dispatched:?}");
    };
    assert_eq!(name, "b");
    assert!(why.contains("no more of that"), "{why}");
    rig.sql().execute_batch("DROP TRIGGER guard").unwrap();
    rig.pass(60);
    ledger.resume("b", false).unwrap();
    rig.end_all(OccurrenceState::Completed);
    assert_eq!(run(&mut ledger).sent, 2);
    assert_eq!(
        slots(&mut ledger, "b"),
        ["2026-12-01T00:01:00Z skipped paused +1"]
    );
}

#[test]
fn a_schedule_whose_runs_keep_failing_is_disabled_and_tried_again() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let definition = r#"{"cron": "* * * * *", "queue": "q",
        "auto_disable": {"failures": 2, "retry_after": "5m"}}"#;
    ledger.sync(&[config("m", definition)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Failed);
    rig.pass(60);
    run(&mut ledger);
    rig.end_all(OccurrenceState::TimedOut);
    let failed = run(&mut ledger);
    assert_eq!(
        failed.changed,
        [("m".to_owned(), Change::Disabled { failures: 2 })]
    );
    let row = ledger.schedule("m").unwrap();
    assert_eq!(row.state, ScheduleState::Disabled);
    assert_eq!(
        row.state_reason.as_deref(),
        Some("2 runs in a row have failed")
    );
    rig.pass(240);
    assert_eq!(run(&mut ledger).sent, 0);
    // The first slot after the five minutes is a trial.
    rig.pass(61);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(
        slots(&mut ledger, "m").last().unwrap(),
        "2026-12-01T00:08:00Z queued"
    );
    rig.end_all(OccurrenceState::Completed);
    let enabled = run(&mut ledger);
    assert_eq!(enabled.changed, [("m".to_owned(), Change::Enabled)]);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Active);
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
}

#[test]
fn a_look_that_sql_asks_for_ends_no_pause() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    ledger.pause("m", None).unwrap();
    rig.sql()
        .execute("UPDATE schedules SET wake_at = 0", [])
        .unwrap();
    rig.pass(120);
    assert_eq!(run(&mut ledger).sent, 0);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Paused);
}

#[test]
fn a_resumed_schedule_skips_the_pause_though_it_was_edited() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut ledger);
    ledger.pause("m", None).unwrap();
    rig.pass(150);
    let other = r#"{"cron": "* * * * *", "queue": "q", "body": "other"}"#;
    ledger.sync(&[config("m", other)]).unwrap();
    ledger.resume("m", false).unwrap();
    assert_eq!(run(&mut ledger).sent, 0);
    rig.pass(60);
    assert_eq!(run(&mut ledger).sent, 1);
    assert_eq!(rig.bodies("q"), ["other"]);
    assert_eq!(
        slots(&mut ledger, "m"),
        [
            "2026-12-01T00:01:00Z skipped paused +2",
            "2026-12-01T00:04:00Z queued"
        ]
    );
}

#[test]
fn an_end_that_can_not_be_counted_holds_up_no_schedule() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let definition = r#"{"cron": "* * * * *", "queue": "q", "auto_disable": {"failures": 1}}"#;
    let all = [config("m", definition), config("n", MINUTELY)];
    ledger.sync(&all).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Failed);
    let guard = "CREATE TRIGGER guard BEFORE UPDATE ON occurrences
                 BEGIN SELECT RAISE(ABORT, 'no changes'); END";
    rig.sql().execute_batch(guard).unwrap();
    rig.pass(60);
    let dispatched = ledger.dispatch().unwrap();
    assert_eq!((dispatched.sent, dispatched.broken.len()), (2, 0));
    assert!(dispatched.unreviewed.unwrap().contains("no changes"));
}

#[test]
fn a_trial_whose_end_nobody_tells_is_followed_by_another() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let definition = r#"{"cron": "* * * * *", "queue": "q",
        "auto_disable": {"failures": 1, "retry_after": "1m"}}"#;
    ledger.sync(&[config("m", definition)]).unwrap();
    run(&mut ledger);
    rig.pass(30);
    run(&mut ledger);
    rig.end_all(OccurrenceState::Failed);
    assert_eq!(run(&mut ledger).changed.len(), 1);
    rig.pass(120);
    assert_eq!(run(&mut ledger).sent, 1);
    // The trial's occurrence is deleted by hand.
    rig.sql()
        .execute("DELETE FROM occurrences WHERE ended_at IS NULL", [])
        .unwrap();
    rig.pass(61);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(ledger.schedule("m").unwrap().state, ScheduleState::Disabled);
    let slots = slots(&mut ledger, "m");
    assert!(slots.last().unwrap().ends_with("queued"), "{slots:?}");
}

#[test]
fn a_schedule_that_another_daemon_has_dispatched_is_not_to_blame() {
    let rig = Rig::new();
    let (mut one, mut other) = (rig.daemon(), rig.daemon());
    one.sync(&[config("m", MINUTELY)]).unwrap();
    run(&mut one);
    rig.pass(30);
    // Between the refusal and this.
    assert_eq!(run(&mut other).sent, 1);
    let dispatched = one.set_aside("m", "no more of that").unwrap();
    assert_eq!(dispatched.broken, []);
    assert_eq!(one.schedule("m").unwrap().state, ScheduleState::Active);
}

#[test]
fn a_pause_of_more_slots_than_one_transaction_skips_is_skipped_whole() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    // Slots of several expressions are merged one by one.
    let definition = r#"{"cron": ["0-29 * * * * *", "30-59 * * * * *"], "queue": "q", "overlap": "allow", "misfire": {"policy": "all"}}"#;
    ledger.sync(&[config("s", definition)]).unwrap();
    run(&mut ledger);
    ledger.pause("s", None).unwrap();
    rig.set("2026-12-02T00:00:30Z");
    ledger.resume("s", false).unwrap();
    assert_eq!(run(&mut ledger).sent, 0);
    rig.pass(1);
    assert_eq!(run(&mut ledger).sent, 1);
    let skipped = "SELECT sum(1 + missed) FROM occurrences WHERE reason = 'paused'";
    let skipped: i64 = rig.sql().query_row(skipped, [], |row| row.get(0)).unwrap();
    assert_eq!(skipped, 86_400);
}
