//! `ganger send` and `ganger dead` at RabbitMQ.

use lapin::types::AMQPValue;
use serde_json::{Value, json};

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rabbit_site, text};
use crate::harness::{Event, Pool, Workspace, trials};

trials![
    bodies_are_sent_persistent_to_where_they_are_read,
    a_file_is_sent_with_all_that_its_messages_have,
    a_delayed_message_waits,
    a_queue_that_is_not_there_is_declared_if_it_may_be,
    a_large_file_is_sent_whole,
    the_answer_is_waited_for,
    an_answer_that_does_not_come,
    the_list_has_all_that_scripts_rely_on,
    reading_the_list_changes_nothing,
    what_waits_can_not_be_listed,
    one_is_sent_back_and_others_stay,
    one_is_sent_back_edited,
    some_are_dropped,
    what_is_not_there_is_an_error,
    what_was_sent_before_a_queue_was_full_is_told,
    what_is_wrong_is_told_by_check,
    what_the_broker_moved_there_is_sent_back,
    a_large_reply_is_kept_beside_its_letter,
    what_the_broker_keeps_for_itself_is_told,
];

fn pool() -> Pool {
    Pool::new(&["--v2=1"]).attempts(1)
}

/// A virtual host with the pool's queues, and a directory for commands.
fn desk() -> (Vhost, Workspace) {
    let scene = RabbitScene::of(pool());
    scene.daemon.stop();
    scene.site.configure_commands(&[pool()]);
    (scene.vhost, scene.site)
}

fn bodies_are_sent_persistent_to_where_they_are_read() {
    let (vhost, site) = desk();
    let out = site.ganger(&["send", "work", "a", "b c", "-H", "colour=red"]);
    out.sent(2);
    let told = site.ganger(&["send", "work", "d", "--output", "json"]);
    told.sent(1);
    let letters = vhost.client().take_all("work");
    let bodies: Vec<&str> = letters.iter().map(Letter::text).collect();
    assert_eq!(bodies, ["a", "b c", "d"]);
    assert!(letters[0].says("colour", "red"), "{letters:#?}");
    let persistent = |letter: &Letter| *letter.properties.delivery_mode() == Some(2);
    assert!(letters.iter().all(persistent), "{letters:#?}");
}

fn a_file_is_sent_with_all_that_its_messages_have() {
    let (vhost, site) = desk();
    let all = json!({
        "body": "grüße", "headers": {"tenant": "blue"}, "correlation_id": "c-1",
        "reply_to": "answers", "message_id": "m-1", "content_type": "text/plain", "priority": 3,
    });
    let binary = json!({ "body_base64": "/wD+" });
    site.put("all.ndjson", &format!("{all}\n\n{binary}\n"), false);
    let args = ["send", "work", "--file", "all.ndjson", "-o", "json"];
    site.ganger(&args).sent(2);
    let letters = vhost.client().take_all("work");
    let first = &letters[0];
    assert_eq!((first.text(), first.id()), ("grüße", "c-1"));
    assert!(first.says("tenant", "blue"), "{first:#?}");
    let properties = &first.properties;
    assert_eq!(*properties.reply_to(), Some("answers".into()));
    assert_eq!(*properties.message_id(), Some("m-1".into()));
    assert_eq!(*properties.content_type(), Some("text/plain".into()));
    assert_eq!(*properties.priority(), Some(3));
    assert_eq!(letters[1].body, [255, 0, 254]);
}

fn a_delayed_message_waits() {
    let scene = RabbitScene::of(pool());
    scene.site.configure_commands(&[pool()]);
    let lines = "{\"body\":\"later\",\"delay\":\"400ms\"}\n{\"body\":\"now\"}";
    scene.site.put("messages", lines, false);
    let sent = scene.site.ganger(&["send", "work", "-f", "messages"]);
    sent.sent(2);
    scene.done(2);
    scene.all_done();
    let record = scene.record();
    assert_eq!(record.texts(Event::Began), ["now", "later"]);
    let micros = |body| record.of(Event::Began, body)[0].micros;
    assert!(micros("later") > micros("now"));
    scene.finish();
}

