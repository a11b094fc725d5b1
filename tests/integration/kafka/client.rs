//! `ganger send`, `ganger dead` and the status report, on Kafka.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::admin::socket;
use crate::harness::kafka::{KafkaSite, NewRecord, Plan, Stored};
use crate::harness::{Api, Daemon, Event, Pool, field, said, trials};
use crate::jobs;

trials![
    bodies_and_a_file_are_sent,
    a_delay_that_no_tier_has_room_for,
    a_delayed_message_waits,
    a_topic_that_is_not_there,
    what_the_group_has_not_done_is_listed,
    many_are_sent_and_none_is_lost,
    the_answer_is_waited_for,
    dead_letters_are_listed_and_shown,
    a_list_is_read_page_by_page_and_may_be_larger_than_memory,
    dead_letters_are_sent_back,
    dead_letters_are_dropped,
    jobs_go_through_a_topic_of_dead_letters,
    a_dead_tombstone_keeps_its_nothing,
    a_large_reply_is_kept_beside_its_letter,
    what_is_wrong_is_told_by_check,
    what_a_dead_letter_can_not_hold_is_cut_off,
    the_lag_of_each_partition_is_told,
];

/// A site whose commands know the pool too.
fn site(pool: impl Fn(&KafkaSite) -> Pool) -> (KafkaSite, Daemon) {
    let site = KafkaSite::new(1);
    let pool = pool(&site);
    site.site.configure_commands(std::slice::from_ref(&pool));
    let daemon = site.start(&pool);
    (site, daemon)
}

fn without_daemon() -> KafkaSite {
    let site = KafkaSite::new(1);
    site.site.configure_commands(&[site.pool(&[])]);
    site
}

fn bodies_and_a_file_are_sent() {
    let site = without_daemon();
    let out = site.site.ganger(&["send", &site.topic, "a", ""]);
    out.sent(2);
    let all = json!({
        "body": "grüße", "headers": {"tenant": "blue"}, "correlation_id": "c-1",
        "reply_to": "answers", "message_id": "m-1", "content_type": "text/plain", "key": "k",
    });
    let binary = json!({ "body_base64": "/wD+" });
    site.site.put("all", &format!("{all}\n{binary}\n"), false);
    let args = ["send", &site.topic, "--file", "all", "-o", "json"];
    site.site.ganger(&args).sent(2);
    let sent = site.kafka.read(&site.topic);
    let values: Vec<&[u8]> = sent.iter().map(|r| r.value.as_deref().unwrap()).collect();
    assert_eq!(
        values,
        [b"a", b"".as_slice(), "grüße".as_bytes(), b"\xff\x00\xfe"]
    );
    let keys: Vec<Option<&[u8]>> = sent.iter().map(|r| r.key.as_deref()).collect();
    assert_eq!(keys, [None, None, Some(b"k".as_slice()), None]);
    let header = |name| sent[2].header(name);
    assert_eq!(header("tenant").as_deref(), Some("blue"));
    assert_eq!(header("CorrelationId").as_deref(), Some("c-1"));
    assert_eq!(header("ReplyTo").as_deref(), Some("answers"));
    assert_eq!(sent[0].headers.len(), 1, "{:?}", sent[0].headers);
    assert_eq!(sent[0].header("MessageId").unwrap().len(), 32);
}

fn a_delayed_message_waits() {
    let (site, daemon) = site(|site| site.pool(&["--v2=1"]).set("retry", "{ max = \"1m\" }"));
    site.send(&["first"]);
    site.done(&daemon, 1);
    let lines = "{\"body\":\"later\",\"delay\":\"2s\"}\n{\"body\":\"now\"}";
    site.site.put("messages", lines, false);
    let args = ["send", &site.topic, "-f", "messages"];
    site.site.ganger(&args).sent(2);
    site.done(&daemon, 3);
    let record = site.record();
    assert_eq!(record.texts(Event::Began), ["first", "now", "later"]);
    site.settled(&daemon);
    daemon.stop();
}

