//! Schedules of the API, and what is shown of all.

use super::*;
use ganger_queue::ledger::{Entered, ScheduleFilter};
use ganger_schedule::occurrence::ScheduleState;

const HOURLY: &str = r#"{"cron": "0 * * * *", "queue": "q", "tags": ["night"]}"#;

fn names(ledger: &mut Ledger, filter: &ScheduleFilter) -> Vec<String> {
    let shown = LedgerClient::schedules(ledger, filter).unwrap();
    shown.into_iter().map(|one| one.name).collect()
}

#[test]
fn a_schedule_of_the_api_is_entered_replaced_and_removed() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let enter =
        |ledger: &mut Ledger, definition| ledger.enter(&config("a", definition), None).unwrap();
    assert_eq!(enter(&mut ledger, HOURLY), Entered::Created);
    assert_eq!(enter(&mut ledger, HOURLY), Entered::Unchanged);
    let row = ledger.schedule("a").unwrap();
    assert_eq!((row.origin.as_str(), row.configuration), ("api", None));
    run(&mut ledger);
    let next = |ledger: &mut Ledger| ledger.schedule("a").unwrap().next_slot;
    assert_eq!(next(&mut ledger), Some(time("2026-12-01T01:00:00Z")));
    assert_eq!(enter(&mut ledger, MINUTELY), Entered::Replaced);
    run(&mut ledger);
    assert_eq!(next(&mut ledger), Some(time("2026-12-01T00:01:00Z")));
    assert_eq!(ledger.schedule("a").unwrap().version, 2);
    // One that is paused stays so.
    ledger.pause("a", Some("maintenance")).unwrap();
    assert_eq!(enter(&mut ledger, HOURLY), Entered::Replaced);
    run(&mut ledger);
    let row = ledger.schedule("a").unwrap();
    assert_eq!(row.state, ScheduleState::Paused);
    // A daemon that starts leaves it alone.
    let synced = ledger.sync(&[config("b", HOURLY)]).unwrap();
    assert_eq!(synced.removed, Vec::<String>::new());
    ledger.remove("a", false, None).unwrap();
    assert!(matches!(
        ledger.remove("a", false, None),
        Err(LedgerError::NoSchedule(_))
    ));
}

#[test]
fn a_schedule_of_another_is_not_replaced() {
    let rig = Rig::new();
    let mut ledger = rig.daemon_of("nightly");
    ledger.sync(&[config("file", HOURLY)]).unwrap();
    rig.sql()
        .execute(
            "INSERT INTO schedules (name, definition) VALUES ('sql', ?1)",
            [HOURLY],
        )
        .unwrap();
    for (name, owner) in [
        ("file", "of the configuration `nightly`: change it there"),
        ("sql", "of SQL: change it there"),
    ] {
        let refused = ledger.enter(&config(name, MINUTELY), None).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("schedule `{name}` is {owner}")),
            "{refused}"
        );
    }
    let refused = ledger.remove("file", false, None).unwrap_err().to_string();
    assert!(refused.contains("remove it there"), "{refused}");
    ledger.remove("sql", false, None).unwrap();
    ledger.remove("file", true, None).unwrap();
}

#[test]
fn a_schedule_that_will_never_run_is_not_entered() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let past = config("a", r#"{"at": "2026-01-01T00:00:00", "queue": "q"}"#);
    let refused = ledger.enter(&past, None).unwrap_err().to_string();
    assert!(
        refused.contains("schedule has no slot after 2026-12-01"),
        "{refused}"
    );
    assert_eq!(ledger.schedules().unwrap(), []);
    // One that has ended since then may be entered again as it is.
    let soon = config("a", r#"{"at": "2026-12-01T00:01:00", "queue": "q"}"#);
    assert_eq!(ledger.enter(&soon, None).unwrap(), Entered::Created);
    run(&mut ledger);
    rig.pass(60);
    run(&mut ledger);
    assert_eq!(ledger.schedule("a").unwrap().state, ScheduleState::Ended);
    assert_eq!(ledger.enter(&soon, None).unwrap(), Entered::Unchanged);
}

#[test]
fn a_schedule_that_is_broken_is_tried_again_by_the_same_definition() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.enter(&config("a", HOURLY), None).unwrap();
    run(&mut ledger);
    let broken = "UPDATE schedules SET state = 'broken', state_reason = 'x', wake_at = NULL";
    rig.sql().execute(broken, []).unwrap();
    assert_eq!(
        ledger.enter(&config("a", HOURLY), None).unwrap(),
        Entered::Unchanged
    );
    run(&mut ledger);
    assert_eq!(ledger.schedule("a").unwrap().state, ScheduleState::Active);
}

