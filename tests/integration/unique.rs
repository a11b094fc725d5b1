//! A key that one message of a queue has at a time: who may have it, and when it is free again, while
//! daemons and workers die and many send at once.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Event, Pool, Scene, Table, Workspace, trials};

trials![
    a_message_is_not_sent_while_another_one_has_its_key,
    a_plain_insert_is_refused_or_does_as_it_says,
    a_key_is_free_once_the_work_on_it_has_begun,
    a_key_may_be_kept_while_the_work_goes_on,
    a_key_may_be_kept_until_a_time,
    the_newest_message_replaces_the_one_that_waits,
    a_message_is_put_off_as_long_as_more_of_its_key_come,
    a_lapsed_claim_takes_no_key_back,
    a_dead_letter_goes_back_with_its_key_or_stays,
    never_are_two_of_one_key_in_hand_whatever_dies,
    whoever_sends_while_the_work_begins_is_not_lost,
    a_command_line_that_makes_no_sense,
];

fn site() -> Workspace {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    site
}

fn scene(pool: Pool) -> Scene {
    let scene = Scene::of(pool.clone());
    scene.site.configure_commands(&[pool]);
    scene
}

/// What `ganger send` says of a message.
/// Sends; what that tells beside an id for each message that was sent.
fn send(site: &Workspace, args: &[&str]) -> Value {
    let args = [&["send", "work", "-o", "json"], args].concat();
    let mut told = site.ganger(&args).json();
    let ids = told.as_object_mut().unwrap().remove("ids");
    let ids = ids.map_or(0, |ids| ids.as_array().unwrap().len());
    assert_eq!(told["sent"], ids);
    told
}

fn bodies(table: &Table) -> Vec<String> {
    let waiting = table.messages("work").into_iter();
    waiting.map(|message| message.body).collect()
}

/// The row of the message that has a key.
fn holder(table: &Table, key: &str) -> i64 {
    let holder = format!("SELECT id FROM consumer_messages WHERE unique_hold = '{key}'");
    table.ask(&holder).parse().unwrap()
}

fn a_message_is_not_sent_while_another_one_has_its_key() {
    let site = site();
    assert_eq!(send(&site, &["a", "--unique", "k"]), json!({ "sent": 1 }));
    let table = site.table();
    let kept = holder(&table, "k");
    assert_eq!(
        send(&site, &["b", "--unique", "k"]),
        json!({ "sent": 0, "kept": kept })
    );
    let text = site.ganger(&["send", "work", "b", "--unique", "k"]).good();
    assert_eq!(text, format!("sent 0; message {kept} already exists\n"));
    assert_eq!(send(&site, &["c", "--unique", "l"]), json!({ "sent": 1 }));
    let elsewhere = ["send", "other", "d", "--unique", "k", "--source", "main"];
    assert!(site.ganger(&elsewhere).good().starts_with("sent 1, id "));
    let lines = [
        json!({ "body": "e", "unique_key": "k" }),
        json!({ "body": "f" }),
        json!({ "body": "g", "unique_key": "m", "unique_scope": "waiting_or_running" }),
        json!({ "body": "h", "unique_key": "m", "unique_scope": "1h" }),
        json!({ "body": "i" }),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    site.put("lines", &lines.join("\n"), false);
    let told = send(&site, &["-f", "lines"]);
    assert_eq!(
        told,
        json!({ "sent": 3, "kept": [kept, holder(&table, "m")] })
    );
    assert_eq!(bodies(&table), ["a", "c", "f", "g", "i"]);
}

fn a_plain_insert_is_refused_or_does_as_it_says() {
    let site = site();
    send(&site, &["a", "--unique", "k"]);
    let table = site.table();
    let insert =
        "INSERT INTO consumer_messages (queue, body, unique_key) VALUES ('work', 'b', 'k')";
    let error = table.run(insert).unwrap_err();
    assert!(error.to_lowercase().contains("unique"), "{error}");
    let or_nothing = format!("{insert} {}", table.or_nothing());
    table.run(&or_nothing).unwrap();
    assert_eq!(bodies(&table), ["a"]);
    let or_replace = format!("{insert} {}", table.or_replace());
    table.run(&or_replace).unwrap();
    assert_eq!(bodies(&table), ["b"]);
    let columns =
        "INSERT INTO consumer_messages (queue, body, unique_key, unique_scope, unique_until)";
    for values in ["'always', NULL", "'until', NULL", "'waiting', 1", "NULL, 1"] {
        let wrong = format!("{columns} VALUES ('work', 'c', 'l', {values})");
        let error = table.run(&wrong).unwrap_err();
        assert!(error.to_lowercase().contains("constraint"), "{error}");
    }
}

fn a_key_is_free_once_the_work_on_it_has_begun() {
    let pool = Pool::new(&["--v2=1"]).set("prefetch", "1");
    let scene = scene(pool.attempts(5));
    let first = "mode:wait:go,until-attempt:3:500 a";
    send(&scene.site, &[first, "--unique", "k"]);
    scene.begun(&[first]);
    // One works, one waits; the others come in vain.
    assert_eq!(
        send(&scene.site, &["b", "--unique", "k"]),
        json!({ "sent": 1 })
    );
    let kept = holder(&scene.table, "k");
    assert_eq!(
        send(&scene.site, &["c", "--unique", "k"]),
        json!({ "sent": 0, "kept": kept })
    );
    // It fails, and comes again, and the other one's key is no matter to it.
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&[first, "b"]);
    assert_eq!(scene.record().of(Event::Began, first).len(), 3);
    scene.finish();
}

