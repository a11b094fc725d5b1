//! Coming slots of all schedules.

use super::*;
use ganger_queue::ledger::{LedgerClient, SkipRequest, UpcomingRange};

fn upcoming(ledger: &mut Ledger, to: Option<&str>, limit: u32) -> Vec<String> {
    let range = UpcomingRange {
        to: to.map(time),
        limit,
        ..UpcomingRange::default()
    };
    let slots = ledger.upcoming(&range).unwrap().into_iter();
    slots
        .map(|one| {
            format!("{} {} {}", one.slot.slot, one.schedule, one.slot.note)
                .trim_end()
                .to_owned()
        })
        .collect()
}

#[test]
fn coming_slots_are_those_of_all_that_go_on() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let hourly = r#"{"every": "1h", "queue": "q"}"#;
    let half_past = r#"{"cron": "30 * * * *", "queue": "q"}"#;
    let yearly = r#"{"cron": "0 0 1 1 *", "queue": "q"}"#;
    let all = [
        config("hourly", hourly),
        config("half-past", half_past),
        config("paused", half_past),
        config("yearly", yearly),
    ];
    ledger.sync(&all).unwrap();
    let nonsense = "INSERT INTO schedules (name, definition) VALUES ('nonsense', '{')";
    rig.sql().execute(nonsense, []).unwrap();
    // Also before a daemon has looked at them.
    assert_eq!(upcoming(&mut ledger, None, 1).len(), 1);
    run(&mut ledger);
    ledger.pause("paused", None).unwrap();
    let skip = SkipRequest::default();
    LedgerClient::skip(&mut ledger, "hourly", &skip).unwrap();
    assert_eq!(
        upcoming(&mut ledger, None, 3),
        [
            "2026-12-01T00:30:00Z half-past",
            "2026-12-01T01:00:00Z hourly does not run: an operator has skipped it",
            "2026-12-01T01:30:00Z half-past",
        ]
    );
    assert_eq!(upcoming(&mut ledger, None, 100).len(), 48);
    let few = UpcomingRange {
        each: Some(2),
        limit: 100,
        ..UpcomingRange::default()
    };
    assert_eq!(ledger.upcoming(&few).unwrap().len(), 4);
    let zone = Zones::load().get("Asia/Tokyo").unwrap();
    let in_tokyo = UpcomingRange {
        zone: Some(zone),
        ..few
    };
    let first = ledger.upcoming(&in_tokyo).unwrap().swap_remove(0);
    assert_eq!(first.slot.local, "2026-12-01T09:30:00+09:00");
    let until = |to| upcoming(&mut ledger, Some(to), 100).len();
    assert_eq!(
        ["2026-12-01T00:29:59Z", "2026-12-01T01:00:00Z"].map(until),
        [0, 2]
    );
}

#[test]
fn coming_slots_end_with_the_limit() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let thrice = r#"{"every": "1h", "queue": "q", "limit": 3, "overlap": "allow"}"#;
    ledger.sync(&[config("thrice", thrice)]).unwrap();
    run(&mut ledger);
    assert_eq!(upcoming(&mut ledger, None, 100).len(), 3);
    rig.pass(3600);
    ledger.dispatch().unwrap();
    assert_eq!(upcoming(&mut ledger, None, 100).len(), 2);
}
