//! What operators ask of a running daemon, by commands and by requests.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::time::Instant;

use super::{api, command, pool, scene, site, socket};
use crate::harness::{Api, Event, NewMessage, Pool, Scene, trials};
use crate::service::{Held, threads};

trials![
    a_pool_is_scaled_and_keeps_it_over_reloads_that_do_not_touch_it,
    a_pool_that_a_reload_replaces_is_steered_as_before,
    a_paused_pool_takes_nothing_in_and_goes_on_when_it_is_resumed,
    a_drained_pool_has_no_workers_until_it_is_resumed,
    a_pool_that_is_scaled_to_none_is_drained,
    a_killed_worker_costs_its_message_no_attempt,
    a_restart_replaces_the_workers,
    a_reload_says_what_it_did_or_why_not,
    a_reload_lists_what_has_changed_and_what_needs_a_restart,
    who_looks_at_the_configuration_reloads_nothing,
    what_the_last_worker_printed_is_shown_while_none_runs,
    the_status_is_shown_to_people_and_programs,
    readiness_says_what_is_wrong,
    a_daemon_that_stands_still_is_not_waited_for,
    events_go_on_where_a_listener_was,
    events_are_what_happened,
    a_listener_of_the_daemon_before_is_told_what_it_misses,
    a_thread_that_stands_still_is_found_and_holds_nobody_up,
    a_pool_that_stands_still_keeps_a_stop_from_nobody,
];

fn a_pool_is_scaled_and_keeps_it_over_reloads_that_do_not_touch_it() {
    let two = || Pool::new(&[]).set("workers", "2");
    let scene = scene(two());
    let api = api(&scene.daemon);
    let done = command(&scene, &["scale", "work", "4"]).good();
    assert!(done.contains("4 workers"), "{done}");
    scene.daemon.has_workers(4);
    let shown = pool(&api);
    assert_eq!(
        (&shown["workers_wanted"], &shown["workers_configured"]),
        (&4.into(), &2.into())
    );
    let status = command(&scene, &["status"]).good();
    assert!(
        status.contains("work: scaled to 4 worker(s); 2 configured"),
        "{status}"
    );
    scene
        .site
        .reconfigure(&scene.daemon, &[two().text("timeout", "40s")]);
    command(&scene, &["reload"]).good();
    assert_eq!(
        pool(&api)["workers_wanted"],
        4,
        "the reload did not touch it"
    );
    let three = two().text("timeout", "40s").set("workers", "3");
    scene.site.reconfigure(&scene.daemon, &[three]);
    command(&scene, &["reload"]).good();
    scene.daemon.has_workers(3);
    assert!(pool(&api)["scaled"].is_null());
    command(&scene, &["scale", "work", "1"]).good();
    scene.daemon.has_workers(1);
    command(&scene, &["scale", "work", "configured"]).good();
    scene.daemon.has_workers(3);
    let refused = command(&scene, &["scale", "work", "1025"]).bad(2);
    assert!(refused.contains("0..=1024"), "{refused}");
    scene.finish();
}

