//! Several programs on one file: daemons that share the work, and others that put messages in with
//! plain SQL and wake the daemon by it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::harness::{Event, NewMessage, Pool, Record, Scene, Workspace, trials};

trials![
    two_daemons_share_the_work,
    one_of_two_daemons_leaves_in_mid_run,
    a_plain_insert_wakes_the_daemon,
    a_row_that_is_made_ready_by_hand_wakes_the_daemon,
    a_delayed_message_comes_when_it_falls_due_and_not_before,
    pools_on_one_file_do_not_wait_for_each_other,
];

/// Polls and heartbeats so rare that nothing in these tests can be owed to them.
const POLL_RARELY: &str = "poll_interval = \"1m\"\nlease = \"1h\"";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// How many messages these workers have done.
fn share(record: &Record, workers: &[i32]) -> usize {
    let done = record.all(Event::Done);
    done.iter()
        .filter(|entry| workers.contains(&entry.pid))
        .count()
}

fn two_daemons_share_the_work() {
    let pool = Pool::new(&["--mode=sleep:2"]).set("workers", "2");
    let scene = Scene::at(
        Workspace::with_source(POLL_RARELY),
        std::slice::from_ref(&pool),
    );
    let other = scene.site.start(&[pool]);
    let (one_up, other_up) = (scene.daemon.has_workers(2), other.has_workers(2));
    let bodies = bodies("message", 1_000);
    scene.send(&bodies);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&bodies);
    assert_eq!(record.all(Event::Began).len(), bodies.len());
    let shares = [share(&record, &one_up), share(&record, &other_up)];
    assert_eq!(shares.iter().sum::<usize>(), bodies.len());
    assert!(
        shares.iter().all(|share| *share >= bodies.len() / 10),
        "{shares:?}"
    );
    other.stop();
    scene.finish();
}

fn one_of_two_daemons_leaves_in_mid_run() {
    let pool = Pool::new(&["--mode=sleep:1"]).set("workers", "2");
    let scene = Scene::at(
        Workspace::with_source(POLL_RARELY),
        std::slice::from_ref(&pool),
    );
    let other = scene.site.start(&[pool]);
    other.has_workers(2);
    let bodies = bodies("message", 1_000);
    scene.send(&bodies);
    other.eventually("a part of it to be done", || {
        scene.record().all(Event::Done).len() > 100
    });
    // What it had fetched goes back, and its leaving wakes the one that stays.
    other.stop();
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&bodies);
    assert_eq!(record.all(Event::Began).len(), bodies.len());
    scene.finish();
}

fn a_plain_insert_wakes_the_daemon() {
    let scene = Scene::at(Workspace::with_source(POLL_RARELY), &[Pool::new(&[])]);
    scene.daemon.has_workers(1);
    let took = |n: usize| {
        let sent = Instant::now();
        let insert = "INSERT INTO consumer_messages (queue, body) VALUES ('work', ?1)";
        scene.table.0.execute(insert, [n.to_string()]).unwrap();
        scene.settled();
        sent.elapsed()
    };
    let mut times: Vec<Duration> = (0..40).map(took).collect();
    times.sort_unstable();
    // On a busy machine some are late; what is typical shows in half of them.
    assert!(times[20] < Duration::from_millis(100), "{times:?}");
    scene.all_done();
    scene.record().assert_done_once(&["0", "20", "39"]);
    scene.finish();
}

fn a_row_that_is_made_ready_by_hand_wakes_the_daemon() {
    let scene = Scene::at(Workspace::with_source(POLL_RARELY), &[Pool::new(&[])]);
    scene.send(&["first"]);
    scene.all_done();
    delay(&scene, "in a day", now_ms() + 24 * 60 * 60 * 1000);
    scene.send(&["second"]);
    scene
        .daemon
        .eventually("all but the delayed one", || scene.table.count("work") == 1);
    let ready = "UPDATE consumer_messages SET available_after = 0 WHERE owner IS NULL";
    assert_eq!(scene.table.0.execute(ready, []).unwrap(), 1);
    scene.all_done();
    scene
        .record()
        .assert_done_once(&["first", "second", "in a day"]);
    scene.finish();
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn delay(scene: &Scene, body: &str, until_ms: u64) {
    let insert =
        "INSERT INTO consumer_messages (queue, body, available_after) VALUES ('work', ?1, ?2)";
    let until_ms = i64::try_from(until_ms).unwrap();
    scene
        .table
        .0
        .execute(insert, rusqlite::params![body, until_ms])
        .unwrap();
}

/// As after the clock was set: one that is long due, one that is due in a day, and one in between
/// for which nothing but its time wakes the daemon.
fn a_delayed_message_comes_when_it_falls_due_and_not_before() {
    let scene = Scene::at(Workspace::with_source(POLL_RARELY), &[Pool::new(&[])]);
    scene.daemon.has_workers(1);
    let soon = now_ms() + 700;
    delay(&scene, "in a day", soon + 24 * 60 * 60 * 1000);
    delay(&scene, "soon", soon);
    delay(&scene, "since yesterday", soon - 24 * 60 * 60 * 1000);
    scene.send(&["now"]);
    scene.begun(&["since yesterday", "now", "soon"]);
    let record = scene.record();
    record.assert_done_once(&["since yesterday", "now"]);
    let came_ms = record.of(Event::Began, "soon")[0].micros / 1000;
    assert!((soon..soon + 2_000).contains(&came_ms), "{came_ms}, {soon}");
    scene
        .daemon
        .eventually("it to be done", || scene.table.count("work") == 1);
    let left = &scene.table.messages("work")[0];
    assert_eq!(
        (left.body.as_str(), left.attempts, left.claimed),
        ("in a day", 0, false)
    );
    scene.finish();
}

/// Two pools of one daemon, and a third of another, each with a queue of its own.
fn pools_on_one_file_do_not_wait_for_each_other() {
    let pool = |name: &str| Pool::new(&[]).text("name", name).text("queue", name);
    let scene = Scene::at(
        Workspace::with_source(POLL_RARELY),
        &[pool("stuck"), pool("flows")],
    );
    let other = scene.site.start(&[pool("elsewhere")]);
    let stuck = NewMessage::new("mode:wait:go").to("stuck");
    scene.table.insert(&[stuck]);
    scene.begun(&["mode:wait:go"]);
    let mut all = BTreeSet::new();
    for queue in ["flows", "elsewhere"] {
        let bodies = bodies(queue, 100);
        let messages: Vec<NewMessage> = bodies
            .iter()
            .map(|body| NewMessage::new(body).to(queue))
            .collect();
        scene.table.insert(&messages);
        all.extend(bodies);
    }
    scene.daemon.eventually("the others to be done", || {
        scene.table.count("flows") + scene.table.count("elsewhere") == 0
    });
    scene.site.touch("go");
    scene
        .daemon
        .eventually("the last one", || scene.table.count("stuck") == 0);
    scene
        .record()
        .assert_done_once(&all.into_iter().collect::<Vec<_>>());
    other.stop();
    scene.finish();
}
