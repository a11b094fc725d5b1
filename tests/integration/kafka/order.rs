//! Which messages of a topic may run at the same time, and that nobody waits for a slow one without
//! need. One partition does for many workers.

use crate::harness::kafka::{KafkaSite, NewRecord, Plan};
use crate::harness::{Daemon, Entry, Event, Record, trials};

trials![
    keys_run_side_by_side_and_messages_of_one_key_one_by_one,
    messages_without_a_key_run_side_by_side,
    an_empty_key_is_a_key,
    partitions_run_side_by_side_and_messages_of_one_partition_one_by_one,
    without_order_all_run_side_by_side,
    one_slow_key_starves_no_other,
    one_slow_partition_starves_no_other,
    a_message_too_long_for_the_buffer_passes_all_the_same,
    a_long_backlog_is_not_held_in_memory,
    one_busy_partition_of_many_keeps_all_workers_busy,
];

const WORKERS: &str = "4";

/// Messages that wait for a file of their own name.
fn waiting(site: &KafkaSite, name: &str) -> (String, NewRecord) {
    let body = format!("mode:wait:{name} {name}");
    let record = site.message(&body).partition(0);
    (body, record)
}

fn keys_run_side_by_side_and_messages_of_one_key_one_by_one() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", WORKERS));
    let names = ["a1", "a2", "b1", "a3", "c1", "d1", "b2"];
    let (bodies, records): (Vec<String>, Vec<NewRecord>) = names
        .iter()
        .map(|name| {
            let (body, record) = waiting(&site, name);
            (body, record.key(&name[..1]))
        })
        .unzip();
    site.kafka.send(&records);
    let first = [0, 2, 4, 5].map(|n| bodies[n].as_str());
    site.begun(&daemon, &first);
    site.site.touch("d1");
    // A worker is free now, and everything that is left waits for its key.
    site.done(&daemon, 1);
    site.kafka
        .send(&[site.message("free").key("e").partition(0)]);
    site.done(&daemon, 2);
    assert_eq!(site.record().all(Event::Began).len(), first.len() + 1);
    for name in names {
        site.site.touch(name);
    }
    site.all_done(&daemon);
    let record = site.record();
    record.assert_done_once(&bodies);
    one_by_one(&record, &[&bodies[0], &bodies[1], &bodies[3]]);
    one_by_one(&record, &[&bodies[2], &bodies[6]]);
    daemon.stop();
}

/// Each of them was begun after the one before it was done.
fn one_by_one(record: &Record, bodies: &[&str]) {
    let of_these = record
        .0
        .iter()
        .filter(|e| bodies.contains(&e.text.as_str()));
    let seen: Vec<(Event, &str)> = of_these.map(|e| (e.event, e.text.as_str())).collect();
    let wanted: Vec<(Event, &str)> = bodies
        .iter()
        .flat_map(|body| [(Event::Began, *body), (Event::Done, *body)])
        .collect();
    assert_eq!(seen, wanted);
}

fn messages_without_a_key_run_side_by_side() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", WORKERS));
    let (bodies, records): (Vec<String>, Vec<NewRecord>) = ["a", "b", "c", "d"]
        .map(|name| waiting(&site, name))
        .into_iter()
        .unzip();
    site.kafka.send(&records);
    all_at_once(&site, &daemon, &bodies);
    daemon.stop();
}

/// Sees that all are begun before any is done, and that all are done then.
fn all_at_once(site: &KafkaSite, daemon: &Daemon, bodies: &[String]) {
    site.begun(daemon, bodies);
    assert_eq!(site.record().all(Event::Done), Vec::<&Entry>::new());
    for body in bodies {
        let (_, name) = body.rsplit_once(' ').unwrap();
        site.site.touch(name);
    }
    site.all_done(daemon);
    site.record().assert_done_once(bodies);
}

fn an_empty_key_is_a_key() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--mode=sleep:1"]).set("workers", WORKERS));
    let bodies: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    let record = |body: &String| site.message(body).key("").partition(0);
    site.kafka
        .send(&bodies.iter().map(record).collect::<Vec<_>>());
    site.all_done(&daemon);
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    one_by_one(&site.record(), &bodies);
    daemon.stop();
}

fn partitions_run_side_by_side_and_messages_of_one_partition_one_by_one() {
    let site = KafkaSite::new(3);
    let pool = site.pool(&["--v2=1"]).text("order", "partition");
    let daemon = site.start(&pool.set("workers", WORKERS));
    let (bodies, records): (Vec<String>, Vec<NewRecord>) = ["0a", "0b", "1a", "2a", "1b", "2b"]
        .map(|name| {
            let (body, record) = waiting(&site, name);
            let partition = name[..1].parse().unwrap();
            (body, record.key(name).partition(partition))
        })
        .into_iter()
        .unzip();
    site.kafka.send(&records);
    site.begun(&daemon, &[&bodies[0], &bodies[2], &bodies[3]]);
    assert_eq!(site.record().all(Event::Began).len(), 3);
    for name in ["0a", "0b", "1a", "2a", "1b", "2b"] {
        site.site.touch(name);
    }
    site.all_done(&daemon);
    let record = site.record();
    record.assert_done_once(&bodies);
    for (first, second) in [(0, 1), (2, 4), (3, 5)] {
        one_by_one(&record, &[&bodies[first], &bodies[second]]);
    }
    daemon.stop();
}