/// Nothing has made a tier yet.
fn a_delay_that_no_tier_has_room_for() {
    let site = without_daemon();
    site.site
        .put("late", "{\"body\":\"a\",\"delay\":\"5s\"}", false);
    let wrong = site
        .site
        .ganger(&["send", &site.topic, "-f", "late"])
        .bad(1);
    assert!(wrong.contains("delay"), "{wrong}");
    assert_eq!(site.kafka.texts(&site.topic), Vec::<String>::new());
}

fn a_topic_that_is_not_there() {
    let site = without_daemon();
    let nowhere = site.named("nowhere");
    let wrong = site.site.ganger(&["send", &nowhere, "a"]).bad(1);
    assert!(wrong.contains(&format!("`{nowhere}`")), "{wrong}");
}

fn what_the_group_has_not_done_is_listed() {
    let (site, daemon) = site(|site| site.pool(&["--v2=1"]));
    site.send(&["done"]);
    site.all_done(&daemon);
    daemon.stop();
    let full = site
        .message("one")
        .key("k")
        .header("CorrelationId", "c-1")
        .header("constructor", "red");
    let large = site.message(&"x".repeat(5000));
    site.kafka.send(&[full, large]);
    let list = |more: &[&str]| {
        let args = [&["waiting", &site.topic, "-o", "json"], more].concat();
        site.site.ganger(&args)
    };
    let listed = list(&[]).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let first = &listed[0];
    let wanted = json!({
        "id": format!("{}:0:1", site.topic), "available_at": null, "correlation_id": "c-1", "key": "k",
        "body": "one",
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&first[name], value, "{name} of {first}");
    }
    assert_eq!(first["headers"]["constructor"], "red");
    let created: jiff::Timestamp = first["created_at"].as_str().unwrap().parse().unwrap();
    assert!(created < jiff::Timestamp::now(), "{created}");
    assert_eq!(listed[1]["body_cut"], 5000);
    let some = list(&["--limit", "1"]);
    assert!(some.err.contains("more messages wait"), "{some:?}");
    assert_eq!(some.json()[0]["body"], "one");
    let nowhere = site.named("nowhere");
    let wrong = site.site.ganger(&["waiting", &nowhere]).bad(1);
    assert!(wrong.contains(&format!("`{nowhere}`")), "{wrong}");
    // Nothing was taken or committed.
    let daemon = site.start(&site.pool(&["--v2=1"]));
    site.done(&daemon, 3);
    daemon.stop();
}

fn many_are_sent_and_none_is_lost() {
    let site = without_daemon();
    let count = 5_000;
    let line = |n: usize| format!("{}\n", json!({ "body": n.to_string(), "key": "k" }));
    site.site
        .put("many", &(0..count).map(line).collect::<String>(), false);
    let out = site.site.ganger(&["send", &site.topic, "-f", "many"]);
    assert_eq!(out.good(), format!("sent {count}\n"));
    let wanted: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    assert_eq!(site.kafka.texts(&site.topic), wanted);
}

