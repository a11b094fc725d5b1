//! Logs of runs over the API.

use std::thread;

use serde_json::{Value, json};

use super::schedules::{refused, trigger, with, yearly};
use crate::harness::trials;

trials![
    the_log_of_an_occurrence_is_read_and_followed,
    what_is_mistyped_about_a_log_is_told,
];

fn the_log_of_an_occurrence_is_read_and_followed() {
    let (scene, api) = with(&yearly(
        "long",
        "body = \"mode:print-lines:5,wait:go,print:last\"",
    ));
    let id = trigger(&api, "long", &json!({}));
    let path = format!("/v1/occurrences/{id}/log");
    let log = |query: &str| api.get(&format!("{path}?{query}"));
    let first = scene.daemon.eventually_some("the first lines", || {
        let log = log("").json();
        (log["lines"].as_array().unwrap().len() == 5).then_some(log)
    });
    assert_eq!(
        (&first["ended_at"], &first["dropped"]),
        (&Value::Null, &json!(0))
    );
    let line = &first["lines"][1];
    assert_eq!((&line["line"], &line["attempt"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&line["stream"], &line["text"]),
        (&json!("stdout"), &json!("line 1"))
    );
    let some = log("after=1&limit=2").json();
    assert_eq!(
        some["lines"].as_array().unwrap()[..],
        first["lines"].as_array().unwrap()[2..4]
    );
    let texts = |events: &str| {
        let data = events
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let data = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
        data.map(|data| data["text"].clone()).collect::<Vec<_>>()
    };
    let seen = ["Last-Event-ID: 3"];
    thread::scope(|scope| {
        let whole = scope.spawn(|| log("follow"));
        let rest = scope.spawn(|| api.ask("GET", &format!("{path}?follow=true"), &seen, ""));
        scene.site.touch("go");
        let whole = whole.join().unwrap().body;
        assert!(
            whole.contains("event: line\n") && whole.contains("id: 5\n"),
            "{whole}"
        );
        assert_eq!(texts(&whole).len(), 7, "{whole}");
        let (_, end) = whole.split_once("event: end\n").unwrap();
        assert!(end.contains("\"state\":\"completed\""), "{end}");
        let rest = rest.join().unwrap().body;
        let expected = [json!("line 4"), json!("last"), Value::Null];
        assert_eq!(texts(&rest), expected);
    });
    scene.finish();
}

fn what_is_mistyped_about_a_log_is_told() {
    let (scene, api) = with(&yearly("a", ""));
    let id = trigger(&api, "a", &json!({}));
    let path = format!("/v1/occurrences/{id}/log");
    for (query, expected) in [
        ("limit=0", "limit must be within 1..=1000"),
        ("follow=maybe", "follow must be true or false: `maybe`"),
        ("after=x", "after"),
    ] {
        refused(&api, "GET", (&format!("{path}?{query}"), ""), 400, expected);
    }
    let seen = ["Last-Event-ID: last"];
    let why = api.ask("GET", &format!("{path}?follow"), &seen, "");
    assert!(
        why.problem(400)
            .contains("Last-Event-ID must be the number of a line: `last`")
    );
    for query in ["", "?follow"] {
        let unknown = format!("/v1/occurrences/typo/log{query}");
        refused(
            &api,
            "GET",
            (&unknown, ""),
            404,
            "there is no occurrence `typo`",
        );
    }
    scene.finish();
}
