//! The libraries in `worker-sdk/`: each passes its own tests, is packed as its registry expects,
//! speaks both versions with the real daemon, and loses no message when its workers are killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::types::Value;

use crate::harness::{Event, NewMessage, Pool, Progress, Scene, Workspace, trials};
use crate::python::python;

trials![
    python_passes_its_own_tests,
    python_is_typed,
    python_packs_a_wheel,
    python_speaks_version_1,
    python_speaks_version_2,
    python_with_asyncio_speaks_version_1,
    python_with_asyncio_speaks_version_2,
    python_outlives_kills,
    python_with_asyncio_outlives_kills,
    node_passes_its_own_tests,
    node_packs_what_both_kinds_of_modules_can_load,
    node_speaks_version_1,
    node_speaks_version_2,
    node_outlives_kills,
    go_passes_its_own_tests,
    go_finds_nothing_to_complain_of,
    go_speaks_version_1,
    go_speaks_version_2,
    go_outlives_kills,
];

/// Messages of a run in which workers are killed.
const MESSAGES: usize = 1_000;
const WORKERS: usize = 3;
const CONCURRENCY: usize = 4;
/// How many are done from one kill to the next.
const DONE_A_KILL: usize = 60;

/// The folder of a library.
fn library(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/worker-sdk")).join(name)
}