fn a_key_may_be_kept_while_the_work_goes_on() {
    let scene = scene(Pool::new(&["--v2=1"]).attempts(5));
    let first = "mode:wait:go,until-attempt:2:500 a";
    let whole = ["--unique", "k", "--scope", "waiting_or_running"];
    let sends = |body| send(&scene.site, &[&[body], &whole[..]].concat());
    assert_eq!(sends(first), json!({ "sent": 1 }));
    scene.begun(&[first]);
    let kept = holder(&scene.table, "k");
    assert_eq!(sends("b"), json!({ "sent": 0, "kept": kept }));
    // What is worked on is not replaced either.
    let replaces = ["c", "--unique", "k", "--replace"];
    assert_eq!(
        send(&scene.site, &replaces),
        json!({ "sent": 0, "kept": kept })
    );
    assert_eq!(bodies(&scene.table), [first]);
    scene.site.touch("go");
    scene.all_done();
    assert_eq!(sends("d"), json!({ "sent": 1 }));
    scene.all_done();
    scene.record().assert_done_once(&[first, "d"]);
    scene.finish();
}

fn a_key_may_be_kept_until_a_time() {
    let scene = scene(Pool::new(&["--v2=1"]));
    let held = "mode:wait:go a";
    let sends = |body, scope| send(&scene.site, &[body, "--unique", "k", "--scope", scope]);
    sends(held, "1h");
    scene.begun(&[held]);
    let kept = holder(&scene.table, "k");
    assert_eq!(sends("b", "1h"), json!({ "sent": 0, "kept": kept }));
    let over = "UPDATE consumer_messages SET unique_until = 1";
    scene.table.run(over).unwrap();
    scene.daemon.eventually("the key to be free", || {
        sends("c", "1h") == json!({ "sent": 1 })
    });
    assert_eq!(bodies(&scene.table), [held, "c"], "the work goes on");
    assert_eq!(sends("d", "1h")["sent"], 0);
    scene.site.touch("go");
    scene.all_done();
    // It goes with the message, if that is earlier.
    assert_eq!(sends("e", "1h"), json!({ "sent": 1 }));
    scene.all_done();
    scene.finish();
}

fn the_newest_message_replaces_the_one_that_waits() {
    let site = site();
    let replace = ["--unique", "k", "--replace"];
    let sends = |body, more: &[&str]| send(&site, &[&[body], &replace[..], more].concat());
    assert_eq!(
        sends("a", &["-H", "n=1", "--delay", "1h"]),
        json!({ "sent": 1 })
    );
    let table = site.table();
    let kept = holder(&table, "k");
    let due = || table.ask("SELECT available_after FROM consumer_messages");
    let before = due();
    assert_eq!(
        sends("b", &["-H", "n=2"]),
        json!({ "sent": 0, "kept": kept })
    );
    let waiting = table.messages("work");
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].body, "b");
    assert_eq!(waiting[0].headers, json!({ "n": "2" }));
    assert_eq!(due(), before, "its time stays");
}

