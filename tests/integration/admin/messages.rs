//! Messages and dead letters over HTTP.

use serde_json::json;

use super::{api, command, scene};
use crate::harness::kafka::Kafka;
use crate::harness::rabbit::Vhost;
use crate::harness::{Api, Event, Pool, Workspace, trials};

trials![
    a_message_is_published_and_its_answer_waited_for,
    a_message_that_is_wrong_is_told_so_and_not_sent,
    a_message_for_a_topic_is_one_for_each_queue,
    a_large_message_goes_through,
    dead_letters_are_read_counted_edited_and_dropped,
    an_id_of_a_dead_letter_is_a_text_everywhere,
    a_queue_that_is_not_there_is_not_found,
    what_waits_is_listed_and_cancelled,
    the_list_of_two_sources_is_that_of_one,
];

fn a_message_is_published_and_its_answer_waited_for() {
    let scene = scene(Pool::new(&["--v2=1"]));
    let api = api(&scene.daemon);
    let message = json!({
        "body": "mode:reply first", "headers": { "h": 1 }, "correlation_id": "c", "message_id": "m",
    });
    let path = "/v1/queues/work/messages";
    let answer = api.post(&format!("{path}?wait=20s"), &message.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(
        (&answer["sent"], &answer["source"]),
        (&json!(1), &json!("main"))
    );
    assert_eq!(answer["reply"]["body"], "re: mode:reply first");
    assert_eq!(answer["reply"]["correlation_id"], "c");
    let delayed = json!({ "body": "later", "delay": "1h" }).to_string();
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(api.ask("POST", path, &[trace], &delayed).status, 200);
    let waiting = scene.table.messages("work");
    assert_eq!(waiting.len(), 1);
    let headers = format!("{:?}", waiting[0]);
    assert!(
        headers.contains("0af7651916cd43dd8448eb211c80319c"),
        "{headers}"
    );
    let silent = json!({ "body": "no answer" }).to_string();
    let told = api.post(&format!("{path}?wait=50ms"), &silent).problem(504);
    assert!(told.contains("was sent") && told.contains("50ms"), "{told}");
    scene.daemon.eventually("it was done all the same", || {
        scene.record().of(Event::Done, "no answer").len() == 1
    });
    scene.daemon.stop();
}

fn a_message_that_is_wrong_is_told_so_and_not_sent() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    let path = "/v1/queues/work/messages";
    let table = [
        ("{}", "body or body_base64 is missing"),
        (
            r#"{"body": "a", "colour": "red"}"#,
            "unknown field `colour`",
        ),
        (
            r#"{"body": "a", "headers": {"x-ganger-attempts": "1"}}"#,
            "reserved for ganger",
        ),
    ];
    for (body, expected) in table {
        let told = api.post(path, body).problem(400);
        assert!(told.contains(expected), "{told}");
    }
    let body = r#"{"body": "a"}"#;
    let told = api.post(&format!("{path}?wait=6m"), body).problem(400);
    assert!(told.contains("at most"), "{told}");
    let own = r#"{"body": "a", "reply_to": "mine"}"#;
    api.post(&format!("{path}?wait=1s"), own).problem(400);
    let told = api.post(&format!("{path}?source=other"), body).problem(404);
    assert!(told.contains("there is `main`"), "{told}");
    assert_eq!(api.post(&format!("{path}?sauce=main"), body).status, 400);
    assert_eq!(scene.table.count("work"), 0);
    scene.finish();
}

