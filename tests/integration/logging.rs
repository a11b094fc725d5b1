//! A log that can't be written: nothing happens to messages, deadlines, signals or the exit code;
//! what is lost is counted, and told as soon as that can be done.

use std::fs::OpenOptions;
use std::io::{Read, Write, pipe};
use std::process::Stdio;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;

use crate::harness::{EVIL, NewMessage, Pool, Scene, Workspace, assert_tame, terminal, trials};

trials![
    a_full_disk_under_the_log_changes_nothing,
    a_reader_of_the_log_that_is_gone_changes_nothing,
    a_reader_of_the_log_that_sleeps_is_told_what_it_missed,
    a_stop_does_not_wait_for_a_reader_of_the_log_that_sleeps,
    a_start_that_fails_says_so_by_its_exit_code_alone,
    a_terminal_is_told_nothing_by_what_is_logged,
    json_in_a_file_tells_a_terminal_nothing_either,
    a_reload_changes_the_level_in_place,
    what_is_said_again_and_again_is_counted,
];

fn full() -> Stdio {
    let full = OpenOptions::new().write(true).open("/dev/full");
    full.unwrap().into()
}

/// A daemon whose log nobody reads, once it has made its database.
fn unheard(pool: Pool, stderr: impl Into<Stdio>) -> Scene {
    unheard_at(Workspace::new(), pool, stderr)
}

fn unheard_at(site: Workspace, pool: Pool, stderr: impl Into<Stdio>) -> Scene {
    let daemon = site.start_unheard(&[pool], stderr);
    daemon.eventually("the database", || site.path("queue.db").exists());
    let table = site.table();
    daemon.eventually("its tables", || {
        let count = "SELECT count(*) FROM poisoned_messages";
        table.0.query_row(count, (), |_| Ok(())).is_ok()
    });
    Scene {
        daemon,
        table,
        site,
    }
}

/// Messages that are done, crash their worker, fail, and overrun their deadline.
fn all_kinds(scene: &Scene) {
    let good = ["one", "two", "mode:print:text"];
    scene.send(&good);
    scene.send(&["mode:die:kill", "mode:answer:500", "mode:hang"]);
    scene.settled();
    scene.record().assert_done_once(&good);
    let dead = scene.table.dead();
    assert_eq!(dead.len(), 3, "dead letters: {dead:#?}");
    scene.daemon.signal(Signal::SIGUSR1);
}

fn hasty() -> Pool {
    Pool::new(&["--v2=1"])
        .attempts(1)
        .set("crashes_max", "1")
        .text("timeout", "100ms")
        .text("timeout_grace", "100ms")
}

fn a_full_disk_under_the_log_changes_nothing() {
    let scene = unheard(hasty(), full());
    all_kinds(&scene);
    scene.finish();
}

fn a_reader_of_the_log_that_is_gone_changes_nothing() {
    let (mut reader, writer) = pipe().unwrap();
    let scene = unheard(hasty(), writer);
    scene.send(&["first"]);
    scene.settled();
    // It has written something, and goes on to when nobody reads any more.
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    all_kinds(&scene);
    scene.finish();
}

const DROPPED: &str = "log records dropped because stderr was blocked; count since the start";

/// A log of some twelve million bytes, of which the pipe and the daemon hold the first few.
fn overfill(scene: &Scene) {
    let wordy = |n: u32| {
        let id = format!("{n}-{}", "x".repeat(150_000));
        NewMessage::new("mode:answer:400").correlation_id(&id)
    };
    scene.table.insert(&(0..120).map(wordy).collect::<Vec<_>>());
    scene.settled();
    scene
        .table
        .0
        .execute("DELETE FROM poisoned_messages", ())
        .unwrap();
}

fn a_reader_of_the_log_that_sleeps_is_told_what_it_missed() {
    let (reader, writer) = pipe().unwrap();
    let mut scene = unheard(hasty(), writer);
    overfill(&scene);
    all_kinds(&scene);
    scene.daemon.listen(reader);
    let told = scene
        .daemon
        .logs(DROPPED, |told| told["dropped"].as_u64() > Some(10));
    scene.daemon.signal(Signal::SIGUSR1);
    scene.daemon.logs("status of the daemon", |status| {
        status["log_records_dropped"].as_u64() >= told["dropped"].as_u64()
    });
    scene.finish();
}

fn a_stop_does_not_wait_for_a_reader_of_the_log_that_sleeps() {
    let (_reader, writer) = pipe().unwrap();
    let scene = unheard(hasty().text("timeout", "1h"), writer);
    overfill(&scene);
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    scene.daemon.signal(Signal::SIGTERM);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.record().assert_done_once(&["mode:wait:go"]);
}

