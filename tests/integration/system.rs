//! What the daemon has of the system and gives back to it: open files, its children's ends, the
//! orphans of a container, what a killed daemon has left; and that it obeys while it starts.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Daemon, Event, Launch, NewMessage, Pool, Scene, Table, Workspace, trials};

trials![
    four_hundred_workers_start_under_a_soft_limit_of_1024_files,
    a_worker_gets_the_limit_of_files_that_the_daemon_was_started_with,
    how_a_worker_ended_is_known_though_sigchld_was_ignored,
    as_pid_1_it_reaps_orphans_and_knows_how_its_workers_ended,
    as_pid_1_it_reaps_what_an_entrypoint_has_left,
    as_pid_1_it_obeys_signals_and_drains,
    as_pid_1_without_privileges_it_reaps_and_drains,
    what_a_killed_daemon_left_is_swept_up,
    pools_on_files_of_their_own_wake_at_once_whatever_the_number_of_inotify_instances,
    without_inotify_tables_are_polled_and_that_is_said_once,
    what_it_makes_is_for_its_user_alone,
    a_configuration_that_others_may_write_is_warned_of,
    a_start_that_waits_for_a_broker_tells_its_status_and_stops,
    a_reload_that_waits_for_a_broker_holds_up_nothing,
];

fn launched(pool: Pool, through: &'static [&'static str]) -> Scene {
    let site = Workspace::new();
    let launch = Launch {
        through,
        ..Launch::default()
    };
    let daemon = site.launch(&[pool], launch);
    let table = site.table();
    Scene {
        daemon,
        table,
        site,
    }
}

