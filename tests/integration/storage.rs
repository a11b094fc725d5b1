//! A database that can't be written to: the intake pauses, what is in hand goes on, nothing is
//! lost or given up, the log says so, and it goes on by itself.

use nix::sys::signal::Signal;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::harness::{
    Daemon, Event, Launch, NewMessage, Pool, Scene, Waiting, Workspace, field, said, trials,
};
use crate::ledger::schedule;

trials![
    a_locked_database_pauses_the_intake,
    a_worker_is_not_late_while_its_emits_wait_for_the_database,
    a_full_disk_pauses_the_intake,
    a_take_over_is_told_once_it_is_written,
    a_journal_that_has_no_room_is_emptied_as_soon_as_it_can_be,
    a_stop_waits_for_a_locked_database,
    a_stop_gives_up_a_database_that_stays_locked,
    a_database_that_is_replaced_is_followed,
    a_ledger_that_is_replaced_has_the_schedules_again,
    a_database_that_is_torn_from_its_journal_is_not_written_to,
];

const TROUBLE: &str = "the table can't be used; intake pauses";
const RECOVERED: &str = "resolved: the table can't be used; intake pauses";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn pool() -> Pool {
    Pool::new(&["--v2=1"]).set("workers", "2").attempts(1)
}

/// What the two messages in hand do: publish, or not, before they are answered.
const EMITS: &str = "mode:wait:go,emit:side:note,reply:answers";
const REPLIES: &str = "mode:wait:go,reply:answers";

/// Two messages are in workers' hands, each with an answer to give; many more wait.
fn with_work_in_hand(scene: &Scene, what: &str) -> (Vec<String>, Vec<String>) {
    let held = bodies(what, 2);
    scene.send(&held);
    scene.begun(&held);
    let rest = bodies("rest", 50);
    scene.send(&rest);
    (held, rest)
}

/// While nothing can be written, what was claimed before is worked on, and nothing else.
fn the_intake_pauses(scene: &Scene, problem: &str) {
    let trouble = scene.daemon.logged(TROUBLE);
    assert!(field(&trouble, "problem").contains(problem), "{trouble}");
    let status = scene.daemon.eventually_some("a status that tells", || {
        scene.daemon.signal(Signal::SIGUSR1);
        let told = scene.daemon.records(|record| {
            said(record, "status of the pool") && field(record, "state") == "source down"
        });
        told.into_iter().next()
    });
    assert!(
        field(&status, "source_problem").contains(problem),
        "{status}"
    );
    let rows = scene.table.messages("work");
    let claimed = rows.iter().filter(|row| row.claimed).count();
    let begun = scene.record().all(Event::Began).len();
    assert!(begun <= claimed, "{begun} of {claimed} were begun");
    assert!(claimed < rows.len(), "not all were claimed: {claimed}");
}

/// In the end everything was done once, and every answer and note is there once.
fn everything_is_done_once(scene: &Scene, held: &[String], rest: &[String]) {
    scene.daemon.logged(RECOVERED);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(held);
    record.assert_done_once(rest);
    assert_eq!(record.all(Event::Began).len(), held.len() + rest.len());
    assert_eq!(scene.table.count("answers"), 2);
    assert_eq!(scene.table.count("side"), 2);
    let late = |record: &serde_json::Value| field(record, "message").contains("too late");
    assert!(scene.daemon.records(late).is_empty());
}

fn a_locked_database_pauses_the_intake() {
    let scene = Scene::of(pool());
    let (held, rest) = with_work_in_hand(&scene, EMITS);
    scene.table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    the_intake_pauses(&scene, "the database is busy");
    scene.table.0.execute_batch("COMMIT").unwrap();
    everything_is_done_once(&scene, &held, &rest);
    scene.finish();
}

/// More emits than the daemon keeps: it stops listening to the worker until it can write again, and
/// the time does not count. The other pool's timeout tells when the first one's would have passed.
fn a_worker_is_not_late_while_its_emits_wait_for_the_database() {
    let emits = "emit:side:note,".repeat(200);
    let talker = Pool::new(&["--v2=1", &format!("--mode=wait:go,{emits}reply:answers")]);
    let talker = talker.text("timeout", "2s").text("timeout_grace", "10ms");
    let clock = Pool::new(&["--mode=hang"])
        .text("name", "clock")
        .text("queue", "clock");
    let clock = clock
        .text("timeout", "4s")
        .text("timeout_grace", "10ms")
        .attempts(1);
    let scene = Scene::with(&[talker, clock]);
    scene.send(&["talk"]);
    scene.table.insert(&[NewMessage::new("tick").to("clock")]);
    scene.begun(&["talk", "tick"]);
    scene.table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    let is_clock = |record: &Value| field(record, "pool") == "clock";
    scene.daemon.logs("worker lost", is_clock);
    scene.table.0.execute_batch("COMMIT").unwrap();
    scene
        .daemon
        .eventually("the message to be done", || scene.table.count("work") == 0);
    let published = (scene.table.count("side"), scene.table.count("answers"));
    assert_eq!(published, (200, 1));
    assert_eq!(scene.record().of(Event::Began, "talk").len(), 1);
    scene.finish();
}

