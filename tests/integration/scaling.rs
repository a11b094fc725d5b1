//! How many workers a pool has where that is a range: more while messages wait for one, fewer when
//! they were enough for long, and no message is the worse for it.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::admin::socket;
use crate::harness::kafka::{KafkaSite, NewRecord};
use crate::harness::rabbit::RabbitScene;
use crate::harness::{Api, Daemon, Event, Pool, Scene, Workspace, field, said, trials};

trials![
    a_burst_grows_a_pool_to_its_most_and_it_shrinks_to_its_fewest,
    a_queue_of_rabbitmq_grows_its_pool_too,
    a_queue_with_a_single_active_consumer_feeds_all_workers_that_there_may_be,
    what_is_fetched_and_waits_grows_a_pool_as_what_is_queued,
    messages_of_one_key_do_not_grow_a_pool_and_those_of_many_do,
    a_worker_that_is_busy_is_not_stopped_for_being_one_too_many,
    a_pool_whose_workers_crash_does_not_grow,
    without_memory_no_worker_is_added,
    a_reload_leads_from_a_number_to_a_range_and_back,
    a_number_set_by_hand_stays_until_it_is_let_go,
    a_pool_with_nothing_to_do_has_no_worker_and_the_first_message_starts_one,
    queues_of_brokers_wake_their_pools_too,
    a_burst_wakes_a_pool_that_grows_to_its_most,
    a_first_message_outlives_workers_that_do_not_start,
    a_daemon_that_stops_leaves_a_first_message_that_has_no_worker_yet,
    nothing_wakes_a_pool_that_is_paused_or_has_none_by_hand,
    a_resting_pool_is_rolled_by_its_next_start,
    an_open_breaker_leaves_no_pool_without_workers_for_good,
];

const CHANGES: &str = "number of workers changed";

/// It goes through in moments what takes minutes by default.
fn range(min: u32, max: u32) -> String {
    format!(
        r#"{{ min = {min}, max = {max}, clear_within = "1s", cooldown = "200ms", shrink_after = "2s" }}"#
    )
}

fn pool(min: u32, max: u32, args: &[&str]) -> Pool {
    Pool::new(args).set("workers", &range(min, max))
}

/// Waits until the number of workers is to be so.
fn becomes(daemon: &Daemon, to: u64) -> Value {
    daemon.logs(CHANGES, |record| record["to"] == to)
}

/// From what to what the number changed, in order.
fn changes(daemon: &Daemon) -> Vec<(u64, u64)> {
    let number = |record: &Value, name: &str| record[name].as_u64().unwrap();
    let records = daemon.records(|record| said(record, CHANGES));
    let changes = records.iter();
    changes
        .map(|record| (number(record, "from"), number(record, "to")))
        .collect()
}

fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