const SOFT_LIMIT: &[&str] = &["sh", "-c", r#"ulimit -S -n 1024; exec "$0" "$@""#];

fn four_hundred_workers_start_under_a_soft_limit_of_1024_files() {
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "400")
        .text("start_timeout", "2m");
    let scene = launched(pool, SOFT_LIMIT);
    scene.daemon.has_workers(400);
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

fn a_worker_gets_the_limit_of_files_that_the_daemon_was_started_with() {
    let scene = launched(Pool::new(&[]), SOFT_LIMIT);
    scene.send(&["mode:note:open-files"]);
    scene.all_done();
    assert_eq!(scene.record().texts(Event::Noted), ["open-files=1024"]);
    scene.finish();
}

fn crashing() -> Pool {
    Pool::new(&["--v2=1"]).attempts(1)
}

/// Sees that all these messages are dead because their workers exited with code 7.
fn all_died_of_code_7(scene: &Scene, count: usize) {
    scene.settled();
    let codes: Vec<Option<i32>> = scene
        .table
        .dead()
        .iter()
        .map(|dead| dead.exit_code)
        .collect();
    assert_eq!(codes, vec![Some(7); count]);
}

fn how_a_worker_ended_is_known_though_sigchld_was_ignored() {
    let scene = launched(crashing(), &["sh", "-c", r#"trap "" CHLD; exec "$0" "$@""#]);
    scene.send(&["mode:die:exit:7"]);
    all_died_of_code_7(&scene, 1);
    scene.finish();
}

fn as_pid_1_it_reaps_orphans_and_knows_how_its_workers_ended() {
    let scene = launched(crashing(), PID_1);
    let bodies: Vec<String> = (0..5)
        .map(|n| format!("mode:fork:session,die:exit:7 {n}"))
        .collect();
    scene.send(&bodies);
    all_died_of_code_7(&scene, bodies.len());
    let processes = scene.daemon.processes();
    let orphans = processes.iter().filter(|it| it.command.contains("sleep"));
    let orphans: Vec<i32> = orphans.map(|it| it.pid).collect();
    assert!(orphans.len() >= bodies.len(), "{processes:#?}");
    for orphan in &orphans {
        kill(Pid::from_raw(*orphan), Signal::SIGKILL).unwrap();
    }
    // A zombie is still there.
    scene.daemon.eventually("the orphans to be reaped", || {
        let is_there = |pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
        !orphans.iter().any(is_there)
    });
    signal_pid_1(&scene, Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
}

const PID_1: &[&str] = &["unshare", "-p", "-f", "--kill-child", "--mount-proc"];

/// An entrypoint whose child has ended, and that becomes the daemon without having reaped it.
const PID_1_AFTER_AN_ENTRYPOINT: &[&str] = &[
    "unshare",
    "-p",
    "-f",
    "--kill-child",
    "--mount-proc",
    "python3",
    "-c",
    "import os, sys\n\
     pid = os.fork() or os._exit(0)\n\
     os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n\
     os.execv(sys.argv[1], sys.argv[1:])",
];

/// As whom a container without privileges runs its first process.
const PID_1_UNPRIVILEGED: &[&str] = &[
    "unshare",
    "-U",
    "-r",
    "-p",
    "-f",
    "--kill-child",
    "--mount-proc",
];

/// To the daemon itself rather than to `unshare`, which waits for it.
fn signal_pid_1(scene: &Scene, signal: Signal) {
    kill(only_child(scene.daemon.pid()), signal).unwrap();
}

/// The dead among the daemon's children that nobody has reaped.
fn zombies(daemon: Pid) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stats = children.split_whitespace().map(stat);
    stats.filter(|stat| stat.contains(") Z ")).collect()
}

fn as_pid_1_it_reaps_what_an_entrypoint_has_left() {
    let scene = launched(Pool::new(&[]), PID_1_AFTER_AN_ENTRYPOINT);
    assert_eq!(zombies(only_child(scene.daemon.pid())), [""; 0]);
    scene.send(&["work"]);
    scene.all_done();
    signal_pid_1(&scene, Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
}

fn as_pid_1_it_obeys_signals_and_drains() {
    drains_as_pid_1(PID_1);
}

fn as_pid_1_without_privileges_it_reaps_and_drains() {
    drains_as_pid_1(PID_1_UNPRIVILEGED);
}

/// Every signal is obeyed, though the kernel keeps from process 1 what it has no handler for.
fn drains_as_pid_1(through: &'static [&'static str]) {
    let scene = launched(Pool::new(&["--v2=1"]), through);
    let daemon = only_child(scene.daemon.pid());
    scene.send(&["mode:fork:session,wait:go,answer:200"]);
    scene.begun(&["mode:fork:session,wait:go,answer:200"]);
    signal_pid_1(&scene, Signal::SIGUSR1);
    scene.daemon.logged("status of the worker");
    signal_pid_1(&scene, Signal::SIGHUP);
    scene.daemon.logged("configuration reloaded");
    signal_pid_1(&scene, Signal::SIGTERM);
    scene
        .daemon
        .logged("stopping: messages in hand are finished first");
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    assert!(!Path::new(&format!("/proc/{daemon}")).exists());
    scene.all_done();
    scene.daemon.leaves_nothing();
}

fn only_child(pid: Pid) -> Pid {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap())
}

fn what_a_killed_daemon_left_is_swept_up() {
    let site = Workspace::new();
    let pool = Pool::new(&["--start=idle"]).set("workers", "3");
    let daemon = site.start(std::slice::from_ref(&pool));
    let pipes = daemon.eventually_some("workers with their pipes", || {
        let workers = daemon.processes();
        let pipes: Vec<PathBuf> = workers.iter().filter_map(|it| pipe_of(it.pid)).collect();
        Some(pipes).filter(|pipes| pipes.len() == 3)
    });
    let left = || pipes.iter().filter(|pipe| pipe.exists()).count();
    daemon.crash();
    assert_eq!(left(), 3);
    let touch = Command::new("touch")
        .args(["-d", "5 minutes ago"])
        .args(&pipes)
        .status();
    assert!(touch.unwrap().success());
    let successor = site.start(&[pool]);
    successor.eventually("them to be removed", || left() == 0);
    successor.stop();
}

fn pipe_of(pid: i32) -> Option<PathBuf> {
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
    let pipe = environment
        .split('\0')
        .find_map(|it| it.strip_prefix("GANGER_PIPE="));
    pipe.map(PathBuf::from)
}

const ONE_INOTIFY: &[&str] = &[
    "unshare",
    "-U",
    "-r",
    "sh",
    "-c",
    r#"echo 1 > /proc/sys/user/max_inotify_instances; exec "$0" "$@""#,
];
const NO_INOTIFY: &[&str] = &[
    "unshare",
    "-U",
    "-r",
    "sh",
    "-c",
    r#"echo 0 > /proc/sys/user/max_inotify_instances; exec "$0" "$@""#,
];

/// A daemon that may have so many inotify instances, with a pool on each of four files.
fn on_files_of_their_own(
    through: &'static [&'static str],
    poll_interval: &str,
) -> (Workspace, Daemon) {
    let source = |n: u32| {
        format!(
            "[sources.s{n}]\nkind = \"table\"\nurl = \"sqlite:{n}.db\"\n\
             poll_interval = \"{poll_interval}\"\n"
        )
    };
    let pool = |n: u32| {
        let pool = Pool::new(&["--v2=1"]).text("name", &format!("p{n}"));
        pool.text("source", &format!("s{n}"))
    };
    let site = Workspace::with_sections(&(0..4).map(source).collect::<String>());
    let launch = Launch {
        through,
        ..Launch::default()
    };
    let daemon = site.launch(&(0..4).map(pool).collect::<Vec<_>>(), launch);
    daemon.has_workers(4);
    (site, daemon)
}

const UNTOLD: &str = "file events are not available: tables are only polled";

fn pools_on_files_of_their_own_wake_at_once_whatever_the_number_of_inotify_instances() {
    let (site, daemon) = on_files_of_their_own(ONE_INOTIFY, "60s");
    // What is done by the poll comes half a minute later on average.
    for round in 0..3 {
        for n in 0..4 {
            let table = Table::open(&site.path(&format!("{n}.db")));
            table.insert(&[NewMessage::new(&format!("{round} {n}"))]);
            let what = format!("round {round} on file {n}");
            daemon.within(Duration::from_secs(20), &what, || table.count("work") == 0);
        }
    }
    assert_eq!(daemon.times_logged(UNTOLD), 0);
    daemon.stop();
}

fn without_inotify_tables_are_polled_and_that_is_said_once() {
    let (site, daemon) = on_files_of_their_own(NO_INOTIFY, "50ms");
    for n in 0..4 {
        let table = Table::open(&site.path(&format!("{n}.db")));
        table.insert(&[NewMessage::new("polled for")]);
        daemon.eventually("it to be done", || table.count("work") == 0);
    }
    assert_eq!(daemon.times_logged(UNTOLD), 1);
    daemon.stop();
}

fn what_it_makes_is_for_its_user_alone() {
    for (setting, file, directory) in [("", 0o600, 0o700), ("mode = \"0660\"", 0o660, 0o770)] {
        let scene = Scene::at(Workspace::with_source(setting), &[Pool::new(&[])]);
        scene.send(&["work"]);
        scene.all_done();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let files = ["queue.db", "queue.db-wal", "queue.db-shm"];
        assert_eq!(files.map(|name| mode(&scene.site.path(name))), [file; 3]);
        let locks = scene.site.path("queue.db.owners");
        assert_eq!(mode(&locks), directory);
        let lock = fs::read_dir(&locks).unwrap().next().unwrap().unwrap();
        assert_eq!(mode(&lock.path()), file);
        scene.finish();
    }
}

fn a_configuration_that_others_may_write_is_warned_of() {
    let site = Workspace::new();
    let pool = [Pool::new(&[]).env("API_TOKEN", "hunter2")];
    site.configure_commands(&pool);
    let config = site.path("ganger.toml");
    for (mode, warned) in [
        (0o666, "is writable by others"),
        (0o644, "holds secrets and is readable by others"),
        (0o600, "valid"),
    ] {
        fs::set_permissions(&config, fs::Permissions::from_mode(mode)).unwrap();
        let told = site.ganger(&["check", "-o", "json"]).json();
        assert!(told.to_string().contains(warned), "{mode:o}: {told}");
        let warnings = told["warnings"].as_array().unwrap().len();
        assert_eq!(warnings, usize::from(mode != 0o600), "{told}");
    }
    // The harness writes its file as the umask has it, for others to read.
    let daemon = site.start(&pool);
    daemon.logs("the configuration is valid, but risky", |record| {
        let warning = record["warning"].as_str().unwrap_or_default();
        warning.starts_with("the configuration holds secrets and is readable by others")
    });
    daemon.stop();
}

/// A broker that takes connections and says nothing, and the section of a source there.
pub(crate) fn silent_broker() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let section = format!(
        "[sources.silent]\nkind = \"rabbitmq\"\nconnect_timeout = \"1h\"\n\
         url = \"amqp://guest:guest@127.0.0.1:{port}/\"\n"
    );
    (listener, section)
}