fn a_message_for_a_topic_is_one_for_each_queue() {
    let subscription =
        |queue: &str| format!("[[subscriptions]]\ntopic = \"placed\"\nqueue = \"{queue}\"\n");
    let subscriptions = subscription("work") + &subscription("other");
    let scene = scene(Pool::new(&["--v2=1"]).after(&subscriptions));
    let api = api(&scene.daemon);
    let subscribed = "subscribed the queue to the topic";
    scene.daemon.eventually("the subscriptions", || {
        scene.daemon.times_logged(subscribed) == 2
    });
    let path = "/v1/topics/placed/messages";
    let message = r#"{"body": "note:header:topic a", "headers": {"h": 1}}"#;
    let answer = api.post(path, message).json();
    assert_eq!(answer, json!({ "sent": 1, "source": "main" }));
    scene.all_done();
    assert_eq!(scene.record().texts(Event::Done), ["note:header:topic a"]);
    let other = scene.table.messages("other");
    assert_eq!(other.len(), 1);
    assert_eq!(other[0].headers, json!({ "h": "1", "topic": "placed" }));
    let elsewhere = "/v1/topics/paid/messages";
    let told = api.post(elsewhere, message).problem(404);
    assert!(
        told.contains("no queue is subscribed to topic `paid`"),
        "{told}"
    );
    let dropped = api.post(&format!("{elsewhere}?drop_unsubscribed=true"), message);
    assert_eq!(dropped.json()["sent"], 1);
    let unique = r#"{"body": "a", "unique_key": "k"}"#;
    let told = api.post(path, unique).problem(400);
    assert!(told.contains("`unique_key`"), "{told}");
    api.post(&format!("{path}?source=nowhere"), message)
        .problem(404);
    api.post(&format!("{path}?wait=1s"), message).problem(400);
    assert_eq!(scene.table.messages("other").len(), 1);
    scene.finish();
}

fn a_large_message_goes_through() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    let large = "x".repeat(10 << 20);
    let message = json!({ "body": large }).to_string();
    assert_eq!(api.post("/v1/queues/work/messages", &message).status, 200);
    scene.all_done();
    scene.finish();
}

