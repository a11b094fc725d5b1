//! The daemon as a service: what it tells the manager that has started it, and that a thread of it which
//! stands still is found.

use std::collections::BTreeSet;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::harness::{Daemon, Event, Launch, Pool, Scene, Workspace, look, said, trials};
use crate::system::silent_broker;

trials![
    the_manager_is_told_when_all_is_open_and_when_it_stops,
    a_manager_may_listen_under_a_name_that_is_no_path,
    a_start_that_waits_for_a_broker_is_not_ready,
    a_reload_is_told_from_its_beginning_to_its_end,
    a_reload_that_is_refused_ends_as_well_and_says_so,
    the_manager_is_told_how_things_stand,
    every_thread_shows_that_it_turns_and_is_missed_when_it_does_not,
    to_wait_for_a_broker_at_the_start_is_no_standstill,
    workers_do_not_speak_to_the_manager,
];

/// Becomes the daemon, with the manager's socket beside its configuration.
const MANAGED: Launch = Launch {
    through: &[
        "sh",
        "-c",
        r#"export NOTIFY_SOCKET="$(dirname "$3")/notify" WATCHDOG_USEC=2000000; exec "$0" "$@""#,
    ],
    args: &[],
};

/// The same, with a socket that has its name from there but is in no file system.
const MANAGED_BY_NAME: Launch = Launch {
    through: &[
        "sh",
        "-c",
        r#"export NOTIFY_SOCKET="@$(dirname "$3")/notify"; exec "$0" "$@""#,
    ],
    args: &[],
};

/// How long the manager waits for a sign of life, as the daemon is told.
const PATIENCE: Duration = Duration::from_secs(2);

/// A manager that takes down what it is told and does nothing about it.
#[derive(Clone, Default)]
struct Manager(Arc<Mutex<Vec<(Instant, String)>>>);

impl Manager {
    /// Listens in the daemon's directory.
    fn at(site: &Workspace) -> Self {
        Self::of(UnixDatagram::bind(site.path("notify")).unwrap())
    }

    fn of(socket: UnixDatagram) -> Self {
        let manager = Self::default();
        let told = manager.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                told.0
                    .lock()
                    .unwrap()
                    .push((told_at(), text.trim_end().to_owned()));
            }
        });
        manager
    }

    /// What it was told so far, signs of life left out.
    fn told(&self) -> Vec<String> {
        let told = self.0.lock().unwrap();
        let words = told.iter().map(|(_, text)| text.clone());
        words.filter(|text| text != ALIVE).collect()
    }

    /// The same without how things stand.
    fn changes(&self) -> Vec<String> {
        let mut told = self.told();
        told.retain(|text| !text.starts_with("STATUS="));
        told
    }

    fn waits_for(&self, what: &str, wanted: impl Fn(&[String]) -> bool) {
        let found = look(|| wanted(&self.told()).then_some(()));
        assert!(
            found.is_some(),
            "waited in vain for {what}: {:#?}",
            self.told()
        );
    }

    fn last_status(&self) -> String {
        let told = self.told();
        let status = told
            .iter()
            .rev()
            .find_map(|text| text.strip_prefix("STATUS="));
        status.unwrap_or_default().to_owned()
    }

    fn waits_for_status(&self, wanted: impl Fn(&str) -> bool) -> String {
        let found = look(|| Some(self.last_status()).filter(|status| wanted(status)));
        found.unwrap_or_else(|| panic!("the last status was {:?}", self.last_status()))
    }

    fn waits_for_signs_of_life(&self, count: usize) {
        let found = look(|| (self.signs_of_life() >= count).then_some(()));
        assert!(found.is_some(), "{} signs of life", self.signs_of_life());
    }

    fn signs_of_life(&self) -> usize {
        let told = self.0.lock().unwrap();
        told.iter().filter(|(_, text)| text == ALIVE).count()
    }

    /// Since when it has had no sign of life.
    fn last_sign(&self) -> Instant {
        let told = self.0.lock().unwrap();
        let last = told.iter().rev().find(|(_, text)| text == ALIVE);
        last.unwrap().0
    }
}

const ALIVE: &str = "WATCHDOG=1";
const READY: &str = "READY=1";
const STOPPING: &str = "STOPPING=1";

#[expect(
    clippy::disallowed_methods,
    reason = "no runtime here, and no paused clock"
)]
fn told_at() -> Instant {
    Instant::now()
}

fn managed(site: Workspace, pools: &[Pool]) -> (Scene, Manager) {
    let manager = Manager::at(&site);
    let daemon = site.launch(pools, MANAGED);
    let table = site.table();
    let scene = Scene {
        daemon,
        table,
        site,
    };
    (scene, manager)
}