fn the_answer_is_waited_for() {
    let (site, daemon) = site(|site| site.pool(&["--mode=reply"]));
    let args = ["send", &site.topic, "a", "b", "--reply", "-o", "json"];
    let told = site.site.ganger(&args).json();
    let bodies: Vec<&Value> = told["replies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["body"])
        .collect();
    assert_eq!(bodies, ["re: a", "re: b"]);
    site.all_done(&daemon);
    daemon.stop();
    let in_vain = [
        "send",
        &site.topic,
        "c",
        "--reply",
        "--reply-timeout",
        "300ms",
    ];
    let wrong = site.site.ganger(&in_vain).bad(1);
    assert!(wrong.contains("no answer"), "{wrong}");
}

/// What `dead list` says.
fn listed(site: &KafkaSite) -> Vec<Value> {
    let told = site
        .site
        .ganger(&["dead", "list", "--output", "json"])
        .json();
    told.as_array().unwrap().clone()
}

/// So many dead letters of a pool that rejects whatever comes.
fn with_dead(count: usize) -> (KafkaSite, Daemon, Vec<Value>) {
    let (site, daemon) = site(|site| site.pool(&["--v2=1", "--mode=unless:mended:400"]));
    let record = |n: usize| {
        site.message(&format!("letter {n}"))
            .key(format!("key {n}"))
            .header("CorrelationId", format!("c-{n}"))
            .header("colour", "red")
    };
    site.kafka
        .send(&(0..count).map(record).collect::<Vec<NewRecord>>());
    daemon.eventually("all to be dead", || {
        site.kafka.read(&site.dead_topic()).len() == count
    });
    site.settled(&daemon);
    let letters = listed(&site);
    assert_eq!(letters.len(), count, "{letters:#?}");
    (site, daemon, letters)
}

fn id(letter: &Value) -> &str {
    letter["id"].as_str().unwrap()
}

/// Letters of 100 KiB.
fn a_list_is_read_page_by_page_and_may_be_larger_than_memory() {
    const COUNT: usize = 2_000;
    let (site, daemon) = site(|site| site.pool(&["--v2=1"]));
    daemon.stop();
    let body = "x".repeat(100 << 10);
    let name = |n: usize| format!("letter-{n:05}");
    let letter = |n: usize| {
        NewRecord::new(&site.dead_topic(), &body)
            .key(name(n))
            .header("x-ganger-letter-id", name(n))
            .header("x-ganger-queue", &site.topic)
            .timestamp(1_700_000_000_000 + i64::try_from(n).unwrap())
    };
    for first in (0..COUNT).step_by(100) {
        let some: Vec<NewRecord> = (first..first + 100).map(letter).collect();
        site.kafka.send(&some);
    }
    let page = |more: &[&str]| -> Vec<String> {
        let args = [&["dead", "list", "-o", "json"], more].concat();
        let printed = site.site.ganger_within(192 << 10, &args);
        let letters: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(printed).unwrap()).unwrap();
        letters.iter().map(|letter| id(letter).to_owned()).collect()
    };
    let all: Vec<String> = (0..COUNT).map(name).collect();
    assert_eq!(page(&["--limit", "100000"]), all);
    let some = ["--limit", "2", "--after", &all[2]];
    assert_eq!(page(&some), all[3..5]);
    // One that was dropped tells where it was, as long as the broker has it.
    site.site.ganger(&["dead", "drop", &all[2]]).good();
    assert_eq!(page(&some), all[3..5]);
    assert_eq!(page(&["--after", &all[COUNT - 1]]), Vec::<String>::new());
    let why = site
        .site
        .ganger(&["dead", "list", "--after", "none"])
        .bad(1);
    assert!(why.contains("no dead letter none"), "{why}");
}

fn dead_letters_are_listed_and_shown() {
    let (site, daemon, letters) = with_dead(3);
    let bodies: Vec<&Value> = letters.iter().map(|letter| &letter["body"]).collect();
    assert_eq!(bodies, ["letter 0", "letter 1", "letter 2"]);
    let shown = site
        .site
        .ganger(&["dead", "show", id(&letters[1]), "-o", "json"])
        .json();
    assert_eq!(shown, letters[1]);
    let wanted = [
        ("pool", json!("work")),
        ("queue", json!(site.topic)),
        ("reason", json!("rejected")),
        ("attempts", json!(1)),
        ("crashes", json!(0)),
        ("correlation_id", json!("c-1")),
        ("key", json!("key 1")),
        (
            "headers",
            json!({ "CorrelationId": "c-1", "colour": "red" }),
        ),
    ];
    for (name, value) in wanted {
        assert_eq!(shown[name], value, "{name} of {shown:#}");
    }
    for name in ["error", "first_failed_at", "last_failed_at"] {
        assert!(
            !shown[name].as_str().unwrap().is_empty(),
            "{name} of {shown:#}"
        );
    }
    let name = shown["message_name"].as_str().unwrap();
    let [topic, partition, offset] = name.split(':').collect::<Vec<_>>()[..] else {
        panic!("{name}");
    };
    assert_eq!(topic, site.topic);
    assert!(
        [partition, offset]
            .iter()
            .all(|number| number.parse::<u32>().is_ok()),
        "{name}"
    );
    let text = site.site.ganger(&["dead", "list"]).good();
    assert!(text.contains("rejected (3)"), "{text}");
    // Reading has changed nothing.
    assert_eq!(listed(&site), letters);
    let nobody = site.site.ganger(&["dead", "show", "no-such-letter"]).bad(1);
    assert!(nobody.contains("no-such-letter"), "{nobody}");
    let other = ["dead", "list", "--pool", "another"];
    let other = site.site.ganger(&other).bad(2);
    assert!(other.contains("there is no pool `another`"), "{other}");
    daemon.stop();
}

