//! How many workers a pool has where that is a range: more while messages wait for one, fewer when
//! they were enough for long, and no message is the worse for it.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::kafka::{KafkaSite, NewRecord};
use crate::harness::rabbit::RabbitScene;
use crate::harness::{Daemon, Event, Pool, Scene, Workspace, field, said, trials};

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