/// Runs a program to its end, which must be a good one; what it has printed, stderr last.
fn run(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run prepares what it needs"));
    let printed = [out.stdout, out.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(out.status.success(), "{command:?}: {printed}");
    printed
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

    /// Each message is done at least once, and few are done twice.
    fn outlives_kills(&self) {
        let pool = self.pool(CONCURRENCY, 2);
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
    let fields = record["fields"].as_str().unwrap();
    assert!(fields.contains("degrees=90"), "{record}");
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

// -- Python --

fn python_worker(kind: &str) -> Worker {
    let script = library("python/tests/chaos.py");
    Worker {
        program: python(),
        args: vec![script.to_str().unwrap().into(), kind.into()],
    }
}

/// Python in the library's folder, where it leaves nothing behind.
fn in_python(args: &[&str]) -> Command {
    let mut command = Command::new(python());
    command
        .args(args)
        .current_dir(library("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn python_passes_its_own_tests() {
    let told = run(&mut in_python(&[
        "-W",
        "error::ResourceWarning",
        "-m",
        "unittest",
    ]));
    assert!(told.contains("\nOK\n"), "{told}");
}

fn python_is_typed() {
    let site = Workspace::new();
    let cache = site.path("mypy");
    let cache = cache.to_str().unwrap();
    run(&mut in_python(&["-m", "mypy", "--cache-dir", cache]));
}

fn python_packs_a_wheel() {
    let site = Workspace::new();
    let dir = site.path("wheel");
    let wheel = ["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"];
    let mut pack = in_python(&wheel);
    pack.args(["--no-build-isolation", "--wheel-dir"])
        .arg(&dir)
        .arg(".");
    run(&mut pack);
    let made: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
    // It works as it stands, and tells type checkers so.
    let uses = "import sys, zipfile, ganger_worker.testing as t, ganger_worker as g\n\
        assert sys.argv[1] in g.__file__, g.__file__\n\
        assert 'ganger_worker/py.typed' in zipfile.ZipFile(sys.argv[1]).namelist()\n\
        print(t.work(lambda task: g.reply(task.text * 2), ['ab'])[0].message)";
    let mut command = in_python(&["-c", uses]);
    command.arg(&made[0]).env("PYTHONPATH", &made[0]);
    assert_eq!(run(&mut command), "abab\n");
}

fn python_speaks_version_1() {
    python_worker("plain").speaks(1);
}

fn python_speaks_version_2() {
    python_worker("plain").speaks(2);
}

fn python_with_asyncio_speaks_version_1() {
    python_worker("async").speaks(1);
}

fn python_with_asyncio_speaks_version_2() {
    python_worker("async").speaks(2);
}

fn python_outlives_kills() {
    python_worker("plain").outlives_kills();
}

fn python_with_asyncio_outlives_kills() {
    python_worker("async").outlives_kills();
}

// -- Node --

/// The copy of the library in which `tests/run` has installed and built what it takes.
fn node_built() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_NODE").map(PathBuf::from);
    let in_target = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("node");
    let built = prepared.unwrap_or_else(in_target);
    assert!(
        built.join("dist/esm/index.js").exists(),
        "no library for Node at {}: run tests/run, which builds it",
        built.display()
    );
    built
}

fn node(args: &[&str]) -> Command {
    let mut command = Command::new("node");
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/proto-spec/vectors");
    command
        .args(args)
        .current_dir(node_built())
        .env("GANGER_VECTORS", vectors);
    command
}

fn node_worker() -> Worker {
    let script = node_built().join("test/support/chaos.mjs");
    let node = run(&mut node(&["-p", "process.execPath"]));
    Worker {
        program: node.trim_end().into(),
        args: vec![script.to_str().unwrap().into()],
    }
}

fn node_passes_its_own_tests() {
    let files = ["process", "testing", "vectors"].map(|name| format!("test/{name}.test.mjs"));
    let mut command = node(&["--test"]);
    let told = run(command.args(&files));
    assert!(
        told.contains("fail 0") && !told.contains("pass 0"),
        "{told}"
    );
}

fn node_packs_what_both_kinds_of_modules_can_load() {
    let site = Workspace::new();
    let dir = site.path("");
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]);
    run(pack.arg(&dir).current_dir(node_built()));
    run(Command::new("tar")
        .args(["--extract", "--file", "ganger-worker-0.1.0.tgz"])
        .current_dir(&dir));
    for file in ["dist/esm/index.d.ts", "dist/cjs/testing.d.ts", "README.md"] {
        assert!(dir.join("package").join(file).exists(), "no {file}");
    }
    // As it would be after an installation, with what it needs beside it.
    let modules = site.path("node_modules");
    std::fs::create_dir(&modules).unwrap();
    std::fs::rename(dir.join("package"), modules.join("ganger-worker")).unwrap();
    let needs = node_built().join("node_modules/@msgpack");
    std::os::unix::fs::symlink(needs, modules.join("@msgpack")).unwrap();
    let work = "work((task) => reply(task.text + task.text), ['ab']).then(([r]) => console.log(r.message))";
    let esm = format!(
        "import {{ reply }} from 'ganger-worker'; import {{ work }} from 'ganger-worker/testing'; {work}"
    );
    let cjs = format!(
        "const {{ reply }} = require('ganger-worker'); const {{ work }} = require('ganger-worker/testing'); {work}"
    );
    site.put("esm.mjs", &esm, false);
    site.put("cjs.cjs", &cjs, false);
    for script in ["esm.mjs", "cjs.cjs"] {
        let told = run(Command::new("node").arg(script).current_dir(&dir));
        assert_eq!(told, "abab\n", "{script}");
    }
}

fn node_speaks_version_1() {
    node_worker().speaks(1);
}

fn node_speaks_version_2() {
    node_worker().speaks(2);
}

fn node_outlives_kills() {
    node_worker().outlives_kills();
}

// -- Go --

fn go(args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(args).current_dir(library("go"));
    command
}

/// The test worker, built; the directory must outlive the daemon.
fn go_worker() -> (Workspace, Worker) {
    let site = Workspace::new();
    // Its name is in the stack of a panic, as the others' scripts' are.
    let program = site.path("chaos");
    run(go(&["build", "-o"]).arg(&program).arg("./internal/chaos"));
    let args = Vec::new();
    (site, Worker { program, args })
}

fn go_passes_its_own_tests() {
    let told = run(&mut go(&["test", "-count=1", "./..."]));
    let passed = told.lines().filter(|line| line.starts_with("ok "));
    assert_eq!(passed.count(), 3, "{told}");
}

fn go_finds_nothing_to_complain_of() {
    run(&mut go(&["vet", "./..."]));
    assert_eq!(
        run(Command::new("gofmt")
            .args(["-l", "."])
            .current_dir(library("go"))),
        ""
    );
}

fn go_speaks_version_1() {
    let (_site, worker) = go_worker();
    worker.speaks(1);
}

fn go_speaks_version_2() {
    let (_site, worker) = go_worker();
    worker.speaks(2);
}

fn go_outlives_kills() {
    let (_site, worker) = go_worker();
    worker.outlives_kills();
}