fn dead_letters_are_read_counted_edited_and_dropped() {
    let scene = scene(Pool::new(&[]).attempts(1));
    let api = api(&scene.daemon);
    let long = format!("mode:answer:400 {}", "l".repeat(5000));
    scene.send(&["mode:answer:400 a", "mode:answer:400 a", long.as_str()]);
    scene
        .daemon
        .eventually("all are dead", || scene.table.dead().len() == 3);
    let groups = api.get("/v1/dead/main/groups").json()["groups"].clone();
    assert_eq!(
        (groups.as_array().unwrap().len(), &groups[0]["count"]),
        (2, &json!(2))
    );
    let first = api.get("/v1/dead/main?limit=2").json();
    assert_eq!(
        (first["letters"].as_array().unwrap().len(), &first["more"]),
        (2, &json!(true))
    );
    let last = first["letters"][1]["id"].as_str().unwrap();
    let rest = api.get(&format!("/v1/dead/main?after={last}")).json();
    let letter = &rest["letters"][0];
    assert_eq!(
        (&rest["more"], &letter["body_cut"]),
        (&json!(false), &json!(long.len()))
    );
    let whole = api
        .get(&format!(
            "/v1/dead/main/letters/{}",
            letter["id"].as_str().unwrap()
        ))
        .json();
    assert_eq!(whole["body"], json!(long));
    api.get("/v1/dead/main/letters/4711").problem(404);
    api.get("/v1/dead/nowhere").problem(404);
    api.get("/v1/dead/main?limit=0").problem(400);
    criteria_choose_dead_letters(&api);
    a_look_ends_in_time_and_goes_on(&api);
    let id = &first["letters"][0]["id"];
    let edited = json!({ "ids": [id], "body": "mended" }).to_string();
    let done = api.post("/v1/dead/main/retry", &edited).json();
    assert_eq!(done["done"], "retried 1");
    scene.daemon.eventually("it is done", || {
        scene.record().of(Event::Done, "mended").len() == 1
    });
    api.post("/v1/dead/main/retry", &edited).problem(404);
    for wrong in [
        json!({}),
        json!({ "all": true, "body": "x" }),
        json!({ "ids": [] }),
        json!({ "ids": ["1"], "error": "x" }),
    ] {
        api.post("/v1/dead/main/retry", &wrong.to_string())
            .problem(400);
    }
    a_pool_that_is_not_there_is_told(&api);
    let dropped = api
        .ask("DELETE", "/v1/dead/main", &[], r#"{"all": true}"#)
        .json();
    assert_eq!(dropped["done"], "dropped 2");
    assert!(scene.table.dead().is_empty());
    let none = api.get("/v1/dead/main?pool=work").json();
    assert_eq!(none["letters"], json!([]));
    scene.finish();
}

/// Of three that were rejected just now, in lists, groups and changes.
fn criteria_choose_dead_letters(api: &Api) {
    for (criteria, count) in [
        ("reason=rejected", 3),
        ("reason=crashed", 0),
        ("error=400&since=1h", 3),
        ("error=nowhere", 0),
        ("before=1h", 0),
    ] {
        let listed = api.get(&format!("/v1/dead/main?{criteria}")).json();
        assert_eq!(
            listed["letters"].as_array().unwrap().len(),
            count,
            "{criteria}"
        );
        let groups = api.get(&format!("/v1/dead/main/groups?{criteria}")).json();
        let groups = groups["groups"].as_array().unwrap().iter();
        let counted: u64 = groups.map(|group| group["count"].as_u64().unwrap()).sum();
        assert_eq!(counted, count as u64, "{criteria}");
    }
    let why = api.get("/v1/dead/main?since=soon").problem(400);
    assert!(why.starts_with("since: expected a time"), "{why}");
    let old = r#"{"all": true, "before": "1h"}"#;
    let none = api.ask("DELETE", "/v1/dead/main", &[], old).json();
    assert_eq!(none["done"], "dropped 0");
}

/// Of three, with time for one.
fn a_look_ends_in_time_and_goes_on(api: &Api) {
    let groups = api.get("/v1/dead/main/groups?within=0s").json();
    assert_eq!(groups["groups"][0]["count"], 1);
    assert_eq!(groups["until"], groups["groups"][0]["last_failed_at"]);
    assert_eq!(api.get("/v1/dead/main/groups").json()["until"], json!(null));
    let mut after = String::new();
    let mut looks = Vec::new();
    loop {
        let path = format!("/v1/dead/main?error=nowhere&within=0s{after}");
        let found = api.get(&path).json();
        assert_eq!(found["letters"], json!([]));
        looks.push((found["more"] == true, found["until"].is_string()));
        match found["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(looks, [(true, true), (true, true), (false, false)]);
    let all = api.get("/v1/dead/main?error=nowhere&within=1m").json();
    assert_eq!((&all["more"], &all["until"]), (&json!(false), &json!(null)));
    api.get("/v1/dead/main?within=1h").problem(400);
}

fn a_pool_that_is_not_there_is_told(api: &Api) {
    let of_none = r#"{"all": true, "pool": "wrok"}"#;
    for refused in [
        api.get("/v1/dead/main?pool=wrok"),
        api.post("/v1/dead/main/retry", of_none),
        api.ask("DELETE", "/v1/dead/main", &[], of_none),
    ] {
        let why = refused.problem(404);
        assert!(
            why.contains("there is no pool `wrok`; the pools are: work"),
            "{why}"
        );
    }
}

fn an_id_of_a_dead_letter_is_a_text_everywhere() {
    let scene = scene(Pool::new(&[]).attempts(1));
    let api = api(&scene.daemon);
    scene.send(&["mode:answer:400 a", "mode:answer:400 b"]);
    scene
        .daemon
        .eventually("both are dead", || scene.table.dead().len() == 2);
    let letters = api.get("/v1/dead/main").json()["letters"].clone();
    let group = api.get("/v1/dead/main/groups").json()["groups"][0]["id"].clone();
    let shown = super::command(&scene, &["dead", "list", "-o", "json"]).json();
    assert_eq!(
        (&letters[0]["id"], &letters[1]["id"]),
        (&json!("1"), &json!("2"))
    );
    assert_eq!((&group, &shown[0]["id"]), (&json!("1"), &json!("1")));
    let one = api.get("/v1/dead/main/letters/1").json();
    assert_eq!(one["id"], "1");
    // As a list gives it; and as a number, which lists gave once.
    for (id, number) in [(letters[0]["id"].clone(), 1), (json!(2), 2)] {
        let asked = json!({ "ids": [id], "body": format!("mended {number}") }).to_string();
        let done = api.post("/v1/dead/main/retry", &asked);
        assert_eq!(done.status, 200, "{done:?}");
    }
    let wrong = json!({ "ids": [true] }).to_string();
    api.post("/v1/dead/main/retry", &wrong).problem(422);
    scene.all_done();
    scene.finish();
}

fn a_queue_that_is_not_there_is_not_found() {
    let (rabbit, kafka) = (Vhost::shared(), Kafka::shared());
    let sources = format!(
        "[sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"{}\"\n\
         [sources.events]\nkind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"absent\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
        rabbit.url(),
        kafka.address(),
    );
    let site = Workspace::with_sections(&sources);
    let daemon = site.start(&[Pool::new(&[]).text("source", "rabbit")]);
    let api = api(&daemon);
    let body = r#"{"body": "a"}"#;
    for source in ["rabbit", "events"] {
        let path = format!(
            "/v1/queues/absent-{:x}/messages?source={source}",
            fastrand::u64(..)
        );
        let told = api.post(&path, body).problem(404);
        assert!(
            told.contains("does not exist") || told.contains("there is no"),
            "{told}"
        );
    }
    let path = |source: &str| {
        format!(
            "/v1/queues/absent-{:x}/messages?source={source}",
            fastrand::u64(..)
        )
    };
    let told = api.get(&path("events")).problem(404);
    assert!(told.contains("does not exist"), "{told}");
    let told = api.get(&path("rabbit")).problem(400);
    assert!(told.contains("read only by taking it"), "{told}");
    daemon.stop();
}

fn what_waits_is_listed_and_cancelled() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    command(&scene, &["pause", "work"]).good();
    let path = "/v1/queues/work/messages";
    for body in ["a", "b"] {
        let message = json!({ "body": body, "correlation_id": "same" });
        assert_eq!(api.post(path, &message.to_string()).status, 200);
    }
    let listed = api.get(&format!("{path}?limit=1")).json();
    let first = &listed["messages"][0];
    assert_eq!(
        (&first["body"], &listed["more"]),
        (&json!("a"), &json!(true))
    );
    for limit in ["0", "501"] {
        let told = api.get(&format!("{path}?limit={limit}")).problem(400);
        assert_eq!(told, format!("limit must be within 1..=500: `{limit}`"));
    }
    for wrong in ["limit=x", "page=2"] {
        let told = api.get(&format!("{path}?{wrong}")).problem(400);
        assert!(told.contains(&wrong[..4]), "{told}");
    }
    let cancel = json!({ "id": first["id"] }).to_string();
    assert_eq!(api.post("/v1/pools/work/cancel", &cancel).status, 200);
    let listed = api.get(path).json();
    assert_eq!(
        (&listed["messages"][0]["body"], &listed["more"]),
        (&json!("b"), &json!(false)),
        "only the one of that name"
    );
    assert_eq!(listed["messages"].as_array().unwrap().len(), 1);
    let none = api.get("/v1/queues/nowhere/messages").json();
    assert_eq!(none, json!({ "messages": [], "more": false }));
    command(&scene, &["resume", "work"]).good();
    scene.settled();
    scene.record().assert_done_once(&["b"]);
    scene.finish();
}

fn the_list_of_two_sources_is_that_of_one() {
    let sections = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
         [sources.second]\nkind = \"table\"\nurl = \"sqlite:second.db\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n";
    let site = Workspace::with_sections(sections);
    let pools = [("main", "here"), ("second", "there")];
    let pools =
        pools.map(|(source, name)| Pool::new(&[]).text("source", source).text("name", name));
    let daemon = site.start(&pools);
    let api = api(&daemon);
    let path = "/v1/queues/work/messages";
    let told = api.get(path).problem(404);
    assert!(told.contains("`main`, `second`"), "{told}");
    let told = api.get("/v1/queues/nowhere/messages").problem(404);
    assert!(told.contains("no pool reads queue `nowhere`"), "{told}");
    let message = r#"{"body": "a", "delay": "1h"}"#;
    let of = |source: &str| format!("{path}?source={source}");
    assert_eq!(api.post(&of("second"), message).status, 200);
    let lengths = ["main", "second"].map(|source| {
        let listed = api.get(&of(source)).json();
        listed["messages"].as_array().unwrap().len()
    });
    assert_eq!(lengths, [0, 1]);
    daemon.stop();
}
