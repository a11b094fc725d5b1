//! Schedules and occurrences over the API.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::sync_channel;
use std::thread;

use serde_json::{Value, json};

use super::{api, scene, socket};
use crate::harness::{Answer, Api, Event, Pool, Scene, trials};
use crate::ledger::schedule;

trials![
    schedules_are_shown_as_commands_show_them,
    a_schedule_is_entered_replaced_and_removed,
    a_schedule_called_new_has_a_page,
    a_schedule_of_a_file_or_of_sql_stays,
    a_schedule_is_paused_resumed_and_triggered,
    all_schedules_are_paused,
    of_triggers_at_the_same_time_one_runs,
    times_are_explained,
    occurrences_are_listed_in_parts,
    the_end_of_an_occurrence_is_waited_for,
    requests_that_wait_leave_places_to_others,
    what_is_not_there_is_told,
    what_is_mistyped_in_a_query_is_told,
    what_is_mistyped_in_a_body_is_told,
    what_no_database_stores_is_told,
    a_ledger_that_is_locked_holds_up_no_other_request,
    a_daemon_without_a_ledger_says_so,
];

/// Places for requests that wait, on each listener.
const WAITS: usize = 16;
/// Places for requests that use the ledger, or wait for their turn.
const AT_LEDGER: usize = 24;

/// A schedule that runs when it is triggered, with further keys.
pub(super) fn yearly(name: &str, more: &str) -> String {
    schedule(name, &format!("cron = \"0 0 1 1 *\"\n{more}"))
}

/// A daemon with those schedules, once they are in its ledger.
pub(super) fn with(schedules: &str) -> (Scene, Api) {
    let pool = Pool::new(&[]).set("workers", "2").after(schedules);
    let scene = scene(pool.clone());
    scene.site.configure_commands(&[pool]);
    scene.daemon.entered();
    let api = api(&scene.daemon);
    (scene, api)
}

pub(super) fn put(api: &Api, name: &str, keys: &Value) -> Answer {
    let path = format!("/v1/schedules/{name}");
    api.ask("PUT", &path, &[], &keys.to_string())
}

fn delete(api: &Api, name: &str) -> Answer {
    api.ask("DELETE", &format!("/v1/schedules/{name}"), &[], "")
}

/// Does something with a schedule; the answer.
pub(super) fn change(api: &Api, name: &str, operation: &str, body: &Value) -> Answer {
    let path = format!("/v1/schedules/{name}/{operation}");
    api.post(&path, &body.to_string())
}

pub(super) fn trigger(api: &Api, name: &str, body: &Value) -> String {
    let triggered = change(api, name, "trigger", body);
    assert_eq!(triggered.status, 200, "{triggered:?}");
    triggered.json()["occurrence"].as_str().unwrap().to_owned()
}

/// Waits for the end of an occurrence, and returns it.
fn ended(api: &Api, id: &str) -> Value {
    let ended = api.get(&format!("/v1/occurrences/{id}?wait=20s"));
    assert_eq!(ended.status, 200, "{ended:?}");
    let ended = ended.json();
    assert!(ended["ended_at"].is_string(), "{ended}");
    let events = api.get(&format!("/v1/occurrences/{id}/events"));
    assert_eq!(events.json(), ended["events"]);
    ended
}

fn states(occurrence: &Value) -> Vec<&str> {
    let events = occurrence["events"].as_array().unwrap().iter();
    events.map(|event| event["to"].as_str().unwrap()).collect()
}

/// Returns the schedule of that name, once a daemon has seen its definition.
pub(super) fn seen(scene: &Scene, api: &Api, name: &str, version: u64) -> Value {
    let path = format!("/v1/schedules/{name}");
    scene.daemon.eventually_some("it to be seen", || {
        let shown = api.get(&path).json();
        (shown["version"] == version).then_some(shown)
    })
}

fn errors(answer: &Answer) -> String {
    let problem = answer.json();
    let errors = problem["errors"].as_array().unwrap().iter();
    let errors: Vec<&str> = errors.map(|error| error.as_str().unwrap()).collect();
    errors.join("\n")
}

