//! Commands that act on the ledger of a daemon elsewhere: schedules and their runs.

use serde_json::{Value, json};

use super::Elsewhere;
use crate::admin::api;
use crate::harness::{Api, Pool, trials};
use crate::ledger;

trials![
    schedules_are_shown_and_steered,
    schedules_are_changed,
    runs_of_another_daemon_are_cancelled_sent_back_and_resolved,
    an_occurrence_is_deleted_there,
    a_log_is_followed_there,
    what_is_refused_is_refused_alike,
    a_schedule_that_was_left_behind_is_removed_alike,
];

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
    is_found_alike(&there, &becomes("failed"));
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
        ["retry", "resolve", "retry", "cancel"].map(|action| (json!(action), json!("token")));
    assert_eq!(audit_of(&api, &id), expected);
    other.stop();
    there.scene.finish();
}

/// Checks that a failed run is found by each thing that it may have in common with others.
fn is_found_alike(there: &Elsewhere, run: &Value) {
    let text = |field: &str| run[field].as_str().unwrap();
    assert_eq!(run["dead_letter"]["message_id"], run["id"]);
    for (option, value) in [
        ("--fingerprint", text("fingerprint")),
        ("--correlation-id", text("id")),
    ] {
        let found = there.says_the_same(&["occurrence", "list", option, value]);
        assert!(found.out.contains(text("id")), "{option}: {}", found.out);
        let none = there.says_the_same(&["occurrence", "list", option, "other"]);
        assert_eq!(none.out, "no occurrences\n");
    }
    let letter = ["dead", "list", "--message-id", text("id"), "-o", "json"];
    let found = there.says_the_same(&letter);
    assert_eq!(found.json().as_array().map(Vec::len), Some(1));
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
    assert_eq!(history.json()[0]["actor"], "token");
    for args in [
        "schedule history off",
        "schedule history mine -o json",
        "schedule diff mine",
        "schedule diff off",
        "schedule audit",
        "schedule upcoming --from 2027-01-01T00:00:00Z -n 3",
        "schedule upcoming --from 2027-01-01T00:00:00Z --zone Asia/Tokyo",
        "schedule upcoming --zone tokyo",
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
            "wait for its end, or force it (`--force`;",
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
