//! Commands that act on the sources of a daemon elsewhere, from where there is no configuration.

pub(super) mod schedules;

use serde_json::{Value, json};

use super::{api, scene, socket};
use crate::harness::{Event, Pool, Ran, Scene, Workspace, trials};

trials![
    messages_are_sent,
    what_waits_is_listed,
    a_file_is_sent_message_by_message,
    answers_are_waited_for,
    a_key_is_one_messages_elsewhere_too,
    a_topic_has_its_queues,
    subscriptions_are_listed_and_dropped,
    dead_letters_are_shown_as_they_are_there,
    dead_letters_are_sent_back,
    a_dead_letter_whose_key_is_held_stays,
    dead_letters_are_dropped,
    a_long_list_comes_in_parts,
    what_does_not_answer_is_told_as_status_tells_it,
];

/// The queue that no pool reads.
const UNREAD: &str = "grüße/und mehr?";

/// A daemon, and a directory without a configuration in which commands are given its address.
struct Elsewhere {
    scene: Scene,
    dir: Workspace,
    host: String,
    token: String,
}

impl Elsewhere {
    fn of(pool: Pool) -> Self {
        let scene = scene(pool.clone());
        scene.site.configure_commands(&[pool]);
        let host = format!("http://127.0.0.1:{}", api(&scene.daemon).port());
        let token = socket(&scene.daemon).with_extension("token");
        Self {
            scene,
            dir: Workspace::new(),
            host,
            token: token.to_str().unwrap().to_owned(),
        }
    }

    fn ganger_reading(&self, args: &[&str], input: &[u8]) -> Ran {
        let host = ["--host", &self.host, "--token-file", &self.token];
        self.dir.ganger_reading(&[args, &host].concat(), input)
    }

    fn ganger(&self, args: &[&str]) -> Ran {
        self.ganger_reading(args, b"")
    }

    /// The command says the same there as beside the daemon.
    fn says_the_same(&self, args: &[&str]) -> Ran {
        let (there, here) = (self.ganger(args), self.scene.site.ganger(args));
        assert_eq!(
            (there.code, &there.out, &there.err),
            (here.code, &here.out, &here.err),
            "{args:?}"
        );
        there
    }

    /// Sends messages that die, one after the other.
    fn with_dead(self, bodies: &[&str]) -> Self {
        for (index, body) in bodies.iter().enumerate() {
            self.ganger(&["send", "work", body]).good();
            self.scene.daemon.eventually("it to be dead", || {
                self.scene.table.dead().len() == index + 1
            });
        }
        self
    }

    fn dead(&self) -> Vec<String> {
        let letters = self.ganger(&["dead", "list", "-o", "json"]).json();
        let id = |letter: &Value| letter["id"].as_str().unwrap().to_owned();
        letters.as_array().unwrap().iter().map(id).collect()
    }

    fn waiting(&self, queue: &str) -> Vec<String> {
        let rows = self.scene.table.messages(queue).into_iter();
        rows.map(|row| row.body).collect()
    }
}

fn messages_are_sent() {
    let there = Elsewhere::of(Pool::new(&[]));
    let sent = there.ganger(&["send", "work", "a", "--header", "tenant=blue"]);
    assert!(sent.good().starts_with("sent 1, id "));
    there.scene.all_done();
    there.scene.record().assert_done_once(&["a"]);
    let many = ["send", UNREAD, "b", "c d", "-o", "json", "--delay", "1h"];
    let sent = there.ganger(&many);
    assert!(
        sent.err.contains("no pool of this configuration reads"),
        "{}",
        sent.err
    );
    let sent = sent.json();
    assert_eq!(
        (&sent["sent"], sent["ids"].as_array().unwrap().len()),
        (&json!(2), 2)
    );
    assert_eq!(there.waiting(UNREAD), ["b", "c d"]);
    let due = "SELECT count(*) FROM consumer_messages WHERE available_after > created_at + 3500000";
    assert_eq!(there.scene.table.ask(due), "2");
    assert_eq!(
        there
            .scene
            .table
            .ask("SELECT max(message_id) FROM consumer_messages")
            .len(),
        32
    );
    let why = there.says_the_same(&["send", "work", "a", "--source", "third"]);
    assert!(why.bad(2).contains("there is no source `third`"));
    there.scene.finish();
}