fn schedules_are_shown_as_commands_show_them() {
    let both = yearly("a", "tags = [\"night\"]") + &yearly("pause", "zone = \"Europe/Berlin\"");
    let (scene, api) = with(&both);
    seen(&scene, &api, "a", 1);
    seen(&scene, &api, "pause", 1);
    ended(&api, &trigger(&api, "a", &json!({})));
    let same = |args: &[&str], path: &str| {
        let args = [args, &["-o", "json"]].concat();
        let told = scene.site.ganger(&args).json();
        let answer = api.get(path);
        assert_eq!((answer.status, answer.json()), (200, told), "{path}");
        answer.json()
    };
    let list = ["schedule", "list", "--results", "20"];
    let all = same(&list, "/v1/schedules?results=20");
    assert_eq!(all[0]["results"], json!(["completed"]));
    let all = same(&["schedule", "list"], "/v1/schedules");
    assert_eq!(all[0]["results"], Value::Null);
    assert_eq!(all[0]["name"], "a");
    assert_eq!(
        (&all[1]["name"], &all[1]["origin"]),
        (&json!("pause"), &json!("file"))
    );
    let shown = same(&["schedule", "show", "a"], "/v1/schedules/a");
    assert_eq!(shown["definition"]["cron"], "0 0 1 1 *");
    assert_eq!(shown["occurrences"][0]["state"], "completed");
    // It is called like an operation on all of them.
    same(&["schedule", "show", "pause"], "/v1/schedules/pause");
    let from = "2027-06-01T00:00:00";
    let next = ["schedule", "next", "pause", "-n", "2", "--from", from];
    let slots = same(&next, &format!("/v1/schedules/pause/next?n=2&from={from}"));
    assert_eq!(slots[0]["slot"], "2027-12-31T23:00:00Z");
    let names = |query: &str| {
        let listed = api.get(&format!("/v1/schedules?{query}")).json();
        let listed = listed.as_array().unwrap().iter();
        let names: Vec<String> = listed
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect();
        names.join(" ")
    };
    for (query, expected) in [
        ("tag=night", "a"),
        ("tag=day", ""),
        ("state=active", "a pause"),
        ("state=paused", ""),
        ("limit=1", "a"),
        ("limit=1&after=a", "pause"),
    ] {
        assert_eq!(names(query), expected, "{query}");
    }
    scene.finish();
}

fn a_schedule_called_new_has_a_page() {
    let (scene, api) = with(&yearly("new", ""));
    seen(&scene, &api, "new", 1);
    let listed = api.get("/ui/schedules");
    assert!(
        listed.body.contains("href=\"/ui/schedules/new\""),
        "{listed:?}"
    );
    let page = api.get("/ui/schedules/new").body;
    assert!(page.contains("<h1>Schedule new</h1>"), "{page}");
    let form = api.get("/ui/new-schedule").body;
    assert!(form.contains("<h1>New schedule</h1>"), "{form}");
    scene.finish();
}

