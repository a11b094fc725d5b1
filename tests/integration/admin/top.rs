//! `ganger top` on a real terminal: what it shows of a real daemon, what its keys do, and how it
//! leaves.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{api, pool, scene, site};
use crate::harness::{EVIL, Pool, Scene, Seat, trials};

trials![
    pools_are_shown_and_steered_by_keys,
    a_daemon_that_goes_is_missed_until_it_is_back,
    a_refused_request_is_told,
    dead_letters_are_counted_by_error,
    any_size_will_do,
    what_workers_say_is_tame,
    a_signal_leaves_the_terminal_as_it_was,
    without_a_terminal_it_names_another_command,
];

const SMALL: (u16, u16) = (80, 24);
const ENTER: &str = "\r";
const TAB: &str = "\t";

fn top(scene: &Scene, size: (u16, u16)) -> Seat {
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let args = ["top", "--config", &config, "--interval", "100ms"];
    scene.site.seat(size, &args)
}

fn pools_are_shown_and_steered_by_keys() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    let api = api(&scene.daemon);
    let state = |wanted: &str| {
        let what = format!("the pool to be {wanted}");
        scene
            .daemon
            .eventually(&what, || pool(&api)["state"] == wanted);
    };
    let up = scene.daemon.has_workers(2);
    let mut top = top(&scene, SMALL);
    top.shows("work  running");
    top.shows(": ready");
    top.shows("workers: 2");
    top.shows(&up[0].to_string());

    top.press("p");
    top.shows("pause `work`: stop its intake, keep its workers? y/n");
    top.press("n");
    top.shows("q quit");
    assert_eq!(pool(&api)["state"], "running", "nothing was asked for");
    top.press("py");
    state("paused");
    top.shows("work  paused");
    top.shows("pool `work`: intake stopped");
    top.press("p");
    state("running");

    top.press("+");
    top.shows("scale `work` to 3 worker(s)?");
    top.press("+");
    top.shows("scale `work` to 4 worker(s)?");
    top.press(ENTER);
    top.shows("scale `work` to 4 worker(s)? configured: 2. y/n");
    top.press("y");
    scene.daemon.has_workers(4);
    top.shows("workers: 4");
    top.shows("scaled to 4 worker(s); 2 configured");
    top.press("sc");
    scene.daemon.has_workers(2);

    // The first in the list.
    let victim = pool(&api)["workers"][0].clone();
    let (slot, pid) = (&victim["slot"], &victim["pid"]);
    top.press(TAB);
    top.press("K");
    top.shows(&format!("kill worker {slot} of `work` (pid {pid})? y/n"));
    top.press("y");
    scene.daemon.eventually("another to take its place", || {
        let up = scene.daemon.workers_up();
        up.len() == 2 && !up.iter().any(|other| *pid == *other)
    });
    top.press("ry");
    scene.send(&["a", "b", "c", "d"]);
    scene.daemon.logged("rolling restart completed");
    top.press("dy");
    state("drained");
    top.shows("work  drained");
    top.press("p");
    state("running");
    top.press("q");
    assert_eq!(top.left().code(), Some(0));
    scene.finish();
}

fn a_daemon_that_goes_is_missed_until_it_is_back() {
    let site = site("socket = \"here.sock\"");
    let pools = [Pool::new(&[])];
    let scene = Scene::at(site, &pools);
    let mut top = top(&scene, SMALL);
    top.shows(": ready");
    scene.daemon.crash();
    top.shows(" is disconnected, this status is ");
    top.shows("work  running");
    let next = scene.site.start(&pools);
    top.shows(": ready");
    top.shows(&format!("pid {},", next.pid()));
    next.stop();
    top.shows(" is disconnected");
    // Ctrl-C.
    top.press("\u{3}");
    assert_eq!(top.left().code(), Some(0));
}

fn a_refused_request_is_told() {
    let scene = scene(Pool::new(&[]));
    let mut top = top(&scene, SMALL);
    top.shows(": ready");
    top.press("s");
    top.press("1025\r");
    top.shows("configured: 1. y/n");
    top.press("y");
    top.shows("can't scale `work` to 1025 worker(s): ");
    assert_eq!(pool(&api(&scene.daemon))["scaled"], Value::Null);
    top.press("q");
    assert_eq!(top.left().code(), Some(0));
    scene.finish();
}

fn dead_letters_are_counted_by_error() {
    let scene = scene(Pool::new(&[]).attempts(1));
    scene.send(&["mode:answer:400", "mode:answer:400", "mode:answer:500"]);
    scene.daemon.eventually("all to be dead", || {
        pool(&api(&scene.daemon))["counts"]["dead"] == 3
    });
    let mut top = top(&scene, (160, 30));
    top.shows("MEMORY");
    top.shows("MiB");
    top.press("e");
    top.shows("dead letters of work by error");
    top.shows("  2  rejected");
    top.shows("  1  failed");
    top.press("e");
    top.shows("workers: 1");
    top.press("q");
    assert_eq!(top.left().code(), Some(0));
    scene.finish();
}

fn any_size_will_do() {
    let scene = scene(Pool::new(&[]).set("workers", "30"));
    scene.daemon.has_workers(30);
    let mut top = top(&scene, SMALL);
    top.shows("workers 1 to ");
    for (columns, lines, part) in [
        (200, 50, "workers: 30"),
        (20, 5, "ganger "),
        (1, 1, "q"),
        (80, 24, "workers 1 to "),
    ] {
        top.resize(columns, lines);
        top.shows(part);
    }
    top.press("q");
    assert_eq!(top.left().code(), Some(0));
    scene.finish();
}

fn what_workers_say_is_tame() {
    let scene = scene(Pool::new(&[]));
    // A space ends the steps.
    let evil = EVIL.replace(' ', "_");
    scene.send(&[format!("mode:progress:{evil},wait:go")]);
    let mut top = top(&scene, (240, 50));
    top.shows("evil_\\u{1b}[2J\\u{9b}2J\\r\\nERROR_forged_\\u{202e}");
    scene.site.touch("go");
    scene.all_done();
    top.press("q");
    assert_eq!(top.left().code(), Some(0));
    scene.finish();
}

fn a_signal_leaves_the_terminal_as_it_was() {
    let scene = scene(Pool::new(&[]));
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let top = top(&scene, SMALL);
        top.shows(": ready");
        top.signal(signal);
        assert_eq!(top.left().code(), Some(0), "{signal}");
    }
    scene.finish();
}

fn without_a_terminal_it_names_another_command() {
    let scene = scene(Pool::new(&[]));
    let refused = super::command(&scene, &["top"]).bad(1);
    assert!(refused.contains("needs a terminal"), "{refused}");
    assert!(refused.contains("`ganger status`"), "{refused}");
    for interval in ["0s", "99ms", "2h", "soon"] {
        let refused = super::command(&scene, &["top", "--interval", interval]).bad(2);
        assert!(refused.contains("--interval"), "{refused}");
    }
    scene.finish();
}