fn a_message_is_put_off_as_long_as_more_of_its_key_come() {
    let site = site();
    let sends = |body, each: &str, longest: &[&str]| {
        send(
            &site,
            &[&[body, "--unique", "k", "--debounce", each], longest].concat(),
        )
    };
    assert_eq!(sends("a", "10m", &[]), json!({ "sent": 1 }));
    let table = site.table();
    let wait = || {
        let wait = "SELECT available_after - created_at + 30000 FROM consumer_messages";
        table.ask(wait).parse::<i64>().unwrap() / 60_000
    };
    assert_eq!(wait(), 10);
    // As if it had come half an hour ago.
    let half_an_hour = 30 * 60_000;
    let earlier = format!(
        "UPDATE consumer_messages SET created_at = created_at - {half_an_hour},
           available_after = available_after - {half_an_hour}"
    );
    table.run(&earlier).unwrap();
    let kept = holder(&table, "k");
    assert_eq!(sends("b", "10m", &[]), json!({ "sent": 0, "kept": kept }));
    assert_eq!(wait(), 40);
    sends("c", "10m", &["--debounce-max", "35m"]);
    assert_eq!(wait(), 35, "no longer than that after the first");
    table.run(&earlier).unwrap();
    table.run(&earlier).unwrap();
    sends("d", "10m", &[]);
    assert_eq!(wait(), 100, "ten times as long if nothing is said");
    assert_eq!(bodies(&table), ["d"]);
}

fn a_lapsed_claim_takes_no_key_back() {
    let mut scene = scene(Pool::new(&["--v2=1"]));
    let first = "mode:wait:go a";
    send(&scene.site, &[first, "--unique", "k"]);
    scene.begun(&[first]);
    send(&scene.site, &["b", "--unique", "k"]);
    scene.daemon.crash();
    scene.site.touch("go");
    scene.daemon = scene.site.start(&[Pool::new(&["--v2=1"])]);
    scene.all_done();
    scene.record().assert_done_once(&[first, "b"]);
    scene.finish();
}

fn a_dead_letter_goes_back_with_its_key_or_stays() {
    let scene = scene(Pool::new(&["--v2=1"]).attempts(1));
    let whole = ["--scope", "waiting_or_running"];
    let fails = |file: &str, key: &str, more: &[&str]| {
        let body = format!("mode:unless:{file}:400");
        send(
            &scene.site,
            &[&[body.as_str(), "--unique", key], more].concat(),
        );
        scene.settled();
    };
    fails("later", "k", &whole);
    fails("later", "k", &whole);
    fails("later", "l", &[]);
    assert_eq!(scene.table.dead().len(), 3);
    let held = "mode:wait:go b";
    send(
        &scene.site,
        &[&[held, "--unique", "k"], &whole[..]].concat(),
    );
    scene.begun(&[held]);
    send(&scene.site, &["c", "--unique", "l"]);
    scene.site.touch("later");
    let retry = |more: &[&str]| scene.site.ganger(&[&["dead", "retry"], more].concat());
    let why = retry(&["1"]).bad(1);
    let stays = "retried 0 of 1; 1 stay: another message has their unique key";
    assert!(why.contains(stays), "{why}");
    // The one that had its key as long as it waited has let it go when it was begun.
    let told = retry(&["--all", "-o", "json"]).json();
    assert_eq!(told, json!({ "retried": 1, "held": 2 }));
    scene.site.touch("go");
    scene.settled();
    // Of two with one key only one can go while nothing is finished.
    let held = "mode:wait:more";
    scene.send(&[held]);
    scene.begun(&[held]);
    let told = retry(&["--all"]).good();
    assert_eq!(
        told,
        "retried 1; 1 stay: another message has their unique key\n"
    );
    scene.site.touch("more");
    scene.settled();
    assert_eq!(retry(&["--all"]).good(), "retried 1\n");
    scene.all_done();
    scene.finish();
}

/// What a message of a key is called.
fn key_of(body: &str) -> &str {
    body.split(' ').nth(1).unwrap()
}