fn without_order_all_run_side_by_side() {
    let site = KafkaSite::new(1);
    let pool = site.pool(&["--v2=1"]).text("order", "none");
    let daemon = site.start(&pool.set("workers", WORKERS));
    let (bodies, records): (Vec<String>, Vec<NewRecord>) = ["a", "b", "c", "d"]
        .map(|name| waiting(&site, name))
        .map(|(body, record)| (body, record.key("the same")))
        .into_iter()
        .unzip();
    site.kafka.send(&records);
    all_at_once(&site, &daemon, &bodies);
    daemon.stop();
}

/// Far more messages wait for the slow key than are fetched at a time.
fn one_slow_key_starves_no_other() {
    let site = KafkaSite::new(1);
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "2"));
    let slow = "mode:wait:go slow";
    let behind: Vec<String> = (0..3_000).map(|n| format!("behind {n}")).collect();
    let others: Vec<String> = (0..3_000).map(|n| format!("other {n}")).collect();
    let mut records = vec![site.message(slow).key("slow").partition(0)];
    for (behind, other) in behind.iter().zip(&others) {
        records.push(site.message(behind).key("slow").partition(0));
        records.push(site.message(other).key(other).partition(0));
    }
    site.kafka.send(&records);
    site.done(&daemon, others.len());
    site.record().assert_done_once(&others);
    site.site.touch("go");
    site.all_done(&daemon);
    let record = site.record();
    assert_eq!(record.assert_none_lost(&others), 0);
    let in_order: Vec<&str> = [slow]
        .into_iter()
        .chain(behind.iter().map(String::as_str))
        .collect();
    one_by_one(&record, &in_order);
    daemon.stop();
}

/// What is behind the slow message is more than may be held in memory.
fn one_slow_partition_starves_no_other() {
    let site = Plan::new(2).source(r#"buffered_bytes_max = "1MiB""#).make();
    let pool = site.pool(&["--v2=1"]).text("order", "partition");
    let daemon = site.start(&pool.set("workers", "2"));
    let long = "x".repeat(4_096);
    let record = |partition: i32, text: String| site.message(&text).partition(partition);
    let mut records = vec![record(0, "mode:wait:go slow".into())];
    records.extend((0..1_000).map(|n| record(0, format!("behind {n} {long}"))));
    site.kafka.send(&records);
    site.begun(&daemon, &["mode:wait:go slow"]);
    site.kafka.send(
        &(0..1_000)
            .map(|n| record(1, format!("other {n} {long}")))
            .collect::<Vec<_>>(),
    );
    site.done(&daemon, 1_000);
    let done = site.record();
    assert!(
        done.texts(Event::Done)
            .iter()
            .all(|text| text.starts_with("other"))
    );
    site.site.touch("go");
    site.all_done(&daemon);
    let record = site.record();
    assert_eq!(record.all(Event::Began).len(), 2_001, "each once");
    daemon.stop();
}

fn a_message_too_long_for_the_buffer_passes_all_the_same() {
    let plan = Plan::new(1).source(r#"buffered_bytes_max = "1MiB""#);
    let site = plan.topic("max.message.bytes", "8000000").make();
    let daemon = site.start(&site.pool(&["--v2=1"]));
    let long = format!("long {}", "x".repeat(3 << 20));
    let records = ["before", &long, "between", &long, "after"].map(|text| site.message(text));
    site.kafka.send(&records);
    site.all_done(&daemon);
    assert_eq!(site.record().all(Event::Done).len(), 5);
    daemon.stop();
}

fn a_long_backlog_is_not_held_in_memory() {
    let site = Plan::new(2).source(r#"buffered_bytes_max = "4MiB""#).make();
    let long = "x".repeat(100_000);
    let record = |n: i32| site.message(&format!("{n} {long}")).partition(n % 2);
    let count = 2_000;
    for first in (0..count).step_by(500) {
        let records: Vec<NewRecord> = (first..first + 500).map(record).collect();
        site.kafka.send(&records);
    }
    let daemon = site.start(&site.pool(&["--v2=1"]).set("workers", "2"));
    site.all_done(&daemon);
    let done = site.record().all(Event::Done).len();
    assert_eq!(done, usize::try_from(count).unwrap());
    // Of 200 MB.
    let most = daemon.resident_kib_max();
    assert!(most < 100 * 1024, "{most} KiB at its largest");
    daemon.stop();
}

fn one_busy_partition_of_many_keeps_all_workers_busy() {
    let site = KafkaSite::new(12);
    let pool = site.pool(&["--v2=20"]).text("order", "none");
    let daemon = site.start(&pool.set("workers", "4").set("prefetch", "20"));
    let bodies: Vec<String> = (0..80).map(|n| format!("mode:wait:go {n}")).collect();
    let record = |body: &String| site.message(body).partition(3);
    site.kafka
        .send(&bodies.iter().map(record).collect::<Vec<NewRecord>>());
    site.begun(&daemon, &bodies);
    site.site.touch("go");
    site.all_done(&daemon);
    daemon.stop();
}
