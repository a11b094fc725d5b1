//! Versions of definitions, and the record of what operators have changed.

use super::*;
use ganger_queue::ledger::{AuditFilter, Entered, Expected};

const HOURLY: &str = r#"{"cron":"0 * * * *","queue":"q"}"#;
const DAILY: &str = r#"{"cron":"0 0 * * *","queue":"q"}"#;

/// Returns the versions of a schedule, the newest first: number, origin, actor, and the expression or the text.
fn versions(ledger: &mut Ledger, name: &str) -> Vec<String> {
    let versions = ledger.versions(name).unwrap().into_iter();
    let shown = versions.map(|one| {
        let actor = one.actor.unwrap_or_default();
        let keys = one.definition["cron"].as_str().map(str::to_owned);
        let keys = keys.unwrap_or_else(|| one.definition.to_string());
        format!("{} {} {actor} {keys}", one.version, one.origin)
    });
    shown.collect()
}

/// Returns the changes of a schedule, the oldest first: actor, action and detail.
fn audited(ledger: &mut Ledger, subject: Option<&str>) -> Vec<String> {
    let filter = AuditFilter {
        subject: subject.map(str::to_owned),
        before: None,
        limit: 100,
    };
    let changes = ledger.audit(&filter).unwrap().into_iter().rev();
    let shown = changes.map(|one| {
        let actor = one.actor.unwrap_or_default();
        format!("{actor} {} {} {}", one.action, one.subject, one.detail)
    });
    shown.collect()
}

fn etag(ledger: &mut Ledger, name: &str) -> String {
    LedgerClient::schedule(ledger, name).unwrap().etag
}

#[test]
fn each_version_is_kept_once_whoever_has_made_it() {
    let rig = Rig::new();
    let (mut ledger, mut other) = (rig.daemon(), rig.daemon());
    ledger.set_actor("ann");
    ledger.sync(&[config("file", HOURLY)]).unwrap();
    assert!(versions(&mut ledger, "file").is_empty());
    ledger.enter(&config("api", HOURLY), None).unwrap();
    let sql = rig.sql();
    let insert = "INSERT INTO schedules (name, definition) VALUES ('sql', ?1)";
    sql.execute(insert, [HOURLY]).unwrap();
    run(&mut ledger);
    run(&mut other);
    assert_eq!(versions(&mut ledger, "file"), ["1 file  0 * * * *"]);
    assert_eq!(versions(&mut ledger, "api"), ["1 api ann 0 * * * *"]);
    assert_eq!(versions(&mut ledger, "sql"), ["1 sql  0 * * * *"]);
    ledger.sync(&[config("file", DAILY)]).unwrap();
    ledger.enter(&config("api", DAILY), None).unwrap();
    ledger.enter(&config("api", DAILY), None).unwrap();
    let change = "UPDATE schedules SET definition = ?1, wake_at = 0 WHERE name = 'sql'";
    sql.execute(change, [DAILY]).unwrap();
    run(&mut other);
    run(&mut ledger);
    assert_eq!(versions(&mut ledger, "file")[0], "2 file  0 0 * * *");
    assert_eq!(
        versions(&mut ledger, "api"),
        ["2 api ann 0 0 * * *", "1 api ann 0 * * * *"]
    );
    assert_eq!(versions(&mut ledger, "sql").len(), 2);
    for name in ["file", "api", "sql"] {
        assert_eq!(ledger.schedule(name).unwrap().version, 2, "{name}");
    }
    assert!(matches!(
        ledger.versions("nothing"),
        Err(LedgerError::NoSchedule(_))
    ));
}

