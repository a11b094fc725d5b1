//! The libraries in `worker-sdk/`: each passes its own tests, is packed as its registry expects,
//! speaks both versions with the real daemon, and loses no message when its workers are killed.

pub(crate) mod dotnet;
pub(crate) mod go;
pub(crate) mod java;
pub(crate) mod node;
pub(crate) mod php;
mod python;
mod ruby;
pub(crate) mod rust;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::types::Value;

use crate::conformance::Checked;
use crate::harness::{Event, NewMessage, Pool, Progress, Scene, Workspace};

/// The tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let languages = [
        dotnet::trials(),
        go::trials(),
        java::trials(),
        node::trials(),
        php::trials(),
        python::trials(),
        ruby::trials(),
        rust::trials(),
    ];
    languages.into_iter().flatten().collect()
}

/// Messages of a run in which workers are killed.
const MESSAGES: usize = 1_000;
const WORKERS: usize = 3;
pub(crate) const CONCURRENCY: usize = 4;
/// How many are done from one kill to the next.
const DONE_A_KILL: usize = 60;

/// The folder of a library.
pub(crate) fn library(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/worker-sdk")).join(name)
}

/// Runs a program to its end, which must be a good one; what it has printed, stderr last.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run prepares what it needs"));
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(out.status.success(), "{command:?}: {printed}");
    printed
}

/// What conformance is checked with: bodies that the libraries' workers under test know.
fn conforms(program: &Path, args: &[&str]) {
    let site = Workspace::new();
    let mut options = Vec::new();
    for (option, body) in [
        ("--message", "echo hi"),
        ("--message", "emit 3"),
        ("--message", "log"),
        ("--message", "progress"),
        ("--slow-message", "sleep 1"),
    ] {
        let file = body.replace(' ', "-");
        site.put(&file, body, false);
        options.push(option.to_owned());
        options.push(site.path(&file).to_str().unwrap().to_owned());
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let worker = [&[program.to_str().unwrap()], args].concat();
    Checked::of(&site, &options, &worker).conforms_in(&["version 2", "version 1"]);
}

// -- what every library must do --

/// A pool of a library's test worker.
struct Worker {
    program: PathBuf,
    args: Vec<String>,
}

impl Worker {
    fn pool(&self, concurrency: usize, version: u32) -> Pool {
        let (concurrency, version) = (concurrency.to_string(), version.to_string());
        let args = self.args.iter().map(String::as_str);
        let args: Vec<&str> = args.chain([concurrency.as_str(), &version]).collect();
        Pool::of_program(self.program.to_str().unwrap(), &args)
    }

    /// What becomes of messages is what the worker says, whatever the version.
    fn speaks(&self, version: u32) {
        let pool = self.pool(CONCURRENCY, version);
        let scene = Scene::of(pool.set("workers", "2"));
        let bodies: Vec<String> = (0..200)
            .map(|n| format!("message {n} für Zoë 🦀"))
            .collect();
        let large = "ü".repeat(2 << 20);
        scene.send(&bodies);
        scene.send(&["", &large]);
        let question = NewMessage::new("shout: how are you?").correlation_id("c-1");
        let question = question.reply_to("answers").header("colour", "red");
        scene.table.insert(&[question]);
        scene.all_done();
        scene.record().assert_done_once(&bodies);
        let replies = scene.table.messages("answers");
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].body, "SHOUT: HOW ARE YOU?");
        assert_eq!(replies[0].headers["colour"], "red");
        assert_eq!(replies[0].correlation_id.as_deref(), Some("c-1"));
        if version == 2 {
            has_what_version_2_adds(&scene);
        }
        fails_well(&scene);
        scene.finish();
    }

    /// It does all that the protocol asks of it.
    fn conforms_in(&self, version: u32) {
        let site = Workspace::new();
        let (concurrency, version) = (CONCURRENCY.to_string(), version.to_string());
        let mut worker = vec![self.program.to_str().unwrap()];
        worker.extend(self.args.iter().map(String::as_str));
        worker.extend([concurrency.as_str(), &version]);
        let checked = Checked::of(&site, &["--protocol", &version], &worker);
        checked.conforms_in(&[&format!("version {version}")]);
    }

    /// Each message is done at least once, and few are done twice.
    fn outlives_kills(&self) {
        outlives_kills(self.pool(CONCURRENCY, 2));
    }
}

/// Each message is done at least once, and few are done twice, by workers that take [`CONCURRENCY`] at
/// once.
pub(crate) fn outlives_kills(pool: Pool) {
    let pool = pool
        .set("workers", &WORKERS.to_string())
        .set("restart", "{}");
    let scene = Scene::of(pool.attempts(100).set("crashes_max", "100"));
    let bodies: Vec<String> = (0..MESSAGES).map(|n| format!("message {n}")).collect();
    scene.daemon.has_workers(WORKERS);
    scene.send(&bodies);
    let kills = kill_as_they_work(&scene);
    scene.all_done();
    let twice = scene.record().assert_none_lost(&bodies);
    assert!(
        twice <= kills * CONCURRENCY,
        "{twice} done twice by {kills} kills"
    );
    scene.finish();
}

fn has_what_version_2_adds(scene: &Scene) {
    let binary = NewMessage::binary(b"\xff\x00\xfe").reply_to("bytes");
    let log = NewMessage::new("log").correlation_id("c-2");
    scene.table.insert(&[binary, log]);
    scene.send(&["retry", "emit"]);
    scene.all_done();
    let bytes: Value = scene
        .table
        .0
        .query_row(
            "SELECT body FROM consumer_messages WHERE queue = 'bytes'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(bytes, Value::Blob(b"\xff\x00\xfe".to_vec()));
    assert_eq!(scene.record().of(Event::Began, "retry").len(), 2);
    let parts = scene.table.messages("parts");
    assert_eq!((parts.len(), parts[0].body.as_str()), (1, "part"));
    assert_eq!(parts[0].headers["n"], "1");
    let record = scene.daemon.logged("it is hot");
    assert_eq!(record["level"], "WARN", "{record}");
    assert_eq!(record["correlation_id"], "c-2", "{record}");
    // A header of a frame has a text form.
    let degrees = &record["fields"]["degrees"];
    assert!(*degrees == 90 || *degrees == "90", "{record}");
}

/// A handler that throws: the error and its place are with the dead letter, and the worker goes on.
fn fails_well(scene: &Scene) {
    let before = scene.daemon.workers_up();
    scene.send(&["raise"]);
    let dead = scene.one_dead();
    assert_eq!((dead.attempts, dead.crashes), (2, 0), "{dead:?}");
    assert!(dead.error.contains("no good"), "{dead:?}");
    assert!(dead.error.contains("chaos"), "no stack: {dead:?}");
    assert_eq!(scene.daemon.workers_up(), before);
}

/// Kills one worker each time that some more messages are done; returns how many.
fn kill_as_they_work(scene: &Scene) -> usize {
    let mut progress = Progress::of(&scene.site);
    let mut killed = BTreeSet::new();
    for done in (1..MESSAGES / DONE_A_KILL).map(|n| n * DONE_A_KILL) {
        let what = format!("{done} messages to be done");
        scene.daemon.eventually(&what, || progress.done() >= done);
        let victim = scene.daemon.eventually_some("a worker to be up", || {
            let up = scene.daemon.workers_up();
            up.into_iter().find(|pid| !killed.contains(pid))
        });
        kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        killed.insert(victim);
    }
    killed.len()
}