fn what_waits_is_listed() {
    let there = Elsewhere::of(Pool::new(&[]));
    let many = ["send", UNREAD, "b", "c d", "--delay", "1h"];
    there.ganger(&many).good();
    let listed = there.says_the_same(&["waiting", UNREAD, "-o", "json"]);
    assert_eq!(listed.json()[1]["body"], "c d");
    let some = there.says_the_same(&["waiting", UNREAD, "--limit", "1"]);
    assert!(some.err.contains("more messages wait"), "{some:?}");
    let none = there.says_the_same(&["waiting", "work"]);
    assert_eq!(none.good(), "no message waits\n");
    there.scene.finish();
}

fn a_file_is_sent_message_by_message() {
    let there = Elsewhere::of(Pool::new(&[]));
    let all = json!({
        "body": "grüße", "headers": {"tenant": "blue", "n": 1, "yes": true},
        "correlation_id": "c-1", "reply_to": "answers", "message_id": "m-1",
        "content_type": "text/plain", "key": "k", "priority": -3, "delay": "1h",
    });
    let binary = json!({ "body_base64": "/wD+" });
    let file = format!("{all}\n\n{binary}\n");
    let args = [
        "send",
        UNREAD,
        "--file",
        "-",
        "-o",
        "json",
        "-H",
        "tenant=red",
    ];
    let sent = there.ganger_reading(&args, file.as_bytes()).json();
    assert_eq!((&sent["sent"], &sent["ids"][0]), (&json!(2), &json!("m-1")));
    // The same sent beside the daemon makes the same rows.
    let args = ["send", UNREAD, "--file", "-", "-H", "tenant=red"];
    there
        .scene
        .site
        .ganger_reading(&args, file.as_bytes())
        .good();
    let columns = "count(*) || queue || hex(body) || headers || coalesce(correlation_id, '-')
        || coalesce(reply_to, '-') || coalesce(content_type, '-') || coalesce(key, '-') || priority
        || ((available_after - created_at + 500) / 1000)";
    let grouped = format!("SELECT {columns} FROM consumer_messages GROUP BY body ORDER BY body");
    let rows = there.scene.table.ask(&grouped);
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.lines().all(|row| row.starts_with('2')), "{rows}");
    let bad = b"{\"body\":\"a\"}\n{\"body\":\"b\"}\n{\"bdy\":\"c\"}\n{\"body\":\"d\"}";
    let ran = there.ganger_reading(&["send", "other", "-f", "-", "-o", "json"], bad);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["sent"], 2);
    let why = ran.bad(1);
    assert!(
        why.contains("sent 2 before that") && why.contains("-, line 3"),
        "{why}"
    );
    assert_eq!(there.waiting("other"), ["a", "b"]);
    there.scene.finish();
}

fn answers_are_waited_for() {
    let there = Elsewhere::of(Pool::new(&[]));
    let (one, two) = ("mode:sleep:50,reply one", "mode:reply two");
    let out = there.ganger(&["send", "work", one, two, "--reply"]);
    assert_eq!(out.good(), format!("re: {one}\nre: {two}\n"));
    let line = json!({ "body": two, "correlation_id": "c", "reply_to": "nowhere" }).to_string();
    let args = ["send", "work", "-f", "-", "--reply", "-o", "json"];
    let told = there.ganger_reading(&args, line.as_bytes()).json();
    assert_eq!(told["sent"], 1);
    let reply = json!({
        "body": format!("re: {two}"), "correlation_id": "c",
        "headers": { "answered-by": "modes-worker" },
    });
    assert_eq!(told["replies"], json!([reply]));
    let silent = [
        "send",
        "other",
        "a",
        "b",
        "--reply",
        "--reply-timeout",
        "50ms",
    ];
    let why = there.ganger(&silent).bad(1);
    assert!(
        why.contains("sent 1 before that") && why.contains("no answer"),
        "{why}"
    );
    assert_eq!(there.waiting("other"), ["a"]);
    let late = ["send", "work", two, "--reply", "--reply-timeout", "6m"];
    let why = there.ganger(&late).bad(2);
    assert!(
        why.contains("--reply-timeout must be at most 300s"),
        "{why}"
    );
    there.scene.finish();
}