fn never_are_two_of_one_key_in_hand_whatever_dies() {
    let pool = Pool::new(&["--mode=sleep:2"])
        .set("workers", "4")
        .attempts(1000)
        .set("crashes_max", "1000")
        .set("lapses_max", "1000");
    let scene = Scene::of(pool.clone());
    let mut second = scene.site.start(std::slice::from_ref(&pool));
    let (senders, each, keys) = (4, 150, 5);
    thread::scope(|scope| {
        for sender in 0..senders {
            let table = scene.site.table();
            scope.spawn(move || {
                for number in 0..each {
                    let key = number % keys;
                    table.produce(&format!(
                        "INSERT INTO consumer_messages (queue, body, unique_key, unique_scope)
                         VALUES ('work', 'x {key} {sender} {number}', '{key}', 'waiting_or_running')
                         {}",
                        table.or_nothing()
                    ));
                }
            });
        }
        for _ in 0..3 {
            let before = scene.record().all(Event::Done).len();
            scene.daemon.eventually("more to be done", || {
                scene.record().all(Event::Done).len() > before + 2 || scene.table.count("work") == 0
            });
            second.crash();
            second = scene.site.start(std::slice::from_ref(&pool));
        }
    });
    scene.all_done();
    let mut record = scene.record();
    record.0.sort_by_key(|entry| entry.micros);
    let mut in_hand: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in &record.0 {
        let (key, body) = (key_of(&entry.text), entry.text.as_str());
        match entry.event {
            Event::Began => {
                let other = in_hand.insert(key, body);
                assert!(
                    other.is_none_or(|other| other == body),
                    "{other:?} and {body}"
                );
            }
            Event::Done => drop(in_hand.remove(key)),
            Event::Told | Event::Noted => {}
        }
    }
    second.stop();
    scene.finish();
}

/// Each sender counts a number up and asks for work on it in one transaction. However many of those
/// messages were dropped, there is always one that begins after the last commit.
fn whoever_sends_while_the_work_begins_is_not_lost() {
    let scene = Scene::of(Pool::new(&["--mode=sleep:1"]).set("workers", "2"));
    let shop = scene.site.table();
    shop.run(
        "CREATE TABLE counts (name INTEGER PRIMARY KEY, count INTEGER NOT NULL);
              INSERT INTO counts VALUES (0, 0), (1, 0), (2, 0)",
    )
    .unwrap();
    let (senders, each) = (4, 100);
    thread::scope(|scope| {
        for _ in 0..senders {
            let table = scene.site.table();
            scope.spawn(move || {
                for number in 0..each {
                    let key = number % 3;
                    table.produce(&format!(
                        "BEGIN;
                         UPDATE counts SET count = count + 1 WHERE name = {key};
                         INSERT INTO consumer_messages (queue, body, unique_key)
                         SELECT 'work', 'x ' || name || ' ' || count, 'k' || name FROM counts
                         WHERE name = {key}
                         {};
                         COMMIT",
                        table.or_replace()
                    ));
                }
            });
        }
    });
    scene.all_done();
    let last = shop.ask("SELECT 'x ' || name || ' ' || count FROM counts");
    scene
        .record()
        .assert_none_lost(&last.lines().collect::<Vec<_>>());
    let (begun, sent) = (scene.record().all(Event::Began).len(), senders * each);
    assert!(begun <= sent, "{begun} of {sent}");
    scene.finish();
}

fn a_command_line_that_makes_no_sense() {
    let site = site();
    for (args, part) in [
        (&["a", "--replace"][..], "--unique"),
        (&["a", "--scope", "waiting"], "--unique"),
        (
            &["a", "--unique", "k", "--scope", "0s"],
            "waiting_or_running",
        ),
        (
            &["a", "--unique", "k", "--scope", "1s", "--replace"],
            "cannot be used with",
        ),
        (
            &["a", "--unique", "k", "--debounce", "1s", "--replace"],
            "cannot be used with",
        ),
        (
            &["a", "--unique", "k", "--debounce", "1s", "--delay", "1s"],
            "cannot be used with",
        ),
        (
            &["a", "--unique", "k", "--debounce-max", "1s"],
            "--debounce",
        ),
        (&["a", "--unique", "k", "--reply"], "cannot be used with"),
        (&["-f", "lines", "--unique", "k"], "cannot be used with"),
        (
            &["a", "--delay", "1s", "--at", "2027-01-31T08:00:00Z"],
            "cannot be used with",
        ),
        (&["a", "--at", "noon"], "2027-01-31T08:00:00Z"),
    ] {
        let why = site.ganger(&[&["send", "work"], args].concat()).bad(2);
        assert!(why.contains(part), "{args:?}: {why}");
    }
    site.put("lines", r#"{"body":"a","unique_key":"k"}"#, false);
    let why = site
        .ganger(&["send", "work", "-f", "lines", "--reply"])
        .bad(1);
    assert!(
        why.contains("lines, line 1") && why.contains("--reply can't be used with a unique key"),
        "{why}"
    );
}
