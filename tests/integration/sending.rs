//! `ganger send`: its forms, what it tells, and what it refuses.

use serde_json::{Value, json};

use crate::harness::{Event, Pool, Scene, Waiting, Workspace, trials};

trials![
    bodies_as_arguments,
    headers_for_all_that_bring_none_of_their_own,
    messages_from_stdin,
    a_bad_line_is_named_and_nothing_was_sent,
    a_large_file_is_sent_whole,
    the_higher_priority_goes_first,
    a_delayed_message_waits,
    an_answer_that_does_not_come,
    the_source_is_found_by_its_queue_or_must_be_named,
    a_command_line_that_makes_no_sense,
    ; sqlite:
    a_file_with_all_that_a_message_may_have,
    the_answer_is_waited_for,
];

fn site() -> Workspace {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    site
}

fn rows(site: &Workspace) -> Vec<Waiting> {
    site.table().messages("work")
}

fn sent_bodies(site: &Workspace) -> Vec<String> {
    rows(site).into_iter().map(|row| row.body).collect()
}

fn bodies_as_arguments() {
    let site = site();
    let out = site.ganger(&["send", "work", "a", "b c", "", "--", "--d"]);
    out.sent(4);
    assert_eq!(sent_bodies(&site), ["a", "b c", "", "--d"]);
    let told = site.ganger(&["send", "work", "e", "--output", "json"]);
    let mut told = told.json();
    let ids = told.as_object_mut().unwrap().remove("ids").unwrap();
    assert_eq!(told, json!({ "sent": 1 }));
    let last = "SELECT message_id FROM consumer_messages ORDER BY id DESC LIMIT 1";
    assert_eq!(site.table().ask(last), ids[0].as_str().unwrap());
    let config = site.path("ganger.toml");
    let args = ["send", "work", "f", "-c", config.to_str().unwrap()];
    site.ganger(&args).sent(1);
    assert_eq!(sent_bodies(&site).len(), 6);
}

fn headers_for_all_that_bring_none_of_their_own() {
    let site = site();
    site.put(
        "messages",
        "{\"body\":\"a\",\"headers\":{\"x\":1}}\n{\"body\":\"b\"}",
        false,
    );
    let args = [
        "send", "work", "-f", "messages", "-H", "x=2", "--header", "y=z=3",
    ];
    site.ganger(&args).sent(2);
    let headers: Vec<Value> = rows(&site).into_iter().map(|row| row.headers).collect();
    assert_eq!(
        headers,
        [json!({"x": "1", "y": "z=3"}), json!({"x": "2", "y": "z=3"})]
    );
}

fn a_file_with_all_that_a_message_may_have() {
    let site = site();
    let all = json!({
        "body": "grüße", "headers": {"tenant": "blue", "n": 1, "yes": true},
        "correlation_id": "c-1", "reply_to": "answers", "message_id": "m-1",
        "content_type": "text/plain", "key": "k", "priority": -3, "delay": "1h",
    });
    let binary = json!({ "body_base64": "/wD+" });
    // An empty line is no message.
    site.put("all.ndjson", &format!("{all}\n\n{binary}\n"), false);
    let args = ["send", "work", "--file", "all.ndjson", "-o", "json"];
    let told = site.ganger(&args).json();
    assert_eq!((&told["sent"], &told["ids"][0]), (&json!(2), &json!("m-1")));
    let table = site.table();
    let select = "SELECT body, headers, correlation_id, reply_to, message_id, content_type, key,
        priority, (available_after - created_at + 500) / 1000 FROM consumer_messages ORDER BY id";
    let mut select = table.0.prepare(select).unwrap();
    let texts = |row: &rusqlite::Row<'_>| {
        let columns = (0..9).map(|column| {
            Ok(match row.get::<_, rusqlite::types::Value>(column)? {
                rusqlite::types::Value::Text(text) => text,
                rusqlite::types::Value::Integer(number) => number.to_string(),
                other => format!("{other:?}"),
            })
        });
        columns.collect::<rusqlite::Result<Vec<String>>>()
    };
    let rows: Vec<Vec<String>> = select
        .query_map([], texts)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let headers: Value = serde_json::from_str(&rows[0][1]).unwrap();
    assert_eq!(headers, json!({"tenant": "blue", "n": "1", "yes": "true"}));
    assert_eq!(rows[0][0], "grüße");
    let rest = ["c-1", "answers", "m-1", "text/plain", "k", "-3", "3600"];
    assert_eq!(rows[0][2..], rest);
    assert_eq!(rows[1][0], "Blob([255, 0, 254])");
    assert_eq!(rows[1][7], "0");
}