fn a_start_that_waits_for_a_broker_tells_its_status_and_stops() {
    let (listener, section) = silent_broker();
    let site = Workspace::with_sections(&section);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut daemon = site.start_unheard(&[Pool::new(&[])], writer);
    daemon.listen(reader);
    let _connection = listener.accept().unwrap();
    daemon.signal(Signal::SIGUSR1);
    daemon.logged("status of the daemon");
    daemon.stop();
}

fn a_reload_that_waits_for_a_broker_holds_up_nothing() {
    let (listener, silent) = silent_broker();
    let table = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";
    let site = Workspace::with_sections(&format!("{table}{silent}"));
    let pool = Pool::new(&[]).text("source", "main");
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let waiting = Pool::new(&[])
        .text("name", "waiting")
        .text("source", "silent");
    scene
        .site
        .reconfigure(&scene.daemon, &[pool.clone(), waiting]);
    scene.daemon.signal(Signal::SIGHUP);
    let _connection = listener.accept().unwrap();
    scene.daemon.signal(Signal::SIGUSR1);
    scene.daemon.logged("status of the pool");
    scene.send(&["work"]);
    scene.all_done();
    // What is asked for meanwhile comes after it.
    scene.site.reconfigure(&scene.daemon, &[pool]);
    scene.daemon.signal(Signal::SIGHUP);
    scene
        .daemon
        .logged("reload is waiting for the previous one");
    scene.finish();
}
