//! How a pool keeps its workers: replaced in time, restarted with patience, never all waiting
//! behind one slow message.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Event, Pool, Scene, Workspace, field, said, trials};
use crate::modes_worker;

trials![
    a_worker_is_recycled_after_its_tasks,
    a_worker_is_recycled_at_its_age,
    a_worker_is_recycled_at_its_size_between_messages,
    workers_that_never_start_degrade_the_pool_until_they_are_mended,
    a_program_that_is_not_there_degrades_the_pool,
    workers_that_crash_over_every_message_degrade_the_pool_until_they_are_mended,
    workers_that_answer_once_and_end_degrade_the_pool,
    workers_that_hand_messages_back_and_end_degrade_the_pool,
    one_message_never_degrades_a_pool,
    messages_that_take_too_long_never_degrade_a_pool,
    a_worker_that_never_connects_is_given_up_and_holds_up_no_other_pool,
    an_idle_worker_that_is_killed_is_replaced,
    none_waits_behind_a_slow_message_in_turn,
    none_waits_behind_a_slow_message_in_a_pipeline,
    none_waits_behind_a_slow_message_with_an_automatic_window,
];

const DEGRADED: &str = "pool degraded: its workers keep failing; starting one at a time";

fn a_worker_is_recycled_after_its_tasks() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).set("recycle", "{ tasks = 5, jitter = 0.0 }"));
    let bodies: Vec<String> = (0..17).map(|n| format!("message {n}")).collect();
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&bodies);
    assert_eq!(record.all(Event::Began).len(), 17, "none was begun twice");
    let mut pids: Vec<i32> = record
        .all(Event::Done)
        .iter()
        .map(|entry| entry.pid)
        .collect();
    let runs: Vec<usize> = pids.chunk_by(|a, b| a == b).map(<[i32]>::len).collect();
    assert_eq!(runs, [5, 5, 5, 2]);
    pids.dedup();
    assert_eq!(pids.len(), 4);
    assert_eq!(
        scene.daemon.times_logged("worker lost"),
        0,
        "recycling is orderly"
    );
    scene.finish();
}

