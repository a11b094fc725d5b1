//! Pauses hold on over a restart, and for all daemons that share a table where that is asked.

use serde_json::{Value, json};

use super::{api, command, pool, scene, site};
use crate::harness::{Daemon, Pool, Scene, Workspace, trials};

trials![
    a_pause_outlasts_restarts_and_crashes,
    a_pause_that_can_not_be_kept_says_so,
    a_pause_of_all_daemons_holds_for_each_and_for_later_ones,
    what_was_done_is_told_to_programs_as_data,
];

fn start_again(site: &Workspace, daemon: &Daemon) -> Daemon {
    let config = daemon.config().file_name().unwrap().to_str().unwrap();
    site.start_as_it_is(config, &[])
}

/// A command that asks that daemon.
fn ask(site: &Workspace, daemon: &Daemon, args: &[&str]) -> crate::harness::Ran {
    let config = daemon.config().to_str().unwrap();
    site.ganger(&[args, &["--config", config]].concat())
}

/// Waits until the pool is in that state, once it has its source.
fn becomes(daemon: &Daemon, state: &str) -> Value {
    let api = api(daemon);
    daemon.eventually_some(&format!("the pool to be {state}"), || {
        Some(pool(&api)).filter(|shown| shown["state"] == state)
    })
}

fn a_pause_outlasts_restarts_and_crashes() {
    let scene = scene(Pool::new(&[]));
    let told = command(&scene, &["pause", "work"]).good();
    let on_one = "pool `work`: intake stopped, on 1 of 1 daemon(s) that share its table\n";
    assert_eq!(told, on_one);
    scene.send(&["first"]);
    scene.daemon.stop();
    let mut daemon = start_again(&scene.site, &scene.daemon);
    becomes(&daemon, "paused");
    daemon.crash();
    daemon = start_again(&scene.site, &scene.daemon);
    assert_eq!(becomes(&daemon, "paused")["counts"]["taken"], 0);
    ask(&scene.site, &daemon, &["drain", "work"]).good();
    daemon.stop();
    daemon = start_again(&scene.site, &scene.daemon);
    becomes(&daemon, "drained");
    ask(&scene.site, &daemon, &["resume", "work"]).good();
    daemon.eventually("it to be done", || scene.table.count("work") == 0);
    scene.record().assert_done_once(&["first"]);
    daemon.stop();
    daemon = start_again(&scene.site, &scene.daemon);
    becomes(&daemon, "running");
    daemon.stop();
}

/// A directory in the place of the file is no place for it.
fn a_pause_that_can_not_be_kept_says_so() {
    let scene = scene(Pool::new(&[]));
    let file = scene.daemon.config().with_extension("paused.json");
    std::fs::create_dir(&file).unwrap();
    std::fs::create_dir(file.join("in it")).unwrap();
    let told = command(&scene, &["pause", "work", "-o", "json"]).json();
    assert_eq!(told["outlasts_restart"], false, "{told}");
    let why = told["done"].as_str().unwrap();
    assert!(why.contains("does not outlast a restart"), "{told}");
    assert_eq!(pool(&api(&scene.daemon))["state"], "paused");
    command(&scene, &["resume", "work"]).good();
    scene.finish();
}

fn a_pause_of_all_daemons_holds_for_each_and_for_later_ones() {
    let work = Pool::new(&[]);
    let scene = Scene::at(site(""), std::slice::from_ref(&work));
    let second = scene.site.start(std::slice::from_ref(&work));
    let told = command(&scene, &["pause", "work"]).good();
    assert!(told.contains("on 1 of 2 daemon(s)"), "{told}");
    second.eventually("it to run on", || pool(&api(&second))["state"] == "running");
    command(&scene, &["resume", "work"]).good();
    let told = ask(&scene.site, &second, &["pause", "work", "--all"]).good();
    assert!(told.contains("on 2 of 2 daemon(s)"), "{told}");
    for daemon in [&scene.daemon, &second] {
        daemon.eventually("its pause", || pool(&api(daemon))["state"] == "paused");
    }
    scene.send(&["first", "second"]);
    let third = scene.site.start(&[work]);
    third.eventually("its pause", || pool(&api(&third))["state"] == "paused");
    let status = ask(&scene.site, &third, &["status"]).good();
    assert!(status.contains("paused on all daemons"), "{status}");
    let why = ask(&scene.site, &third, &["resume", "work"]).bad(1);
    assert!(why.contains("--all"), "{why}");
    for daemon in [&scene.daemon, &second, &third] {
        assert_eq!(pool(&api(daemon))["counts"]["taken"], 0);
    }
    let told = command(&scene, &["resume", "work", "--all"]).good();
    assert!(told.contains("on 3 of 3 daemon(s)"), "{told}");
    scene.all_done();
    scene.record().assert_done_once(&["first", "second"]);
    for daemon in [&scene.daemon, &second, &third] {
        daemon.eventually("it to run", || pool(&api(daemon))["state"] == "running");
    }
    second.stop();
    third.stop();
    scene.finish();
}

fn what_was_done_is_told_to_programs_as_data() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    scene.daemon.has_workers(2);
    let told = |args: &[&str]| {
        let mut told = command(&scene, &[args, &["-o", "json"]].concat()).json();
        assert!(told["done"].is_string(), "{told}");
        told.as_object_mut().unwrap().remove("done");
        told
    };
    let work = "work";
    let paused = json!({
        "pool": work, "daemons": 1, "daemons_of_table": 1, "outlasts_restart": true,
    });
    assert_eq!(told(&["pause", work]), paused);
    assert_eq!(told(&["resume", work, "--all"]), paused);
    assert_eq!(
        told(&["scale", work, "3"]),
        json!({ "pool": work, "workers": 3 })
    );
    assert_eq!(
        told(&["kill", work, "0"]),
        json!({ "pool": work, "slot": 0 })
    );
    assert_eq!(told(&["restart", work]), json!({ "pool": work, "roll": 1 }));
    command(&scene, &["pause", work]).good();
    scene
        .table
        .insert(&[crate::harness::NewMessage::new("a").correlation_id("c")]);
    let cancelled = json!({ "pool": work, "in_hand": 0, "waiting": 1 });
    assert_eq!(told(&["cancel", work, "c"]), cancelled);
    scene.finish();
}