#[test]
fn versions_that_no_daemon_has_seen_are_kept_and_numbered_on() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.set_actor("ann");
    for definition in [HOURLY, DAILY, HOURLY] {
        ledger.enter(&config("a", definition), None).unwrap();
    }
    assert_eq!(ledger.schedule("a").unwrap().version, 0);
    run(&mut ledger);
    assert_eq!(ledger.schedule("a").unwrap().version, 3);
    assert_eq!(versions(&mut ledger, "a").len(), 3);
    // What SQL makes of an entered definition before a daemon sees it is a version of its own.
    ledger.enter(&config("a", DAILY), None).unwrap();
    let change = "UPDATE schedules SET definition = ?1, wake_at = 0 WHERE name = 'a'";
    rig.sql().execute(change, [MINUTELY]).unwrap();
    run(&mut ledger);
    let expected = ["5 api  * * * * *", "4 api ann 0 0 * * *"];
    assert_eq!(versions(&mut ledger, "a")[..2], expected);
    // One that is paused is numbered once.
    ledger.pause("a", None).unwrap();
    for definition in [HOURLY, HOURLY, DAILY] {
        rig.sql().execute(change, [definition]).unwrap();
        run(&mut ledger);
    }
    assert_eq!(versions(&mut ledger, "a").len(), 7);
}

#[test]
fn a_nonsense_is_no_version() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let insert = "INSERT INTO schedules (name, definition) VALUES ('a', '{}')";
    rig.sql().execute(insert, []).unwrap();
    assert_eq!(run(&mut ledger).broken.len(), 1);
    assert!(versions(&mut ledger, "a").is_empty());
    assert_eq!(ledger.schedule("a").unwrap().version, 0);
}

#[test]
fn a_hundred_versions_are_kept() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    for number in 1..=103 {
        let definition = format!(r#"{{"cron":"0 0 * * *","queue":"q{number}"}}"#);
        ledger.enter(&config("a", &definition), None).unwrap();
        run(&mut ledger);
    }
    let versions = ledger.versions("a").unwrap();
    let numbers = (versions[0].version, versions[versions.len() - 1].version);
    assert_eq!((versions.len(), numbers), (100, (103, 4)));
}

#[test]
fn versions_of_a_removed_schedule_go_with_its_occurrences() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.enter(&config("never", HOURLY), None).unwrap();
    ledger.enter(&config("ran", MINUTELY), None).unwrap();
    run(&mut ledger);
    rig.pass(30);
    assert_eq!(run(&mut ledger).sent, 1);
    rig.end_all(OccurrenceState::Completed);
    for name in ["never", "ran"] {
        ledger.remove(name, false, None).unwrap();
    }
    assert!(ledger.versions("never").is_err());
    assert_eq!(ledger.versions("ran").unwrap().len(), 1);
    // It is numbered on if it comes back.
    ledger.enter(&config("ran", HOURLY), None).unwrap();
    assert_eq!(ledger.versions("ran").unwrap()[0].version, 2);
    ledger.remove("ran", false, None).unwrap();
    rig.pass(600);
    assert_eq!(audited(&mut ledger, None).len(), 6);
    ledger.expire(&Keep::all(Duration::from_secs(60))).unwrap();
    assert!(ledger.versions("ran").is_err());
    assert!(audited(&mut ledger, None).is_empty());
}

#[test]
fn an_earlier_version_is_entered_again() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.set_actor("bob");
    for definition in [HOURLY, DAILY] {
        ledger.enter(&config("a", definition), None).unwrap();
        run(&mut ledger);
    }
    assert_eq!(ledger.roll_back("a", 1).unwrap(), Entered::Replaced);
    assert_eq!(ledger.roll_back("a", 1).unwrap(), Entered::Unchanged);
    run(&mut ledger);
    assert_eq!(versions(&mut ledger, "a")[0], "3 api bob 0 * * * *");
    assert_eq!(
        audited(&mut ledger, Some("a")).last().unwrap(),
        r#"bob roll_back a {"keys":["cron"],"to":1,"version":3}"#
    );
    let refused = ledger.roll_back("a", 9).unwrap_err().to_string();
    assert_eq!(
        refused,
        "schedule `a`: there is no version 9 (any more); these are kept: 3, 2, 1"
    );
    ledger.sync(&[config("file", HOURLY)]).unwrap();
    run(&mut ledger);
    let refused = ledger.roll_back("file", 1).unwrap_err().to_string();
    assert!(
        refused.contains("of the configuration `main`: write the earlier definition there"),
        "{refused}"
    );
    assert!(matches!(
        ledger.roll_back("b", 1),
        Err(LedgerError::NoSchedule(_))
    ));
}