#[test]
fn schedules_are_listed_by_name_state_and_tag_in_parts() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    // More than are read at once.
    let conn = rig.sql();
    let many = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2499)
        INSERT INTO schedules (name, definition, state)
        SELECT printf('s%04d', i), CASE WHEN i % 100 = 99 THEN '{\"tags\": [\"rare\"]}' ELSE 'nonsense' END,
          CASE WHEN i % 2 = 1 THEN 'paused' ELSE 'active' END FROM n";
    conn.execute(many, []).unwrap();
    let some = |limit| ScheduleFilter {
        limit,
        ..ScheduleFilter::default()
    };
    let all = names(&mut ledger, &some(10_000));
    assert_eq!(all.len(), 2500);
    assert!(all.is_sorted());
    let after = ScheduleFilter {
        after: Some("s2497".to_owned()),
        ..some(10)
    };
    assert_eq!(names(&mut ledger, &after), ["s2498", "s2499"]);
    let rare = ScheduleFilter {
        tag: Some("rare".to_owned()),
        ..some(3)
    };
    assert_eq!(names(&mut ledger, &rare), ["s0099", "s0199", "s0299"]);
    let texts = [("S249", 10), ("RAR", 25), ("none", 0)];
    for (text, number) in texts {
        let with_text = ScheduleFilter {
            text: Some(text.to_owned()),
            ..some(10_000)
        };
        assert_eq!(names(&mut ledger, &with_text).len(), number, "{text}");
    }
    let active = ScheduleFilter {
        tag: Some("rare".to_owned()),
        state: Some(ScheduleState::Active),
        ..some(10)
    };
    assert_eq!(names(&mut ledger, &active), Vec::<String>::new());
    let paused = ScheduleFilter {
        state: Some(ScheduleState::Paused),
        ..some(10_000)
    };
    assert_eq!(names(&mut ledger, &paused).len(), 1250);
    let shown = LedgerClient::schedule(&mut ledger, "s0000").unwrap();
    assert_eq!(shown.definition, "nonsense");
}

#[test]
fn schedules_are_listed_with_their_last_results() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let conn = rig.sql();
    // More than one statement asks for.
    let many = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 249)
        INSERT INTO schedules (name, definition) SELECT printf('s%04d', i), '{}' FROM n";
    conn.execute(many, []).unwrap();
    let runs = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 29)
        INSERT INTO occurrences (id, schedule, version, queue, state, queued_at, ended_at)
        SELECT printf('%s-%04d', name, i), name, 1, 'q', CASE WHEN i = 28 THEN 3 ELSE 2 END, 1, 1
        FROM n JOIN schedules ON name IN ('s0000', 's0120', 's0249')";
    conn.execute(runs, []).unwrap();
    let filter = |results| ScheduleFilter {
        limit: 10_000,
        results,
        ..ScheduleFilter::default()
    };
    let listed = LedgerClient::schedules(&mut ledger, &filter(3)).unwrap();
    for one in &listed {
        let has_run = ["s0000", "s0120", "s0249"].contains(&&*one.name);
        let expected: &[&str] = if has_run {
            &["completed", "failed", "completed"]
        } else {
            &[]
        };
        assert_eq!(one.results, expected, "{}", one.name);
    }
    let listed = LedgerClient::schedules(&mut ledger, &filter(0)).unwrap();
    assert!(listed.iter().all(|one| one.results.is_empty()));
}