fn dead_letters_are_sent_back() {
    let (site, daemon, letters) = with_dead(3);
    site.site.touch("mended");
    let back = ["dead", "retry", id(&letters[0]), "-o", "json"];
    assert_eq!(site.site.ganger(&back).json(), json!({ "retried": 1 }));
    site.done(&daemon, 1);
    let edited = ["dead", "retry", id(&letters[1]), "--body", "-"];
    site.site.ganger_reading(&edited, b"edited").good();
    site.site.ganger(&["dead", "retry", "--all"]).good();
    site.done(&daemon, 3);
    site.settled(&daemon);
    site.record()
        .assert_done_once(&["letter 0", "edited", "letter 2"]);
    assert!(listed(&site).is_empty());
    let all = site.kafka.read(&site.topic);
    let again: &Stored = all
        .iter()
        .find(|record| record.offset > 2 && record.text() == "letter 0")
        .unwrap();
    assert_eq!(again.key.as_deref(), Some(b"key 0".as_slice()));
    let original = &all[0];
    assert_eq!(
        again.headers, original.headers,
        "nothing of ours is left on it"
    );
    let began = site.record();
    assert!(
        began
            .all(Event::Began)
            .iter()
            .all(|entry| entry.attempt == Some(1))
    );
    let twice = site.site.ganger(&["dead", "retry", id(&letters[0])]).bad(1);
    assert!(twice.contains("do not exist"), "{twice}");
    daemon.stop();
}

fn dead_letters_are_dropped() {
    let (site, daemon, letters) = with_dead(3);
    let one = ["dead", "drop", id(&letters[1]), "-o", "json"];
    assert_eq!(site.site.ganger(&one).json(), json!({ "dropped": 1 }));
    assert_eq!(listed(&site), [letters[0].clone(), letters[2].clone()]);
    assert_eq!(
        site.site.ganger(&["dead", "drop", "--all"]).good(),
        "dropped 2\n"
    );
    assert!(listed(&site).is_empty());
    // A tombstone each, for the log cleaner to find.
    let dead = site.kafka.read(&site.dead_topic());
    assert_eq!(
        dead.iter().filter(|record| record.value.is_none()).count(),
        3
    );
    assert_eq!(
        site.record().all(Event::Done).len(),
        0,
        "none was run again"
    );
    daemon.stop();
}

