//! `--wait`: the outcome of what a command has asked for, as its exit code.

use nix::sys::signal::Signal;

use super::{command, scene};
use crate::harness::{Pool, Scene, trials};

trials![
    a_restart_is_waited_for_until_every_worker_is_new,
    a_restart_that_stops_is_a_failure,
    a_restart_that_takes_too_long_goes_on,
    a_scale_is_waited_for_until_the_workers_are_there,
    a_drain_is_waited_for_until_no_worker_is_left,
    a_reload_is_waited_for_until_every_pool_runs_by_it,
    a_reload_whose_workers_do_not_start_is_a_failure,
    a_reload_of_a_pool_that_was_broken_is_waited_for,
];

/// In time: a trial of a worker with nothing to do takes five seconds.
const PATIENT: &str = "1m";

fn roll_to(scene: &Scene, pool: &Pool) {
    scene
        .site
        .reconfigure(&scene.daemon, std::slice::from_ref(pool));
}

fn a_restart_is_waited_for_until_every_worker_is_new() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    let before = scene.daemon.has_workers(2);
    let args = ["restart", "work", "--wait", "--timeout", PATIENT];
    let done = command(&scene, &args).good();
    let expected =
        "pool `work`: its workers are being replaced\npool `work`: rolling restart completed\n";
    assert_eq!(done, expected);
    let after = scene.daemon.workers_up();
    assert_eq!(after.len(), 2);
    assert!(
        !after.iter().any(|pid| before.contains(pid)),
        "{before:?} {after:?}"
    );
    let args = [&args[..], &["--output", "json"]].concat();
    let told = command(&scene, &args).json();
    assert_eq!(
        (&told["outcome"], &told["roll"]),
        (&"done".into(), &2.into())
    );
    scene.finish();
}

fn a_restart_that_stops_is_a_failure() {
    let site = super::site("");
    let script = "if [ -e \"$(dirname \"$RECORD\")/broken\" ]; then exit 7; fi; exec \"$@\"";
    let worker = std::env::current_exe().unwrap();
    let args = [
        "-c",
        script,
        "sh",
        worker.to_str().unwrap(),
        crate::modes_worker::NAME,
    ];
    let scene = Scene::at(site, &[Pool::of_program("/bin/sh", &args)]);
    let before = scene.daemon.has_workers(1);
    scene.site.touch("broken");
    let args = ["restart", "work", "--wait"];
    let why = command(&scene, &args).bad(1);
    assert!(
        why.contains("pool `work`: its rolling restart has stopped"),
        "{why}"
    );
    assert!(why.contains("code 7"), "{why}");
    assert_eq!(scene.daemon.workers_up(), before);
    let told = command(&scene, &[&args[..], &["--output", "json"]].concat());
    assert_eq!(told.code, Some(1));
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!(told["outcome"], "failed");
    assert!(told["why"].as_str().unwrap().contains("code 7"), "{told}");
    scene.finish();
}

fn a_restart_that_takes_too_long_goes_on() {
    let scene = scene(Pool::new(&[]));
    let before = scene.daemon.has_workers(1);
    let args = ["restart", "work", "--wait", "--timeout", "1ms"];
    let late = command(&scene, &args).bad(3);
    assert!(late.contains("not done within 1ms"), "{late}");
    scene.daemon.logged("rolling restart completed");
    assert_ne!(scene.daemon.has_workers(1), before);
    let alone = command(&scene, &["restart", "work", "--timeout", "1s"]).bad(2);
    assert!(alone.contains("--wait"), "{alone}");
    scene.finish();
}

fn a_scale_is_waited_for_until_the_workers_are_there() {
    let scene = scene(Pool::new(&[]));
    scene.daemon.has_workers(1);
    let up = command(&scene, &["scale", "work", "3", "--wait"]).good();
    assert!(up.ends_with("pool `work`: 3 worker(s) are up\n"), "{up}");
    assert_eq!(scene.daemon.workers_up().len(), 3);
    command(&scene, &["scale", "work", "configured", "--wait"]).good();
    assert_eq!(scene.daemon.workers_up().len(), 1);
    let unknown = command(&scene, &["scale", "typo", "3", "--wait"]).bad(2);
    assert!(unknown.contains("there is no pool `typo`"), "{unknown}");
    scene.finish();
}

fn a_drain_is_waited_for_until_no_worker_is_left() {
    let scene = scene(Pool::new(&["--mode=wait:go"]));
    scene.send(&["one"]);
    scene.begun(&["one"]);
    let busy = ["drain", "work", "--wait", "--timeout", "100ms"];
    let late = command(&scene, &busy).bad(3);
    assert!(late.contains("1 worker(s) are left"), "{late}");
    scene.site.touch("go");
    let done = command(&scene, &["drain", "work", "--wait"]).good();
    assert!(done.ends_with("pool `work`: drained\n"), "{done}");
    assert!(scene.daemon.workers_up().is_empty());
    scene.all_done();
    scene.finish();
}

fn a_reload_is_waited_for_until_every_pool_runs_by_it() {
    let scene = scene(Pool::new(&[]));
    let before = scene.daemon.has_workers(1);
    let args = ["reload", "--wait"];
    command(&scene, &args).good();
    assert_eq!(scene.daemon.workers_up(), before);
    roll_to(&scene, &Pool::new(&["--mode=sleep:1"]).set("workers", "2"));
    let done = command(&scene, &args).good();
    assert!(
        done.ends_with("every pool runs by the new configuration\n"),
        "{done}"
    );
    let after = scene.daemon.workers_up();
    assert_eq!(after.len(), 2);
    assert!(!after.contains(&before[0]), "{before:?} {after:?}");
    // To another queue: another pool takes its place.
    roll_to(&scene, &Pool::new(&[]).text("queue", "other"));
    command(&scene, &args).good();
    let moved = scene.daemon.workers_up();
    assert_eq!(moved.len(), 1);
    assert!(!after.contains(&moved[0]), "{after:?} {moved:?}");
    roll_to(&scene, &Pool::new(&[]).set("workers", "0"));
    let refused = command(&scene, &args).bad(2);
    assert!(refused.contains("nothing has changed"), "{refused}");
    scene.finish();
}

fn a_reload_whose_workers_do_not_start_is_a_failure() {
    let scene = scene(Pool::new(&[]));
    let before = scene.daemon.has_workers(1);
    roll_to(&scene, &Pool::new(&["--start=exit:3"]));
    let why = command(&scene, &["reload", "--wait"]).bad(1);
    assert!(why.contains("code 3"), "{why}");
    assert_eq!(scene.daemon.workers_up(), before);
    // What stands still since then is no fault of a later one that leaves it alone.
    scene.daemon.signal(Signal::SIGUSR1);
    let done = command(&scene, &["reload", "--wait"]).good();
    assert!(done.contains("reloaded: 0 changes"), "{done}");
    scene.finish();
}

/// There is no old worker to keep: the first new one counts.
fn a_reload_of_a_pool_that_was_broken_is_waited_for() {
    let scene = scene(Pool::new(&["--start=exit:3"]));
    scene
        .daemon
        .logged("pool degraded: its workers keep failing; starting one at a time");
    roll_to(&scene, &Pool::new(&["--start=exit:4"]));
    let why = command(&scene, &["reload", "--wait"]).bad(1);
    assert!(
        why.contains("keep failing") && why.contains("code 4"),
        "{why}"
    );
    roll_to(&scene, &Pool::new(&[]));
    command(&scene, &["reload", "--wait"]).good();
    assert_eq!(scene.daemon.workers_up().len(), 1);
    scene.finish();
}