fn a_burst_grows_a_pool_to_its_most_and_it_shrinks_to_its_fewest() {
    let scene = Scene::of(pool(1, 6, &["--mode=wait:go"]));
    let bodies = bodies(300);
    scene.send(&bodies);
    let grown = becomes(&scene.daemon, 6);
    assert!(field(&grown, "why").contains("messages wait"), "{grown}");
    scene.daemon.has_workers(6);
    assert_eq!(changes(&scene.daemon), [(1, 2), (2, 4), (4, 6)]);
    scene.site.touch("go");
    scene.all_done();
    let shrunk = becomes(&scene.daemon, 1);
    assert!(
        field(&shrunk, "why").contains("needed recently"),
        "{shrunk}"
    );
    scene.daemon.has_workers(1);
    let record = scene.record();
    record.assert_done_once(&bodies);
    assert_eq!(
        record.all(Event::Began).len(),
        bodies.len(),
        "none was begun twice"
    );
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

fn a_queue_of_rabbitmq_grows_its_pool_too() {
    let scene = RabbitScene::of(pool(1, 3, &["--mode=wait:go"]));
    let bodies = bodies(100);
    scene.send(&bodies);
    becomes(&scene.daemon, 3);
    // Its broker has said what is in the queue by then, or will.
    let told = |record: &Value| record["queued"].as_u64() > Some(50);
    scene.daemon.eventually("the depth to be known", || {
        let records = scene.daemon.records(|record| told(record));
        !records.is_empty()
    });
    scene.site.touch("go");
    scene.all_done();
    becomes(&scene.daemon, 1);
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

/// Its consumer can't grow with the pool.
fn a_queue_with_a_single_active_consumer_feeds_all_workers_that_there_may_be() {
    let pool = pool(1, 4, &["--mode=wait:go"]).set("prefetch", "1");
    let single = "{ x-single-active-consumer = true }";
    let scene = RabbitScene::of(pool.set("queue_arguments", single));
    let bodies = bodies(40);
    scene.send(&bodies);
    becomes(&scene.daemon, 4);
    scene.daemon.eventually("all workers to have one", || {
        scene.record().all(Event::Began).len() == 4
    });
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

/// All of them are fetched at once, and none is left in the queue.
fn what_is_fetched_and_waits_grows_a_pool_as_what_is_queued() {
    let pool = pool(1, 4, &["--mode=wait:go"]).set("prefetch", "1");
    let single = "{ x-single-active-consumer = true }";
    let scene = RabbitScene::of(pool.set("queue_arguments", single));
    let bodies = bodies(4);
    scene.send(&bodies);
    becomes(&scene.daemon, 4);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

fn messages_of_one_key_do_not_grow_a_pool_and_those_of_many_do() {
    let site = KafkaSite::new(1);
    let workers = range(2, 4);
    let daemon = site.start(&site.pool(&["--mode=wait:go"]).set("workers", &workers));
    let message = |key: &str, n: usize| site.message(&format!("{key} {n}")).key(key);
    let hot: Vec<NewRecord> = (0..50).map(|n| message("hot", n)).collect();
    site.kafka.send(&hot);
    daemon.logs("number of workers unchanged", |record| {
        field(record, "why").contains("worker(s) are idle")
    });
    assert_eq!(changes(&daemon), []);
    let keys = ["a", "b", "c", "d", "e", "f"];
    let others: Vec<NewRecord> = keys.iter().map(|key| message(key, 0)).collect();
    site.kafka.send(&others);
    becomes(&daemon, 4);
    site.site.touch("go");
    site.all_done(&daemon);
    daemon.stop();
}

fn a_worker_that_is_busy_is_not_stopped_for_being_one_too_many() {
    let scene = Scene::of(pool(1, 3, &[]));
    scene.send(&["mode:wait:a", "mode:wait:b", "mode:wait:c"]);
    scene.send(&bodies(20));
    becomes(&scene.daemon, 3);
    scene.begun(&["mode:wait:a", "mode:wait:b", "mode:wait:c"]);
    // The first and the last worker are done, the one between them works on.
    let busy = scene.record().of(Event::Began, "mode:wait:b")[0].pid;
    scene.site.touch("a");
    scene.site.touch("c");
    becomes(&scene.daemon, 2);
    scene.daemon.has_workers(2);
    assert!(scene.daemon.workers_up().contains(&busy));
    scene.site.touch("b");
    becomes(&scene.daemon, 1);
    scene.all_done();
    assert_eq!(scene.record().of(Event::Began, "mode:wait:b").len(), 1);
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

fn a_pool_whose_workers_crash_does_not_grow() {
    let scene =
        Scene::of(Pool::of_program("/nonexistent/worker", &[]).set("workers", &range(1, 4)));
    scene.send(&bodies(50));
    scene.daemon.eventually("many more starts", || {
        scene.daemon.times_logged("worker lost") >= 20
    });
    assert_eq!(changes(&scene.daemon), []);
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
}

fn without_memory_no_worker_is_added() {
    let workers = range(1, 4).replace("min", r#"memory_free_min = "16TiB", min"#);
    let scene = Scene::of(Pool::new(&["--mode=wait:go"]).set("workers", &workers));
    scene.send(&bodies(50));
    let told = scene.daemon.logged("no worker added");
    assert!(field(&told, "why").contains("memory"), "{told}");
    assert_eq!(changes(&scene.daemon), []);
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn a_reload_leads_from_a_number_to_a_range_and_back() {
    let site = Workspace::new();
    let of = |workers: &str| Pool::new(&["--mode=wait:go"]).set("workers", workers);
    let scene = Scene::at(site, &[of("1")]);
    let bodies = bodies(40);
    scene.send(&bodies);
    let reload = |workers: &str| {
        scene.site.reconfigure(&scene.daemon, &[of(workers)]);
        scene.daemon.signal(Signal::SIGHUP);
    };
    reload(&range(1, 3));
    becomes(&scene.daemon, 3);
    scene.daemon.has_workers(3);
    reload("5");
    scene.daemon.has_workers(5);
    reload(&range(1, 4));
    becomes(&scene.daemon, 4);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

fn a_number_set_by_hand_stays_until_it_is_let_go() {
    let scene = Scene::of(pool(1, 3, &["--mode=wait:go"]));
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let command = |args: &[&str]| {
        let words = [args, &["--config", &config]].concat();
        scene.site.ganger(&words).good()
    };
    command(&["scale", "work", "2"]);
    scene.daemon.has_workers(2);
    scene.send(&bodies(40));
    scene.begun(&["message 0", "message 1"]);
    scene.daemon.eventually("the load to be seen", || {
        command(&["status"]).contains("1 to 3 worker(s): set by hand")
    });
    assert_eq!(changes(&scene.daemon), []);
    command(&["scale", "work", "auto"]);
    becomes(&scene.daemon, 3);
    scene.site.touch("go");
    scene.all_done();
    becomes(&scene.daemon, 1);
    let status = command(&["status"]);
    assert!(status.contains("1 to 3 worker(s): "), "{status}");
    scene.finish();
}

/// A pool of which no worker is left when there is nothing to do.
fn resting(args: &[&str]) -> Pool {
    pool(0, 2, args)
}

/// Waits until the last worker of such a pool is gone, and so often was. Returns the records of the last start and the
/// last end.
fn goes_to_rest(daemon: &Daemon, times: usize) -> (Value, Value) {
    let of = |to: u64| daemon.records(|record| said(record, CHANGES) && record["to"] == to);
    daemon.eventually("the pool to rest", || of(0).len() == times);
    daemon.has_workers(0);
    let [woken, rests] = [1, 0].map(|to| of(to).pop().unwrap());
    assert!(field(&rests, "why").contains("nothing to do"), "{rests}");
    (woken, rests)
}

/// By hand it has none, and then as many as it needs again.
fn none_for_a_while(scene: &Scene) {
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let command = |args: &[&str]| {
        let words = [args, &["--config", &config]].concat();
        scene.site.ganger(&words).good()
    };
    command(&["scale", "work", "0"]);
    scene.daemon.eventually("the number to be followed", || {
        command(&["status"]).contains("0 to 2 worker(s): set by hand")
    });
    scene.daemon.has_workers(0);
    command(&["scale", "work", "auto"]);
}

/// Checks that a pool without a worker is in order.
fn rests(site: &Workspace, daemon: &Daemon) {
    let config = daemon.config().to_str().unwrap().to_owned();
    let status = site.ganger(&["status", "--config", &config]).good();
    assert!(status.contains("there is nothing to do"), "{status}");
    let status = site
        .ganger(&["status", "--config", &config, "-o", "json"])
        .json();
    assert_eq!(status["pools"][0]["state"], "running");
    let ready = Api::Socket(socket(daemon)).get("/readyz");
    assert_eq!(ready.status, 200, "{ready:?}");
}

fn a_pool_with_nothing_to_do_has_no_worker_and_the_first_message_starts_one() {
    let scene = Scene::of(resting(&[]));
    rests(&scene.site, &scene.daemon);
    assert_eq!(scene.daemon.times_logged("worker up"), 0);
    for (times, body) in (1..).zip(["first", "second"]) {
        scene.send(&[body]);
        scene.all_done();
        let (began, _) = goes_to_rest(&scene.daemon, times);
        assert_eq!(field(&began, "why"), "a message has come");
        rests(&scene.site, &scene.daemon);
    }
    let record = scene.record();
    let began = record.all(Event::Began);
    assert_ne!(began[0].pid, began[1].pid, "each has a worker of its own");
    assert_eq!(scene.daemon.times_logged("worker lost"), 0);
    scene.finish();
}

fn queues_of_brokers_wake_their_pools_too() {
    let scene = RabbitScene::of(resting(&[]));
    scene.send(&["first"]);
    scene.all_done();
    goes_to_rest(&scene.daemon, 1);
    scene.send(&["second"]);
    scene.all_done();
    scene.record().assert_done_once(&["first", "second"]);
    scene.finish();
    let site = KafkaSite::new(1);
    let workers = range(0, 2);
    let daemon = site.start(&site.pool(&[]).set("workers", &workers));
    site.kafka.send(&[site.message("first")]);
    site.all_done(&daemon);
    goes_to_rest(&daemon, 1);
    site.kafka.send(&[site.message("second")]);
    site.all_done(&daemon);
    daemon.stop();
}

/// The pool grows on from the worker that its first message has started.
fn a_burst_wakes_a_pool_that_grows_to_its_most() {
    let scene = Scene::of(resting(&["--mode=wait:go"]));
    let bodies = bodies(50);
    scene.send(&bodies);
    becomes(&scene.daemon, 2);
    scene.site.touch("go");
    scene.all_done();
    goes_to_rest(&scene.daemon, 1);
    scene.record().assert_done_once(&bodies);
    scene.finish();
}

fn a_first_message_outlives_workers_that_do_not_start() {
    let site = Workspace::new();
    let program = site.path("worker");
    let pool = Pool::of_program(program.to_str().unwrap(), &[]).set("workers", &range(0, 2));
    let scene = Scene::at(site, &[pool]);
    scene.send(&["first"]);
    scene
        .daemon
        .logged("pool degraded: its workers keep failing; starting one at a time");
    scene.daemon.eventually("it to be given back", || {
        let waiting = &scene.table.messages("work")[0];
        (waiting.attempts, waiting.claimed) == (0, false)
    });
    none_for_a_while(&scene);
    // Such as a deploy that comes too late.
    let script = format!("#!/bin/sh\nexec {} exec -- true\n", crate::harness::PROGRAM);
    scene.site.put("whole", &script, true);
    std::fs::rename(scene.site.path("whole"), &program).unwrap();
    scene.all_done();
    goes_to_rest(&scene.daemon, 1);
    scene.finish();
}

fn a_daemon_that_stops_leaves_a_first_message_that_has_no_worker_yet() {
    let scene = Scene::of(Pool::of_program("sleep", &["1000"]).set("workers", &range(0, 2)));
    scene.send(&["first"]);
    becomes(&scene.daemon, 1);
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    let waiting = &scene.table.messages("work")[0];
    assert_eq!((waiting.attempts, waiting.claimed), (0, false));
}

fn nothing_wakes_a_pool_that_is_paused_or_has_none_by_hand() {
    let scene = Scene::of(resting(&[]));
    let config = scene.daemon.config().to_str().unwrap().to_owned();
    let command = |args: &[&str]| {
        let words = [args, &["--config", &config]].concat();
        scene.site.ganger(&words).good()
    };
    for (stop, go) in [
        (["pause", "work"].as_slice(), ["resume", "work"].as_slice()),
        (&["scale", "work", "0"], &["scale", "work", "auto"]),
        (&["drain", "work"], &["resume", "work"]),
    ] {
        let before = changes(&scene.daemon).len();
        command(stop);
        scene.send(&["waits"]);
        // Long enough for the pool to see it.
        scene.daemon.eventually("the backlog to be seen", || {
            command(&["status", "-o", "json"]).contains(r#""depth":1"#)
        });
        assert_eq!(changes(&scene.daemon).len(), before, "{stop:?}");
        assert!(scene.daemon.workers_up().is_empty(), "{stop:?}");
        command(go);
        scene.all_done();
        scene.daemon.has_workers(0);
    }
    scene.finish();
}

fn a_resting_pool_is_rolled_by_its_next_start() {
    let site = Workspace::new();
    let of = |args: &[&str]| resting(args);
    let scene = Scene::at(site, &[of(&["--mode=hang"])]);
    scene.site.reconfigure(&scene.daemon, &[of(&[])]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logged("rolling restart completed");
    assert_eq!(scene.daemon.times_logged("worker up"), 0);
    scene.send(&["first"]);
    scene.all_done();
    scene.finish();
}

/// By hand it has none; then it needs one to find out that its dependency is back.
fn an_open_breaker_leaves_no_pool_without_workers_for_good() {
    let pool = resting(&["--mode=unless:up:503"]).set("retry", "{}");
    let scene = Scene::of(pool.set("breaker", r#"{ of = 10, probe = "10ms" }"#));
    scene.send(&bodies(40));
    scene
        .daemon
        .logged("breaker opened: nearly all first attempts fail; trying one message at a time");
    none_for_a_while(&scene);
    scene.site.touch("up");
    scene.all_done();
    scene
        .daemon
        .logged("breaker closed: attempts succeed again");
    scene.record().assert_done_once(&bodies(40));
    scene.finish();
}
