//! How a server goes about what it is asked: whatever is in the tables, and whatever its statistics say of
//! them, no statement reads much more rows than it returns or changes. Statistics are taken when they are,
//! of a queue often while it is empty.

mod rows;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::harness::{Base, Daemon, Database, Event, Pool, Ran, Workspace, trials_on};
use crate::ledger;
use crate::statements::{is_in, written};
use runs::{Run, telling, told};

trials_on![
    no_statement_reads_much_more_than_it_returns,
    ; long:
    nor_does_it_among_a_million_rows,
];

/// What makes each kind of work, in each round anew: rows that are due, suspect, or spent, with a key whose
/// time is over, to be answered, tried again, put back, given up, or refused; rows in the hands of an owner that
/// is gone, one of them refused, and of one that is not there; dead letters that had the same key.
const WORK: &str = "
INSERT INTO consumer_messages (queue, body, priority, available_after) VALUES ('work', 'due', 9, 1);
INSERT INTO consumer_messages (queue, body, priority, lapses) VALUES ('work', 'one', 9, 2), ('work', 'two', 9, 30);
INSERT INTO consumer_messages (queue, body, unique_key, unique_scope, unique_until)
VALUES ('other', 'over', 'over', 'until', 1);
INSERT INTO consumer_messages (queue, body, priority, message_id, reply_to) VALUES
  ('work', 'mode:reply', 9, 'a ROUND', 'answers'), ('work', 'mode:answer:500', 9, 'b ROUND', NULL),
  ('work', 'mode:unless:thereROUND:300', 9, 'c ROUND', NULL), ('work', 'refused', 9, 'd ROUND', NULL);
INSERT INTO consumer_messages (queue, body, priority) VALUES ('work', 'mode:wait:endROUND', -9);
INSERT INTO consumer_messages (queue, body, message_id, available_after)
VALUES ('work', 'cancelled', 'm ROUND', 4102444800000);
INSERT INTO owners (host, pid, pool, started_at, lease_ms, beaten_at, LOCK)
VALUES ('gone', ROUND, 'work', 1, 1, 1, 'GONE');
INSERT INTO consumer_messages (queue, body, owner, claim)
SELECT 'other', 'refused', id, 1 FROM owners WHERE host = 'gone';
INSERT INTO consumer_messages (queue, body, owner, claim)
SELECT 'other', 'in hand', id, 2 FROM owners WHERE host = 'gone';
INSERT INTO consumer_messages (queue, body, owner, claim) VALUES ('other', 'astray', 400000000ROUND, 1);
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, oom, stderr, first_failed_at,
  last_failed_at, body, headers, priority, created_at, unique_key, unique_scope, unique_until)
VALUES ('work', 'other', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'keyed ROUND', '{}', 0, 1, 'kROUND', 'until', 4102444800000),
  ('work', 'other', 'failed', 'x', 1, 0, 0, 0, '[]', 1, 1, 'keyed ROUND', '{}', 0, 1, 'kROUND', 'until', 4102444800000);";

/// What there is left of these that is to be gone, or let go.
const LEFT: &str = "
SELECT (SELECT count(*) FROM consumer_messages WHERE queue = 'work' AND body <> 'refused' AND owner IS NULL
    AND available_after < 4102444800000)
  + (SELECT count(*) FROM consumer_messages WHERE unique_key = 'over' AND unique_released = 0)
  + (SELECT count(*) FROM finished_messages WHERE expires_at < 4102444800000)";

/// What the ledger is to look at or to remove in each round: ends of long ago, and schedules that SQL has
/// inserted, one of them nonsense.
const LEDGER: &str = "
INSERT INTO occurrences (id, schedule, version, queue, state, queued_at, ended_at, watched)
VALUES ('00000000-ROUND', 'gone', 1, 'work', 2, 1, 1, 1), ('00000001-ROUND', 'other', 1, 'work', 2, 1, 1, 0);
INSERT INTO schedules (name, definition, state, CURSOR, wake_at) VALUES ('overROUND', '{}', 'ended', -4102444800000, NULL);
INSERT INTO schedules (name, definition) VALUES ('theirsROUND', '{}');
INSERT INTO ledger_audit (at, action, subject) VALUES (-4102444800000, 'pause', 'gone');";