/// Another queue takes another source, and so another pool in its place.
fn a_pool_that_a_reload_replaces_is_steered_as_before() {
    let pool_of = |queue| Pool::new(&[]).text("queue", queue);
    let scene = scene(pool_of("work"));
    let api = api(&scene.daemon);
    let becomes = |successor: Pool, queue: &str, state: &str, workers: usize| {
        scene.site.reconfigure(&scene.daemon, &[successor]);
        command(&scene, &["reload"]).good();
        scene.daemon.eventually("its successor to be up", || {
            let shown = pool(&api);
            let up = shown["workers"].as_array().map_or(0, Vec::len);
            shown["queue"] == queue && shown["state"] == state && up == workers
        });
    };
    scene
        .table
        .insert(&[NewMessage::new("later").to("elsewhere")]);
    command(&scene, &["scale", "work", "3"]).good();
    command(&scene, &["pause", "work"]).good();
    scene.daemon.has_workers(3);

    becomes(pool_of("elsewhere"), "elsewhere", "paused", 3);
    scene.daemon.has_workers(3);
    let shown = pool(&api);
    assert_eq!(shown["scaled"], 3);
    assert_eq!(shown["counts"]["taken"], 0);
    let status = command(&scene, &["status"]).good();
    assert!(
        status.contains("work: scaled to 3 worker(s); 1 configured"),
        "{status}"
    );
    command(&scene, &["resume", "work"]).good();
    scene.daemon.eventually("the other queue's message", || {
        scene.table.count("elsewhere") == 0
    });
    scene.record().assert_done_once(&["later"]);

    command(&scene, &["drain", "work"]).good();
    // What a reload configures counts, as where nothing is replaced.
    becomes(pool_of("work").set("workers", "2"), "work", "drained", 0);
    assert!(pool(&api)["scaled"].is_null());
    command(&scene, &["resume", "work"]).good();
    scene.daemon.has_workers(2);

    // One that was removed and comes again has been asked for nothing.
    command(&scene, &["pause", "work"]).good();
    let other = pool_of("other").text("name", "other");
    scene.site.reconfigure(&scene.daemon, &[other]);
    command(&scene, &["reload"]).good();
    becomes(pool_of("work"), "work", "running", 1);
    scene.finish();
}

fn a_paused_pool_takes_nothing_in_and_goes_on_when_it_is_resumed() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    command(&scene, &["pause", "work"]).good();
    assert_eq!(pool(&api)["state"], "paused");
    assert_eq!(api.get("/readyz").status, 200, "it was asked for");
    scene.send(&["first", "second"]);
    // Over the same connection of the source: what it may take is told again.
    command(&scene, &["scale", "work", "2"]).good();
    scene.daemon.has_workers(2);
    assert_eq!(pool(&api)["counts"]["taken"], 0);
    command(&scene, &["resume", "work"]).good();
    scene.all_done();
    scene.record().assert_done_once(&["first", "second"]);
    scene.finish();
}

fn a_drained_pool_has_no_workers_until_it_is_resumed() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    let api = api(&scene.daemon);
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    command(&scene, &["drain", "work"]).good();
    scene
        .daemon
        .eventually("one is left", || scene.daemon.workers_up().len() == 1);
    assert_eq!(pool(&api)["state"], "draining");
    scene.site.touch("go");
    scene
        .daemon
        .eventually("drained", || pool(&api)["state"] == "drained");
    assert_eq!(
        pool(&api)["counts"]["done"],
        1,
        "what was in hand was finished"
    );
    scene.send(&["later"]);
    command(&scene, &["resume", "work"]).good();
    scene.all_done();
    scene.record().assert_done_once(&["mode:wait:go", "later"]);
    scene.finish();
}

fn a_pool_that_is_scaled_to_none_is_drained() {
    let scene = scene(Pool::new(&["--v2=1"]).set("prefetch", "3"));
    let api = api(&scene.daemon);
    let first = "mode:wait:go";
    scene.send(&[first, "second", "third"]);
    scene.begun(&[first]);
    let waits = || {
        let messages = scene.table.messages("work").into_iter();
        messages.filter(|message| !message.claimed).count()
    };
    command(&scene, &["scale", "work", "0"]).good();
    scene
        .daemon
        .eventually("what is not begun to go back", || waits() == 2);
    scene
        .daemon
        .eventually("draining", || pool(&api)["state"] == "draining");
    assert_eq!(api.get("/readyz").status, 200, "it was asked for");
    scene.site.touch("go");
    scene
        .daemon
        .eventually("drained", || pool(&api)["state"] == "drained");
    assert_eq!(api.get("/readyz").status, 200);
    command(&scene, &["resume", "work"]).good();
    scene.all_done();
    scene.record().assert_done_once(&[first, "second", "third"]);
    command(&scene, &["scale", "work", "0"]).good();
    command(&scene, &["scale", "work", "1"]).good();
    scene.send(&["fourth"]);
    scene.all_done();
    scene.finish();
}

