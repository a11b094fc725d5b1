//! The bound on what all pools together hold of messages in memory: it is kept, nobody starves under
//! it, and a reload changes it.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::rabbit::{Letter, Vhost};
use crate::harness::{
    Daemon, Event, NewMessage, Pool, Record, Scene, Table, Workspace, field, said, trials,
};

trials![
    pools_keep_a_small_bound_together_and_none_of_them_starves,
    a_reload_changes_the_bound,
    a_pool_on_rabbitmq_and_one_on_a_table_share_it,
];

const MIB: usize = 1 << 20;
/// Of each message: seven of them are within the bound.
const BODY: usize = 2 * MIB;
const BOUND: usize = 16 * MIB;
const RELOADED: &str = "configuration reloaded";

fn daemon_section() -> String {
    format!("drain_timeout = \"10s\"\nbuffered_bytes_max = \"{BOUND}B\"")
}

const TABLE: &str = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:queue.db\"\n";

/// Two workers that wait for the file `go`, with more credit than there are messages.
fn pool(name: &str) -> Pool {
    let pool = Pool::new(&["--mode=wait:go"]).text("name", name);
    let pool = pool.text("queue", name).text("source", "main");
    pool.set("workers", "2").set("prefetch", "20")
}

fn body(queue: &str, number: usize) -> String {
    format!("{queue} {number} {}", "x".repeat(BODY))
}

/// What a worker records of them.
fn recorded(queue: &str, count: usize) -> Vec<String> {
    let head = |number| body(queue, number).chars().take(200).collect();
    (0..count).map(head).collect()
}

fn send(table: &Table, queue: &str, count: usize) {
    for number in 0..count {
        table.insert(&[NewMessage::new(&body(queue, number)).to(queue)]);
    }
}

/// How many bytes of a queue, or of all, the daemon has claimed.
fn claimed(table: &Table, queue: &str) -> usize {
    let claimed = "SELECT coalesce(sum(length(body)), 0) FROM consumer_messages
                   WHERE owner IS NOT NULL AND queue LIKE ?1";
    let bytes: i64 = table
        .0
        .query_row(claimed, [queue], |row| row.get(0))
        .unwrap();
    usize::try_from(bytes).unwrap()
}

/// Waits until the daemon says that these wait for memory.
fn waits(daemon: &Daemon, pools: &str) -> Value {
    daemon.eventually_some("those who wait for memory", || {
        daemon.signal(Signal::SIGUSR1);
        let told = |record: &Value| {
            said(record, "status of the daemon") && field(record, "wait_for_memory") == pools
        };
        daemon.records(told).pop()
    })
}

fn has_begun(record: &Record, queue: &str) -> bool {
    let texts = record.texts(Event::Began);
    texts.iter().any(|text| text.starts_with(queue))
}

fn pools_keep_a_small_bound_together_and_none_of_them_starves() {
    let others = ["b", "c", "d"];
    let pools: Vec<Pool> = [&["a"][..], &others]
        .concat()
        .into_iter()
        .map(pool)
        .collect();
    let scene = Scene::at(Workspace::make(&daemon_section(), TABLE), &pools);
    send(&scene.table, "a", 16);
    scene.daemon.eventually("one to take all that it may", || {
        claimed(&scene.table, "a") >= 7 * BODY
    });
    for queue in others {
        send(&scene.table, queue, 16);
    }
    for queue in others {
        scene
            .daemon
            .eventually("each to have one", || has_begun(&scene.record(), queue));
    }
    let status = waits(&scene.daemon, "a, b, c, d");
    assert_eq!(status["buffered_bytes_max"], Value::from(BOUND), "{status}");
    let most = BOUND + others.len() * (BODY + 100);
    let all = claimed(&scene.table, "%");
    assert!(all <= most, "{all} of {most}");
    scene.site.touch("go");
    for queue in ["a", "b", "c", "d"] {
        scene
            .daemon
            .eventually("all to be done", || scene.table.count(queue) == 0);
        scene.record().assert_done_once(&recorded(queue, 16));
    }
    // Each pool may have 32 MiB by itself. Beside them are eight frames, as they are written and as
    // they come, and the caches of the databases.
    let resident = scene.daemon.resident_kib_max() / 1024;
    assert!(resident < 150, "{resident} MiB");
    scene.finish();
}

fn a_reload_changes_the_bound() {
    let scene = Scene::at(Workspace::make(&daemon_section(), TABLE), &[pool("a")]);
    send(&scene.table, "a", 12);
    waits(&scene.daemon, "a");
    let bytes = claimed(&scene.table, "a");
    assert!((7 * BODY..BOUND).contains(&bytes), "{bytes}");
    let config = fs::read_to_string(scene.daemon.config()).unwrap();
    let config = config.replace(&format!("{BOUND}B"), "1GiB");
    fs::write(scene.daemon.config(), config).unwrap();
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.logged(RELOADED);
    scene.daemon.eventually("more to be claimed at once", || {
        claimed(&scene.table, "a") >= 12 * BODY
    });
    scene.site.touch("go");
    scene
        .daemon
        .eventually("all to be done", || scene.table.count("a") == 0);
    scene.record().assert_done_once(&recorded("a", 12));
    scene.finish();
}

/// The broker sends ahead what it may: that counts as held.
fn a_pool_on_rabbitmq_and_one_on_a_table_share_it() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let url = Value::from(vhost.url());
    let rabbit = format!("[sources.rabbit]\nkind = \"rabbitmq\"\nurl = {url}\n");
    let site = Workspace::make(&daemon_section(), &format!("{TABLE}{rabbit}"));
    let pools = [pool("a"), pool("work").text("source", "rabbit")];
    let scene = Scene::at(site, &pools);
    send(&scene.table, "a", 16);
    scene.daemon.eventually("one to take all that it may", || {
        claimed(&scene.table, "a") >= 7 * BODY
    });
    let letters: Vec<Letter> = (0..16)
        .map(|n| Letter::new("work", body("work", n)))
        .collect();
    client.publish(&letters);
    scene.daemon.eventually("the other to have one", || {
        has_begun(&scene.record(), "work")
    });
    scene.site.touch("go");
    let mut most = 0;
    scene.daemon.eventually("all to be done", || {
        most = most.max(claimed(&scene.table, "a"));
        let left: u64 = vhost.totals().values().sum();
        scene.table.count("a") == 0 && left == 0
    });
    assert!(most <= BOUND + BODY, "{most}");
    scene.record().assert_done_once(&recorded("a", 16));
    scene.record().assert_none_lost(&recorded("work", 16));
    let resident = scene.daemon.resident_kib_max() / 1024;
    assert!(resident < 150, "{resident} MiB");
    scene.finish();
}