fn the_manager_is_told_when_all_is_open_and_when_it_stops() {
    let site = Workspace::new();
    let manager = Manager::at(&site);
    let daemon = site.launch(&[Pool::new(&[])], MANAGED);
    manager.waits_for("READY", |told| told.iter().any(|text| text == READY));
    assert!(site.path("queue.db").exists());
    let scene = Scene {
        daemon,
        table: site.table(),
        site,
    };
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    scene.daemon.signal(Signal::SIGTERM);
    manager.waits_for("STOPPING", |told| told.iter().any(|text| text == STOPPING));
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    assert_eq!(manager.changes(), [READY, STOPPING]);
}

/// As in a container that systemd-nspawn or Podman has started.
fn a_manager_may_listen_under_a_name_that_is_no_path() {
    let site = Workspace::new();
    let name = site.path("notify");
    let address = SocketAddr::from_abstract_name(name.as_os_str().as_bytes()).unwrap();
    let manager = Manager::of(UnixDatagram::bind_addr(&address).unwrap());
    let daemon = site.launch(&[Pool::new(&[])], MANAGED_BY_NAME);
    manager.waits_for("the start", |told| told.contains(&READY.to_owned()));
    daemon.stop();
    assert_eq!(manager.changes(), [READY, STOPPING]);
}

fn a_start_that_waits_for_a_broker_is_not_ready() {
    let (listener, section) = silent_broker();
    let site = Workspace::with_sections(&section);
    let manager = Manager::at(&site);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut daemon = site.launch_unheard(&[Pool::new(&[])], MANAGED, writer);
    daemon.listen(reader);
    let _connection = listener.accept().unwrap();
    // It lives all the same.
    manager.waits_for_signs_of_life(2);
    assert_eq!(
        manager.last_status(),
        "starting: 0 pool(s), 0 of 0 worker(s) up"
    );
    daemon.stop();
    assert_eq!(manager.changes(), [STOPPING]);
}

fn now_usec() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000
}

/// Waits until so many more were told than there were, and returns them.
fn next(manager: &Manager, before: usize, count: usize) -> Vec<String> {
    manager.waits_for("the reload", |_| manager.changes().len() >= before + count);
    manager.changes().split_off(before)
}

/// What a reload begins with, said after that moment.
fn assert_reloading(told: &str, since: i64) {
    let at = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    let at: i64 = at.parse().unwrap();
    assert!(
        (since..=now_usec()).contains(&at),
        "{at} is not after {since}"
    );
}

fn reload(scene: &Scene, manager: &Manager) {
    let (before, since) = (manager.changes().len(), now_usec());
    scene.daemon.signal(Signal::SIGHUP);
    let told = next(manager, before, 2);
    assert_reloading(&told[0], since);
    assert_eq!(told[1], READY);
}

fn a_reload_is_told_from_its_beginning_to_its_end() {
    let pool = Pool::new(&[]);
    let (scene, manager) = managed(Workspace::new(), std::slice::from_ref(&pool));
    next(&manager, 0, 1);
    reload(&scene, &manager);
    let more = [
        pool.clone(),
        pool.text("name", "more").text("queue", "more"),
    ];
    scene.site.reconfigure(&scene.daemon, &more);
    reload(&scene, &manager);
    // Its log may come later than what it tells.
    scene.daemon.eventually("both to be logged", || {
        scene.daemon.times_logged("configuration reloaded") == 2
    });
    scene.daemon.has_workers(2);
    scene.finish();
}

fn a_reload_that_is_refused_ends_as_well_and_says_so() {
    let sources = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
                   [sources.gone]\nkind = \"table\"\nurl = \"sqlite:/nowhere/queue.db\"\n";
    let pool = Pool::new(&[]).text("source", "main");
    let site = Workspace::with_sections(sources);
    let (scene, manager) = managed(site, std::slice::from_ref(&pool));
    next(&manager, 0, 1);
    let refused = |pools: &[Pool], why: &str| {
        scene.site.reconfigure(&scene.daemon, pools);
        reload(&scene, &manager);
        let status = manager.waits_for_status(|status| status.contains(why));
        assert!(
            status.contains("; the last reload was refused: "),
            "{status}"
        );
    };
    let invalid = pool.clone().set("workers", "-1");
    refused(&[invalid], "pools.work.workers must be within 1..=1024");
    let elsewhere = pool.clone().text("name", "other").text("source", "gone");
    refused(&[pool.clone(), elsewhere], "starting pool `other` failed");
    scene.site.reconfigure(&scene.daemon, &[pool]);
    reload(&scene, &manager);
    manager.waits_for_status(|status| !status.contains("refused"));
    scene.finish();
}