fn a_queue_that_is_not_there_is_declared_if_it_may_be() {
    let (vhost, site) = desk();
    let args = ["send", "new", "a", "--source", "main"];
    let may_not = rabbit_site(&vhost.url(), "declare = false");
    may_not.configure_commands(&[pool()]);
    let why = may_not.ganger(&args).bad(1);
    assert!(why.contains("`new`"), "{why}");
    let client = vhost.client();
    assert_eq!(client.ready("new"), None);
    // What no pool reads may be a slip of the pen.
    let why = site.ganger(&args).bad(1);
    assert!(why.contains("there is no queue `new`"), "{why}");
    site.configure_commands(&[pool().text("queue", "new")]);
    site.ganger(&args).sent(1);
    assert_eq!(client.take("new").unwrap().text(), "a");
}

fn what_was_sent_before_a_queue_was_full_is_told() {
    let vhost = Vhost::shared();
    let limits = [
        kind("classic"),
        ("x-max-length", AMQPValue::LongInt(5)),
        ("x-overflow", text("reject-publish")),
    ];
    vhost.client().declare("work", &limits);
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[pool()]);
    let bodies = ["a", "b", "c", "d", "e", "f", "g"];
    let ran = site.ganger(&[&["send", "work", "-o", "json"], &bodies[..]].concat());
    assert_eq!(ran.out, "{\"sent\":5}\n");
    let why = ran.bad(1);
    for part in ["sent 5 before that", "`work` is full"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(vhost.client().ready("work"), Some(5));
}

fn what_is_wrong_is_told_by_check() {
    let (vhost, site) = desk();
    site.ganger(&["check", "--online"]).good();
    vhost.client().delete(DEAD);
    // It would be made again at the start.
    site.ganger(&["check", "--online"]).good();
    assert_eq!(vhost.client().ready(DEAD), None, "nothing is made");
    vhost.client().declare(DEAD, &[kind("classic")]);
    let why = site.ganger(&["check", "--online"]).bad(1);
    assert!(
        why.contains("`work.dead` exists with other arguments"),
        "{why}"
    );
    vhost.client().delete(DEAD);
    let strict = rabbit_site(&vhost.url(), "declare = false");
    strict.configure_commands(&[pool()]);
    let why = strict.ganger(&["check", "--online"]).bad(1);
    assert!(
        why.contains("queues are missing") && why.contains("`work.dead`"),
        "{why}"
    );
}

fn a_large_file_is_sent_whole() {
    let (vhost, site) = desk();
    let line = |n: u32| json!({ "body": n.to_string() }).to_string();
    let lines: Vec<String> = (0..3_456).map(line).collect();
    site.put("many", &lines.join("\n"), false);
    let out = site.ganger(&["send", "work", "-f", "many"]);
    out.sent(3456);
    let letters = vhost.client().take_all("work");
    let bodies: Vec<&str> = letters.iter().map(Letter::text).collect();
    let expected: Vec<String> = (0..3_456).map(|n| n.to_string()).collect();
    assert_eq!(bodies, expected);
}

fn the_answer_is_waited_for() {
    let scene = RabbitScene::of(pool().set("workers", "2"));
    scene.site.configure_commands(&[pool()]);
    let before = scene.vhost.queues();
    let (one, two) = ("mode:sleep:50,reply one", "mode:reply two");
    let out = scene.site.ganger(&["send", "work", one, two, "--reply"]);
    assert_eq!(out.good(), format!("re: {one}\nre: {two}\n"));
    let args = ["send", "work", two, "--reply", "-o", "json"];
    let told = scene.site.ganger(&args).json();
    assert_eq!(told["sent"], 1);
    assert_eq!(told["replies"][0]["body"], format!("re: {two}"));
    let headers = &told["replies"][0]["headers"];
    assert_eq!(headers["answered-by"], "modes-worker", "{told}");
    scene.all_done();
    assert_eq!(scene.vhost.queues(), before, "no queue is left behind");
    scene.finish();
}

fn an_answer_that_does_not_come() {
    let (vhost, site) = desk();
    let args = ["send", "work", "a", "--reply", "--reply-timeout", "50ms"];
    let why = site.ganger(&args).bad(1);
    assert!(why.contains("no answer") && why.contains("50ms"), "{why}");
    let sent = vhost.client().take_all("work");
    assert_eq!(sent.len(), 1, "it was sent all the same");
}

// -- dead letters --

const REJECTED: &str = "mode:answer:400 rejected";
const CRASHED: &str = "mode:complain:last-words,die:exit:7";
const BINARY: &[u8] = &[0xff, 0x00, 0xfe];