fn messages_from_stdin() {
    let site = site();
    let input = b"{\"body\":\"a\"}\r\n{\"body\":\"b\"}";
    let ran = site.ganger_reading(&["send", "work", "-f", "-"], input);
    ran.sent(2);
    assert_eq!(sent_bodies(&site), ["a", "b"]);
}

/// All or nothing on a table, however long the file is.
fn a_bad_line_is_named_and_nothing_was_sent() {
    let site = site();
    site.ganger(&["send", "work", "before"]).good();
    site.put(
        "bad",
        "{\"body\":\"a\"}\n{\"body\":\"b\"}\n{\"bdy\":\"c\"}\n{\"body\":\"d\"}",
        false,
    );
    let why = site.ganger(&["send", "work", "-f", "bad"]).bad(1);
    for part in ["bad, line 3", "bdy", "nothing was sent"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let ran = site.ganger(&["send", "work", "-f", "bad", "-o", "json"]);
    assert_eq!(ran.code, Some(1));
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["sent"], 0);
    let good = "{\"body\":\"a\"}\n".repeat(1_234);
    site.put("long", &format!("{good}["), false);
    let why = site.ganger(&["send", "work", "-f", "long"]).bad(1);
    assert!(why.contains("long, line 1235"), "{why}");
    assert_eq!(sent_bodies(&site), ["before"]);
    let why = site.ganger(&["send", "work", "-f", "absent"]).bad(1);
    assert!(
        why.contains("absent") && why.contains("nothing was sent"),
        "{why}"
    );
    let why = site
        .ganger_reading(&["send", "work", "-f", "-"], b"[1]\n")
        .bad(1);
    assert!(why.contains("-, line 1"), "{why}");
}

fn a_large_file_is_sent_whole() {
    let site = site();
    let lines: Vec<String> = (0..1_234)
        .map(|n| json!({ "body": n.to_string() }).to_string())
        .collect();
    site.put("many", &lines.join("\n"), false);
    assert_eq!(
        site.ganger(&["send", "work", "-f", "many"]).good(),
        "sent 1234\n"
    );
    let numbers: Vec<String> = (0..1_234).map(|n| n.to_string()).collect();
    assert_eq!(sent_bodies(&site), numbers);
}

fn the_higher_priority_goes_first() {
    let site = site();
    let line =
        |(body, priority): (&str, i32)| json!({ "body": body, "priority": priority }).to_string();
    let lines = [
        ("low", -1),
        ("first of two", 0),
        ("second of two", 0),
        ("high", 7),
    ]
    .map(line);
    // As editors on Windows begin a file.
    site.put(
        "messages",
        &format!("\u{feff}{}", lines.join("\r\n")),
        false,
    );
    site.ganger(&["send", "work", "-f", "messages"]).good();
    let scene = Scene::at(site, &[Pool::new(&[])]);
    scene.all_done();
    let began = scene.record();
    assert_eq!(
        began.texts(Event::Began),
        ["high", "first of two", "second of two", "low"]
    );
    scene.finish();
}

