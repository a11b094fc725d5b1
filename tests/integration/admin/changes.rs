//! Versions of schedules, conditions of a change, single slots, and the record of changes over the API.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::schedules::{change, put, seen, trigger, with, yearly};
use super::{api, scene, socket};
use crate::harness::{Answer, Api, Pool, trials};

trials![
    a_definition_is_replaced_as_it_was_read,
    keys_are_changed_one_by_one,
    runs_are_reported,
    versions_are_listed_and_rolled_back,
    changes_are_recorded_with_their_callers,
    slots_are_skipped_and_backfilled,
    a_schedule_is_explained,
    a_schedule_goes_to_another_source,
];

const LEDGER: &str = "[ledger]\nsource = \"main\"\n";

fn keys(every: &str) -> Value {
    json!({ "every": every, "queue": "work" })
}

fn put_if(api: &Api, header: &str, every: &str) -> Answer {
    let body = keys(every).to_string();
    api.ask("PUT", "/v1/schedules/a", &[header], &body)
}

/// Returns the tag of the definition.
fn etag(api: &Api) -> String {
    let shown = api.get("/v1/schedules/a");
    let head = shown.head.to_ascii_lowercase();
    let (_, tag) = head.split_once("etag: ").unwrap();
    let tag = tag.lines().next().unwrap().to_owned();
    assert_eq!(
        tag,
        format!("\"{}\"", shown.json()["etag"].as_str().unwrap())
    );
    tag
}

fn a_definition_is_replaced_as_it_was_read() {
    let (scene, api) = with(LEDGER);
    let why = put_if(&api, "If-Match: *", "1h").problem(412);
    assert!(why.contains("does not exist"), "{why}");
    assert_eq!(
        put_if(&api, "If-None-Match: *", "1h").json()["change"],
        "created"
    );
    let why = put_if(&api, "If-None-Match: *", "2h").problem(412);
    assert!(why.contains("exists already"), "{why}");
    let read = etag(&api);
    assert_eq!(etag(&api), read);
    let is_read = format!("If-Match: {read}");
    assert_eq!(put_if(&api, &is_read, "2h").json()["change"], "replaced");
    assert_ne!(etag(&api), read);
    let why = put_if(&api, &is_read, "3h").problem(412);
    assert!(why.contains("was changed meanwhile"), "{why}");
    let removed = api.ask("DELETE", "/v1/schedules/a", &[&is_read], "");
    removed.problem(412);
    let either = format!("If-Match: \"other\", {}", etag(&api));
    assert_eq!(put_if(&api, &either, "3h").json()["change"], "replaced");
    // Without a condition the last one wins.
    assert_eq!(put(&api, "a", &keys("4h")).json()["change"], "replaced");
    for (header, expected) in [
        ("If-Match: unquoted", "in quotes"),
        ("If-None-Match: \"x\"", "If-None-Match must be `*`"),
        ("If-Match: *\r\nIf-None-Match: *", "not both"),
    ] {
        let why = put_if(&api, header, "5h").problem(400);
        assert!(why.contains(expected), "{why}");
    }
    let now = format!("If-Match: {}", etag(&api));
    let removed = api.ask("DELETE", "/v1/schedules/a", &[&now], "");
    assert_eq!(removed.status, 200, "{removed:?}");
    scene.finish();
}