fn a_key_is_one_messages_elsewhere_too() {
    let there = Elsewhere::of(Pool::new(&[]));
    let send = |args: &[&str]| {
        let args = [&["send", "other", "-o", "json"], args].concat();
        let mut told = there.ganger(&args).json();
        told.as_object_mut().unwrap().remove("ids");
        told
    };
    assert_eq!(send(&["a", "--unique", "k"]), json!({ "sent": 1 }));
    let row = there.scene.table.ask("SELECT id FROM consumer_messages");
    let row: i64 = row.parse().unwrap();
    assert_eq!(
        send(&["b", "--unique", "k"]),
        json!({ "sent": 0, "kept": row })
    );
    assert_eq!(
        send(&["c", "--unique", "k", "--replace"]),
        json!({ "sent": 0, "kept": row })
    );
    assert_eq!(there.waiting("other"), ["c"]);
    let debounce = [
        "d",
        "--unique",
        "k",
        "--debounce",
        "1h",
        "--debounce-max",
        "2h",
    ];
    assert_eq!(send(&debounce), json!({ "sent": 0, "kept": row }));
    let due = "SELECT (available_after - created_at) / 600000 FROM consumer_messages";
    assert_eq!(there.scene.table.ask(due), "6");
    let whole = ["e", "--unique", "l", "--scope", "10m"];
    assert_eq!(send(&whole), json!({ "sent": 1 }));
    let scope = "SELECT unique_scope FROM consumer_messages WHERE unique_key = 'l'";
    assert_eq!(there.scene.table.ask(scope), "until");
    there.scene.finish();
}

fn subscribed(queues: &[&str]) -> Elsewhere {
    let subscription =
        |queue: &&str| format!("[[subscriptions]]\ntopic = \"placed\"\nqueue = \"{queue}\"\n");
    let sections: String = queues.iter().map(subscription).collect();
    let there = Elsewhere::of(Pool::new(&["--v2=1"]).after(&sections));
    there.scene.daemon.eventually("the subscriptions", || {
        let logged = "subscribed the queue to the topic";
        there.scene.daemon.times_logged(logged) == queues.len()
    });
    there
}

fn a_topic_has_its_queues() {
    let there = subscribed(&["work", "other"]);
    let send = |args: &[&str]| there.ganger(&[&["send", "--topic"], args].concat());
    assert!(send(&["placed", "a"]).good().starts_with("sent 1, id "));
    there.scene.all_done();
    there.scene.record().assert_done_once(&["a"]);
    assert_eq!(there.waiting("other"), ["a"]);
    let why = send(&["lost", "b"]).bad(1);
    assert!(
        why.contains("no queue is subscribed to topic `lost`"),
        "{why}"
    );
    let dropped = send(&["lost", "b", "--drop-unsubscribed"]).good();
    assert!(dropped.starts_with("sent 1, id "), "{dropped}");
    there.scene.finish();
}