#[test]
fn a_change_that_expects_another_definition_is_refused() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    let enter = |ledger: &mut Ledger, definition, expected: Expected| {
        ledger.enter(&config("a", definition), Some(&expected))
    };
    for expected in [Expected::Present, Expected::OneOf(vec!["x".to_owned()])] {
        let refused = enter(&mut ledger, HOURLY, expected).unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");
    }
    enter(&mut ledger, HOURLY, Expected::Absent).unwrap();
    let refused = enter(&mut ledger, HOURLY, Expected::Absent).unwrap_err();
    assert!(refused.to_string().contains("exists already"), "{refused}");
    let read = etag(&mut ledger, "a");
    let is_read = || Expected::OneOf(vec!["other".to_owned(), read.clone()]);
    enter(&mut ledger, DAILY, is_read()).unwrap();
    for refused in [
        enter(&mut ledger, MINUTELY, is_read()).unwrap_err(),
        ledger.remove("a", false, Some(&is_read())).unwrap_err(),
    ] {
        assert!(matches!(refused, LedgerError::Changed(..)), "{refused}");
        assert!(refused.to_string().contains("was changed meanwhile"));
    }
    // Without an expectation the last wins.
    ledger.enter(&config("a", MINUTELY), None).unwrap();
    let now = Expected::OneOf(vec![etag(&mut ledger, "a")]);
    ledger.remove("a", false, Some(&now)).unwrap();
}

#[test]
fn changes_by_operators_are_recorded() {
    let rig = Rig::new();
    let mut ledger = rig.daemon();
    ledger.sync(&[config("file", HOURLY)]).unwrap();
    run(&mut ledger);
    assert!(audited(&mut ledger, None).is_empty());
    ledger.set_actor("ann");
    ledger.pause("file", Some("maintenance")).unwrap();
    ledger.resume("file", true).unwrap();
    ledger.set_hold(Some("an incident")).unwrap();
    ledger.set_hold(None).unwrap();
    let sent = ledger.trigger("file", None, Some("a try"), false).unwrap();
    let Triggered::Sent(id) = sent else {
        panic!("{sent:?}");
    };
    // What is refused is no change.
    assert_eq!(
        ledger.trigger("file", None, None, false).unwrap(),
        Triggered::Overlaps
    );
    ledger.pause("nothing", None).unwrap_err();
    ledger.enter(&config("a", HOURLY), None).unwrap();
    ledger.enter(&config("a", HOURLY), None).unwrap();
    ledger.enter(&config("a", DAILY), None).unwrap();
    ledger.remove("a", false, None).unwrap();
    assert_eq!(
        audited(&mut ledger, None),
        [
            r#"ann pause file {"reason":"maintenance"}"#.to_owned(),
            r#"ann resume file {"make_up":true}"#.to_owned(),
            r#"ann pause_all * {"reason":"an incident"}"#.to_owned(),
            "ann resume_all * null".to_owned(),
            format!(r#"ann trigger file {{"occurrence":"{id}","reason":"a try"}}"#),
            r#"ann create a {"version":1}"#.to_owned(),
            r#"ann replace a {"keys":["cron"],"version":2}"#.to_owned(),
            format!(r#"ann remove a {{"definition":{DAILY}}}"#),
        ]
    );
    let newest = |before| {
        let filter = AuditFilter {
            subject: Some("file".to_owned()),
            before,
            limit: 1,
        };
        ledger.audit(&filter).unwrap().remove(0)
    };
    let mut newest = newest;
    let last = newest(None);
    assert_eq!(last.action, "trigger");
    assert_eq!(newest(Some(last.id)).action, "resume");
}