fn a_schedule_is_entered_replaced_and_removed() {
    let (scene, api) = with("[ledger]\nsource = \"main\"\n");
    let keys =
        |at: &str| json!({ "at": at, "queue": "work", "body": "{{ schedule }}", "tags": ["t"] });
    let far = keys("2100-01-01T00:00:00");
    let entered = put(&api, "gr%C3%BC%C3%9Fe", &far);
    entered.problem(422);
    let entered = put(&api, "invoices", &far).json();
    let done = "schedule `invoices` is created";
    let expected = json!({ "done": done, "schedule": "invoices", "change": "created" });
    assert_eq!(entered, expected);
    let shown = seen(&scene, &api, "invoices", 1);
    assert_eq!(
        (&shown["origin"], &shown["definition"], &shown["next_slot"]),
        (&json!("api"), &far, &json!("2100-01-01T00:00:00Z"))
    );
    assert_eq!(put(&api, "invoices", &far).json()["change"], "unchanged");
    let occurrence = ended(&api, &trigger(&api, "invoices", &json!({})));
    assert_eq!(occurrence["state"], "completed");
    scene.record().assert_done_once(&["invoices"]);
    // The whole entry of a configuration is one, too.
    let mut later = keys("2101-01-01T00:00:00");
    later["name"] = json!("invoices");
    later["source"] = json!("main");
    assert_eq!(put(&api, "invoices", &later).json()["change"], "replaced");
    let shown = seen(&scene, &api, "invoices", 2);
    assert_eq!(shown["next_slot"], "2101-01-01T00:00:00Z");
    assert_eq!(shown["definition"], keys("2101-01-01T00:00:00"));
    // It is none of the configuration, and outlasts a reload and a restart.
    let removed = delete(&api, "invoices").json();
    assert_eq!(removed, json!({ "done": "schedule `invoices` is removed" }));
    delete(&api, "invoices").problem(404);
    api.get("/v1/schedules/invoices").problem(404);
    let id = occurrence["id"].as_str().unwrap();
    assert_eq!(ended(&api, id)["schedule"], "invoices");
    let by = |message: &str| {
        let record = scene.daemon.logged(message);
        assert_eq!(record["by"], "token", "{record}");
        assert_eq!(record["schedule"], "invoices", "{record}");
    };
    by("schedule entered by an operator");
    by("schedule removed by an operator");
    scene.finish();
}

fn a_schedule_of_a_file_or_of_sql_stays() {
    let (scene, api) = with(&yearly("file", ""));
    let insert = r#"INSERT INTO schedules (name, definition) VALUES ('sql', '{"every": "1h", "queue": "work"}')"#;
    scene.table.run(insert).unwrap();
    let keys = json!({ "every": "2h", "queue": "work" });
    let why = put(&api, "file", &keys).problem(409);
    assert_eq!(
        why,
        "schedule `file` is of the configuration `main`: change it there"
    );
    let why = put(&api, "sql", &keys).problem(409);
    assert_eq!(
        why,
        "schedule `sql` is of SQL: change it there, or remove it before"
    );
    let why = delete(&api, "file").problem(409);
    assert!(why.contains("remove it there"), "{why}");
    assert_eq!(delete(&api, "sql").status, 200);
    assert_eq!(put(&api, "sql", &keys).json()["change"], "created");
    let shown = api.get("/v1/schedules/file").json();
    assert_eq!(shown["definition"]["cron"], "0 0 1 1 *");
    scene.finish();
}

fn a_schedule_is_paused_resumed_and_triggered() {
    let often = schedule("often", "every = \"1s\"\nbody = \"x\"");
    let (scene, api) = with(&often);
    let socket = Api::Socket(socket(&scene.daemon));
    seen(&scene, &api, "often", 1);
    let paused = change(
        &socket,
        "often",
        "pause",
        &json!({ "reason": "maintenance" }),
    );
    assert_eq!(
        paused.json(),
        json!({ "done": "schedule `often` is paused" })
    );
    let shown = api.get("/v1/schedules/often").json();
    assert_eq!(
        (&shown["state"], &shown["state_reason"]),
        (&json!("paused"), &json!("maintenance"))
    );
    let record = scene.daemon.logged("schedule paused by an operator");
    let by = record["by"].as_str().unwrap();
    assert!(
        by.starts_with("uid ") && by.ends_with("on the socket"),
        "{by}"
    );
    assert_eq!(record["reason"], "maintenance");
    let wanted = json!({ "reason": "a try", "body": "mine", "force": true });
    let occurrence = ended(&api, &trigger(&api, "often", &wanted));
    assert_eq!(occurrence["slot"], Value::Null);
    assert_eq!(occurrence["events"][0]["note"], "triggered: a try");
    assert_eq!(occurrence["state"], "completed");
    scene.record().assert_done_once(&["mine"]);
    // Without a body nothing is made up for.
    let resumed = api.post("/v1/schedules/often/resume", "");
    assert_eq!(
        resumed.json(),
        json!({ "done": "schedule `often` is resumed" })
    );
    assert_eq!(api.get("/v1/schedules/often").json()["state"], "active");
    change(&api, "often", "pause", &json!({}));
    let resumed = change(&api, "often", "resume", &json!({ "make_up": true }));
    assert_eq!(resumed.status, 200, "{resumed:?}");
    scene.finish();
}