fn the_manager_is_told_how_things_stand() {
    let sources = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n\
                   [sources.away]\nkind = \"rabbitmq\"\nurl = \"amqp://127.0.0.1:1/\"\n";
    let pool = |workers: &str| {
        Pool::new(&[])
            .text("source", "main")
            .set("workers", workers)
    };
    let away = pool("1").text("name", "other").text("source", "away");
    let site = Workspace::with_sections(sources);
    let (scene, manager) = managed(site, &[pool("2")]);
    let is = |wanted: &'static str| move |status: &str| status == wanted;
    manager.waits_for_status(is("running: 1 pool(s), 2 of 2 worker(s) up"));
    scene.site.reconfigure(&scene.daemon, &[pool("3"), away]);
    scene.daemon.signal(Signal::SIGHUP);
    let trouble =
        "running: 2 pool(s), 4 of 4 worker(s) up; the source of pool `other` is unavailable: ";
    manager.waits_for_status(|status| status.starts_with(trouble));
    scene.site.reconfigure(&scene.daemon, &[pool("3")]);
    scene.daemon.signal(Signal::SIGHUP);
    manager.waits_for_status(is("running: 1 pool(s), 3 of 3 worker(s) up"));
    scene.finish();
}

/// A thread of the daemon that is held.
pub(crate) struct Held(Pid);

impl Held {
    pub(crate) fn new(thread: Pid) -> Self {
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }

    /// Lets it go on.
    pub(crate) fn let_go(self) {
        drop(self);
    }
}

/// A process of which a thread is held could not be waited for either.
impl Drop for Held {
    fn drop(&mut self) {
        let let_go = ptrace::detach(self.0, None);
        assert!(let_go.is_ok() || std::thread::panicking(), "{let_go:?}");
    }
}

/// The daemon's threads with their names; the first is the main one.
pub(crate) fn threads(daemon: &Daemon) -> Vec<(Pid, String)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let named = tasks.map(|task| {
        let path = task.unwrap().path();
        let id = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let name = fs::read_to_string(path.join("comm")).unwrap();
        (Pid::from_raw(id), name.trim_end().to_owned())
    });
    let mut threads: Vec<(Pid, String)> = named.collect();
    threads.sort();
    threads
}

/// Whom the status misses.
fn missed(status: &str) -> BTreeSet<&str> {
    let parts = status.split("; ");
    let missed = parts.filter_map(|part| part.strip_prefix("thread ")?.strip_suffix(" is stalled"));
    missed.collect()
}

const STANDS_STILL: &str = "thread of the daemon stalled";

fn every_thread_shows_that_it_turns_and_is_missed_when_it_does_not() {
    let site = Workspace::with_daemon("stall_timeout = \"5s\"");
    let (scene, manager) = managed(site, &[Pool::new(&[])]);
    scene.daemon.has_workers(1);
    // Long enough to be missed, if having nothing to do were to stand still.
    manager.waits_for_signs_of_life(8);
    assert_eq!(scene.daemon.times_logged(STANDS_STILL), 0);

    let all = threads(&scene.daemon);
    let others = all.iter().filter(|(_, name)| name != "watchdog");
    let held: Vec<Held> = others.map(|(thread, _)| Held::new(*thread)).collect();
    let expected = BTreeSet::from([
        "admin",
        "alerts",
        "daemon",
        "inotify",
        "log",
        "pool-work",
        "signals",
        "source-work",
        "spawner-work",
    ]);
    assert_eq!(held.len(), expected.len(), "{all:?}");
    manager.waits_for_status(|status| missed(status) == expected);
    let gave_up = look(|| (manager.last_sign().elapsed() > PATIENCE).then_some(()));
    assert!(gave_up.is_some(), "it would not have been started again");

    held.into_iter().for_each(Held::let_go);
    let before = manager.signs_of_life();
    manager.waits_for_signs_of_life(before + 1);
    manager.waits_for_status(|status| missed(status).is_empty());
    for thread in expected {
        let is_it = |record: &serde_json::Value| record["thread"] == thread;
        scene.daemon.logs(STANDS_STILL, is_it);
        scene
            .daemon
            .logs("stalled thread recovered or exited", is_it);
    }
    scene.send(&["work"]);
    scene.all_done();
    scene.finish();
}

fn to_wait_for_a_broker_at_the_start_is_no_standstill() {
    let kafka = "[sources.main]\nkind = \"kafka\"\nbrokers = \"127.0.0.1:1\"\ngroup = \"g\"\n";
    let site = Workspace::make("stall_timeout = \"3s\"", kafka);
    let daemon = site.start(&[Pool::new(&[])]);
    daemon.logged("waiting for Kafka");
    let missed =
        daemon.records(|record| said(record, STANDS_STILL) && record["thread"] == "source-work");
    assert!(missed.is_empty(), "{missed:?}");
    daemon.stop();
}

fn workers_do_not_speak_to_the_manager() {
    let pool = Pool::new(&[]).set("env_inherit", "true");
    let (scene, _manager) = managed(Workspace::new(), &[pool]);
    scene.send(&["mode:note:env:NOTIFY_SOCKET,note:env:WATCHDOG_USEC"]);
    scene.all_done();
    let noted = ["env:NOTIFY_SOCKET=(none)", "env:WATCHDOG_USEC=(none)"];
    assert_eq!(scene.record().texts(Event::Noted), noted);
    scene.finish();
}