fn subscriptions_are_listed_and_dropped() {
    let there = subscribed(&["work", UNREAD]);
    let listed = there.says_the_same(&["subscriptions", "list"]).good();
    for part in ["TOPIC", "placed", UNREAD, "main", "yes"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    there.says_the_same(&["subscriptions", "list", "-o", "json", "--source", "main"]);
    there
        .says_the_same(&["subscriptions", "list", "--source", "third"])
        .bad(2);
    there.says_the_same(&["subscriptions", "drop", "paid", "work"]);
    let drop = there.ganger(&["subscriptions", "drop", "placed", UNREAD]);
    assert!(
        drop.err.contains("the configuration still contains it"),
        "{drop:?}"
    );
    assert_eq!(drop.good(), "dropped 1\n");
    let left = there
        .ganger(&["subscriptions", "list", "-o", "json"])
        .json();
    assert_eq!(
        (left.as_array().unwrap().len(), &left[0]["queue"]),
        (1, &json!("work"))
    );
    let api = api(&there.scene.daemon);
    for place in ["main/placed/gone", "third/placed/work"] {
        let path = format!("/v1/subscriptions/{place}");
        api.ask("DELETE", &path, &[], "").problem(404);
    }
    there.scene.finish();
}

const REJECTED: &str = "mode:answer:400 rejected";
const OTHER: &str = "mode:answer:403 grüße";

fn dead_letters_are_shown_as_they_are_there() {
    let there = Elsewhere::of(Pool::new(&["--v2=1", "--mode=answer:400"]).attempts(1));
    let there = there.with_dead(&[REJECTED, REJECTED, "mode:complain:last-words,die:exit:7"]);
    let binary = br#"{"body_base64": "/wD+", "headers": {"tenant": "blue"}, "message_id": "m-1"}"#;
    there
        .ganger_reading(&["send", "work", "-f", "-"], binary)
        .good();
    there.scene.settled();
    for args in [
        "list",
        "list -o json",
        "list --full --limit 2",
        "list --limit 0",
        "list --after 2 -o json",
        "list --pool work --reason crashed",
        "list --pool typo",
        "list --source third",
        "list --by-error",
        "list --by-error -o json --error rejected",
        "list --since 1h -o json",
        "list --before 1h -o json",
        "show 3",
        "show 4 -o json",
        "show 4 --pool typo",
        "show 9",
        "retry --all --dry-run",
        "drop --reason crashed --dry-run -o json",
        "drop 1 9 --dry-run",
        "retry 9",
        "retry 1 2 --body -",
    ] {
        let args: Vec<&str> = ["dead"].into_iter().chain(args.split(' ')).collect();
        there.says_the_same(&args);
    }
    there.ganger(&["dead", "list", "--pool", "typo"]).bad(2);
    let shown = there.ganger(&["dead", "show", "4", "-o", "json"]).json();
    assert_eq!(
        (&shown["body_base64"], &shown["message_id"]),
        (&json!("/wD+"), &json!("m-1"))
    );
    there.scene.finish();
}

fn dead_letters_are_sent_back() {
    let there = Elsewhere::of(Pool::new(&["--v2=1"]).attempts(1));
    let there = there.with_dead(&[REJECTED, REJECTED, OTHER, REJECTED]);
    let mended = ["dead", "retry", "3", "--body", "-"];
    let done = there.ganger_reading(&mended, b"mended");
    assert_eq!(done.good(), "retried 1\n");
    there.scene.daemon.eventually("it to be done", || {
        there.scene.record().of(Event::Done, "mended").len() == 1
    });
    let binary = there.ganger_reading(&["dead", "retry", "4", "--body", "-"], &[0xff, 0, 0xfe]);
    assert_eq!(binary.good(), "retried 1\n");
    there.scene.settled();
    // So that what goes back can be looked at.
    there.ganger(&["pause", "work"]).good();
    let why = there.ganger(&["dead", "retry", "1", "9"]).bad(1);
    assert!(
        why.contains("retried 1 of 2: the others do not exist (any more)"),
        "{why}"
    );
    let to = ["dead", "retry", "2", "--to", "elsewhere"];
    there.says_the_same(&to).bad(1);
    let none = ["dead", "retry", "--error", "never seen", "-o", "json"];
    assert_eq!(there.ganger(&none).json(), json!({ "retried": 0 }));
    let rest = [
        "dead", "retry", "--error", "400", "--since", "1h", "-o", "json",
    ];
    assert_eq!(there.ganger(&rest).json(), json!({ "retried": 1 }));
    assert_eq!(there.waiting("work"), [REJECTED, REJECTED]);
    assert_eq!(there.dead(), Vec::<String>::new());
    there.scene.finish();
}

fn a_dead_letter_whose_key_is_held_stays() {
    let there = Elsewhere::of(Pool::new(&["--v2=1"]).attempts(1));
    let whole = ["--unique", "k", "--scope", "waiting_or_running"];
    there
        .ganger(&[&["send", "work", REJECTED], &whole[..]].concat())
        .good();
    there.scene.one_dead();
    let there = there;
    there
        .ganger(&[&["send", "work", "a", "--delay", "1h"], &whole[..]].concat())
        .good();
    let why = there.says_the_same(&["dead", "retry", "1"]).bad(1);
    let stays = "retried 0 of 1; 1 stay: another message has their unique key";
    assert!(why.contains(stays), "{why}");
    let told = there.says_the_same(&["dead", "retry", "--all", "-o", "json"]);
    assert_eq!(told.json(), json!({ "retried": 0, "held": 1 }));
    there.says_the_same(&["dead", "retry", "--all"]).good();
    there.scene.finish();
}

fn dead_letters_are_dropped() {
    let there = Elsewhere::of(Pool::new(&["--v2=1"]).attempts(1));
    let there = there.with_dead(&[REJECTED, OTHER, REJECTED, OTHER]);
    let why = there.ganger(&["dead", "drop", "1", "9"]).bad(1);
    assert!(
        why.contains("dropped 1 of 2: the others do not exist (any more)"),
        "{why}"
    );
    let args = ["dead", "drop", "--error", "403", "--yes", "-o", "json"];
    assert_eq!(there.ganger(&args).json(), json!({ "dropped": 2 }));
    assert_eq!(there.dead(), ["3"]);
    assert_eq!(
        there.ganger(&["dead", "drop", "--all", "--yes"]).good(),
        "dropped 1\n"
    );
    assert_eq!(there.ganger(&["dead", "list"]).good(), "no dead letters\n");
    there.scene.finish();
}

/// More than the API has on a page, and takes ids of in one request.
fn a_long_list_comes_in_parts() {
    let there = Elsewhere::of(Pool::new(&[]));
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2100)
        INSERT INTO poisoned_messages (queue, pool, body, reason, error, attempts, crashes, lapses,
            oom, stderr, first_failed_at, last_failed_at, headers, priority, created_at)
        SELECT 'work', 'work', 'b' || i, 'failed', CASE WHEN i % 2 THEN 'odd' ELSE 'even' END,
            1, 0, 0, 0, '[]', i, i, '{}', 0, i FROM n";
    there.scene.table.run(rows).unwrap();
    there.says_the_same(&["dead", "list", "--limit", "3000", "-o", "json"]);
    there.says_the_same(&["dead", "list", "--limit", "1500"]);
    let odd = ["dead", "drop", "--error", "odd", "--yes"];
    assert_eq!(there.ganger(&odd).good(), "dropped 1050\n");
    assert_eq!(
        there.ganger(&["dead", "drop", "--all", "-y"]).good(),
        "dropped 1050\n"
    );
    there.scene.finish();
}