fn keys_are_changed_one_by_one() {
    let (scene, api) = with(&(LEDGER.to_owned() + &yearly("file", "")));
    let patch = |name: &str, header: &str, body: &Value| {
        let path = format!("/v1/schedules/{name}");
        let headers = [header].into_iter().filter(|header| !header.is_empty());
        api.ask(
            "PATCH",
            &path,
            &headers.collect::<Vec<_>>(),
            &body.to_string(),
        )
    };
    patch("a", "", &keys("1h")).problem(404);
    let first = json!({
        "every": "1h", "queue": "work", "misfire": { "policy": "skip", "grace": "1m" }, "body": "x",
    });
    assert_eq!(put(&api, "a", &first).json()["change"], "created");
    let read = etag(&api);
    let change = json!({ "cron": "0 2 * * *", "misfire": { "grace": null }, "body": null });
    assert_eq!(patch("a", "", &change).json()["change"], "replaced");
    let shown = api.get("/v1/schedules/a").json();
    let expected = json!({ "cron": "0 2 * * *", "queue": "work", "misfire": { "policy": "skip" } });
    assert_eq!(shown["definition"], expected);
    assert_eq!(patch("a", "", &json!({})).json()["change"], "unchanged");
    let why = patch("a", &format!("If-Match: {read}"), &json!({ "body": "y" })).problem(412);
    assert!(why.contains("was changed meanwhile"), "{why}");
    patch("a", "If-None-Match: *", &json!({ "body": "y" })).problem(412);
    let now = format!("If-Match: {}", etag(&api));
    let changed = patch("a", &now, &json!({ "body": "y" }));
    assert_eq!(changed.json()["change"], "replaced");
    let wrong = patch("a", "", &json!({ "cron": "0 0 30 2 *" }));
    wrong.problem(422);
    let wrong = patch("a", "", &json!({ "queue": null }));
    wrong.problem(422);
    assert_eq!(
        api.get("/v1/schedules/a").json()["definition"]["cron"],
        "0 2 * * *"
    );
    seen(&scene, &api, "file", 1);
    let why = patch("file", "", &json!({ "body": "y" })).problem(409);
    assert!(why.contains("change it there"), "{why}");
    let audit = api.get("/v1/audit?subject=a").json();
    assert_eq!(audit[0]["actor"], "token");
    // Schedules may be called like an operation on all of them.
    for name in ["explain", "pause", "resume"] {
        assert_eq!(put(&api, name, &first).json()["change"], "created");
        let changed = patch(name, "", &json!({ "body": "y" }));
        assert_eq!(changed.json()["change"], "replaced", "{name}");
    }
    scene.finish();
}