fn a_worker_is_recycled_at_its_age() {
    let scene = Scene::of(Pool::new(&[]).set("recycle", r#"{ age = "1s", jitter = 0.0 }"#));
    scene.send(&["mode:wait:go"]);
    scene.begun(&["mode:wait:go"]);
    // Its time comes while it works: it finishes first.
    scene.daemon.logged("recycling the worker");
    scene.site.touch("go");
    scene.all_done();
    scene.send(&["another"]);
    scene.all_done();
    different_workers_did(&scene, "mode:wait:go", "another");
    scene.finish();
}

fn different_workers_did(scene: &Scene, first: &str, second: &str) {
    let record = scene.record();
    record.assert_done_once(&[first, second]);
    assert_eq!(record.all(Event::Began).len(), 2, "none was begun twice");
    assert_ne!(
        record.of(Event::Done, first)[0].pid,
        record.of(Event::Done, second)[0].pid
    );
    assert_eq!(
        scene.daemon.times_logged("worker lost"),
        0,
        "recycling is orderly"
    );
}

fn a_worker_is_recycled_at_its_size_between_messages() {
    let scene = Scene::of(Pool::new(&[]).set("recycle", r#"{ memory = "100MiB" }"#));
    scene.send(&["mode:memory:128,wait:go"]);
    scene.daemon.logged("recycling the worker");
    scene.site.touch("go");
    scene.all_done();
    scene.send(&["another"]);
    scene.all_done();
    different_workers_did(&scene, "mode:memory:128,wait:go", "another");
    scene.finish();
}

/// A script that starts the tests' worker, or does not.
fn script(site: &Workspace, text: &str) -> String {
    site.put("worker.sh", &format!("#!/bin/sh\n{text}\n"), true);
    site.path("worker.sh").to_str().unwrap().to_owned()
}

fn workers_that_never_start_degrade_the_pool_until_they_are_mended() {
    let site = Workspace::new();
    let broken = script(&site, "echo no such library >&2; exit 3");
    let scene = Scene::at(site, &[Pool::of_program(&broken, &[]).set("workers", "3")]);
    let degraded = scene.daemon.logged(DEGRADED);
    assert!(field(&degraded, "cause").contains("code 3"), "{degraded}");
    scene.send(&["a", "b", "c"]);
    nothing_is_pulled(&scene);
    let worker = std::env::current_exe().unwrap();
    script(
        &scene.site,
        &format!("exec '{}' {}", worker.display(), modes_worker::NAME),
    );
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&["a", "b", "c"]);
    let attempts: Vec<Option<u32>> = record
        .all(Event::Began)
        .iter()
        .map(|entry| entry.attempt)
        .collect();
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.is_none_or(|attempt| attempt == 1)),
        "{attempts:?}"
    );
    scene.daemon.eventually("all workers to be up", || {
        scene.daemon.times_logged("worker up") >= 3
    });
    scene.finish();
}

/// Several more starts fail, and all the while no message is claimed or charged.
fn nothing_is_pulled(scene: &Scene) {
    let lost = scene.daemon.times_logged("worker lost");
    scene.daemon.eventually("several more starts", || {
        let waiting = scene.table.messages("work");
        let untouched = waiting
            .iter()
            .all(|message| message.attempts == 0 && !message.claimed);
        assert!(untouched && !waiting.is_empty(), "{waiting:#?}");
        scene.daemon.times_logged("worker lost") >= lost + 4
    });
}

fn a_program_that_is_not_there_degrades_the_pool() {
    let scene = Scene::of(Pool::of_program("/nonexistent/worker", &[]));
    let degraded = scene.daemon.logged(DEGRADED);
    assert!(
        field(&degraded, "cause").contains("/nonexistent/worker"),
        "{degraded}"
    );
    scene.send(&["a"]);
    nothing_is_pulled(&scene);
    scene.finish();
}

fn workers_that_crash_over_every_message_degrade_the_pool_until_they_are_mended() {
    let scene = Scene::of(
        Pool::new(&[])
            .set("workers", "4")
            .attempts(100)
            .set("crashes_max", "100"),
    );
    let bodies: Vec<String> = (0..12)
        .map(|n| format!("mode:die-unless:mended {n}"))
        .collect();
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    scene.daemon.logged(DEGRADED);
    let claimed = || {
        scene
            .table
            .messages("work")
            .iter()
            .filter(|message| message.claimed)
            .count()
    };
    scene
        .daemon
        .eventually("what was out to be back", || claimed() <= 1);
    let lost = scene.daemon.times_logged("worker lost");
    scene
        .daemon
        .eventually("several more crashes, one probe at a time", || {
            assert!(claimed() <= 1);
            scene.daemon.times_logged("worker lost") >= lost + 3
        });
    scene.site.touch("mended");
    scene.all_done();
    scene.daemon.logged("pool recovered");
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

/// Each fails what it gets, and ends for what no message has.
fn workers_that_answer_once_and_end_degrade_the_pool() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "3"));
    let bodies: Vec<String> = (0..12)
        .map(|n| format!("mode:answer:500,die:exit:1 {n}"))
        .collect();
    scene.send(&bodies);
    scene.daemon.logged(DEGRADED);
    scene.send(&["good"]);
    scene.settled();
    scene.daemon.logged("pool recovered");
    scene.record().assert_done_once(&["good"]);
    assert_eq!(scene.table.dead().len(), bodies.len());
    scene.finish();
}

fn workers_that_hand_messages_back_and_end_degrade_the_pool() {
    let scene = Scene::of(Pool::new(&["--mode=answer:300,die:exit:1"]));
    scene.send(&["a", "b", "c", "d", "e", "f"]);
    scene.daemon.logged(DEGRADED);
    scene.daemon.stop();
    let waiting = scene.table.messages("work");
    let untouched = waiting.iter().filter(|message| message.attempts == 0);
    assert_eq!(untouched.count(), 6, "{waiting:#?}");
}

/// However its workers end over it, and however often: it is the message's fault.
fn one_message_never_degrades_a_pool() {
    for body in ["mode:garbage,hang", "mode:answer:500,die:exit:1"] {
        let scene = Scene::of(Pool::new(&[]).attempts(12));
        scene.send(&[body]);
        assert_eq!(scene.one_dead().attempts, 12);
        scene.daemon.eventually("each worker to be lost", || {
            scene.daemon.times_logged("worker lost") == 12
        });
        assert_eq!(scene.daemon.times_logged(DEGRADED), 0);
        scene.finish();
    }
}

