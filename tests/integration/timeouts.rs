//! Workers that take too long: soft, hard and stall timeouts.

use crate::harness::{Event, NewMessage, Pool, Scene, trials};

trials![
    the_hard_timeout_charges_the_head_and_nothing_else,
    a_messages_time_begins_when_it_becomes_the_head,
    the_soft_timeout_asks_a_version_2_worker_to_cancel,
    a_worker_that_gives_up_in_time_has_timed_out,
    the_first_message_of_a_fresh_worker_may_take_as_long_as_its_start,
    a_message_may_shorten_its_timeout,
    a_message_may_not_lengthen_its_timeout,
    a_message_that_blocks_an_event_loop_is_charged_and_its_neighbours_are_not,
    a_message_that_blocks_an_event_loop_stalls_alone,
    a_message_that_hangs_beside_others_is_charged_when_it_is_alone,
    a_silent_worker_stalls,
    progress_is_a_sign_of_life,
];

fn the_hard_timeout_charges_the_head_and_nothing_else() {
    let pool = Pool::new(&[]).set("pipeline", "3").attempts(1);
    let scene = Scene::of(pool.text("timeout", "500ms").text("timeout_grace", "100ms"));
    scene.send(&["warm up"]);
    scene.settled();
    scene.send(&["mode:hang", "mode:note:header:TimeoutMilliseconds a", "b"]);
    let dead = scene.one_dead();
    assert_eq!(
        (dead.reason.as_str(), dead.attempts, dead.crashes),
        ("timed_out", 1, 0)
    );
    assert!(dead.error.contains("timed out"), "{}", dead.error);
    let record = scene.record();
    record.assert_done_once(&["mode:note:header:TimeoutMilliseconds a", "b"]);
    assert_eq!(
        record.texts(Event::Noted),
        ["header:TimeoutMilliseconds=500"]
    );
    let pids = |body| record.of(Event::Began, body)[0].pid;
    assert_ne!(pids("mode:hang"), pids("b"), "the worker that hung is gone");
    scene.finish();
}

/// Five messages in the pipe of one worker take longer together than any one of them may.
fn a_messages_time_begins_when_it_becomes_the_head() {
    let pool = Pool::new(&[]).set("pipeline", "5");
    let scene = Scene::of(pool.text("timeout", "1200ms").text("timeout_grace", "0s"));
    scene.send(&["warm up"]);
    scene.settled();
    let bodies: Vec<String> = (0..5).map(|n| format!("mode:sleep:400 {n}")).collect();
    scene.send(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(
        scene.record().all(Event::Began).len(),
        6,
        "none was begun again"
    );
    scene.finish();
}

fn the_soft_timeout_asks_a_version_2_worker_to_cancel() {
    let pool = Pool::new(&["--v2=2"]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "200ms").text("timeout_grace", "10m"));
    scene.send(&["mode:until-cancelled,answer:400"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "rejected");
    let told = scene.record();
    assert_eq!(told.texts(Event::Told), ["__cancel__ 1"]);
    scene.send(&["and on"]);
    scene.settled();
    let pids: Vec<i32> = scene
        .record()
        .all(Event::Began)
        .iter()
        .map(|entry| entry.pid)
        .collect();
    assert_eq!(pids[0], pids[1], "the worker is kept");
    scene.finish();
}

/// It says what it has been doing, which is kept.
fn a_worker_that_gives_up_in_time_has_timed_out() {
    let pool = Pool::new(&["--v2=1"]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "200ms").text("timeout_grace", "10m"));
    scene.send(&["mode:until-cancelled,answer:503"]);
    let dead = scene.one_dead();
    assert_eq!(dead.reason, "timed_out");
    assert_eq!(
        dead.error,
        "timed out after 200ms: the worker asked for a retry: the word on \
         mode:until-cancelled,answer:503"
    );
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

/// As one that has much to load and compile for it. What comes after it has its own time only.
fn the_first_message_of_a_fresh_worker_may_take_as_long_as_its_start() {
    let pool = Pool::new(&[]).attempts(1).text("start_timeout", "1m");
    let scene = Scene::of(pool.text("timeout", "100ms").text("timeout_grace", "0s"));
    scene.send(&["mode:sleep:600"]);
    scene.all_done();
    scene.send(&["mode:sleep:600000"]);
    assert_eq!(scene.one_dead().reason, "timed_out");
    scene.record().assert_done_once(&["mode:sleep:600"]);
    scene.finish();
}

fn a_message_may_shorten_its_timeout() {
    let pool = Pool::new(&[]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "10m").text("timeout_grace", "50ms"));
    let message = NewMessage::new("mode:note:header:TimeoutMilliseconds,hang");
    scene
        .table
        .insert(&[message.header("TimeoutMilliseconds", 150)]);
    assert_eq!(scene.one_dead().reason, "timed_out");
    assert_eq!(
        scene.record().texts(Event::Noted),
        ["header:TimeoutMilliseconds=150"]
    );
    scene.finish();
}