fn runs_are_reported() {
    let failing = "body = \"mode:answer:400\"\ntags = [\"night\"]\n";
    let (scene, api) = with(&(yearly("failing", failing) + &yearly("fine", "")));
    for (name, state) in [("failing", "failed"), ("fine", "completed")] {
        let id = trigger(&api, name, &json!({}));
        let ended = api.get(&format!("/v1/occurrences/{id}?wait=20s")).json();
        assert_eq!(ended["state"], state, "{ended}");
    }
    let report = |query: &str| {
        let report = api.get(&format!("/v1/reports/{query}")).json();
        let rows = report["rows"].as_array().unwrap().iter();
        let row = |row: &Value| {
            let name = row["schedule"].as_str().unwrap();
            format!("{name} {} of {} failed", row["failed"], row["runs"])
        };
        rows.map(row).collect::<Vec<_>>()
    };
    let both = ["failing 1 of 1 failed", "fine 0 of 1 failed"];
    assert_eq!(report("failures"), both);
    assert_eq!(report("failures?limit=1&queue=work"), both[..1]);
    assert_eq!(report("slow?schedule=fine"), both[1..]);
    assert_eq!(report("lateness?tag=night"), both[..1]);
    assert_eq!(report("durations?to=2001-01-01T00:00:00Z"), [""; 0]);
    let failed = api.get("/v1/occurrences?schedule=failing").json();
    let id = failed["occurrences"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/occurrences/{id}");
    assert_eq!(api.ask("DELETE", &path, &[], "").status, 200);
    api.ask("DELETE", &path, &[], "").problem(404);
    assert_eq!(report("failures"), both[1..]);
    let why = api.get("/v1/reports/fastest").problem(404);
    assert!(
        why.contains("`failures`, `lateness`, `durations`, `slow`"),
        "{why}"
    );
    scene.finish();
}

fn versions_are_listed_and_rolled_back() {
    let (scene, api) = with(&(yearly("file", "")));
    put(&api, "a", &keys("1h"));
    put(&api, "a", &keys("2h"));
    let versions = || api.get("/v1/schedules/a/versions").json();
    let told = versions();
    let told: Vec<_> = told.as_array().unwrap().iter().collect();
    assert_eq!(told.len(), 2);
    assert_eq!(
        (
            &told[0]["version"],
            &told[0]["origin"],
            &told[0]["actor"],
            &told[0]["definition"]
        ),
        (&json!(2), &json!("api"), &json!("token"), &keys("2h"))
    );
    let done = change(&api, "a", "rollback", &json!({ "version": 1 })).json();
    assert_eq!(done["change"], "replaced");
    assert_eq!(versions()[0]["definition"], keys("1h"));
    let record = scene.daemon.logged("schedule rolled back by an operator");
    assert_eq!(
        (&record["schedule"], &record["by"]),
        (&json!("a"), &json!("token"))
    );
    let why = change(&api, "a", "rollback", &json!({ "version": 9 })).problem(422);
    assert!(why.contains("there is no version 9"), "{why}");
    seen(&scene, &api, "file", 1);
    let why = change(&api, "file", "rollback", &json!({ "version": 1 })).problem(409);
    assert!(why.contains("write the earlier definition there"), "{why}");
    let told = scene
        .site
        .ganger(&["schedule", "history", "a", "-o", "json"]);
    assert_eq!(told.json(), versions());
    scene.finish();
}

fn changes_are_recorded_with_their_callers() {
    let (scene, api) = with(&yearly("file", ""));
    let socket = Api::Socket(socket(&scene.daemon));
    put(&api, "a", &keys("1h"));
    change(&socket, "a", "pause", &json!({ "reason": "maintenance" }));
    change(&api, "file", "trigger", &json!({ "body": "x" }));
    api.post("/v1/schedules/pause", r#"{"reason": "an incident"}"#);
    let listed = |query: &str| {
        let listed = api.get(&format!("/v1/audit?{query}"));
        assert_eq!(listed.status, 200, "{listed:?}");
        let listed = listed.json();
        let all = listed.as_array().unwrap().clone();
        all.into_iter()
            .map(|one| (one["action"].as_str().unwrap().to_owned(), one))
            .collect::<Vec<_>>()
    };
    let actions = |query: &str| -> Vec<String> {
        listed(query)
            .into_iter()
            .map(|(action, _)| action)
            .collect()
    };
    assert_eq!(actions(""), ["pause_all", "trigger", "pause", "create"]);
    assert_eq!(actions("subject=a"), ["pause", "create"]);
    assert_eq!(actions("subject=*"), ["pause_all"]);
    let two = listed("limit=2");
    let before = format!("before={}", two[1].1["id"]);
    assert_eq!(actions(&before), ["pause", "create"]);
    let (_, paused) = &listed("subject=a")[0];
    let by = paused["actor"].as_str().unwrap();
    assert!(
        by.starts_with("uid ") && by.ends_with("on the socket"),
        "{by}"
    );
    assert_eq!(paused["detail"], json!({ "reason": "maintenance" }));
    let (_, triggered) = &listed("subject=file")[0];
    assert_eq!(triggered["actor"], "token");
    assert_eq!(triggered["detail"]["body"], "given");
    let told = scene.site.ganger(&["schedule", "audit", "-o", "json"]);
    assert_eq!(told.json(), api.get("/v1/audit?limit=50").json());
    api.post("/v1/schedules/resume", "");
    scene.all_done();
    scene.finish();
}

fn slots_are_skipped_and_backfilled() {
    let (scene, api) = with(&yearly("y", "body = \"{{ slot }}\""));
    seen(&scene, &api, "y", 1);
    let year = Timestamp::now().strftime("%Y").to_string();
    let year: i32 = year.parse().unwrap();
    let slot = |year: i32| format!("{year}-01-01T00:00:00Z");
    let skipped = change(&api, "y", "skip", &json!({})).json();
    assert_eq!(
        skipped,
        json!({ "slot": slot(year + 1), "skips": [slot(year + 1)] })
    );
    let later = json!({ "slot": format!("{}-01-01T00:00", year + 3), "reason": "a holiday" });
    let skipped = change(&api, "y", "skip", &later).json();
    assert_eq!(skipped["skips"], json!([slot(year + 1), slot(year + 3)]));
    let notes = api.get("/v1/schedules/y/next?n=3").json();
    let notes: Vec<_> = notes
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["note"].as_str().unwrap())
        .collect();
    let skipped = "does not run: an operator has skipped it";
    assert_eq!(notes, [skipped, "", skipped]);
    let undone = change(&api, "y", "skip", &json!({ "undo": true })).json();
    assert_eq!(undone["skips"], json!([slot(year + 3)]));
    let why = change(
        &api,
        "y",
        "skip",
        &json!({ "slot": "2026-06-01T00:00:00Z" }),
    )
    .problem(422);
    assert!(why.contains("2026-06-01T00:00:00Z"), "{why}");
    let range = |dry: bool| json!({ "from": "2001-01-01T00:00:00", "to": "2003-01-01T00:00", "dry_run": dry });
    let dry = change(&api, "y", "backfill", &range(true)).json();
    let slots = [slot(2001), slot(2002), slot(2003)];
    assert_eq!(dry, json!({ "slots": slots, "done": 0, "occurrences": [] }));
    let filled = change(&api, "y", "backfill", &range(false)).json();
    assert_eq!(filled["occurrences"].as_array().unwrap().len(), 3);
    scene.all_done();
    let bodies: Vec<&str> = slots.iter().map(String::as_str).collect();
    scene.record().assert_done_once(&bodies);
    let again = change(&api, "y", "backfill", &range(false)).json();
    assert_eq!(again, json!({ "slots": [], "done": 3, "occurrences": [] }));
    let record = scene.daemon.logged("slots of the past run by an operator");
    assert_eq!(record["slots"], 3);
    let wrong = json!({ "from": "2001-01-01T00:00", "to": "2100-01-01T00:00" });
    let why = change(&api, "y", "backfill", &wrong).problem(422);
    assert!(why.contains("to must be in the past"), "{why}");
    scene.finish();
}

fn a_schedule_is_explained() {
    let (scene, api) = with(&yearly("explain", "zone = \"Europe/Berlin\""));
    seen(&scene, &api, "explain", 1);
    let told = api
        .get("/v1/schedules/explain/explain?n=1&from=2027-06-01T00:00")
        .json();
    let state = json!({ "label": "state", "text": "active: its slots are dispatched" });
    assert_eq!(told["words"][0], state);
    assert_eq!(told["slots"][0]["slot"], "2027-12-31T23:00:00Z");
    assert_eq!(told["slots"].as_array().unwrap().len(), 1);
    api.get("/v1/schedules/explain/explain?n=0").problem(400);
    let why = api
        .get("/v1/schedules/explain/explain?from=noon")
        .problem(422);
    assert!(why.contains("invalid time `noon`"), "{why}");
    scene.finish();
}

fn a_schedule_goes_to_another_source() {
    let other = "[sources.other]\nkind = \"table\"\nurl = \"sqlite:other.db\"\n[ledger]\nsource = \"main\"\n";
    let pool = Pool::new(&[]).text("source", "main").after(other);
    let scene = scene(pool);
    scene.daemon.logged("ganger is running");
    let api = api(&scene.daemon);
    let mut keys = keys("1h");
    keys["source"] = json!("othr");
    let refused = put(&api, "a", &keys);
    refused.problem(422);
    assert!(
        refused.body.contains("did you mean `other`?"),
        "{refused:?}"
    );
    keys["source"] = json!("other");
    assert_eq!(put(&api, "a", &keys).json()["change"], "created");
    assert_eq!(
        api.get("/v1/schedules/a").json()["definition"]["source"],
        "other"
    );
    scene.finish();
}
