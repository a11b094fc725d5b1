//! Schedules that are written outside a configuration.

use serde_json::{Value, json};

use super::super::{GivenKey, WrittenSchedule, parse, patch};
use super::*;
use ganger_schedule::zone::Zones;

fn set(key: &str, value: &str) -> GivenKey {
    GivenKey {
        place: format!("--set {key}"),
        key: key.to_owned(),
        value: value.to_owned(),
        is_text: false,
    }
}

fn text(key: &str, value: &str) -> GivenKey {
    GivenKey {
        place: format!("--{key}"),
        is_text: true,
        ..set(key, value)
    }
}

fn read(keys: Value, file: Option<&str>, given: Vec<GivenKey>) -> Result<Value, Vec<String>> {
    let written = WrittenSchedule {
        name: "s",
        keys: keys.as_object().unwrap().clone(),
        file: file.map(|text| ("new.toml", text)),
        given,
        ..WrittenSchedule::default()
    };
    match written.read(&Zones::load()) {
        Ok(schedule) => Ok(serde_json::from_str(&schedule.definition).unwrap()),
        Err(problems) => Err(problems
            .messages()
            .iter()
            .map(|one| one.one_line())
            .collect()),
    }
}

#[test]
fn keys_of_a_later_place_replace_earlier_ones() {
    let keys = json!({
        "every": "1h", "offset": "1m", "queue": "q", "misfire": { "policy": "skip", "max": 3 }, "limit": 2,
    });
    let file = "cron = \"0 2 * * *\"\nbody = \"x\"";
    let given = vec![
        set("misfire.max", "5"),
        text("body", "7"),
        set("tags", "[\"a\", \"b\"]"),
        set("headers.tenant", "blue"),
        text("zone", "Europe/Berlin"),
    ];
    let expected = json!({
        "cron": "0 2 * * *", "queue": "q", "misfire": { "policy": "skip", "max": 5 }, "limit": 2, "body": "7",
        "tags": ["a", "b"], "headers": { "tenant": "blue" }, "zone": "Europe/Berlin",
    });
    assert_eq!(read(keys, Some(file), given), Ok(expected));
    let several = vec![
        text("cron", "0 2 * * *"),
        text("cron", "0 3 * * *"),
        text("queue", "q"),
    ];
    let expected = json!({ "cron": ["0 2 * * *", "0 3 * * *"], "queue": "q" });
    assert_eq!(
        read(json!({ "at": "2100-01-01T00:00" }), None, several),
        Ok(expected)
    );
    let exchange = vec![text("exchange", "e")];
    let expected = json!({ "every": "1h", "exchange": "e" });
    assert_eq!(
        read(json!({ "every": "1h", "queue": "q" }), None, exchange),
        Ok(expected)
    );
}

#[test]
fn mistakes_are_told_with_their_places() {
    let queue = || json!({ "queue": "q" });
    for (file, given, expected) in [
        (
            None,
            vec![text("cron", "61 * * * *")],
            "--cron:1: cron: minute `61` is out of range",
        ),
        (
            Some("\ncron = \"0 25 * * *\""),
            vec![],
            "new.toml:2: cron: hour `25`",
        ),
        (Some("cron = "), vec![], "new.toml:1: this is not TOML"),
        (
            Some("every = \"1h\"\nname = \"t\""),
            vec![],
            "new.toml:2: name must be `s`, or be left out",
        ),
        (
            None,
            vec![set("every", "1h"), set("misfire.polcy", "all")],
            "did you mean `policy`?",
        ),
        (None, vec![set("every", "1h"), set("body", "[1]")], "body"),
        (
            None,
            vec![set("every", "1h"), text("only", "office")],
            "--only:1: only must be a calendar itself: only a configuration names calendars: `office` (write its keys",
        ),
        (None, vec![], "one of `cron`, `every` and `at`"),
    ] {
        let problems = read(queue(), file, given).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{expected}: {problems:?}"
        );
    }
    assert_eq!(
        read(queue(), Some("every = \"1h\"\nname = \"s\""), vec![]).unwrap()["every"],
        "1h"
    );
}

#[test]
fn sources_are_those_of_the_configuration() {
    let sources = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:q.db\"\n[sources.other]\nkind = \"table\"\n\
                   url = \"sqlite:o.db\"\n[ledger]\nsource = \"main\"\n[[pools]]\nname = \"p\"\n\
                   source = \"main\"\nqueue = \"q\"\ncommand = \"true\"\n";
    let config = parse(sources, "ganger.toml", &Environment::new()).unwrap();
    let read = |source: &str| {
        let written = WrittenSchedule {
            name: "s",
            given: vec![
                text("every", "1h"),
                text("queue", "q"),
                text("source", source),
            ],
            config: Some(&config),
            ..WrittenSchedule::default()
        };
        let read = written.read(&Zones::load());
        read.map(|schedule| schedule.source)
            .map_err(|problems| problems.messages()[0].one_line())
    };
    assert_eq!(read("main"), Ok(None));
    assert_eq!(read("other"), Ok(Some("other".to_owned())));
    let refused = read("othr").unwrap_err();
    assert!(refused.contains("did you mean `other`?"), "{refused}");
}

/// The cases of RFC 7396 that a definition can have, and the keys that exclude others.
#[test]
fn a_patch_replaces_merges_and_takes_out() {
    let table = [
        (
            json!({ "body": "a" }),
            json!({ "body": "b" }),
            json!({ "body": "b" }),
        ),
        (json!({ "body": "a" }), json!({ "body": null }), json!({})),
        (
            json!({ "body": "a" }),
            json!({ "tags": null }),
            json!({ "body": "a" }),
        ),
        (
            json!({ "tags": ["a"] }),
            json!({ "tags": ["b", "c"] }),
            json!({ "tags": ["b", "c"] }),
        ),
        (
            json!({ "misfire": { "policy": "all", "max": 3 } }),
            json!({ "misfire": { "policy": "skip", "max": null, "grace": "1m" } }),
            json!({ "misfire": { "policy": "skip", "grace": "1m" } }),
        ),
        (
            json!({ "body": "a" }),
            json!({ "headers": { "b": null } }),
            json!({ "body": "a", "headers": {} }),
        ),
        (
            json!({ "body": "a" }),
            json!({ "body": { "b": "c" } }),
            json!({ "body": { "b": "c" } }),
        ),
        (
            json!({ "cron": "0 * * * *", "dialect": "quartz" }),
            json!({ "every": "1h" }),
            json!({ "every": "1h" }),
        ),
        (
            json!({ "cron": "0 * * * *" }),
            json!({ "every": null }),
            json!({ "cron": "0 * * * *" }),
        ),
        (
            json!({ "queue": "q" }),
            json!({ "exchange": "e" }),
            json!({ "exchange": "e" }),
        ),
    ];
    for (before, change, expected) in table {
        let mut keys = before.as_object().unwrap().clone();
        patch(&mut keys, change.as_object().unwrap().clone());
        assert_eq!(Value::from(keys), expected, "{before} {change}");
    }
}