fn a_killed_worker_costs_its_message_no_attempt() {
    let scene = scene(Pool::new(&[]).attempts(1));
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    let before = scene.daemon.has_workers(1);
    command(&scene, &["kill", "work", "0"]).good();
    let refused = command(&scene, &["kill", "work", "7"]).bad(1);
    assert!(refused.contains("no running worker in slot 7"), "{refused}");
    scene.site.touch("go");
    scene.all_done();
    assert_ne!(scene.daemon.has_workers(1), before);
    assert!(scene.table.dead().is_empty());
    assert_eq!(scene.record().of(Event::Done, "mode:wait:go").len(), 1);
    scene.finish();
}

fn a_restart_replaces_the_workers() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    let before = scene.daemon.has_workers(2);
    command(&scene, &["restart", "work"]).good();
    scene.send(&["a", "b", "c", "d"]);
    scene.daemon.logged("rolling restart completed");
    let after = scene.daemon.has_workers(2);
    assert!(
        after.iter().all(|pid| !before.contains(pid)),
        "{before:?} {after:?}"
    );
    scene.all_done();
    scene.finish();
}

fn a_reload_says_what_it_did_or_why_not() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    let done = command(&scene, &["reload"]).good();
    assert_eq!(done, "reloaded: 0 changes\n");
    let broken = Pool::new(&[]).text("timeout", "soon").set("workers", "0");
    scene.site.reconfigure(&scene.daemon, &[broken]);
    let refused = command(&scene, &["reload"]).bad(2);
    assert!(refused.contains("nothing has changed"), "{refused}");
    assert!(
        refused.contains("timeout") && refused.contains("workers"),
        "both are told: {refused}"
    );
    let told = api.post("/v1/reload", "");
    told.problem(422);
    assert_eq!(
        told.json()["errors"].as_array().unwrap().len(),
        2,
        "{told:?}"
    );
    let reload = || command(&scene, &["status", "--output", "json"]).json()["reload"].clone();
    let refused = reload();
    assert_eq!(
        (&refused["successful"], &refused["refused"]),
        (&false.into(), &2.into())
    );
    assert_eq!(refused["problems"], told.json()["errors"]);
    let status = command(&scene, &["status"]).good();
    assert!(status.contains("the last reload was refused "), "{status}");
    assert!(
        status.contains("pools.work.timeout must be a duration"),
        "{status}"
    );
    let metric = |value: &str| {
        let metrics = api.get("/metrics").body;
        let line = format!("\nganger_config_last_reload_successful {value}\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    };
    metric("0");
    // By a signal it is the same.
    scene.site.reconfigure(&scene.daemon, &[Pool::new(&[])]);
    scene.daemon.signal(Signal::SIGHUP);
    scene
        .daemon
        .eventually("the reload", || reload()["successful"] == true);
    metric("1");
    assert_eq!(reload()["problems"], serde_json::json!([]));
    scene.finish();
}

fn a_reload_lists_what_has_changed_and_what_needs_a_restart() {
    let scene = scene(Pool::new(&[]));
    let changed = Pool::new(&[]).set("workers", "2");
    let added = Pool::new(&[]).text("name", "added").text("queue", "added");
    scene.site.reconfigure(&scene.daemon, &[changed, added]);
    let config = scene.daemon.config();
    let text = std::fs::read_to_string(config).unwrap();
    let port = "listen = \"127.0.0.1:0\"";
    assert!(text.contains(port), "{text}");
    let other = text.replace(port, "listen = \"127.0.0.1:1\"");
    let other = other.replace("log_format = \"json\"", "log_format = \"text\"");
    let other = other.replace("log_level = \"debug\"", "log_level = \"info\"");
    std::fs::write(config, other).unwrap();
    let done = command(&scene, &["reload"]).good();
    let waits = "  needs a restart of the daemon: admin.listen\n  \
                 needs a restart of the daemon: daemon.log_format\n";
    let expected = format!(
        "reloaded: 3 changes; 2 setting(s) need a restart of the daemon\n  \
         changed: daemon.log_level\n  changed: pools.work.workers\n  added: pools.added\n{waits}"
    );
    assert_eq!(done, expected);
    let status = command(&scene, &["status"]).good();
    let needed = "a restart of the daemon is needed for admin.listen, daemon.log_format";
    assert!(status.contains(needed), "{status}");
    // It still is: nothing of it has taken effect.
    let again = command(&scene, &["reload"]).good();
    let expected =
        format!("reloaded: 0 changes; 2 setting(s) need a restart of the daemon\n{waits}");
    assert_eq!(again, expected);
    scene
        .daemon
        .logged("these settings take effect after a restart of the daemon");
    std::fs::write(config, text).unwrap();
    let back = command(&scene, &["reload", "--output", "json"]).json();
    assert_eq!(back["changed"], serde_json::json!(["daemon.log_level"]));
    assert_eq!(back["restart_needed"], serde_json::json!([]));
    scene.finish();
}

fn who_looks_at_the_configuration_reloads_nothing() {
    let secret = "token = \"a-token-that-nobody-may-see\"";
    let scene = Scene::at(site(secret), &[Pool::new(&[])]);
    let api = Api::Socket(socket(&scene.daemon));
    let shown = || {
        let shown = api.get("/v1/config");
        assert_eq!(shown.status, 200, "{shown:?}");
        assert!(!shown.body.contains("nobody-may-see"), "{shown:?}");
        shown.json()
    };
    let status = || api.get("/v1/status").json()["reload"].clone();
    let before = status();
    let one = shown();
    assert_eq!(one["settings"]["admin.token"], "\"${TOKEN}\"");
    assert_eq!(one["settings"]["pools.work.workers"], "1");
    assert_eq!(one["differences"]["changed"], serde_json::json!([]));
    let more = Pool::new(&[]).set("workers", "2");
    scene.site.reconfigure(&scene.daemon, &[more]);
    let changed = &shown()["differences"]["changed"];
    assert_eq!(*changed, serde_json::json!(["pools.work.workers"]));
    let broken = Pool::new(&[]).set("workers", "0");
    scene.site.reconfigure(&scene.daemon, &[broken]);
    let broken = shown();
    assert_eq!(broken["differences"], Value::Null);
    let problem = broken["problems"][0].as_str().unwrap();
    assert!(problem.contains("workers"), "{problem}");
    assert_eq!(status(), before);
    assert_eq!(
        scene
            .daemon
            .times_logged("reload refused: the configuration is invalid"),
        0
    );
    scene.finish();
}

fn what_the_last_worker_printed_is_shown_while_none_runs() {
    let long = r#"{ initial = "1h", max = "1h" }"#;
    let scene = scene(Pool::new(&["--start=exit:3"]).set("restart", long));
    let lost = scene.daemon.logged("worker lost");
    assert_eq!(lost["worker"], 0);
    let printed = command(&scene, &["output", "work", "0"]).good();
    assert!(
        printed.contains("stderr: this worker never starts\n"),
        "{printed}"
    );
    assert!(printed.contains("the worker has ended: "), "{printed}");
    assert!(printed.contains("code 3"), "{printed}");
    let json = command(&scene, &["output", "work", "0", "--output", "json"]).json();
    assert_eq!(
        json["stderr"],
        serde_json::json!(["this worker never starts"])
    );
    let none = command(&scene, &["output", "work", "7"]).bad(1);
    assert!(none.contains("no running worker in slot 7"), "{none}");
    scene.finish();
}

fn the_status_is_shown_to_people_and_programs() {
    let scene = scene(Pool::new(&[]).set("workers", "2"));
    let api = api(&scene.daemon);
    scene.daemon.has_workers(2);
    scene.send(&["one", "two", "mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    scene
        .daemon
        .eventually("two are done", || pool(&api)["counts"]["done"] == 2);
    let shown = command(&scene, &["status", "--workers"]).good();
    for part in [
        "POOL",
        "work",
        "running",
        "2/2",
        "MESSAGE AGE",
        "busy",
        "idle",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let status = command(&scene, &["status", "--output", "json"]).json();
    assert_eq!(status["pools"][0]["counts"]["done"], 2);
    assert_eq!(status["pools"][0]["unaccounted"], 0);
    for args in [
        &["status", "--pool", "play"][..],
        &["pause", "play"],
        &["scale", "play", "1"],
        &["kill", "play", "0"],
        &["output", "play", "0"],
    ] {
        let unknown = command(&scene, args).bad(2);
        let known = "there is no pool `play`; the pools are: work";
        assert!(unknown.contains(known), "{args:?}: {unknown}");
    }
    // However often it is asked, nobody sees another number.
    let counts = || pool(&api)["counts"].clone();
    assert_eq!(counts(), counts());
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn readiness_says_what_is_wrong() {
    let scene = scene(Pool::of_program("/nonexistent/program", &[]));
    let api = api(&scene.daemon);
    scene.daemon.eventually("it fails", || {
        let health = api.get("/readyz");
        health.status == 503 && health.body.contains("keep failing")
    });
    assert_eq!(api.get("/livez").status, 200);
    let unwell = command(&scene, &["health", "--ready"]).bad(1);
    assert!(unwell.contains("pool `work`"), "{unwell}");
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.exit();
}

/// The connection is made by the kernel; nobody answers.
fn a_daemon_that_stands_still_is_not_waited_for() {
    let scene = scene(Pool::new(&[]));
    scene.daemon.signal(Signal::SIGSTOP);
    let since = Instant::now();
    let args = ["health", "--timeout", "300ms"];
    let silent = command(&scene, &args).bad(1);
    assert!(silent.contains("no answer within 300ms"), "{silent}");
    let default = command(&scene, &["health"]).bad(1);
    assert!(default.contains("no answer within 5s"), "{default}");
    let waited = since.elapsed();
    assert!(waited < Duration::from_secs(30), "{waited:?}");
    scene.daemon.signal(Signal::SIGCONT);
    scene.finish();
}

fn events_go_on_where_a_listener_was() {
    let scene = scene(Pool::new(&[]));
    let api = api(&scene.daemon);
    let mut events = api.events(Some("0"));
    let (_, started) = events.next("worker_started");
    assert_eq!(started["pool"], "work");
    let is_running = || pool(&api)["state"] == "running";
    scene.daemon.eventually("it to run", is_running);
    command(&scene, &["scale", "work", "2"]).good();
    scene.daemon.has_workers(2);
    let (scaled, event) = events.next("scaled");
    assert_eq!(
        (&event["workers"], &event["before"]),
        (&2.into(), &1.into())
    );
    drop(events);
    // Both are over before anybody could look.
    command(&scene, &["pause", "work"]).good();
    command(&scene, &["resume", "work"]).good();
    let mut events = api.events(Some(&scaled));
    let states = [("paused", "running"), ("running", "paused")];
    for (state, before) in states {
        let (_, event) = events.next("pool_state");
        let told = (&event["state"], &event["before"]);
        assert_eq!(told, (&state.into(), &before.into()));
    }
    scene.finish();
}

/// Each worker's end, and each message, however fast one follows the other.
fn events_are_what_happened() {
    let scene = scene(Pool::new(&[]).set("crashes_max", "1").set("pipeline", "1"));
    let api = api(&scene.daemon);
    let bodies: Vec<String> = (0..3).map(|n| format!("mode:die:exit:7 {n}")).collect();
    scene.send(&bodies);
    scene
        .daemon
        .eventually("all are dead", || scene.table.dead().len() == bodies.len());
    let counted = || pool_counts(&api)["restarts"].as_u64().unwrap();
    scene
        .daemon
        .eventually("a worker to be up", || scene.daemon.workers_up().len() == 1);
    let (restarts, mut events) = (counted(), api.events(Some("0")));
    let (mut started, mut ended, mut dead) = (Vec::new(), Vec::new(), 0);
    while ended.len() < restarts.try_into().unwrap() || dead < 3 {
        let (_, event) = events.any();
        match event["event"].as_str().unwrap() {
            "worker_started" => started.push(event["pid"].clone()),
            "worker_ended" => {
                assert!(
                    event["cause"].as_str().unwrap().contains("code 7"),
                    "{event}"
                );
                ended.push(event["pid"].clone());
            }
            "dead_letters" => dead += event["count"].as_u64().unwrap(),
            _ => {}
        }
    }
    assert!(restarts >= 3, "{restarts}");
    assert_eq!(
        started[..ended.len()],
        ended[..],
        "each that was started, in order"
    );
    scene.finish();
}

fn pool_counts(api: &crate::harness::Api) -> serde_json::Value {
    pool(api)["counts"].clone()
}

fn a_listener_of_the_daemon_before_is_told_what_it_misses() {
    let site = super::site("socket = \"here.sock\"");
    let pools = [Pool::new(&[])];
    let old = site.start(&pools);
    let (id, _) = api(&old).events(Some("0")).next("worker_started");
    old.stop();
    let new = site.start(&pools);
    let mut events = api(&new).events(Some(&id));
    let (_, missed) = events.any();
    assert_eq!(
        (&missed["event"], &missed["count"]),
        (&"missed".into(), &serde_json::Value::Null)
    );
    let (_, started) = events.any();
    assert_eq!(started["event"], "pool_started", "from its beginning");
    new.stop();
}

/// The pool's own thread is held, so that it can neither say nor do anything.
fn a_thread_that_stands_still_is_found_and_holds_nobody_up() {
    let site = super::site_with(r#"stall_timeout = "3s""#, "");
    let scene = Scene::at(site, &[Pool::new(&[])]);
    let api = api(&scene.daemon);
    scene.send(&["one"]);
    scene.all_done();
    let threads = threads(&scene.daemon);
    let (thread, _) = threads
        .iter()
        .find(|(_, name)| name.starts_with("pool-"))
        .unwrap();
    let held = Held::new(*thread);
    let asked = Instant::now();
    assert_eq!(api.get("/v1/status").json()["pools"][0]["name"], "work");
    assert_eq!(api.get("/metrics").status, 200);
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "nobody waits for it"
    );
    api.post("/v1/pools/work/pause", "").problem(504);
    scene.daemon.eventually("it is missed", || {
        let health = api.get("/livez");
        health.status == 503
            && health
                .body
                .contains("the thread `pool-work` has been stalled")
    });
    let unwell = command(&scene, &["health"]).bad(1);
    assert!(unwell.contains("pool-work"), "{unwell}");
    held.let_go();
    scene
        .daemon
        .eventually("it turns", || api.get("/livez").status == 200);
    scene
        .daemon
        .eventually("what it was asked is done late", || {
            pool(&api)["state"] == "paused"
        });
    scene.finish();
}

/// More ask it how it stands than can wait for its answer.
fn a_pool_that_stands_still_keeps_a_stop_from_nobody() {
    let other = Pool::new(&[]).text("name", "z").text("queue", "z");
    let scene = Scene::at(super::site(""), &[Pool::new(&[]), other]);
    let api = api(&scene.daemon);
    scene.daemon.has_workers(2);
    let threads = threads(&scene.daemon);
    let is_its = |(_, name): &&(_, String)| name == "pool-work";
    let (thread, _) = threads.iter().find(is_its).unwrap();
    let held = Held::new(*thread);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(api.get("/metrics").status, 200)));
        }
    });
    scene.daemon.signal(Signal::SIGTERM);
    scene
        .daemon
        .logs("pool stopped", |record| record["pool"] == "z");
    scene.daemon.signal(Signal::SIGTERM);
    scene
        .daemon
        .logged("asked to stop again: next phase begins at once");
    held.let_go();
    assert!(scene.daemon.exit().success());
}