/// What there is to be of a schedule that an operator has added: a version that leaves none of the first ones, and
/// an occurrence of a slot that was skipped.
const ADDED: &str = "
INSERT INTO schedule_versions (schedule, version, at, origin, definition)
VALUES ('added', 150, 1, 'api', '{\"cron\": \"0 0 1 1 *\", \"queue\": \"added\"}');
INSERT INTO occurrences (id, schedule, version, slot, queue, state, queued_at, ended_at)
VALUES ('skipped-ROUND', 'added', 1, 978307200000, 'added', 7, 1, 4102444800000);";

/// Schedules: one whose messages say when it last succeeded, one that is disabled when a run fails, one whose
/// messages no pool reads, and one that runs until it is cancelled.
const SCHEDULES: &str = r#"
[[schedules]]
name = "plain"
every = "1h"
queue = "work"
body = "{{ last_success }}"
expect = { every = "1h" }

[[schedules]]
name = "disabling"
at = "2100-01-01T00:00:00"
queue = "work"
body = "mode:print-lines:30,answer:503"
auto_disable = { failures = 1 }

[[schedules]]
name = "unread"
at = "2100-01-01T00:00:00"
queue = "unread"

[[schedules]]
name = "cancelled"
at = "2100-01-01T00:00:00"
queue = "work"
body = "mode:until-cancelled,answer:500"

[ledger]
keep = { completed = "90d", failed = "36500d", per_schedule = 100000 }
log = { lines = 10 }
"#;

/// Parts of statements that read more, each with why.
const READS_ON: &[(&str, &str)] = &[
    ("information_schema", "it is about the tables, not of them"),
    (
        "DELETE FROM published_messages WHERE id IN (SELECT id FROM inserted)",
        "the trigger leaves no row there",
    ),
    ("GROUP BY state", "it counts all schedules"),
    ("GROUP BY source", "it counts what is on its way"),
    (
        "ORDER BY id DESC LIMIT 1 OFFSET",
        "it counts the occurrences of a schedule that are kept",
    ),
    (
        "SELECT count(*) FROM consumer_messages WHERE queue =",
        "a message that was deleted is looked for among all",
    ),
    ("WHERE owner IS NOT NULL AND queue =", "few are claimed"),
    ("WHERE owner IS NOT null AND queue =", "the same"),
    (
        "correlation_id = $3 OR message_id = $3",
        "what waits in a queue has no index by its names",
    ),
    (
        "FORCE INDEX (consumer_messages_ready) WHERE queue = 'work' AND owner IS null AND (correlation_id =",
        "the same",
    ),
];

/// Parts of statements that nothing here has run, each with why.
const NOT_RUN: &[(&str, &str)] = &[
    ("pg_advisory", "it reads no table"),
    ("pg_notify", "it reads no table"),
    ("SET LOCAL", "it reads no table"),
    ("SET SESSION", "it reads no table"),
    ("SET NAMES", "it reads no table"),
    ("SET ganger.session", "it reads no table"),
    (
        "heartbeat = heartbeat + 1 WHERE id",
        "of the owners only, after a write has failed",
    ),
    (
        "owner IS NULL AND available_after = 0), (SELECT",
        "only the demo counts so, in a file",
    ),
    (
        "UPDATE occurrences SET state = ?, reason = ?, attempt = coalesce(?, attempt), error",
        "by id, where the tables are not upgraded yet",
    ),
    (
        "SELECT FROM consumer_messages WHERE id = ANY($1) ORDER BY id",
        "after a commit that was not heard of",
    ),
    (
        "WITH free AS",
        "where another program has locked rows for seconds",
    ),
    (
        "WHERE id IN ? ORDER BY id FOR UPDATE SKIP LOCKED",
        "the same",
    ),
    (
        "SELECT id FROM published_messages ORDER BY id LIMIT ?",
        "of tables of the first version",
    ),
    (
        "SET wake_at = 0 WHERE wake_at IS NOT NULL",
        "only after the clock was set: all schedules",
    ),
    (
        "SET watched = 1 WHERE schedule",
        "only while a run is open: it reads these by their index, as others do that are run",
    ),
    (
        "SELECT id FROM occurrences WHERE id IN",
        "of occurrences that another transaction has locked just then",
    ),
];

fn no_statement_reads_much_more_than_it_returns() {
    among(30_000);
}

fn nor_does_it_among_a_million_rows() {
    among(1_000_000);
}