/// A daemon whose files may be limited.
fn limited() -> Scene {
    // The signal that comes with the refusal would kill it.
    let launch = Launch {
        through: &["sh", "-c", r#"trap "" XFSZ; exec "$0" "$@""#],
        ..Launch::default()
    };
    let site = Workspace::new();
    let daemon = site.launch(&[pool()], launch);
    let table = site.table();
    Scene {
        daemon,
        table,
        site,
    }
}

/// The daemon may not write another byte to any file, which SQLite takes for a disk that fails.
fn a_full_disk_pauses_the_intake() {
    let scene = limited();
    let (held, rest) = with_work_in_hand(&scene, EMITS);
    limit_its_files(&scene.daemon, Some(0));
    scene.site.touch("go");
    the_intake_pauses(&scene, "disk I/O error");
    // Others, on a disk of their own so to say, still send.
    let more = bodies("more", 10);
    scene.send(&more);
    limit_its_files(&scene.daemon, None);
    everything_is_done_once(&scene, &held, &[rest, more].concat());
    scene.finish();
}

/// While it can't be written nothing is taken over, however often it is tried.
fn a_take_over_is_told_once_it_is_written() {
    const TAKEN_OVER: &str = "took back the messages of a dead owner";
    let scene = limited();
    let dying = scene.site.start(&[pool()]);
    scene.daemon.signal(Signal::SIGSTOP);
    let held = bodies(EMITS, 2);
    scene.send(&held);
    scene.begun(&held);
    limit_its_files(&scene.daemon, Some(0));
    dying.crash();
    scene.daemon.signal(Signal::SIGCONT);
    scene.daemon.logged(TROUBLE);
    assert_eq!(scene.daemon.times_logged(TAKEN_OVER), 0);
    limit_its_files(&scene.daemon, None);
    scene.daemon.logged(RECOVERED);
    let taken = scene.daemon.logged(TAKEN_OVER);
    assert_eq!(field(&taken, "rows"), "2");
    scene.site.touch("go");
    scene.all_done();
    assert_eq!(scene.daemon.times_logged(TAKEN_OVER), 1);
    scene.finish();
}

/// As on a disk that is full before SQLite would move anything from the journal into the database. A reader keeps
/// it from being moved at all, then ends.
fn a_journal_that_has_no_room_is_emptied_as_soon_as_it_can_be() {
    let scene = limited();
    let reader = scene.site.table();
    let read = "BEGIN; SELECT count(*) FROM consumer_messages";
    reader.0.execute_batch(read).unwrap();
    scene
        .table
        .0
        .execute_batch("PRAGMA wal_autocheckpoint = 0")
        .unwrap();
    limit_its_files(&scene.daemon, Some(1 << 20));
    let large = "x".repeat(2000);
    let bodies = bodies(&large, 200);
    // In a transaction each, so that the pages of the journal are many and those of the database few.
    for body in &bodies {
        scene.send(&[body]);
    }
    scene.daemon.logged(TROUBLE);
    reader.0.execute_batch("COMMIT").unwrap();
    scene.daemon.logged(RECOVERED);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), bodies.len());
    scene.finish();
}