fn all_schedules_are_paused() {
    let (scene, api) = with(&schedule("often", "every = \"1s\"\nbody = \"x\""));
    let hold = || api.get("/v1/ledger").json();
    assert_eq!(hold(), json!({ "source": "main", "hold": null }));
    let paused = api.post("/v1/schedules/pause", r#"{"reason": "an incident"}"#);
    assert_eq!(paused.json(), json!({ "done": "all schedules are paused" }));
    assert_eq!(hold(), json!({ "source": "main", "hold": "an incident" }));
    let resumed = api.post("/v1/schedules/resume", "");
    assert_eq!(
        resumed.json(),
        json!({ "done": "all schedules are resumed" })
    );
    assert_eq!(api.post("/v1/schedules/pause", "").status, 200);
    assert_eq!(hold()["hold"], "paused by an operator");
    api.post("/v1/schedules/resume", "");
    let of_often = "/v1/occurrences?schedule=often&state=completed";
    scene.daemon.eventually("slots to run again", || {
        let listed = api.get(of_often).json();
        !listed["occurrences"].as_array().unwrap().is_empty()
    });
    scene.finish();
}

fn of_triggers_at_the_same_time_one_runs() {
    let (scene, api) = with(&yearly("long", "body = \"mode:wait:go\""));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let triggers =
            [(); 4].map(|()| scope.spawn(|| change(&api, "long", "trigger", &json!({}))));
        triggers.map(|one| one.join().unwrap()).into()
    });
    let sent: Vec<&Answer> = answers.iter().filter(|one| one.status == 200).collect();
    assert_eq!(sent.len(), 1, "{answers:?}");
    let refused = answers.iter().filter(|one| one.status != 200);
    for refused in refused {
        let why = refused.problem(409);
        assert!(
            why.contains("an occurrence of schedule `long` is open"),
            "{why}"
        );
    }
    let forced = trigger(&api, "long", &json!({ "force": true }));
    scene.site.touch("go");
    let id = sent[0].json()["occurrence"].as_str().unwrap().to_owned();
    for id in [&id, &forced] {
        assert_eq!(ended(&api, id)["state"], "completed");
    }
    let listed = api.get("/v1/occurrences?schedule=long").json();
    assert_eq!(listed["occurrences"].as_array().unwrap().len(), 2);
    scene.finish();
}

fn times_are_explained() {
    let (scene, api) = with("[ledger]\nsource = \"main\"\n");
    let times = json!({
        "cron": "30 2 * * *", "zone": "America/New_York", "from": "2026-03-07T12:00", "n": 2,
    });
    let told = api.post("/v1/schedules/explain", &times.to_string()).json();
    let args = [
        "schedule",
        "next",
        "--cron",
        "30 2 * * *",
        "--zone",
        "America/New_York",
    ];
    let range = ["--from", "2026-03-07T12:00", "-n", "2"];
    let next = scene
        .site
        .ganger(&[&args[..], &range, &["-o", "json"]].concat());
    assert_eq!(told["slots"], next.json());
    let words = told["words"].as_array().unwrap().iter();
    let words: Vec<String> = words
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            format!("{:<12}  {}", text("label"), text("text"))
        })
        .collect();
    let args = [&["schedule", "explain"][..], &args[2..], &range].concat();
    let explained = scene.site.ganger(&args).good();
    let (said, _) = explained.split_once("\n\n").unwrap();
    assert_eq!(words.join("\n"), said);
    let refused = |times: &Value| api.post("/v1/schedules/explain", &times.to_string());
    let wrong = json!({ "cron": ["61 * * * *", "0 25 * * *"], "zone": "Mars/Base" });
    let answer = refused(&wrong);
    answer.problem(422);
    let told = errors(&answer);
    for part in [
        "cron[0]: minute `61` is out of range (byte 0)",
        "cron[1]: hour `25`",
        "zone: time zone `Mars/Base` is unknown",
    ] {
        assert!(told.contains(part), "{told}");
    }
    refused(&json!({ "cron": "* * * * *", "n": 0 })).problem(400);
    scene.finish();
}