fn a_message_may_not_lengthen_its_timeout() {
    let pool = Pool::new(&[]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "150ms").text("timeout_grace", "50ms"));
    let longer = NewMessage::new("mode:hang longer").header("TimeoutMilliseconds", "3600000");
    let never = NewMessage::new("mode:hang never").header("TimeoutMilliseconds", -1);
    scene.table.insert(&[longer, never]);
    scene.settled();
    let reasons: Vec<String> = scene
        .table
        .dead()
        .into_iter()
        .map(|dead| dead.reason)
        .collect();
    assert_eq!(reasons, ["timed_out", "timed_out"]);
    scene.finish();
}

fn a_message_that_blocks_an_event_loop_is_charged_and_its_neighbours_are_not() {
    let pool = Pool::new(&["--v2=8"]).text("timeout_grace", "200ms");
    blocked(&pool.text("timeout", "1s"), "timed_out");
}

fn a_message_that_blocks_an_event_loop_stalls_alone() {
    let pool = Pool::new(&["--v2=8"]).text("stall_timeout", "1s");
    blocked(&pool, "stalled");
}

/// Three that were begun before have not answered when the fourth blocks their worker: their time is
/// over first. With one attempt each, whoever is charged is dead.
fn blocked(pool: &Pool, reason: &str) {
    let scene = Scene::of(pool.clone().attempts(1));
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("mode:sleep:300 {name}"));
    scene.send(&[&a, &b, &c, "mode:block"]);
    let dead = scene.one_dead();
    assert_eq!(dead.body, "mode:block".to_owned().into());
    assert_eq!((dead.reason.as_str(), dead.attempts), (reason, 1));
    scene.finish();
}

/// Beside one with which the worker goes on; with one attempt each.
fn a_message_that_hangs_beside_others_is_charged_when_it_is_alone() {
    let pool = Pool::new(&["--v2=4"]).attempts(1);
    let scene = Scene::of(pool.text("timeout", "10m").text("timeout_grace", "300ms"));
    let hangs = NewMessage::new("mode:hang").header("TimeoutMilliseconds", 200);
    scene
        .table
        .insert(&[hangs, NewMessage::new("mode:flood:go")]);
    scene.begun(&["mode:hang", "mode:flood:go"]);
    scene.daemon.logged("worker lost");
    scene.site.touch("go");
    let dead = scene.one_dead();
    assert_eq!(dead.body, "mode:hang".to_owned().into());
    assert_eq!((dead.reason.as_str(), dead.attempts), ("timed_out", 1));
    let record = scene.record();
    record.assert_done_once(&["mode:flood:go"]);
    assert_eq!(record.of(Event::Began, "mode:hang").len(), 2);
    scene.finish();
}

fn a_silent_worker_stalls() {
    let scene = Scene::of(Pool::new(&[]).attempts(1).text("stall_timeout", "300ms"));
    scene.send(&["mode:hang", "another"]);
    let dead = scene.one_dead();
    assert_eq!((dead.reason.as_str(), dead.crashes), ("stalled", 0));
    scene.record().assert_done_once(&["another"]);
    scene.finish();
}

/// Longer than the stall timeout in all, never silent for so long.
fn progress_is_a_sign_of_life() {
    let scene = Scene::of(Pool::new(&["--v2=1"]).text("stall_timeout", "800ms"));
    let parts = "sleep:200,progress:on,".repeat(6);
    let body = format!("mode:{parts}answer:200");
    scene.send(&[&body]);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 1);
    assert_eq!(scene.record().all(Event::Began).len(), 1);
    scene.finish();
}
