//! `ganger waiting`: lists what waits in a queue, and takes nothing.

use serde_json::{Value, json};

use crate::harness::{EVIL, NewMessage, Pool, Scene, Workspace, assert_tame, trials};

trials![
    the_list_is_in_the_order_of_claims,
    all_of_a_message_is_listed,
    of_a_large_body_the_beginning_is_listed,
    only_the_first_are_listed,
    a_terminal_is_told_nothing_by_messages,
];

/// A directory for commands, with the tables of a daemon that is gone.
fn desk() -> Workspace {
    let scene = Scene::with(&[Pool::new(&[])]);
    scene.daemon.stop();
    scene.site.configure_commands(&[Pool::new(&[])]);
    scene.site
}

fn list(site: &Workspace, more: &[&str]) -> Vec<Value> {
    let args = [&["waiting", "work", "--output", "json"], more].concat();
    let list = site.ganger(&args).json();
    list.as_array().unwrap().clone()
}

fn bodies(list: &[Value]) -> Vec<&str> {
    list.iter()
        .map(|one| one["body"].as_str().unwrap())
        .collect()
}

fn the_list_is_in_the_order_of_claims() {
    let site = desk();
    let table = site.table();
    table
        .run(
            "INSERT INTO consumer_messages (queue, body, priority, available_after) VALUES
             ('work', 'low', -1, 0), ('work', 'first', 0, 0), ('work', 'second', 0, 0),
             ('work', 'last', 9, 4102444800001), ('work', 'later', 0, 4102444800000),
             ('work', 'due', 5, 1), ('work', 'high', 7, 0), ('elsewhere', 'other', 9, 0);
             INSERT INTO consumer_messages (queue, body, owner, claim) VALUES ('work', 'in hand', 400000000, 1);",
        )
        .unwrap();
    table.insert_suspects("work", 9, &["suspect"]);
    let before = table.messages("work");
    let listed = list(&site, &[]);
    let expected = [
        "high", "due", "first", "second", "low", "suspect", "later", "last",
    ];
    assert_eq!(bodies(&listed), expected);
    let delays = ["available_at", "priority"].map(|name| &listed[6][name]);
    assert_eq!(delays, [&json!("2100-01-01T00:00:00Z"), &json!(0)]);
    assert_eq!(bodies(&list(&site, &["--limit", "2"])), ["high", "due"]);
    assert_eq!(table.messages("work"), before);
    // Each can be cancelled by its name.
    assert_eq!(listed[0]["id"], "work:7");
}

fn all_of_a_message_is_listed() {
    let site = desk();
    let table = site.table();
    let message = NewMessage::new("{\"n\": 1}")
        .correlation_id("c-1")
        .message_id("m-1")
        .reply_to("answers")
        .header("constructor", "red")
        .header("__proto__", 7)
        .header("x-ganger-attempts-max", "3");
    table.insert(&[message, NewMessage::binary(&[0xff, 0x00, 0xfe])]);
    table
        .run("UPDATE consumer_messages SET attempts = 2, last_error = 'it failed', priority = 4 WHERE id = 1")
        .unwrap();
    let listed = list(&site, &[]);
    let wanted = json!({
        "id": "work:1", "available_at": null, "priority": 4, "attempts": 2, "last_error": "it failed",
        "message_id": "m-1", "correlation_id": "c-1", "reply_to": "answers", "content_type": null, "key": null,
        "headers": { "constructor": "red", "__proto__": "7" }, "body": "{\"n\": 1}",
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&listed[0][name], value, "{name} of {}", listed[0]);
    }
    let created: jiff::Timestamp = listed[0]["created_at"].as_str().unwrap().parse().unwrap();
    let age = jiff::Timestamp::now().duration_since(created).as_secs();
    assert!((0..60).contains(&age), "{created}");
    assert_eq!(
        (&listed[1]["body"], &listed[1]["body_base64"]),
        (&Value::Null, &json!("/wD+"))
    );
    let shown = site.ganger(&["waiting", "work"]).good();
    for part in [
        "work:1",
        "m-1",
        "it failed",
        "{\"n\": 1}",
        "(3B, not UTF-8)",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

fn of_a_large_body_the_beginning_is_listed() {
    let site = desk();
    let text = "€".repeat(3 << 20);
    site.table()
        .insert(&[NewMessage::new(&text), NewMessage::binary(&[0xff; 5000])]);
    let listed = list(&site, &[]);
    let shown = listed[0]["body"].as_str().unwrap();
    assert_eq!(
        (shown.len(), &listed[0]["body_cut"]),
        (4095, &json!(9 << 20))
    );
    assert!(text.starts_with(shown));
    assert_eq!(listed[1]["body_cut"], 5000);
    assert!(listed[1]["body_base64"].as_str().unwrap().len() < 6000);
}

fn only_the_first_are_listed() {
    let site = desk();
    let none = site.ganger(&["waiting", "work"]);
    assert_eq!(
        (none.good(), list(&site, &[])),
        ("no message waits\n".to_owned(), vec![])
    );
    assert_eq!(
        site.ganger(&["waiting", "nowhere"]).good(),
        "no message waits\n"
    );
    let messages: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    let messages: Vec<NewMessage> = messages.iter().map(|body| NewMessage::new(body)).collect();
    site.table().insert(&messages);
    let some = site.ganger(&["waiting", "work"]);
    assert!(
        some.err
            .contains("more messages wait: these are the first 50"),
        "{some:?}"
    );
    assert_eq!(some.good().lines().count(), 51);
    let all = site.ganger(&["waiting", "work", "--limit", "60"]);
    assert_eq!(all.err, "");
    assert_eq!(all.good().lines().count(), 61);
    for limit in ["0", "501", "x"] {
        let why = site.ganger(&["waiting", "work", "--limit", limit]).bad(2);
        assert!(limit == "x" || why.contains("1..=500"), "{why}");
    }
    let why = site
        .ganger(&["waiting", "work", "--source", "third"])
        .bad(2);
    assert!(why.contains("there is no source `third`"), "{why}");
}

fn a_terminal_is_told_nothing_by_messages() {
    let site = desk();
    let evil = NewMessage::new(EVIL).message_id(EVIL).header("h", EVIL);
    site.table().insert(&[evil]);
    assert_tame(&site.ganger(&["waiting", "work"]).good());
}