/// Has everything done again and again among so many rows: by connections that knew the tables when they
/// were empty, by such as come later but with statistics from then, and with those of now.
fn among(rows: u32) {
    let site = Workspace::on(
        r#"drain_timeout = "1s""#,
        r#"lease = "2s""#,
        Some(telling()),
    );
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "{ min = 2, max = 3 }")
        .set("idempotency", "{ window = \"1s\" }")
        .text("record", "all")
        .after(&format!(
            "[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n{SCHEDULES}"
        ));
    let pools = std::slice::from_ref(&pool);
    let server = site.database();
    let mut daemon = site.start(pools);
    daemon.logged("subscribed the queue to the topic");
    daemon.entered();
    server.refuse_changes("OLD.body = 'refused'");
    server.ask(rows::neighbour());
    // As long as a transaction is open that may still see them, looks step over rows that are gone.
    let onlooker = server.table();
    onlooker.run(rows::begin_to_look()).unwrap();
    onlooker.ask("SELECT count(*) FROM owners");
    server.ask(&rows::emptied());
    let mut all = Vec::new();
    for round in 1..=4 {
        go_through(&site, &daemon, round);
        all.extend(told(server));
        match round {
            1 => drop(server.ask(&rows::among(rows))),
            2 => drop(onlooker.run("COMMIT")),
            _ => drop(server.ask(rows::counted())),
        }
        if round > 1 {
            daemon.crash();
            daemon = site.start(pools);
        }
        finish(&site, &daemon, round);
        all.extend(told(server));
    }
    leave(&site, &daemon);
    all.extend(told(server));
    let (excessive, missed) = (excessive(&all), never_run(&all));
    assert!(
        excessive.is_empty() && missed.is_empty(),
        "{excessive:#?}\nnever run: {missed:#?}"
    );
}

