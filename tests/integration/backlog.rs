//! What waits in a queue, and for how long, is seen wherever one looks, whatever the number of workers.

use serde_json::Value;

use crate::admin::api;
use crate::harness::kafka::Kafka;
use crate::harness::rabbit::Vhost;
use crate::harness::{Api, Daemon, Hook, Pool, Workspace, look, trials};

trials![
    a_backlog_in_a_table_is_seen_everywhere,
    queues_that_no_pool_reads_are_named,
    ; sqlite:
    a_backlog_on_a_broker_is_seen_everywhere,
    who_sends_where_no_pool_reads_is_warned,
];

fn sections(hook: &Hook) -> String {
    let url = Value::from(hook.url());
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [alerts]\nwebhook = {url}\nhold = \"0s\"\nwaiting = \"1s\"\n"
    )
}

/// A pool of one worker, which waits with its message for the file `go`.
fn pool() -> Pool {
    let pool = Pool::new(&["--mode=wait:go"]).set("workers", "1");
    pool.set("prefetch", "1").set("recycle", "{}")
}

fn table(hook: &Hook) -> Workspace {
    Workspace::with_source(&sections(hook))
}

fn send(site: &Workspace, daemon: &Daemon, queue: &str, source: &str, count: usize) {
    let config = daemon.config().to_str().unwrap();
    let bodies: Vec<String> = (0..count).map(|n| format!("{source} {n}")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let send = ["send", queue, "--source", source, "--config", config];
    site.ganger(&[&send[..], &bodies].concat()).good();
}

fn of_pool(api: &Api, name: &str) -> Value {
    api.get(&format!("/v1/pools/{name}")).json()["backlog"].clone()
}

/// Waits until that many messages wait, the oldest for more than a second.
fn waits(daemon: &Daemon, api: &Api, name: &str, depth: u64) {
    daemon.eventually("the backlog to be told", || {
        let backlog = of_pool(api, name);
        let age = backlog["oldest_age_seconds"].as_f64();
        backlog["depth"] == depth && age.is_some_and(|age| age > 1.0)
    });
}

/// The value of a series.
fn value(api: &Api, series: &str) -> f64 {
    let text = api.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Sees that five messages wait in the pool's queue wherever that is to be seen.
fn is_seen(site: &Workspace, daemon: &Daemon, hook: &Hook, name: &str, queue: &str) {
    let api = api(daemon);
    waits(daemon, &api, name, 5);
    let labels = format!("{{pool=\"{name}\",queue=\"{queue}\"}}");
    assert!((value(&api, &format!("ganger_queue_depth{labels}")) - 5.0).abs() < 0.5);
    assert!(value(&api, &format!("ganger_queue_oldest_age_seconds{labels}")) > 1.0);
    let config = daemon.config().to_str().unwrap();
    let shown = site.ganger(&["status", "--config", config]).good();
    let row = shown.lines().find(|line| line.contains(name)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().rev().collect();
    let place = cells.iter().position(|cell| *cell == "5").unwrap();
    assert!(place > 0 && cells[0].ends_with('s'), "{shown}");
    let of_pool = |told: &Value| told["kind"] == "waiting" && told["pool"] == name;
    let told = look(|| hook.taken().into_iter().find(of_pool));
    let told = told.unwrap_or_else(|| panic!("nothing told of {name}: {:#?}", hook.told()));
    assert_eq!(told["details"]["depth"], 5, "{told}");
    let ready = api.get("/readyz");
    assert_eq!(ready.status, 200, "a backlog is no reason");
    let notes = ready.json()["notes"].to_string();
    assert!(
        notes.contains(&format!("pool `{name}` is behind: 5 message(s) wait")),
        "{notes}"
    );
}

/// Sees that nothing waits there any more.
fn is_over(daemon: &Daemon, name: &str) {
    let api = api(daemon);
    daemon.eventually("nothing to wait", || of_pool(&api, name)["depth"] == 0);
    assert_eq!(of_pool(&api, name)["oldest_age_seconds"], 0.0);
}

fn a_backlog_in_a_table_is_seen_everywhere() {
    let hook = Hook::new();
    let site = table(&hook);
    let daemon = site.start(&[pool()]);
    daemon.has_workers(1);
    send(&site, &daemon, "work", "main", 6);
    is_seen(&site, &daemon, &hook, "work", "work");
    site.touch("go");
    hook.is_told("resolved waiting");
    is_over(&daemon, "work");
    daemon.stop();
}

fn a_backlog_on_a_broker_is_seen_everywhere() {
    let (hook, rabbit, kafka) = (Hook::new(), Vhost::shared(), Kafka::shared());
    let topic = format!("waits-{:016x}", fastrand::u64(..));
    let sources = format!(
        "[sources.rabbit]\nkind = \"rabbitmq\"\nurl = \"{}\"\n\
         [sources.events]\nkind = \"kafka\"\nbrokers = \"{}\"\ngroup = \"{topic}\"\n{}",
        rabbit.url(),
        kafka.address(),
        sections(&hook),
    );
    let site = Workspace::with_sections(&sources);
    let on = |name: &str, source: &str| {
        let pool = pool().text("name", name).text("source", source);
        pool.text("queue", &topic)
    };
    let daemon = site.start(&[on("on-rabbit", "rabbit"), on("on-kafka", "events")]);
    daemon.has_workers(2);
    for source in ["rabbit", "events"] {
        send(&site, &daemon, &topic, source, 6);
    }
    let api = api(&daemon);
    for name in ["on-rabbit", "on-kafka"] {
        waits(&daemon, &api, name, 5);
    }
    for name in ["on-rabbit", "on-kafka"] {
        is_seen(&site, &daemon, &hook, name, &topic);
    }
    site.touch("go");
    for name in ["on-rabbit", "on-kafka"] {
        is_over(&daemon, name);
    }
    daemon.stop();
}

fn queues_that_no_pool_reads_are_named() {
    let hook = Hook::new();
    let site = table(&hook);
    site.configure_commands(&[pool()]);
    site.ganger(&["send", "wrok", "one", "two"]).good();
    let daemon = site.start(&[pool()]);
    let api = api(&daemon);
    daemon.eventually("the queue to be named", || {
        let unread = &api.get("/v1/status").json()["unread_queues"];
        unread[0]["queue"] == "wrok" && unread[0]["backlog"]["depth"] == 2
    });
    let labels = "{source=\"main\",queue=\"wrok\"}";
    assert!((value(&api, &format!("ganger_unread_queue_depth{labels}")) - 2.0).abs() < 0.5);
    assert!(
        value(
            &api,
            &format!("ganger_unread_queue_oldest_age_seconds{labels}")
        ) > 0.0
    );
    let config = daemon.config().to_str().unwrap();
    let shown = site.ganger(&["status", "--config", config]).good();
    let note = "main: no pool here reads queue `wrok`: 2 message(s) wait";
    assert!(shown.contains(note), "{shown}");
    daemon.stop();
}

fn who_sends_where_no_pool_reads_is_warned() {
    let site = Workspace::new();
    site.configure_commands(&[Pool::new(&[])]);
    let typo = site.ganger(&["send", "wrok", "one"]);
    assert!(typo.code == Some(0) && typo.out.starts_with("sent 1, id "));
    let warning = "no pool of this configuration reads queue `wrok` of source `main`";
    assert!(typo.err.contains(warning), "{typo:#?}");
    let near = site.ganger(&["send", "works", "one"]);
    assert!(near.err.contains("is `work` meant?"), "{near:#?}");
    let right = site.ganger(&["send", "work", "one"]);
    assert!(right.out.starts_with("sent 1, id ") && right.err.is_empty());
}