/// Three dead letters, in order: a rejected, a crashed and a binary one.
fn with_letters() -> (Vhost, Workspace) {
    let pool = Pool::new(&["--v2=1", "--mode=answer:400"]).attempts(1);
    let scene = RabbitScene::of(pool.clone());
    let rejected = Letter::new("work", REJECTED)
        .correlation_id("c-1")
        .reply_to("answers")
        .header("tenant", text("blue"))
        .with(|properties| properties.with_message_id("m-1".into()));
    let all = [
        rejected,
        Letter::new("work", CRASHED),
        Letter::new("work", BINARY),
    ];
    for (n, letter) in (1..).zip(all) {
        scene.client.publish(&[letter]);
        scene.daemon.eventually("its death", || {
            scene.client.ready(DEAD) == Some(n) && scene.left() == 0
        });
    }
    scene.daemon.stop();
    scene.site.configure_commands(&[pool]);
    (scene.vhost, scene.site)
}

pub(super) fn list(site: &Workspace) -> Vec<Value> {
    let letters = site.ganger(&["dead", "list", "--output", "json"]).json();
    letters.as_array().unwrap().clone()
}

pub(super) fn id(letter: &Value) -> String {
    letter["id"].as_str().unwrap().to_owned()
}

fn the_list_has_all_that_scripts_rely_on() {
    let (_vhost, site) = with_letters();
    let letters = list(&site);
    assert_eq!(letters.len(), 3, "{letters:#?}");
    let wanted = json!({
        "pool": "work", "queue": "work", "reason": "rejected", "attempts": 1, "crashes": 0,
        "exit_code": null, "signal": null, "stderr": [], "correlation_id": "c-1",
        "headers": {"tenant": "blue"}, "body": REJECTED, "message_id": "m-1", "reply_to": "answers",
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&letters[0][name], value, "{name} of {}", letters[0]);
    }
    for name in ["first_failed_at", "last_failed_at"] {
        let time: jiff::Timestamp = letters[0][name].as_str().unwrap().parse().unwrap();
        let age = jiff::Timestamp::now().duration_since(time).as_secs();
        assert!((0..60).contains(&age), "{name} of {}", letters[0]);
    }
    let told = ["reason", "exit_code", "crashes", "stderr"].map(|name| &letters[1][name]);
    assert_eq!(json!(told), json!(["crashed", 7, 1, ["last-words"]]));
    assert_eq!(letters[2]["body_base64"], "/wD+");
    let ids: std::collections::BTreeSet<String> = letters.iter().map(id).collect();
    assert_eq!(ids.len(), 3, "each has its own: {ids:?}");
}

fn reading_the_list_changes_nothing() {
    let (vhost, site) = with_letters();
    let first = list(&site);
    let shown = site
        .ganger(&["dead", "show", &id(&first[1]), "-o", "json"])
        .json();
    assert_eq!(shown, first[1]);
    assert_eq!(list(&site), first, "the same order");
    let letters = vhost.client().take_all(DEAD);
    let bodies: Vec<&[u8]> = letters.iter().map(|letter| &*letter.body).collect();
    assert_eq!(bodies, [REJECTED.as_bytes(), CRASHED.as_bytes(), BINARY]);
}

fn what_waits_can_not_be_listed() {
    let (vhost, site) = desk();
    site.ganger(&["send", "work", "a"]).sent(1);
    let why = site.ganger(&["waiting", "work"]).bad(1);
    assert!(why.contains("read only by taking it"), "{why}");
    let letter = vhost.client().take("work").unwrap();
    assert_eq!((letter.text(), letter.redelivered), ("a", false));
}

fn one_is_sent_back_and_others_stay() {
    let (vhost, site) = with_letters();
    let letters = list(&site);
    let told = site.ganger(&["dead", "retry", &id(&letters[1])]);
    assert_eq!(told.good(), "retried 1\n");
    let back = vhost.client().take_all("work");
    assert_eq!(back.len(), 1);
    assert_eq!(back[0].text(), CRASHED);
    let bodies: Vec<Value> = list(&site).iter().map(|l| l["body"].clone()).collect();
    assert_eq!(bodies, [json!(REJECTED), Value::Null]);
}

fn one_is_sent_back_edited() {
    let (vhost, site) = with_letters();
    site.put("edited", "mended", false);
    let first = id(&list(&site)[0]);
    let args = ["dead", "retry", &first, "--body", "edited", "-o", "json"];
    assert_eq!(site.ganger(&args).json(), json!({ "retried": 1 }));
    let back = vhost.client().take("work").unwrap();
    assert_eq!((back.text(), back.id()), ("mended", "c-1"));
    assert!(back.says("tenant", "blue"), "{back:#?}");
    assert_eq!(list(&site).len(), 2);
}