/// Everything that a daemon and the commands do, but for the end of one message.
fn go_through(site: &Workspace, daemon: &Daemon, round: usize) {
    let server = site.database();
    let (lock, gone) = match server {
        Database::Postgres(_) => ("lock_key", format!("-1{round}")),
        Database::Mariadb(_) => ("lock_name", format!("none.1{round}")),
    };
    let work = WORK.replace("ROUND", &round.to_string());
    server.ask(&work.replace("LOCK", lock).replace("GONE", &gone));
    let config = daemon.config().to_str().unwrap();
    let ganger = |args: &[&str]| site.ganger(&[args, &["--config", config]].concat());
    go_through_the_ledger(daemon, server, round, &ganger);
    go_through_the_changes(server, round, &ganger);
    go_through_the_outbox(site);
    let key = format!("u{round}");
    let keyed = ["send", "other", "x", "--source", "main", "--unique", &key];
    for further in [&[][..], &[], &["--replace"], &["--debounce", "1s"]] {
        ganger(&[&keyed, further].concat()).good();
    }
    ganger(&["send", "placed", "x", "--topic"]).good();
    ganger(&["subscriptions", "list"]).good();
    ganger(&["pause", "work", "--all"]).good();
    ganger(&["resume", "work", "--all"]).good();
    assert_eq!(
        ganger(&["send", "work", "mode:reply", "--reply"]).good(),
        "re: mode:reply\n"
    );
    for queue in ["work", "other"] {
        ganger(&["waiting", queue, "--source", "main", "--limit", "10"]).good();
    }
    ganger(&["cancel", "work", &format!("m {round}")]).good();
    daemon.eventually("it to be put back", || {
        begun(site, &format!("mode:unless:there{round}:300")) > 0
    });
    site.touch(&format!("there{round}"));
    daemon.eventually("all to be done", || {
        begun(site, &format!("mode:wait:end{round}")) == 1 && server.ask(LEFT) == "0"
    });
    let letters = |body: &str| {
        let ids = format!(
            "SELECT id FROM poisoned_messages WHERE body = '{body}' ORDER BY id DESC LIMIT 2"
        );
        server
            .ask(&ids)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    ganger(&["dead", "list", "--limit", "10"]).good();
    ganger(&["dead", "list", "--pool", "work"]).good();
    let failed = letters("mode:answer:500");
    ganger(&["dead", "show", &failed[0]]).good();
    ganger(&["dead", "retry", &failed[0]]).good();
    let keyed = letters(&format!("keyed {round}"));
    let held = ganger(&["dead", "retry", &keyed[0], &keyed[1]]).bad(1);
    assert!(held.contains("key"), "{held}");
    let left = letters(&format!("keyed {round}"));
    ganger(&["dead", "drop", &left[0]]).good();
    daemon.eventually("it to fail again", || {
        let latest = letters("mode:answer:500");
        latest.first().is_some_and(|latest| *latest != failed[0])
    });
}

/// Everything that a daemon and the commands do with schedules.
fn go_through_the_ledger(
    daemon: &Daemon,
    server: &Database,
    round: usize,
    ganger: &dyn Fn(&[&str]) -> Ran,
) {
    let cursor = match server {
        Database::Postgres(_) => "cursor",
        Database::Mariadb(_) => "`cursor`",
    };
    let rows = LEDGER.replace("ROUND", &round.to_string());
    server.ask(&rows.replace("CURSOR", cursor));
    ganger(&["schedule", "resume", "disabling"]).good();
    let triggered = ganger(&["schedule", "trigger", "disabling", "-o", "json"]).json();
    let id = triggered["occurrence"].as_str().unwrap().to_owned();
    ganger(&["schedule", "trigger", "plain"]).good();
    let dropped = format!("SELECT log_dropped FROM occurrences WHERE id = '{id}'");
    daemon.eventually("lines to be dropped", || {
        server
            .ask(&dropped)
            .parse()
            .is_ok_and(|lines: u32| lines > 0)
    });
    let state_of = |name: &str| {
        server.ask(&format!(
            "SELECT state FROM schedules WHERE name = '{name}'"
        ))
    };
    daemon.eventually("the run to fail and the schedule to be disabled", || {
        state_of("disabling") == "disabled"
    });
    let theirs = format!("theirs{round}");
    daemon.eventually("the nonsense to be seen", || state_of(&theirs) == "broken");
    ganger(&["schedule", "remove", &theirs]).good();
    look_at_the_ledger(&id, ganger);
    ganger(&["occurrence", "show", "no message has this id"]).bad(1);
    let unread = ganger(&["schedule", "trigger", "unread", "-o", "json"]).json();
    let unread = unread["occurrence"].as_str().unwrap();
    ganger(&["occurrence", "cancel", unread]).good();
    let unread = ganger(&["schedule", "trigger", "unread", "-o", "json"]).json();
    let unread = unread["occurrence"].as_str().unwrap();
    server.ask("DELETE FROM consumer_messages WHERE queue = 'unread'");
    ganger(&["occurrence", "cancel", unread]).good();
    let running = ganger(&["schedule", "trigger", "cancelled", "-o", "json"]).json();
    let running = running["occurrence"].as_str().unwrap();
    let state = format!("SELECT state FROM occurrences WHERE id = '{running}'");
    daemon.eventually("it to run", || server.ask(&state) == "1");
    ganger(&["occurrence", "cancel", running]).good();
    daemon.eventually("it to be cancelled", || server.ask(&state) == "4");
}

/// Everything that operators look at, and what they do with a run that has ended.
fn look_at_the_ledger(id: &str, ganger: &dyn Fn(&[&str]) -> Ran) {
    for args in [
        &["schedule", "list", "--results", "20"][..],
        &["schedule", "show", "plain"],
        &["schedule", "report"],
        &[
            "schedule",
            "report",
            "slow",
            "--schedule",
            "plain",
            "--tag",
            "none",
        ],
        &["schedule", "pause", "plain"],
        &["schedule", "resume", "plain"],
        &["schedule", "pause", "--all"],
        &["schedule", "resume", "--all"],
        &["occurrence", "list", "--limit", "10"],
        &["occurrence", "list", "--schedule", "plain", "--limit", "10"],
        &["occurrence", "list", "--state", "failed", "--limit", "10"],
        &["occurrence", "list", "--state", "running", "--limit", "10"],
        &["occurrence", "list", "--after", id, "--limit", "10"],
        &["occurrence", "list", "--unresolved", "--limit", "10"],
        &["occurrence", "list", "--fingerprint", "17", "--limit", "10"],
        &[
            "occurrence",
            "list",
            "--correlation-id",
            "17",
            "--limit",
            "10",
        ],
        &["occurrence", "show", id],
        &["occurrence", "resolve", id, "--note", "x"],
        &["occurrence", "retry", id],
        &["occurrence", "log", id],
    ] {
        ganger(args).good();
    }
}

/// Everything that operators do with a schedule of their own.
fn go_through_the_changes(server: &Database, round: usize, ganger: &dyn Fn(&[&str]) -> Ran) {
    let schedule = |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        ganger(&[&["schedule"], &args[..]].concat()).good()
    };
    schedule("add added --every 1h --queue added");
    server.ask(&ADDED.replace("ROUND", &round.to_string()));
    for args in [
        "edit added --every 2h",
        "history added",
        "rollback added 150",
        "skip added",
        "backfill added --from 2001-01-01T00:00 --to 2002-01-01T00:00 --yes",
        "audit --limit 10",
        "audit added --limit 10",
        "audit added --limit 10 --before 100000000",
        "remove added",
    ] {
        schedule(args);
    }
    server.ask("DELETE FROM occurrences WHERE schedule = 'added'");
    server.ask("DELETE FROM schedule_versions WHERE schedule = 'added'");
}

