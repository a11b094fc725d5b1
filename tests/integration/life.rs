//! The daemon's own life: stopped, killed, started again, doubled, reloaded.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{Event, NewMessage, Pool, Scene, Table, Workspace, field, trials};

trials![
    a_daemon_that_is_killed_leaves_no_worker_and_its_successor_goes_on,
    of_two_daemons_the_other_takes_over_at_once,
    a_stop_lets_work_in_flight_finish,
    a_stop_that_waits_for_work_is_idle,
    a_worker_that_ignores_everything_is_killed_and_its_message_goes_back,
    a_reload_changes_the_number_of_workers_under_load,
    a_reload_whose_source_cannot_be_opened_changes_nothing,
    a_pool_that_is_about_to_move_takes_further_changes_along,
];

fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

fn send(scene: &Scene, bodies: &[String]) {
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
}

fn a_daemon_that_is_killed_leaves_no_worker_and_its_successor_goes_on() {
    let pool = Pool::new(&["--v2=1"]).set("workers", "2");
    let scene = Scene::of(pool.clone());
    let slow = "mode:wait:go";
    scene.send(&[slow]);
    scene.begun(&[slow]);
    let bodies = bodies(500);
    send(&scene, &bodies);
    scene.daemon.crash();
    scene.site.touch("go");
    let successor = scene.site.start(&[pool]);
    successor.eventually("everything to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    let record = scene.record();
    assert!(
        bodies
            .iter()
            .all(|body| !record.of(Event::Done, body).is_empty()),
        "a message was lost"
    );
    record.assert_done_once(&[slow]);
    let attempts: Vec<Option<u32>> = record
        .of(Event::Began, slow)
        .iter()
        .map(|entry| entry.attempt)
        .collect();
    assert_eq!(
        attempts,
        [Some(1), Some(1)],
        "an owner that vanished charges nothing"
    );
    successor.stop();
}

fn of_two_daemons_the_other_takes_over_at_once() {
    let site = Workspace::new();
    let pool = Pool::new(&["--v2=1"]);
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    let other = scene.site.start(&[pool]);
    scene.daemon.crash();
    // Far sooner than the lease of half a minute, which would be the test's deadline.
    other.eventually("the other to begin it", || {
        scene.record().all(Event::Began).len() == 2
    });
    scene.site.touch("go");
    other.eventually("it to be done", || scene.table.count("work") == 0);
    assert_eq!(scene.table.dead(), []);
    other.stop();
}

fn a_stop_lets_work_in_flight_finish() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:wait:go", "never given to a worker"]);
    scene.begun(&["mode:wait:go"]);
    scene.daemon.signal(Signal::SIGTERM);
    scene
        .daemon
        .eventually("what no worker has to go back", || {
            scene
                .table
                .messages("work")
                .iter()
                .filter(|message| message.claimed)
                .count()
                == 1
        });
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    let left = scene.table.messages("work");
    assert_eq!(
        (left.len(), left[0].attempts, left[0].claimed),
        (1, 0, false),
        "{left:#?}"
    );
    scene.record().assert_done_once(&["mode:wait:go"]);
}

/// The memory of a worker that leaves is of no interest, though it was due to be looked at.
fn a_stop_that_waits_for_work_is_idle() {
    let scene = Scene::of(Pool::new(&[]).set("recycle", r#"{ memory = "8GiB" }"#));
    scene.send(&["mode:sleep:3000"]);
    scene.begun(&["mode:sleep:3000"]);
    scene.daemon.signal(Signal::SIGTERM);
    let before = scene.daemon.processor_time();
    scene.daemon.eventually("the work to be done", || {
        !scene.record().all(Event::Done).is_empty()
    });
    let used = scene.daemon.processor_time() - before;
    assert!(
        used < Duration::from_millis(500),
        "{used:?} in 3 seconds of waiting"
    );
    assert!(scene.daemon.exit().success());
}

fn a_worker_that_ignores_everything_is_killed_and_its_message_goes_back() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let scene = Scene::at(
        site,
        &[Pool::new(&["--stubborn"]).text("stop_timeout", "100ms")],
    );
    scene.send(&["mode:hang"]);
    scene.begun(&["mode:hang"]);
    scene.daemon.stop();
    let left = scene.table.messages("work");
    assert_eq!(
        (left.len(), left[0].attempts, left[0].claimed),
        (1, 0, false),
        "{left:#?}"
    );
    assert_eq!(
        scene.record().texts(Event::Told),
        ["__context_switch__", "__quit__"]
    );
}

fn a_reload_changes_the_number_of_workers_under_load() {
    let pool = |workers: u32| Pool::new(&[]).set("workers", &workers.to_string());
    let scene = Scene::of(pool(2));
    let other_queue = NewMessage::new("untouched").to("another");
    scene.table.insert(&[other_queue]);
    let bodies: Vec<String> = (0..600).map(|n| format!("mode:sleep:2 {n}")).collect();
    send(&scene, &bodies);
    for workers in [8, 1] {
        scene.site.reconfigure(&scene.daemon, &[pool(workers)]);
        scene.daemon.signal(Signal::SIGHUP);
        let wanted = usize::try_from(workers).unwrap();
        scene.daemon.eventually("the new number of workers", || {
            scene.daemon.processes().len() == wanted
        });
    }
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(
        scene.record().all(Event::Began).len(),
        600,
        "none was begun twice"
    );
    assert_eq!(scene.table.count("another"), 1);
    scene.finish();
}

fn a_reload_whose_source_cannot_be_opened_changes_nothing() {
    let scene = Scene::of(Pool::new(&[]));
    let config = std::fs::read_to_string(scene.daemon.config()).unwrap();
    let elsewhere = config.replace("queue.db", "missing/queue.db");
    std::fs::write(scene.daemon.config(), elsewhere).unwrap();
    scene.daemon.signal(Signal::SIGHUP);
    let refused = scene
        .daemon
        .logged("reload refused: starting a pool failed");
    assert!(
        field(&refused, "error").contains("missing/queue.db"),
        "{refused}"
    );
    scene.send(&["still there"]);
    scene.all_done();

    std::fs::create_dir(scene.site.path("missing")).unwrap();
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logged("pool stopped");
    let moved = Table::open(&scene.site.path("missing/queue.db"));
    moved.insert(&[NewMessage::new("moved")]);
    scene
        .daemon
        .eventually("the new table to be worked on", || moved.count("work") == 0);
    scene.record().assert_done_once(&["still there", "moved"]);
    scene.finish();
}

fn a_pool_that_is_about_to_move_takes_further_changes_along() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    let moved = Pool::new(&[]).text("queue", "another");
    for (times, workers) in [(1, "1"), (2, "3")] {
        let pool = moved.clone().set("workers", workers);
        scene.site.reconfigure(&scene.daemon, &[pool]);
        scene.daemon.signal(Signal::SIGHUP);
        scene.daemon.eventually("the reload", || {
            scene.daemon.times_logged("configuration reloaded") == times
        });
    }
    scene.site.touch("go");
    scene
        .daemon
        .eventually("the number of workers that was asked for last", || {
            scene.daemon.processes().len() == 3
        });
    scene.finish();
}