fn some_are_dropped() {
    let (vhost, site) = with_letters();
    let letters = list(&site);
    let (first, last) = (id(&letters[0]), id(&letters[2]));
    let args = ["dead", "drop", &first, &last, "-o", "json"];
    assert_eq!(site.ganger(&args).json(), json!({ "dropped": 2 }));
    assert_eq!(
        list(&site).iter().map(id).collect::<Vec<_>>(),
        [id(&letters[1])]
    );
    assert_eq!(
        site.ganger(&["dead", "drop", "--all"]).good(),
        "dropped 1\n"
    );
    assert_eq!(site.ganger(&["dead", "list"]).good(), "no dead letters\n");
    assert_eq!(vhost.client().ready("work"), Some(0));
}

fn what_is_not_there_is_an_error() {
    let (_vhost, site) = with_letters();
    let why = site.ganger(&["dead", "show", "nobody"]).bad(1);
    assert!(why.contains("there is no dead letter"), "{why}");
    let first = id(&list(&site)[0]);
    let why = site.ganger(&["dead", "drop", &first, "nobody"]).bad(1);
    assert!(why.contains("1 of 2"), "{why}");
    assert_eq!(list(&site).len(), 2);
    let vhost = Vhost::shared();
    let limit = ("x-max-length", AMQPValue::LongInt(5));
    vhost.client().declare("work", &[kind("classic"), limit]);
    let bare = rabbit_site(&vhost.url(), "");
    bare.configure_commands(&[pool()]);
    let told = bare.ganger(&["dead", "list"]).good();
    assert_eq!(
        told, "no dead letters\n",
        "where there is no queue for them"
    );
}

fn what_the_broker_moved_there_is_sent_back() {
    let vhost = Vhost::shared();
    let dead = [
        kind("quorum"),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(DEAD)),
        ("x-max-length", AMQPValue::LongInt(1)),
    ];
    vhost.client().declare("work", &dead);
    vhost.client().declare(DEAD, &[kind("quorum")]);
    let site = rabbit_site(&vhost.url(), "declare = false");
    site.configure_commands(&[pool()]);
    let equal = || Letter::new("work", "a").header("tenant", text("blue"));
    vhost.client().publish(&[equal(), equal(), equal()]);
    let letters = list(&site);
    assert_eq!(letters.len(), 2, "{letters:#?}");
    for _ in 0..2 {
        assert_eq!(list(&site), letters, "a look changes nothing");
    }
    for letter in &letters {
        let told = ["reason", "queue", "body"].map(|name| letter[name].clone());
        assert_eq!(json!(told), json!(["maxlen", "work", "a"]));
    }
    assert_ne!(id(&letters[0]), id(&letters[1]), "equal, and yet two");
    vhost.client().take_all("work");
    let args = ["dead", "retry", &id(&letters[1])];
    assert_eq!(site.ganger(&args).good(), "retried 1\n");
    let back = vhost.client().take("work").unwrap();
    assert_eq!(back.text(), "a");
    assert!(back.says("tenant", "blue"), "{back:#?}");
    assert_eq!(list(&site).len(), 1);
}

fn a_large_reply_is_kept_beside_its_letter() {
    let scene = RabbitScene::of(pool());
    let body = format!("mode:reply {}", "x".repeat(20_000));
    // The message has no reply-to and the worker names no queue.
    scene.send(&[&body]);
    scene.daemon.eventually("the letter and its reply", || {
        scene.client.ready(DEAD) == Some(2) && scene.left() == 0
    });
    scene.daemon.stop();
    scene.site.configure_commands(&[pool()]);
    let (vhost, site) = (scene.vhost, scene.site);
    let letters = list(&site);
    assert_eq!(letters.len(), 1, "the reply is none of its own");
    assert_eq!(letters[0]["reason"], "unroutable_reply");
    assert_eq!(letters[0]["reply"]["body"], format!("re: {body}"));
    site.ganger(&["dead", "drop", &id(&letters[0])]).good();
    assert_eq!(vhost.client().ready(DEAD), Some(0), "both are gone");
}

fn what_the_broker_keeps_for_itself_is_told() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[pool().text("dead_letter", "broker")]);
    let ran = site.ganger(&["dead", "list"]);
    assert!(ran.err.contains("pool `work`"), "{}", ran.err);
    assert_eq!(ran.good(), "no dead letters\n");
}
