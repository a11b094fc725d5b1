//! Commands that act on the sources of a daemon elsewhere, from where there is no configuration.

use serde_json::{Value, json};

use super::{api, scene, socket};
use crate::harness::{Api, Event, Pool, Ran, Scene, Workspace, trials};
use crate::ledger;

trials![
    messages_are_sent,
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
    schedules_are_shown_and_steered,
    schedules_are_changed,
    runs_of_another_daemon_are_cancelled_sent_back_and_resolved,
    an_occurrence_is_deleted_there,
    a_log_is_followed_there,
    what_is_refused_is_refused_alike,
    a_schedule_that_was_left_behind_is_removed_alike,
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

/// The daemon that is asked has no pool for their queue.
fn runs_of_another_daemon_are_cancelled_sent_back_and_resolved() {
    let body = "mode:until-cancelled,answer:500";
    let keys = format!("at = \"2100-01-01T00:00:00\"\noverlap = \"allow\"\nbody = \"{body}\"");
    let far = ledger::schedule_to("queue = \"far\"", "far", &keys);
    let there = Elsewhere::of(Pool::new(&[]).after(&far));
    let pool = ["name", "queue"]
        .iter()
        .fold(Pool::new(&["--v2=1"]), |pool, key| pool.text(key, "far"))
        .after("[ledger]\nsource = \"main\"\ngroup = \"far\"\n");
    let other = there.scene.site.start(&[pool]);
    there.scene.daemon.entered();
    let trigger = ["schedule", "trigger", "far"];
    let id = there.ganger(&trigger).good().trim().to_owned();
    let becomes = |state: &str| ledger::becomes(&there.scene.site, &other, &id, state);
    becomes("running");
    let cancel = ["occurrence", "cancel", &id, "--reason", "a typo"];
    let told = there.ganger(&cancel).good();
    assert!(told.contains("is being cancelled"), "{told}");
    let cancelled = becomes("cancelled");
    let last = cancelled["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["note"], "a typo");
    let ended = there.ganger(&cancel).bad(1);
    assert!(
        ended.contains("has ended already: it is cancelled"),
        "{ended}"
    );
    let retry = ["occurrence", "retry", &id, "--body", "-"];
    there.ganger_reading(&retry, b"mode:answer:400").good();
    becomes("failed");
    there.says_the_same(&["occurrence", "list", "--unresolved"]);
    let resolve = ["occurrence", "resolve", &id, "--note", "paid by hand"];
    there.ganger(&resolve).good();
    let none = there.says_the_same(&["occurrence", "list", "--unresolved"]);
    assert_eq!(none.out, "no occurrences\n");
    there.says_the_same(&["occurrence", "show", &id]);
    there.says_the_same(&["occurrence", "cancel", "nothing"]);
    let api = api(&there.scene.daemon);
    let of = |operation: &str| format!("/v1/occurrences/{id}/{operation}");
    for (path, body, status, expected) in [
        (of("cancel"), "{}", 409, "has ended already: it is failed"),
        (of("cancel"), r#"{"why": "x"}"#, 422, "unknown field `why`"),
        (
            of("resolve"),
            r#"{"note": " "}"#,
            400,
            "the note must not be empty",
        ),
        (of("resolve"), "{}", 422, "missing field `note`"),
        (
            "/v1/occurrences/nothing/retry".to_owned(),
            "",
            404,
            "there is no occurrence `nothing`",
        ),
    ] {
        let why = api.post(&path, body).problem(status);
        assert!(why.contains(expected), "{path}: {why}");
    }
    assert_eq!(api.post(&of("retry"), "").status, 200);
    let completed = api.get(&format!("/v1/occurrences/{id}?wait=30s")).json();
    assert_eq!(completed["state"], "failed", "{completed}");
    let listed = api.get("/v1/occurrences?unresolved=true").json();
    assert_eq!(listed["occurrences"][0]["id"], json!(id));
    api.get("/v1/occurrences?unresolved=true&state=failed")
        .problem(400);
    let expected =
        ["retry", "resolve", "retry", "cancel"].map(|action| (json!(action), json!("the network")));
    assert_eq!(audit_of(&api, &id), expected);
    other.stop();
    there.scene.finish();
}

fn an_occurrence_is_deleted_there() {
    let keys = "at = \"2100-01-01T00:00:00\"\nbody = \"mode:wait:go\"";
    let there = Elsewhere::of(Pool::new(&[]).after(&ledger::schedule("once", keys)));
    let (site, daemon) = (&there.scene.site, &there.scene.daemon);
    daemon.entered();
    let id = there.ganger(&["schedule", "trigger", "once"]).good();
    let id = id.trim();
    let delete = ["occurrence", "delete", id];
    ledger::becomes(site, daemon, id, "running");
    let refused = there.says_the_same(&delete).bad(1);
    assert!(refused.contains("is running: cancel it first"), "{refused}");
    site.touch("go");
    ledger::becomes(site, daemon, id, "completed");
    assert_eq!(there.ganger(&delete).good(), format!("deleted {id}\n"));
    let refused = there.says_the_same(&delete).bad(1);
    assert!(refused.contains("there is no occurrence"), "{refused}");
    there.scene.finish();
}

/// The changes of a subject, the newest first: each with its action and its author.
fn audit_of(api: &Api, subject: &str) -> Vec<(Value, Value)> {
    let audit = api.get(&format!("/v1/audit?subject={subject}")).json();
    let audit = audit.as_array().unwrap().iter();
    let changes = audit.map(|one| (one["action"].clone(), one["actor"].clone()));
    changes.collect()
}

fn schedules_are_shown_and_steered() {
    let keys = "cron = \"0 0 1 1 *\"\nzone = \"Europe/Berlin\"\nbody = \"mode:wait:go\"";
    let schedules = ledger::schedule("yearly", keys) + &ledger::schedule("off", "every = \"1h\"");
    let there = Elsewhere::of(Pool::new(&[]).after(&schedules));
    let listed = || there.ganger(&["schedule", "list", "-o", "json"]).json();
    there.scene.daemon.eventually("both to be seen", || {
        listed()
            .as_array()
            .is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["version"] == json!(1)))
    });
    let paused = there.ganger(&["schedule", "pause", "off", "--reason", "maintenance"]);
    assert_eq!(paused.good(), "paused off\n");
    let body = [
        "schedule", "trigger", "yearly", "--body", "-", "--reason", "a try",
    ];
    let id = there.ganger_reading(&body, b"mode:wait:go").good();
    let id = id.trim();
    there.scene.begun(&["mode:wait:go"]);
    let why = there.ganger(&["schedule", "trigger", "yearly"]).bad(1);
    assert!(
        why.contains("an occurrence of schedule `yearly` is open"),
        "{why}"
    );
    there
        .scene
        .daemon
        .eventually("it to be shown as running", || {
            let shown = there.ganger(&["occurrence", "show", id, "-o", "json"]);
            shown.json()["state"] == "running"
        });
    there
        .ganger(&["schedule", "pause", "--all", "--reason", "an incident"])
        .good();
    for args in [
        "schedule list",
        "schedule list -o json",
        "schedule show yearly",
        "schedule show off -o json",
        "schedule show typo",
        "schedule next yearly --from 2027-01-01 -n 2",
        "schedule next typo",
        "schedule pause typo",
        "schedule trigger typo",
        "schedule remove typo",
        "occurrence list",
        "occurrence list --schedule yearly --state running -o json",
        "occurrence list --schedule typo",
        "occurrence list --limit 1",
        "occurrence show 00000000-0000-7000-8000-000000000000",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        there.says_the_same(&args);
    }
    there.says_the_same(&["occurrence", "show", id]);
    let told = there.ganger(&["schedule", "list"]);
    assert!(
        told.err.contains("all schedules are paused (an incident)"),
        "{told:?}"
    );
    there.ganger(&["schedule", "resume", "--all"]).good();
    assert_eq!(
        there
            .ganger(&["schedule", "resume", "off", "--make-up"])
            .good(),
        "resumed off\n"
    );
    let why = there.ganger(&["schedule", "remove", "off"]).bad(1);
    assert!(why.contains("remove it there"), "{why}");
    there.scene.site.touch("go");
    there.scene.all_done();
    there.scene.finish();
}

fn schedules_are_changed() {
    let there = Elsewhere::of(Pool::new(&[]).after(&ledger::schedule("off", "every = \"1h\"")));
    there.scene.daemon.entered();
    there.scene.daemon.eventually("it to be seen", || {
        let shown = there.ganger(&["schedule", "show", "off", "-o", "json"]);
        shown.json()["version"] == json!(1)
    });
    for (args, told) in [
        ("schedule add mine --every 1h --queue work", "created mine"),
        (
            "schedule edit mine --zone Europe/Berlin",
            "replaced mine: zone",
        ),
        ("schedule rollback mine 1", "rolled back mine to version 1"),
        (
            "schedule backfill mine --from 2001-01-01T00:00 --to 2001-01-01T00:30 --yes",
            "sent 1 run(s)",
        ),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        assert_eq!(there.ganger(&args).good(), format!("{told}\n"));
    }
    let skipped = there.ganger(&["schedule", "skip", "mine"]).good();
    assert!(skipped.starts_with("mine will not run at "), "{skipped}");
    let refused = there.ganger(&[
        "schedule", "add", "mine", "--every", "1h", "--queue", "work",
    ]);
    assert!(refused.bad(1).contains("exists already"));
    let refused = there.ganger(&[
        "schedule", "add", "x", "--every", "1h", "--queue", "q", "--source", "y",
    ]);
    assert!(refused.bad(2).contains("must be one of the sources"));
    let history = there.ganger(&["schedule", "history", "mine", "-o", "json"]);
    assert_eq!(history.json()[0]["actor"], "the network");
    for args in [
        "schedule history off",
        "schedule history mine -o json",
        "schedule diff mine",
        "schedule diff off",
        "schedule audit",
        "schedule upcoming --from 2027-01-01T00:00:00Z -n 3",
        "schedule upcoming --to 2001-01-01T00:00:00Z",
        "schedule report --from 2001-01-01T00:00:00Z --to 2001-01-02T00:00:00Z",
        "schedule report fastest",
        "schedule explain off --from 2027-01-01 -n 2",
        "schedule explain typo",
        "schedule rollback off 1",
        "schedule skip typo",
        "schedule skip off noon",
        "schedule backfill off --from 2001-01-01T00:00 --to 2001-01-01T04:00 --dry-run",
        "schedule backfill off --from 2001-01-01T00:00 --to 2100-01-01T00:00",
        "schedule edit typo --every 1h",
        "schedule edit off --every 2h",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        there.says_the_same(&args);
    }
    there.ganger(&["schedule", "remove", "mine"]).good();
    there.scene.all_done();
}

fn a_log_is_followed_there() {
    let keys = "cron = \"0 0 1 1 *\"\nbody = \"mode:print-lines:900,wait:go,print:last\"";
    let limits = "[ledger]\nlog = { lines = 600 }\n";
    let pool = Pool::new(&["--v2=1"]).after(&(ledger::schedule("yearly", keys) + limits));
    let there = Elsewhere::of(pool);
    there.scene.daemon.entered();
    let id = there.ganger(&["schedule", "trigger", "yearly"]).good();
    let id = id.trim();
    there.scene.daemon.eventually("lines to be dropped", || {
        let shown = there.ganger(&["occurrence", "show", id, "-o", "json"]);
        shown.json()["log_dropped"] == 300
    });
    let (host, token) = (&there.host, &there.token);
    let follow = [
        "occurrence",
        "log",
        "-f",
        id,
        "--host",
        host,
        "--token-file",
        token,
    ];
    let mut following = there.dir.begin(&follow);
    there.scene.daemon.eventually("the first lines", || {
        following.printed().contains("line 899")
    });
    there.scene.site.touch("go");
    there
        .scene
        .daemon
        .eventually("it to end", || following.has_ended_well());
    assert!(
        following.printed().trim_end().ends_with(" last"),
        "{}",
        following.printed()
    );
    there.says_the_same(&["occurrence", "log", id]);
    there.says_the_same(&["occurrence", "log", id, "-o", "json"]);
    there.says_the_same(&["occurrence", "log", "typo"]);
    there.says_the_same(&["occurrence", "show", id]);
    there.scene.finish();
}

fn what_is_refused_is_refused_alike() {
    let keys = "at = \"2100-01-01T00:00:00\"";
    let once = ledger::schedule_to("queue = \"other\"", "once", keys);
    let there = Elsewhere::of(Pool::new(&[]).after(&once));
    there.scene.daemon.entered();
    let body = "\u{1}".repeat(1 << 20);
    let trigger = ["schedule", "trigger", "once", "--body", "-"];
    let id = there.ganger_reading(&trigger, body.as_bytes()).good();
    let id = id.trim();
    assert!(there.waiting("other") == [body], "the body is another");
    let long = "x".repeat(501);
    for (args, code, expected) in [
        (
            &["schedule", "trigger", "once"][..],
            1,
            "or trigger it with `force`",
        ),
        (
            &["occurrence", "cancel", id, "--reason", " "],
            2,
            "the reason must not be empty",
        ),
        (
            &["schedule", "pause", "--all", "--reason", &long],
            2,
            "the reason must have at most 500 characters: it has 501",
        ),
        (
            &["occurrence", "resolve", id, "--note", ""],
            2,
            "the note must not be empty",
        ),
        (
            &["occurrence", "list", "--after", "nonsense"],
            2,
            "`nonsense` is not the id of an occurrence",
        ),
        (&["schedule", "remove", "once"], 1, "of the configuration"),
    ] {
        let why = there.says_the_same(args).bad(code);
        assert!(why.contains(expected), "{args:?}: {why}");
    }
    there.scene.finish();
}

/// The group of the configuration had another name when it had them.
fn a_schedule_that_was_left_behind_is_removed_alike() {
    let there = Elsewhere::of(Pool::new(&[]).after(&ledger::schedule("off", "every = \"1h\"")));
    there.scene.daemon.entered();
    let left = "INSERT INTO schedules (name, definition, origin, configuration)
        SELECT name || ?, definition, origin, 'before' FROM schedules";
    let left = |name: &str| left.replace('?', &format!("'-{name}'"));
    there.scene.table.run(&left("a")).unwrap();
    there
        .scene
        .site
        .ganger(&["schedule", "remove", "off-a"])
        .good();
    there.scene.table.run(&left("b")).unwrap();
    assert_eq!(
        there.ganger(&["schedule", "remove", "off-b"]).good(),
        "removed off-b\n"
    );
    there.says_the_same(&["schedule", "list"]);
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