fn jobs_go_through_a_topic_of_dead_letters() {
    let (site, daemon, _) = with_dead(6);
    let api = Api::Socket(socket(&daemon));
    let one = jobs::start(&api, "drop", json!({ "message_id": "c-5" }));
    assert_eq!(jobs::becomes(&daemon, &one, "completed")["changed"], 1);
    site.site.touch("mended");
    let wanted = json!({ "reason": "rejected", "rate": 8, "expected": 5 });
    let others = jobs::start(&api, "retry", wanted);
    let ended = jobs::becomes(&daemon, &others, "completed");
    assert_eq!(
        (&ended["changed"], &ended["failed"]),
        (&json!(5), &json!(0)),
        "{ended}"
    );
    site.done(&daemon, 5);
    let bodies: Vec<String> = (0..5).map(|n| format!("letter {n}")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    site.record().assert_done_once(&bodies);
    assert!(listed(&site).is_empty());
    daemon.stop();
}

fn a_dead_tombstone_keeps_its_nothing() {
    let (site, daemon) = site(|site| site.pool(&["--v2=1", "--mode=unless:mended:400"]));
    site.kafka.send(&[NewRecord::tombstone(&site.topic)
        .key("k")
        .header("why", "gone")]);
    daemon.eventually("it to be dead", || !listed(&site).is_empty());
    let letter = listed(&site).remove(0);
    assert_eq!((&letter["body"], &letter["key"]), (&json!(""), &json!("k")));
    site.site.touch("mended");
    site.site.ganger(&["dead", "retry", "--all"]).good();
    site.done(&daemon, 1);
    site.settled(&daemon);
    let all = site.kafka.read(&site.topic);
    assert_eq!(all.len(), 2);
    assert_eq!((&all[1].value, &all[1].key), (&None, &all[0].key));
    assert_eq!(all[1].headers, all[0].headers);
    daemon.stop();
}

fn a_large_reply_is_kept_beside_its_letter() {
    let (site, daemon) = site(|site| site.pool(&["--v2=1"]));
    let body = format!("mode:reply {}", "x".repeat(20_000));
    // The message has no reply-to and the worker names no topic.
    site.send(&[&body]);
    daemon.eventually("the letter and its reply", || {
        site.kafka.read(&site.dead_topic()).len() == 2
    });
    site.settled(&daemon);
    daemon.stop();
    let letters = listed(&site);
    assert_eq!(letters.len(), 1, "the reply is none of its own");
    assert_eq!(letters[0]["reason"], "unroutable_reply");
    assert_eq!(letters[0]["reply"]["body"], format!("re: {body}"));
    site.site.ganger(&["dead", "drop", id(&letters[0])]).good();
    let dead = site.kafka.read(&site.dead_topic());
    let ended = dead.iter().filter(|record| record.value.is_none());
    assert_eq!(ended.count(), 2, "both are gone");
    assert!(listed(&site).is_empty());
}

fn what_is_wrong_is_told_by_check() {
    let site = Plan::new(1).source("declare = false").make();
    site.site.configure_commands(&[site.pool(&[])]);
    let why = site.site.ganger(&["check", "--online"]).bad(1);
    assert!(
        why.contains("topics are missing") && why.contains(&site.dead_topic()),
        "{why}"
    );
    let site = without_daemon();
    site.site.ganger(&["check", "--online"]).good();
    assert_eq!(site.kafka.read(&site.dead_topic()), [], "nothing is made");
}

/// Everything that is told beside the message, of a message as long as its topic takes.
fn what_a_dead_letter_can_not_hold_is_cut_off() {
    let site = Plan::new(1).topic("max.message.bytes", "100000").make();
    let daemon = site.start(&site.pool(&["--v2=1"]).attempts(1));
    let steps = "mode:complain:a-long-story,die:exit:7";
    let body = format!("{steps} {}", "x".repeat(99_000));
    site.send(&[&body]);
    daemon.eventually("it to be dead", || {
        !site.kafka.read(&site.dead_topic()).is_empty()
    });
    assert_eq!(site.kafka.read(&site.dead_topic())[0].text(), body);
    site.settled(&daemon);
    daemon.stop();
}

fn the_lag_of_each_partition_is_told() {
    let site = KafkaSite::new(2);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "1"));
    let record = |partition: i32, text: &str| site.message(text).partition(partition);
    site.kafka.send(&[record(1, "mode:wait:go slow")]);
    site.begun(&daemon, &["mode:wait:go slow"]);
    site.kafka
        .send(&[record(0, "a"), record(1, "b"), record(1, "c")]);
    let lag = |wanted: [&str; 3]| {
        daemon.eventually(&format!("lags of {wanted:?}"), || {
            daemon.signal(Signal::SIGUSR1);
            let last = |message: &str, partition: Option<String>| {
                let meant = |record: &Value| {
                    let of_partition = partition.as_ref();
                    said(record, message)
                        && of_partition.is_none_or(|name| record["partition"] == **name)
                };
                let told = daemon.records(meant);
                told.last().map(|record| field(record, "lag"))
            };
            let each = |number| {
                let name = format!("{}/{number}", site.topic);
                last("status of the partition", Some(name))
            };
            let told = [last("status of the pool", None), each(0), each(1)];
            told == wanted.map(|lag| Some(lag.to_owned()))
        });
    };
    lag(["4", "1", "3"]);
    site.site.touch("go");
    site.all_done(&daemon);
    lag(["0", "0", "0"]);
    daemon.stop();
}