fn limit_its_files(daemon: &Daemon, bytes: Option<u64>) {
    let pid = Pid::from_raw(daemon.pid().as_raw());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// The last settlements are written as soon as that can be done.
fn a_stop_waits_for_a_locked_database() {
    let scene = Scene::of(pool());
    let (held, rest) = with_work_in_hand(&scene, REPLIES);
    scene.table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    scene.daemon.logged(TROUBLE);
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.eventually("the workers to leave", || {
        scene.daemon.processes().is_empty()
    });
    scene.table.0.execute_batch("COMMIT").unwrap();
    assert!(scene.daemon.exit().success());
    let record = scene.record();
    record.assert_done_once(&held);
    let left = scene.table.messages("work");
    let done = record.all(Event::Done).len();
    assert_eq!(left.len(), held.len() + rest.len() - done);
    let fresh = |row: &Waiting| row.attempts == 0 && !row.claimed;
    assert!(left.iter().all(fresh), "{left:#?}");
    assert_eq!(scene.table.count("answers"), 2);
}

/// It says so by its exit code. What it could not settle is done again: nothing is lost.
fn a_stop_gives_up_a_database_that_stays_locked() {
    let scene = Scene::of(pool());
    let (held, rest) = with_work_in_hand(&scene, REPLIES);
    scene.table.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.site.touch("go");
    scene.daemon.logged(TROUBLE);
    scene.daemon.signal(Signal::SIGTERM);
    let status = scene.daemon.exit();
    assert_eq!(status.code(), Some(1));
    let why = field(&scene.daemon.logged("pool failed"), "why");
    assert!(
        why.contains("the last settlements could not be written"),
        "{why}"
    );
    let late = scene.daemon.logged("stop is waiting for the source");
    assert!(field(&late, "problem").contains("busy"), "{late}");
    assert_eq!(
        scene.daemon.times_logged("stop is waiting for this worker"),
        0,
        "the workers are gone"
    );
    scene.table.0.execute_batch("COMMIT").unwrap();
    let successor = scene.site.start(&[pool()]);
    successor.eventually("everything to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    let record = scene.record();
    record.assert_none_lost(&held);
    record.assert_none_lost(&rest);
    assert_eq!(scene.table.count("answers"), 2);
    successor.stop();
}

/// Renames the database and, if wanted, what belongs to it.
fn rename(scene: &Scene, from: &str, to: &str, suffixes: &[&str]) {
    for suffix in suffixes {
        let [from, to] = [from, to].map(|name| scene.site.path(&format!("{name}{suffix}")));
        std::fs::rename(from, to).unwrap();
    }
}

/// What is in hand is settled where it came from; then the file that has taken the place is used.
fn a_database_that_is_replaced_is_followed() {
    let scene = Scene::of(pool().set("prefetch", "1"));
    let (held, rest) = with_work_in_hand(&scene, REPLIES);
    rename(&scene, "queue.db", "old.db", &["", "-wal", "-shm"]);
    let trouble = scene.daemon.logged(TROUBLE);
    assert!(
        field(&trouble, "problem").contains("moved or removed"),
        "{trouble}"
    );
    scene.site.configure_commands(&[pool()]);
    scene.site.ganger(&["send", "work", "fresh"]).good();
    scene.site.touch("go");
    scene.daemon.logs(
        "the database file was replaced; the new one is used from now on",
        |_| true,
    );
    scene.begun(&["fresh"]);
    let (old, new) = (&scene.table, scene.site.table());
    scene
        .daemon
        .eventually("the new one to be done", || new.count("work") == 0);
    assert_eq!((old.count("work"), old.count("answers")), (50, 2));
    let untouched = |row: &Waiting| row.attempts == 0 && !row.claimed;
    assert!(old.messages("work").iter().all(untouched));
    let record = scene.record();
    record.assert_done_once(&held);
    assert_eq!(record.all(Event::Done).len(), 3);
    scene.daemon.stop();
    // Put back, it has everything that it had.
    rename(&scene, "old.db", "queue.db", &["", "-wal", "-shm"]);
    let successor = scene.site.start(&[pool()]);
    successor.eventually("the rest to be done", || old.count("work") == 0);
    scene.record().assert_done_once(&rest);
    successor.stop();
}

/// Nothing is entered in the file that was moved away; the one that has taken its place gets the schedules.
fn a_ledger_that_is_replaced_has_the_schedules_again() {
    let scene = Scene::of(pool().after(&schedule("often", "every = \"1s\"\noverlap = \"allow\"")));
    scene.site.configure_commands(&[pool()]);
    let entered = "schedules of the configuration are in the ledger";
    scene.daemon.logged(entered);
    let done = || scene.record().all(Event::Done).len();
    scene.daemon.eventually("a run", || done() > 0);
    rename(&scene, "queue.db", "old.db", &["", "-wal", "-shm"]);
    scene
        .daemon
        .logged("the ledger can't be used: no schedule is dispatched; retrying");
    let old = || {
        let rows = "SELECT count(*) FROM occurrences";
        let old = rusqlite::Connection::open(scene.site.path("old.db")).unwrap();
        old.query_row(rows, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = old();
    // It makes another file.
    scene.site.ganger(&["waiting", "work"]).good();
    scene
        .daemon
        .logged("the database file with the ledger was replaced; the new one is used from now on");
    let ran = done();
    scene.daemon.eventually("runs", || done() >= ran + 2);
    assert_eq!(scene.daemon.times_logged(entered), 2);
    assert_eq!(old(), before);
    scene.finish();
}

fn a_database_that_is_torn_from_its_journal_is_not_written_to() {
    let scene = Scene::of(pool());
    let (held, rest) = with_work_in_hand(&scene, REPLIES);
    rename(&scene, "queue.db", "torn.db", &[""]);
    let trouble = scene.daemon.logged(TROUBLE);
    let problem = field(&trouble, "problem");
    assert!(problem.contains("without its journal"), "{trouble}");
    // Nobody makes another beside the journal: SQLite would delete that.
    scene.site.configure_commands(&[pool()]);
    let refused = scene.site.ganger(&["send", "work", "lost"]).bad(1);
    assert!(refused.contains("put the file back"), "{refused}");
    scene.site.touch("go");
    scene.daemon.eventually("both to be answered", || {
        held.iter()
            .all(|body| scene.record().of(Event::Done, body).len() == 1)
    });
    rename(&scene, "torn.db", "queue.db", &[""]);
    scene.daemon.logged(RECOVERED);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&held);
    record.assert_done_once(&rest);
    assert_eq!(scene.table.count("answers"), 2);
    scene.finish();
}