fn a_delayed_message_waits() {
    let scene = Scene::of(Pool::new(&[]));
    scene.site.configure_commands(&[Pool::new(&[])]);
    let lines = "{\"body\":\"later\",\"delay\":\"2s\"}\n{\"body\":\"much later\",\"delay\":\"1h\"}\n{\"body\":\"now\"}";
    scene.site.put("messages", lines, false);
    scene
        .site
        .ganger(&["send", "work", "-f", "messages"])
        .good();
    scene
        .daemon
        .eventually("all but one to be done", || scene.table.count("work") == 1);
    let record = scene.record();
    assert_eq!(record.texts(Event::Began), ["now", "later"]);
    let micros = |body| record.of(Event::Began, body)[0].micros;
    assert!(micros("later") > micros("now"));
    assert_eq!(scene.table.messages("work")[0].body, "much later");
    scene.finish();
}

fn the_answer_is_waited_for() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "2"));
    scene.site.configure_commands(&[Pool::new(&[])]);
    let (one, two) = ("mode:sleep:50,reply one", "mode:reply two");
    // In the order of the messages, not of the answers.
    let out = scene.site.ganger(&["send", "work", one, two, "--reply"]);
    assert_eq!(out.good(), format!("re: {one}\nre: {two}\n"));
    let args = ["send", "work", two, "--reply", "-o", "json"];
    let told = scene.site.ganger(&args).json();
    assert_eq!(told["sent"], 1);
    let reply = &told["replies"][0];
    assert_eq!(reply["body"], format!("re: {two}"));
    assert_eq!(reply["headers"], json!({ "answered-by": "modes-worker" }));
    let left = "SELECT count(*) FROM consumer_messages";
    let left: u32 = scene.table.0.query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "the answers were taken");
    scene.finish();
}

fn an_answer_that_does_not_come() {
    let site = site();
    let args = ["send", "work", "a", "--reply", "--reply-timeout", "50ms"];
    let why = site.ganger(&args).bad(1);
    assert!(why.contains("no answer") && why.contains("50ms"), "{why}");
    assert_eq!(sent_bodies(&site), ["a"], "it was sent all the same");
}

fn the_source_is_found_by_its_queue_or_must_be_named() {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[]).text("source", "main")]);
    let config = site.path("ganger.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let other = "[sources.other]\nkind = \"table\"\nurl = \"sqlite:other.db\"\n";
    std::fs::write(&config, format!("{text}\n{other}")).unwrap();
    site.ganger(&["send", "work", "a"]).sent(1);
    assert_eq!(sent_bodies(&site), ["a"]);
    let why = site.ganger(&["send", "nobody's", "a"]).bad(2);
    for part in [
        "no pool reads queue `nobody's`",
        "--source",
        "`main`, `other`",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let named = ["send", "nobody's", "a", "--source", "other"];
    site.ganger(&named).sent(1);
    assert!(site.path("other.db").exists());
    let why = site
        .ganger(&["send", "work", "a", "--source", "third"])
        .bad(2);
    assert!(why.contains("there is no source `third`"), "{why}");
    assert_eq!(sent_bodies(&site), ["a"]);
}

fn a_command_line_that_makes_no_sense() {
    let site = site();
    for (args, part) in [
        (&["send"][..], "<QUEUE>"),
        (&["send", "work"], "BODY"),
        (&["send", "work", "a", "-f", "b"], "cannot be used with"),
        (&["send", "work", "a", "-H", "nonsense"], "NAME=VALUE"),
        (&["send", "work", "a", "-H", "=x"], "NAME=VALUE"),
        (&["send", "work", "a", "--reply-timeout", "1s"], "--reply"),
        (
            &["send", "work", "a", "--reply", "--reply-timeout", "soon"],
            "500ms",
        ),
        (&["send", "work", "a", "-o", "yaml"], "json"),
        (&["send", "work", "a", "-c", "absent.toml"], "absent.toml"),
    ] {
        let why = site.ganger(args).bad(2);
        assert!(why.contains(part), "{args:?}: {why}");
    }
    assert!(!site.path("queue.db").exists(), "nothing was sent");
}
