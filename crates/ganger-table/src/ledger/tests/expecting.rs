//! Expectations of schedules: what is overdue is told, and nothing else.

use super::*;

fn expecting(expect: &str) -> String {
    format!(r#"{{"cron": "*/10 * * * *", "queue": "q", "overlap": "allow", "expect": {expect}}}"#)
}

/// Dispatches what is due, and returns what is overdue then and what has changed.
fn overdue(ledger: &mut Ledger) -> (Option<String>, usize) {
    let changes = run(ledger).overdue.len();
    let figures = ledger.figures(20).unwrap();
    let shown = ledger.schedule("m").unwrap().expected.overdue;
    let as_data = LedgerClient::schedule(ledger, "m").unwrap();
    assert_eq!(as_data.schedule.overdue, shown);
    let of_figures = figures.overdue.into_iter().map(|(_, overdue)| overdue);
    assert_eq!(
        of_figures.collect::<Vec<_>>(),
        shown.clone().into_iter().collect::<Vec<_>>()
    );
    (shown, changes)
}

#[test]
fn a_run_that_does_not_start_in_time_is_told_until_it_has() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let expect = r#"{"within": "1m", "finish": "3m"}"#;
    ledger.sync(&[config("m", &expecting(expect))]).unwrap();
    run(&mut ledger);
    rig.set("2026-12-01T00:10:00Z");
    assert_eq!(overdue(&mut ledger), (None, 0));
    // It is looked at when it is overdue, not at the next slot.
    rig.pass(30);
    assert_eq!(run(&mut ledger).wait, Some(Duration::from_secs(30)));
    rig.pass(30);
    let late = "the run of 2026-12-01T00:10:00Z has not started within 1m";
    assert_eq!(overdue(&mut ledger), (Some(late.to_owned()), 1));
    rig.pass(10);
    assert_eq!(overdue(&mut ledger), (Some(late.to_owned()), 0));
    let start = "UPDATE occurrences SET state = 1, started_at = 1";
    assert_eq!(rig.sql().execute(start, []), Ok(1));
    rig.pass(10);
    assert_eq!(overdue(&mut ledger), (None, 1));
    rig.pass(100);
    let late = "the run of 2026-12-01T00:10:00Z has not ended within 3m";
    assert_eq!(overdue(&mut ledger), (Some(late.to_owned()), 1));
    // Its end is noticed at once.
    rig.end_all(OccurrenceState::Failed);
    assert_eq!(overdue(&mut ledger), (None, 1));
}

#[test]
fn one_success_is_expected_after_another() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger
        .sync(&[config("m", &expecting(r#"{"every": "15m"}"#))])
        .unwrap();
    run(&mut ledger);
    rig.set("2026-12-01T00:10:00Z");
    run(&mut ledger);
    rig.end_all(OccurrenceState::Failed);
    rig.set("2026-12-01T00:15:00Z");
    assert_eq!(overdue(&mut ledger), (None, 0));
    rig.pass(30);
    let late = "no run has completed within 15m since 2026-12-01T00:00:30Z";
    assert_eq!(overdue(&mut ledger), (Some(late.to_owned()), 1));
    rig.set("2026-12-01T00:20:00Z");
    run(&mut ledger);
    rig.end_all(OccurrenceState::Completed);
    assert_eq!(overdue(&mut ledger), (None, 1));
    // From that success on.
    rig.set("2026-12-01T00:34:59Z");
    assert_eq!(overdue(&mut ledger).0, None);
    rig.pass(1);
    let late = "no run has completed within 15m since 2026-12-01T00:20:00Z";
    assert_eq!(overdue(&mut ledger).0.as_deref(), Some(late));
}

#[test]
fn nothing_is_expected_of_what_is_stopped() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let every = config("m", &expecting(r#"{"every": "1m"}"#));
    ledger.sync(std::slice::from_ref(&every)).unwrap();
    run(&mut ledger);
    rig.pass(60);
    assert!(overdue(&mut ledger).0.is_some());
    ledger.pause("m", None).unwrap();
    rig.pass(60);
    assert_eq!(overdue(&mut ledger).0, None);
    // It begins anew when the schedule goes on.
    ledger.resume("m", false).unwrap();
    assert_eq!(overdue(&mut ledger).0, None);
    ledger.set_hold(Some("an incident")).unwrap();
    rig.pass(60);
    assert_eq!(overdue(&mut ledger).0, None);
    ledger.set_hold(None).unwrap();
    assert!(overdue(&mut ledger).0.is_some());
    // A definition that expects nothing ends that.
    let plain = r#"{"cron": "*/10 * * * *", "queue": "q"}"#;
    ledger.sync(&[config("m", plain)]).unwrap();
    assert_eq!(overdue(&mut ledger).0, None);
    ledger.sync(&[every]).unwrap();
    assert_eq!(overdue(&mut ledger).0, None);
    rig.pass(60);
    assert!(overdue(&mut ledger).0.is_some());
    ledger.sync(&[]).unwrap();
    assert_eq!(ledger.figures(20).unwrap().overdue, []);
}

/// A single time, whose schedule has ended when its run begins.
#[test]
fn the_last_run_is_expected_to_end() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let once = r#"{"at": "2026-12-01T00:05:00", "queue": "q",
        "expect": {"finish": "1m", "every": "1h"}}"#;
    ledger.sync(&[config("m", once)]).unwrap();
    run(&mut ledger);
    rig.set("2026-12-01T00:05:00Z");
    run(&mut ledger);
    rig.pass(60);
    let late = "the run of 2026-12-01T00:05:00Z has not ended within 1m";
    assert_eq!(overdue(&mut ledger).0.as_deref(), Some(late));
    rig.end_all(OccurrenceState::Completed);
    assert_eq!(overdue(&mut ledger).0, None);
    rig.pass(7200);
    assert_eq!(overdue(&mut ledger).0, None);
}
