//! Time in which the daemon does not run: SIGSTOP stands for a paused machine and for swap. It is nobody's
//! fault, and what workers did meanwhile counts.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::harness::{Event, Pool, Scene, Workspace, trials};

trials![
    what_was_done_while_the_daemon_stood_still_counts,
    what_was_done_while_the_daemon_stood_still_for_a_moment_counts,
    silence_that_the_daemon_could_not_hear_is_no_stall,
    what_stood_still_together_with_the_daemon_has_its_time_left,
    a_worker_that_connects_while_the_daemon_stands_still_is_in_time,
    a_stop_that_stands_still_gives_the_time_that_was_left,
];

const MADE_UP: &str = "the pool's event loop was stalled: deadlines are extended by that time";

/// Stops the daemon and has something happen meanwhile.
fn stand_still(scene: &Scene, time: Duration, meanwhile: impl FnOnce()) {
    let begun = Instant::now();
    scene.daemon.signal(Signal::SIGSTOP);
    meanwhile();
    let what = format!("{time:?} of a standstill");
    scene.daemon.eventually(&what, || begun.elapsed() >= time);
    scene.daemon.signal(Signal::SIGCONT);
}

/// Four of six workers are done while the daemon stands still for longer than they may take, and two have
/// nothing to do.
fn all_live(pool: &Pool, time: Duration) {
    let scene = Scene::of(pool.clone().set("workers", "6").attempts(1));
    let workers = scene.daemon.has_workers(6);
    // A fresh worker has the time of a start.
    let first: Vec<String> = (0..6).map(|n| format!("mode:wait:warm {n}")).collect();
    scene.send(&first);
    scene.begun(&first);
    scene.site.touch("warm");
    scene.all_done();
    let bodies: Vec<String> = (0..4).map(|n| format!("mode:wait:go {n}")).collect();
    scene.send(&bodies);
    scene.begun(&bodies);
    stand_still(&scene, time, || {
        scene.site.touch("go");
        scene.daemon.eventually("all to be done", || {
            scene.record().all(Event::Done).len() == 10
        });
    });
    scene.all_done();
    scene.send(&["and on"]);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(scene.record().all(Event::Began).len(), 11);
    assert_eq!(scene.daemon.workers_up(), workers, "none was killed");
    scene.finish();
}

fn what_was_done_while_the_daemon_stood_still_counts() {
    let pool = Pool::new(&[]).text("timeout", "1s");
    all_live(&pool.text("timeout_grace", "0s"), Duration::from_secs(4));
}

/// So short that it may be nothing but load: nothing is made up for, but the pipes are read first.
fn what_was_done_while_the_daemon_stood_still_for_a_moment_counts() {
    let pool = Pool::new(&["--v2=1"]).text("timeout", "500ms");
    all_live(
        &pool.text("timeout_grace", "0s"),
        Duration::from_millis(1200),
    );
}

fn silence_that_the_daemon_could_not_hear_is_no_stall() {
    let pool = Pool::new(&[]).text("stall_timeout", "1s");
    all_live(&pool, Duration::from_secs(4));
}

/// As in a machine that is paused. The workers go on last, with most of their time left.
fn what_stood_still_together_with_the_daemon_has_its_time_left() {
    let pool = Pool::new(&["--v2=2"]).set("workers", "2").attempts(1);
    let pool = pool.text("timeout", "4s").text("timeout_grace", "0s");
    let scene = Scene::of(pool.text("stall_timeout", "4s"));
    let workers = scene.daemon.has_workers(2);
    let signal = |signal| {
        let pids = workers.iter().map(|pid| Pid::from_raw(*pid));
        pids.for_each(|pid| kill(pid, signal).unwrap());
    };
    let bodies: Vec<String> = (0..4).map(|n| format!("mode:wait:go {n}")).collect();
    scene.send(&bodies);
    scene.begun(&bodies);
    stand_still(&scene, Duration::from_secs(6), || signal(Signal::SIGSTOP));
    scene.daemon.logged(MADE_UP);
    scene.site.touch("go");
    signal(Signal::SIGCONT);
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(scene.record().all(Event::Began).len(), 4);
    assert_eq!(scene.daemon.workers_up(), workers, "none was killed");
    scene.finish();
}

fn a_worker_that_connects_while_the_daemon_stands_still_is_in_time() {
    let site = Workspace::new();
    let script = format!(
        "touch '{0}/started'; until [ -e '{0}/go' ]; do sleep 0.05; done; exec \"$@\"",
        site.path("").display()
    );
    let worker = std::env::current_exe().unwrap();
    let args = [
        "-c",
        &script,
        "sh",
        worker.to_str().unwrap(),
        "modes-worker",
    ];
    let pool = Pool::of_program("/bin/sh", &args).text("start_timeout", "1s");
    let scene = Scene::at(site, &[pool]);
    scene.daemon.eventually("the worker to start", || {
        scene.site.path("started").exists()
    });
    stand_still(&scene, Duration::from_secs(4), || scene.site.touch("go"));
    scene.send(&["a"]);
    scene.all_done();
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

fn a_stop_that_stands_still_gives_the_time_that_was_left() {
    let site = Workspace::with_daemon(r#"drain_timeout = "2s""#);
    let scene = Scene::at(site, &[Pool::new(&["--v2=1"]).set("prefetch", "2")]);
    let claimed = |count| {
        scene.daemon.eventually("messages to be claimed", || {
            let rows = scene.table.messages("work");
            rows.iter().filter(|row| row.claimed).count() == count
        });
    };
    scene.send(&["mode:wait:go", "waits"]);
    scene.begun(&["mode:wait:go"]);
    claimed(2);
    scene.daemon.signal(Signal::SIGTERM);
    // The one that no worker has goes back when the stop begins.
    claimed(1);
    stand_still(&scene, Duration::from_secs(5), || scene.site.touch("go"));
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    scene.record().assert_done_once(&["mode:wait:go"]);
    let record = scene.record();
    let told = record.texts(Event::Told);
    let is_asked = told.iter().any(|line| line.starts_with("__cancel__"));
    assert!(!is_asked, "it had its time: {told:?}");
}