/// What it would say on stderr is lost; the code is not, and it does not hang.
fn a_start_that_fails_says_so_by_its_exit_code_alone() {
    let (_reader, mut asleep) = pipe().unwrap();
    fcntl(&asleep, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    asleep.write_all(&[b'x'; 4096]).unwrap();
    for stderr in [full(), asleep.into()] {
        let site = Workspace::new();
        std::fs::create_dir(site.path("queue.db")).unwrap();
        let daemon = site.start_unheard(&[hasty()], stderr);
        assert_eq!(daemon.exit().code(), Some(1));
    }
    let site = Workspace::with_daemon("nonsense = 1");
    let daemon = site.start_unheard(&[hasty()], full());
    assert_eq!(daemon.exit().code(), Some(2));
}

/// A worker's words, its stdout, and a correlation id.
fn a_terminal_is_told_nothing_by_what_is_logged() {
    for format in ["text", "json"] {
        let (stderr, screen) = terminal();
        let site = Workspace::with_daemon(&format!("log_format = \"{format}\""));
        let scene = unheard_at(site, hasty(), stderr);
        let bodies = ["mode:print:", "mode:complain:", "mode:answer:400 "];
        let bodies =
            bodies.map(|mode| NewMessage::new(&format!("{mode}{EVIL}")).correlation_id(EVIL));
        scene.table.insert(&bodies);
        scene.settled();
        scene.finish();
        let text = screen.text();
        assert_tame(&text);
        // What a worker prints is a record a line.
        let forged = |line: &&str| line.starts_with("ERROR forged");
        assert_eq!(text.lines().find(forged), None, "{text}");
    }
}

/// Whoever looks at the file has a terminal, and what takes a line separator for an end of line is
/// not to find records in a record.
fn json_in_a_file_tells_a_terminal_nothing_either() {
    let site = Workspace::with_daemon("log_format = \"json\"");
    let log = std::fs::File::create_new(site.path("log")).unwrap();
    // It goes with the directory.
    let mut written = std::fs::File::open(site.path("log")).unwrap();
    let scene = unheard_at(site, hasty(), log);
    let body = format!("mode:complain:{EVIL}\u{2028}2029");
    let message = NewMessage::new(&body).correlation_id("evil \u{2028}\u{202e}\u{9b}");
    scene.table.insert(&[message]);
    scene.settled();
    scene.finish();
    let mut text = String::new();
    written.read_to_string(&mut text).unwrap();
    assert_tame(&text);
    assert!(!text.contains('\u{2028}'), "{text}");
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut ids = records.map(|record| record["correlation_id"].clone());
    assert!(ids.any(|id| id == "evil \u{2028}\u{202e}\u{9b}"), "{text}");
}

fn a_reload_changes_the_level_in_place() {
    let scene = Scene::of(Pool::new(&[]));
    let config = std::fs::read_to_string(scene.daemon.config()).unwrap();
    let reload = |level: &str| {
        let text = config.replace(
            r#"log_level = "debug""#,
            &format!("log_level = \"{level}\""),
        );
        std::fs::write(scene.daemon.config(), text).unwrap();
        scene.daemon.signal(Signal::SIGHUP);
        let changed = "log level changed";
        scene
            .daemon
            .logs(changed, |record| record["filter"] == level);
    };
    // A worker that asks to see its message again is a detail.
    let details = || scene.daemon.times_logged("message requeued by the worker");
    let requeue = |file: &str| {
        scene.send(&[format!("mode:unless:{file}:300")]);
        scene.daemon.eventually("the message to be put back", || {
            scene.table.messages("work")[0].requeues > 0
        });
        scene.site.touch(file);
        scene.settled();
    };
    requeue("first");
    scene.daemon.eventually("a detail", || details() > 0);
    reload("info");
    let before = details();
    requeue("second");
    assert_eq!(details(), before);
    reload("debug");
    requeue("third");
    scene
        .daemon
        .eventually("more details", || details() > before);
    scene.finish();
}

fn what_is_said_again_and_again_is_counted() {
    let scene = Scene::of(
        Pool::new(&["--v2=8"])
            .set("workers", "2")
            .attempts(1)
            .text("breaker", "off"),
    );
    let bodies = vec!["mode:answer:500"; 3000];
    scene.send(&bodies);
    scene.settled();
    let told = |record: &serde_json::Value| record["left_out"].as_u64();
    let left_out = || -> u64 { scene.daemon.records(|_| true).iter().filter_map(told).sum() };
    scene.daemon.eventually("what was left out to be told", || {
        scene.daemon.times_logged("message dead-lettered") as u64 + left_out() == 3000
    });
    assert!(left_out() > 0);
    let record = scene
        .daemon
        .records(|record| told(record).is_some())
        .remove(0);
    let message = "identical records suppressed: message dead-lettered";
    assert_eq!(
        (&record["message"], &record["pool"]),
        (&message.into(), &"work".into())
    );
    scene.daemon.signal(Signal::SIGUSR1);
    let status = scene.daemon.logged("status of the daemon");
    assert_eq!(status["log_records_left_out"], left_out());
    scene.finish();
}