fn occurrences_are_listed_in_parts() {
    let (scene, api) = with(&(yearly("a", "overlap = \"allow\"") + &yearly("b", "")));
    let ids: Vec<String> = (0..5).map(|_| trigger(&api, "a", &json!({}))).collect();
    let other = trigger(&api, "b", &json!({}));
    ids.iter()
        .chain([&other])
        .for_each(|id| drop(ended(&api, id)));
    let listed = |query: &str| {
        let answer = api.get(&format!("/v1/occurrences?{query}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let listed = answer.json();
        let found = listed["occurrences"].as_array().unwrap().iter();
        let found: Vec<String> = found
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        (found, listed["cursor"].as_str().map(str::to_owned))
    };
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    let (first, cursor) = listed("schedule=a&limit=2");
    assert_eq!(first, newest_first[..2]);
    let cursor = cursor.unwrap();
    let (second, last) = listed(&format!("schedule=a&limit=3&cursor={cursor}"));
    assert_eq!((second, last), (newest_first[2..].to_vec(), None));
    let (all, _) = listed("");
    assert_eq!(all[0], other);
    assert_eq!(all.len(), 6);
    assert_eq!(listed("state=failed").0, Vec::<String>::new());
    assert_eq!(listed("state=completed&limit=1000").0.len(), 6);
    let id = &ids[0];
    assert_eq!(listed(&format!("message_id={id}")).0, ids[..1]);
    assert_eq!(listed("message_id=nothing").0, Vec::<String>::new());
    let of_b = format!("message_id={id}&schedule=b");
    assert_eq!(listed(&of_b).0, Vec::<String>::new());
    let args = ["occurrence", "list", "--schedule", "a", "-o", "json"];
    let told = scene.site.ganger(&args).json();
    assert_eq!(
        api.get("/v1/occurrences?schedule=a").json()["occurrences"],
        told
    );
    let shown = scene.site.ganger(&["occurrence", "show", id, "-o", "json"]);
    assert_eq!(
        api.get(&format!("/v1/occurrences/{id}")).json(),
        shown.json()
    );
    scene.finish();
}

fn the_end_of_an_occurrence_is_waited_for() {
    let (scene, api) = with(&yearly("long", "body = \"mode:wait:go\""));
    let id = trigger(&api, "long", &json!({}));
    scene.begun(&["mode:wait:go"]);
    thread::scope(|scope| {
        let waiting = [(); 3].map(|()| scope.spawn(|| ended(&api, &id)));
        // The end of its time comes first.
        let open = api.get(&format!("/v1/occurrences/{id}?wait=200ms"));
        assert_eq!(open.status, 200, "{open:?}");
        let open = open.json();
        assert_eq!(open["ended_at"], Value::Null);
        scene.daemon.eventually("it to be shown as running", || {
            api.get(&format!("/v1/occurrences/{id}")).json()["state"] == "running"
        });
        scene.site.touch("go");
        for waiting in waiting {
            let ended = waiting.join().unwrap();
            assert_eq!(ended["state"], "completed");
            assert_eq!(states(&ended), ["queued", "running", "completed"]);
        }
    });
    // Of one that has ended nobody waits.
    assert_eq!(ended(&api, &id)["state"], "completed");
    let skipped = "00000000-0000-7000-8000-000000000000";
    let why = api.get(&format!("/v1/occurrences/{skipped}?wait=200ms"));
    assert!(why.problem(404).contains("there is no occurrence"));
    scene.finish();
}

fn requests_that_wait_leave_places_to_others() {
    let (scene, api) = with(&yearly("long", "body = \"mode:wait:go\""));
    let id = trigger(&api, "long", &json!({}));
    let token = api.token().unwrap();
    let request = format!(
        "GET /v1/occurrences/{id}?wait=5m HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let wait = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", api.port())).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let mut waiting: Vec<TcpStream> = (0..WAITS).map(wait).collect();
    let one_more = || api.get(&format!("/v1/occurrences/{id}?wait=1ms"));
    let full = "serves 16 waits at a time";
    scene.daemon.eventually("all places to be taken", || {
        let answer = one_more();
        answer.status == 503 && answer.problem(503).contains(full)
    });
    for path in [
        &format!("/v1/occurrences/{id}"),
        "/v1/schedules",
        "/v1/dead/main",
        "/v1/status",
    ] {
        assert_eq!(api.get(path).status, 200, "{path}");
    }
    // Those that go away leave their places.
    waiting.truncate(WAITS / 2);
    scene
        .daemon
        .eventually("places to be free", || one_more().status == 200);
    drop(waiting);
    scene.site.touch("go");
    assert_eq!(ended(&api, &id)["state"], "completed");
    scene.finish();
}

/// The request is refused with that status; the problem and its errors contain the text.
pub(super) fn refused(
    api: &Api,
    method: &str,
    (path, body): (&str, &str),
    status: u16,
    expected: &str,
) {
    let answer = api.ask(method, path, &[], body);
    let why = answer.problem(status);
    let all = answer.json()["errors"].to_string();
    assert!(
        why.contains(expected) || all.contains(expected),
        "{method} {path}: {why} {all}"
    );
}

fn what_is_not_there_is_told() {
    let (scene, api) = with(&yearly("a", ""));
    let unknown = "there is no schedule `typo`; GET /v1/schedules lists all";
    for (method, path) in [
        ("GET", "/v1/schedules/typo"),
        ("GET", "/v1/schedules/typo/next"),
        ("GET", "/v1/schedules/typo/explain"),
        ("GET", "/v1/schedules/typo/versions"),
        ("POST", "/v1/schedules/typo/skip"),
        ("DELETE", "/v1/schedules/typo"),
        ("POST", "/v1/schedules/typo/pause"),
        ("POST", "/v1/schedules/typo/resume"),
        ("POST", "/v1/schedules/typo/trigger"),
        ("GET", "/v1/occurrences?schedule=typo"),
    ] {
        refused(&api, method, (path, ""), 404, unknown);
    }
    let unknown = "there is no occurrence `typo`";
    refused(&api, "GET", ("/v1/occurrences/typo", ""), 404, unknown);
    let events = ("/v1/occurrences/typo/events", "");
    refused(&api, "GET", events, 404, unknown);
    for (method, path) in [
        ("PATCH", "/v1/schedules"),
        ("POST", "/v1/schedules/a"),
        ("POST", "/v1/ledger"),
        ("GET", "/v1/schedules/a/trigger"),
        ("PUT", "/v1/occurrences/x"),
    ] {
        let unsupported = format!("does not support {method}");
        refused(&api, method, (path, ""), 405, &unsupported);
    }
    let stranger = Api::Port(api.port());
    stranger.get("/v1/schedules").problem(401);
    stranger.post("/v1/schedules/a/trigger", "{}").problem(401);
    scene.finish();
}

fn what_is_mistyped_in_a_query_is_told() {
    let (scene, api) = with(&yearly("a", ""));
    for (path, expected) in [
        (
            "/v1/schedules?state=activ",
            "state: invalid state `activ`: write `active`",
        ),
        ("/v1/schedules?limit=0", "limit must be within 1..=10000"),
        ("/v1/schedules?limit=x", "limit"),
        (
            "/v1/schedules?results=101",
            "results must be within 0..=100",
        ),
        ("/v1/schedules?tags=x", "unknown field `tags`"),
        ("/v1/schedules/a/next?n=10001", "n must be within 1..=10000"),
        (
            "/v1/schedules/a/next?from=noon",
            "from: invalid time `noon`",
        ),
        (
            "/v1/upcoming?from=noon",
            "from must be a time such as 2027-01-31T08:00:00Z: `noon`",
        ),
        ("/v1/upcoming?limit=10001", "limit must be within 1..=10000"),
        ("/v1/upcoming?zone=berlin", "did you mean `Europe/Berlin`?"),
        (
            "/v1/reports/slow?from=noon",
            "from must be a time such as 2027-01-31T08:00:00Z: `noon`",
        ),
        ("/v1/reports/slow?limit=0", "limit must be within 1..=10000"),
        ("/v1/reports/slow?runs=0", "runs must be within 1..=1000000"),
        ("/v1/reports/slow?by=hour", "by must be `day`: `hour`"),
        (
            "/v1/reports/slow?zone=UTC",
            "zone is that of days: add by=day",
        ),
        (
            "/v1/reports/slow?by=day&zone=berlin",
            "did you mean `Europe/Berlin`?",
        ),
        ("/v1/audit?limit=1001", "limit must be within 1..=1000"),
        ("/v1/audit?before=x", "before"),
        ("/v1/audit?of=a", "unknown field `of`"),
        ("/v1/occurrences?state=done", "state: invalid state `done`"),
        (
            "/v1/occurrences?limit=1001",
            "limit must be within 1..=1000",
        ),
        (
            "/v1/occurrences?cursor=nonsense",
            "is not the id of an occurrence",
        ),
        (
            "/v1/occurrences/x?wait=soon",
            "wait: expected a duration such as 500ms",
        ),
        ("/v1/occurrences/x?wait=6m", "wait must be at most 300s"),
        ("/v1/occurrences/x?wait=-1s", "wait: expected a duration"),
        ("/v1/occurrences/x?wiat=1s", "unknown field `wiat`"),
    ] {
        refused(&api, "GET", (path, ""), 400, expected);
    }
    scene.finish();
}

fn what_is_mistyped_in_a_body_is_told() {
    let (scene, api) = with(&yearly("a", ""));
    for (keys, expected) in [
        (r#"{"queue": "work"}"#, "`cron`, `every` and `at`"),
        (
            r#"{"queue": "work", "evry": "1h"}"#,
            "did you mean `every`?",
        ),
        (
            r#"{"queue": "work", "cron": "0 24 * * *"}"#,
            "write 0 to 23",
        ),
        (
            r#"{"queue": "work", "cron": "0 0 30 2 *"}"#,
            "no such day in any year",
        ),
        (
            r#"{"queue": "work", "at": "2001-01-01T00:00"}"#,
            "has no slot after",
        ),
        (
            r#"{"queue": "work", "every": "1h", "zone": "berlin"}"#,
            "did you mean `Europe/Berlin`?",
        ),
        (
            r#"{"queue": "work", "every": "1h", "body": "{{ slot"}"#,
            "body",
        ),
        (
            r#"{"queue": "work", "every": "1h", "name": "other"}"#,
            "name must be `new`",
        ),
        ("[1]", "map"),
    ] {
        refused(&api, "PUT", ("/v1/schedules/new", keys), 422, expected);
    }
    refused(&api, "PUT", ("/v1/schedules/new", "{"), 400, "JSON");
    for (path, body) in [
        ("/v1/schedules/a/pause", r#"{"raeson": "x"}"#),
        ("/v1/schedules/a/resume", r#"{"makeup": true}"#),
        ("/v1/schedules/a/trigger", r#"{"forced": true}"#),
        ("/v1/schedules/a/skip", r#"{"slots": []}"#),
        ("/v1/schedules/a/backfill", r#"{"form": "2026-01-01"}"#),
        ("/v1/schedules/a/rollback", r#"{"versoin": 1}"#),
        ("/v1/schedules/pause", r#"{"raeson": "x"}"#),
        ("/v1/schedules/explain", r#"{"corn": "* * * * *"}"#),
    ] {
        refused(&api, "POST", (path, body), 422, "unknown field");
    }
    let long = json!({ "queue": "work", "every": "1h", "body": "x".repeat(8 << 20) }).to_string();
    refused(
        &api,
        "PUT",
        ("/v1/schedules/new", &long),
        413,
        "longer than",
    );
    assert_eq!(api.get("/v1/schedules").json().as_array().unwrap().len(), 1);
    scene.finish();
}

fn what_no_database_stores_is_told() {
    let (scene, api) = with(&yearly("a", ""));
    let nul = (
        "/v1/schedules/new%00",
        r#"{"queue": "work", "every": "1h"}"#,
    );
    refused(&api, "PUT", nul, 400, "must not have a NUL");
    for path in ["pause", "a/pause", "a/trigger", "a/skip"] {
        for (reason, expected) in [
            ("x".repeat(501), "at most 500 characters: it has 501"),
            ("a\0b".to_owned(), "must not have a NUL"),
        ] {
            let body = json!({ "reason": reason }).to_string();
            let path = format!("/v1/schedules/{path}");
            refused(&api, "POST", (&path, &body), 400, expected);
        }
    }
    scene.finish();
}

fn a_ledger_that_is_locked_holds_up_no_other_request() {
    let (scene, api) = with(&yearly("a", ""));
    seen(&scene, &api, "a", 1);
    scene.table.run("BEGIN IMMEDIATE").unwrap();
    let pause = || change(&api, "a", "pause", &json!({}));
    let why = pause().problem(503);
    assert!(
        why.contains("source `main`") && why.contains("locked"),
        "{why}"
    );
    // What is only read is not locked.
    assert_eq!(api.get("/v1/schedules/a").json()["state"], "active");
    // More than there are places: those that find none are told so at once.
    let (tell, told) = sync_channel(2 * AT_LEDGER);
    let full = "24 requests are already waiting for the ledger";
    let is_full = |answer: &Answer| answer.status == 503 && answer.problem(503).contains(full);
    let answers: Vec<Answer> = thread::scope(|scope| {
        for _ in 0..2 * AT_LEDGER {
            let tell = tell.clone();
            let pause = &pause;
            scope.spawn(move || tell.send(pause()).unwrap());
        }
        drop(tell);
        let first = told.recv().unwrap();
        assert!(is_full(&first), "{first:?}");
        for path in ["/v1/status", "/v1/dead/main", "/v1/sources", "/readyz"] {
            assert_eq!(api.get(path).status, 200, "{path}");
        }
        scene.table.run("ROLLBACK").unwrap();
        told.iter().collect()
    });
    let others = answers.iter().filter(|answer| !is_full(answer));
    let statuses: Vec<u16> = others.map(|answer| answer.status).collect();
    let paused = statuses.iter().filter(|status| **status == 200).count();
    // Some may have waited for too long on a slow machine.
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    assert!(paused > 0, "{statuses:?}");
    assert_eq!(api.get("/v1/schedules/a").json()["state"], "paused");
    let said = "schedule paused by an operator";
    let logged = || scene.daemon.times_logged(said);
    scene
        .daemon
        .eventually("each in the log", || logged() == paused);
    scene.finish();
}

fn a_daemon_without_a_ledger_says_so() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    for (method, path, body) in [
        ("GET", "/v1/ledger", ""),
        ("GET", "/v1/schedules", ""),
        ("GET", "/v1/schedules/a", ""),
        ("GET", "/v1/schedules/a/next", ""),
        (
            "PUT",
            "/v1/schedules/a",
            r#"{"every": "1h", "queue": "work"}"#,
        ),
        ("DELETE", "/v1/schedules/a", ""),
        ("POST", "/v1/schedules/a/pause", ""),
        ("POST", "/v1/schedules/a/resume", ""),
        ("POST", "/v1/schedules/a/trigger", ""),
        ("POST", "/v1/schedules/pause", ""),
        ("POST", "/v1/schedules/resume", ""),
        ("GET", "/v1/schedules/a/explain", ""),
        ("GET", "/v1/schedules/a/versions", ""),
        ("POST", "/v1/schedules/a/rollback", r#"{"version": 1}"#),
        ("POST", "/v1/schedules/a/skip", ""),
        (
            "POST",
            "/v1/schedules/a/backfill",
            r#"{"from": "2026-01-01", "to": "2026-01-02"}"#,
        ),
        ("GET", "/v1/audit", ""),
        ("GET", "/v1/occurrences", ""),
        ("GET", "/v1/occurrences/x?wait=1s", ""),
    ] {
        let why = api.ask(method, path, &[], body).problem(409);
        assert!(
            why.contains("write [[schedules]], or [ledger]"),
            "{path}: {why}"
        );
    }
    let told = api.post("/v1/schedules/explain", r#"{"every": "1h"}"#);
    assert_eq!(told.status, 200, "{told:?}");
    assert!(scene.record().all(Event::Done).is_empty());
    scene.finish();
}