/// They have a breaker of their own.
fn messages_that_take_too_long_never_degrade_a_pool() {
    let pool = Pool::new(&[]).set("workers", "2").attempts(1);
    let pool = pool.text("timeout", "100ms").text("timeout_grace", "0s");
    let scene = Scene::of(pool);
    let slow: Vec<String> = (0..8).map(|n| format!("mode:hang {n}")).collect();
    scene.send(&slow);
    scene.send(&["a", "b"]);
    scene.settled();
    assert_eq!(scene.table.dead().len(), slow.len());
    assert_eq!(scene.daemon.times_logged(DEGRADED), 0);
    scene.record().assert_done_once(&["a", "b"]);
    scene.finish();
}

fn a_worker_that_never_connects_is_given_up_and_holds_up_no_other_pool() {
    let idle = Pool::new(&["--start=idle"])
        .text("name", "idle")
        .text("queue", "idle");
    let scene = Scene::with(&[idle.text("start_timeout", "300ms"), Pool::new(&[])]);
    scene.send(&["a"]);
    scene.all_done();
    let lost = scene.daemon.logged("worker lost");
    assert!(field(&lost, "cause").contains("did not connect"), "{lost}");
    scene.finish();
}

fn an_idle_worker_that_is_killed_is_replaced() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "2"));
    scene.daemon.eventually("both workers", || {
        scene.daemon.times_logged("worker up") == 2
    });
    for process in scene.daemon.processes() {
        kill(Pid::from_raw(process.pid), Signal::SIGKILL).unwrap();
    }
    scene.daemon.eventually("both to be replaced", || {
        scene.daemon.times_logged("worker up") == 4
    });
    scene.send(&["a", "b"]);
    scene.all_done();
    assert_eq!(
        scene
            .daemon
            .records(|record| said(record, "attempt failed"))
            .len(),
        0
    );
    scene.finish();
}

fn none_waits_behind_a_slow_message_in_turn() {
    let scene = Scene::of(Pool::new(&[]).set("workers", "2").set("pipeline", "1"));
    let fast: Vec<String> = (0..100).map(|n| format!("fast {n}")).collect();
    let all = ["mode:wait:go"]
        .into_iter()
        .chain(fast.iter().map(String::as_str));
    scene.send(&all.collect::<Vec<_>>());
    only_the_slow_one_is_left(&scene);
    scene.record().assert_done_once(&fast);
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn only_the_slow_one_is_left(scene: &Scene) {
    scene
        .daemon
        .eventually("all but the slow one", || scene.table.count("work") == 1);
}

fn none_waits_behind_a_slow_message_in_a_pipeline() {
    a_burst_is_spread(Pool::new(&[]).set("pipeline", "8"));
}

fn none_waits_behind_a_slow_message_with_an_automatic_window() {
    a_burst_is_spread(Pool::new(&[]).text("pipeline", "auto"));
}

/// As many messages as workers, all of which could take several: each gets one, and what comes
/// later goes to those that are idle.
fn a_burst_is_spread(pool: Pool) {
    let scene = Scene::of(pool.set("workers", "4"));
    prove_all_four(&scene);
    for round in 0..5 {
        let gate = format!("go-{round}");
        scene.send(&["fast", &format!("mode:wait:{gate}"), "fast", "fast"]);
        for _ in 0..4 {
            only_the_slow_one_is_left(&scene);
            scene.send(&["fast", "fast", "fast"]);
        }
        only_the_slow_one_is_left(&scene);
        scene.site.touch(&gate);
        scene.all_done();
    }
    scene.finish();
}

/// Each worker has answered, and many messages have made the automatic windows deep.
fn prove_all_four(scene: &Scene) {
    let first = [
        "mode:wait:warm a",
        "mode:wait:warm b",
        "mode:wait:warm c",
        "mode:wait:warm d",
    ];
    scene.send(&first);
    scene.begun(&first);
    scene.site.touch("warm");
    scene.all_done();
    let many: Vec<String> = (0..1000).map(|n| format!("warm up {n}")).collect();
    scene.send(&many.iter().map(String::as_str).collect::<Vec<_>>());
    scene.all_done();
}