/// Another daemon publishes a message to another table, and reports what becomes of it.
fn go_through_the_outbox(site: &Workspace) {
    let other = site.start(&[ledger::elsewhere("mode:answer:400")]);
    other.entered();
    let config = other.config().to_str().unwrap();
    let trigger = [
        "schedule",
        "trigger",
        "elsewhere",
        "-o",
        "json",
        "--config",
        config,
    ];
    let triggered = site.ganger(&trigger).json();
    let id = triggered["occurrence"].as_str().unwrap();
    let state = format!("SELECT state FROM occurrences WHERE id = '{id}'");
    other.eventually("its run to fail", || site.database().ask(&state) == "3");
    other.stop();
}

/// Lets the last message end.
fn finish(site: &Workspace, daemon: &Daemon, round: usize) {
    let body = format!("mode:wait:end{round}");
    site.touch(&format!("end{round}"));
    daemon.eventually("the last", || {
        !site.record().of(Event::Done, &body).is_empty()
    });
}

/// Ends the daemon while its workers have something in hand, and a subscription.
fn leave(site: &Workspace, daemon: &Daemon) {
    let config = daemon.config().to_str().unwrap();
    let drop = [
        "subscriptions",
        "drop",
        "placed",
        "work",
        "--config",
        config,
    ];
    site.ganger(&drop).good();
    let never = "INSERT INTO consumer_messages (queue, body) VALUES ('work', 'mode:wait:never')";
    site.database().ask(never);
    daemon.eventually("it to begin", || begun(site, "mode:wait:never") > 0);
    daemon.signal(Signal::SIGTERM);
    daemon.exit();
}

/// A run of each statement that has read too much.
fn excessive(all: &[Run]) -> Vec<&Run> {
    let mut excessive: BTreeMap<&str, &Run> = BTreeMap::new();
    for run in all.iter().filter(|run| run.is_excessive()) {
        let is_meant = READS_ON.iter().any(|(part, _why)| run.text.contains(part));
        if !is_meant {
            let begin = run.text.get(..80).unwrap_or(&run.text);
            excessive.insert(begin, run);
        }
    }
    excessive.into_values().collect()
}

/// The parts of statements in the source that were not run, but for those of which it is told why.
fn never_run(all: &[Run]) -> Vec<(String, String)> {
    let room = match Base::of_this_test() {
        Base::Mariadb => "mysql",
        _ => "postgres",
    };
    let is_meant = |part: &str| NOT_RUN.iter().any(|(of, _why)| part.contains(of));
    let texts: BTreeSet<String> = all.iter().map(|run| run.text.to_lowercase()).collect();
    // The one name that MySQL wants to have quoted in its own way.
    let quoted = |part: &str| match Base::of_this_test() {
        Base::Mariadb => part.replace('"', "`"),
        _ => part.to_owned(),
    };
    let was_run = |part: &str| {
        let part = quoted(part).to_lowercase();
        texts.iter().any(|text| is_in(&part, text))
    };
    let mut missed = written(&sources(room));
    missed.retain(|(_, part)| !is_meant(part) && !was_run(part));
    missed
}

fn crate_of_tables() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/ganger-table/src")
}

/// The files that ask a kind of server.
fn sources(room: &str) -> Vec<PathBuf> {
    let of = |path: &str| {
        let files = std::fs::read_dir(crate_of_tables().join(path)).unwrap();
        files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    let mut files = of(room);
    files.extend(of(&format!("{room}/commands")));
    files.extend(of("ledger"));
    files.push(crate_of_tables().join("server/occurrences.rs"));
    files.retain(|file| {
        let is_code = file.extension().is_some_and(|end| end == "rs");
        is_code && !file.ends_with("schema.rs") && !file.ends_with("tests.rs")
    });
    files
}

fn begun(site: &Workspace, body: &str) -> usize {
    site.record().of(Event::Began, body).len()
}