fn what_does_not_answer_is_told_as_status_tells_it() {
    let there = Elsewhere::of(Pool::new(&[]));
    let (dir, host) = (&there.dir, there.host.as_str());
    dir.put("guessed", "guessed", false);
    let commands = [
        &["send", "work", "a"][..],
        &["send", "work", "a", "--topic"],
        &["dead", "list"],
        &["dead", "show", "1"],
        &["dead", "retry", "1"],
        &["dead", "drop", "--all", "--yes"],
        &["subscriptions", "list"],
        &["subscriptions", "drop", "placed", "work"],
        &["schedule", "list"],
        &["schedule", "trigger", "nightly"],
        &["occurrence", "list"],
    ];
    for (host, token, code) in [
        (host, &["--token-file", "guessed"][..], 1),
        (host, &[], 1),
        (host, &["--token-file", "absent"], 1),
        ("http://127.0.0.1:1", &[], 1),
        ("https://127.0.0.1", &[], 2),
    ] {
        let address = [&["--host", host], token].concat();
        let status = dir.ganger(&[&["status"], &address[..]].concat()).bad(code);
        for command in commands {
            let why = dir.ganger(&[command, &address[..]].concat()).bad(code);
            assert_eq!(why, status, "{command:?} {address:?}");
        }
    }
    let why = dir
        .ganger(&["dead", "list", "--token-file", "guessed"])
        .bad(2);
    assert!(why.contains("--host"), "{why}");
    assert_eq!(there.scene.table.count("work"), 0);
    there.scene.finish();
}
