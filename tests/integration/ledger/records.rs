//! Records of messages that are of no schedule: `record` of the ledger and of pools.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::admin::socket;

use crate::harness::rabbit::{RabbitScene, Vhost};
use crate::harness::{Api, Daemon, Pool, Workspace, trials_on};

trials_on![
    ends_of_messages_are_recorded_as_their_pool_says,
    what_is_recorded_follows_a_reload,
    a_reply_to_nobody_is_the_result_where_results_are_kept,
    ; sqlite:
    the_result_of_a_message_is_waited_for_by_its_id,
    messages_of_rabbitmq_are_recorded,
    a_ledger_that_is_locked_holds_up_no_message_of_rabbitmq,
];

/// Sends messages of these bodies, each with its body as its id.
fn send(site: &Workspace, daemon: &Daemon, queue: &str, bodies: &[&str]) {
    let line = |body: &&str| json!({ "body": body, "message_id": body }).to_string() + "\n";
    let lines: String = bodies.iter().map(line).collect();
    let config = daemon.config().to_str().unwrap();
    let args = ["send", queue, "--file", "-", "--config", config];
    site.ganger_reading(&args, lines.as_bytes()).good();
}

/// Returns the records, the oldest first: id of the message, queue, state, attempt, result.
fn records(site: &Workspace) -> Vec<[Value; 5]> {
    let all = site.ganger(&["occurrence", "list", "-o", "json"]).json();
    let all = all.as_array().unwrap().iter().rev();
    let record = |one: &Value| {
        assert_eq!(
            (&one["schedule"], &one["slot"]),
            (&Value::Null, &Value::Null)
        );
        assert!(one["ended_at"].is_string(), "{one}");
        ["message_id", "queue", "state", "attempt", "result"].map(|field| one[field].clone())
    };
    all.map(record).collect()
}

fn pools(record: &str) -> [Pool; 2] {
    let of = |name: &str| {
        let pool = Pool::new(&[]).set("workers", "1").attempts(2);
        pool.text("name", name).text("queue", name)
    };
    let ledger = format!("[ledger]\nsource = \"main\"\nrecord = \"{record}\"\n");
    [
        of("work").after(&ledger),
        of("other").text("record", "failed"),
    ]
}

fn ends_of_messages_are_recorded_as_their_pool_says() {
    let site = Workspace::new();
    let pools = pools("all");
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let bodies = ["mode:answer:200", "mode:answer:500"];
    send(&site, &daemon, "work", &bodies);
    daemon.eventually("both to have ended", || records(&site).len() == 2);
    send(&site, &daemon, "other", &bodies);
    daemon.eventually("the failure to be recorded", || records(&site).len() == 3);
    let [done, failed] = bodies;
    assert_eq!(
        records(&site),
        [
            [
                json!(done),
                json!("work"),
                json!("completed"),
                json!(1),
                json!(format!("the word on {done}"))
            ],
            [
                json!(failed),
                json!("work"),
                json!("failed"),
                json!(2),
                Value::Null
            ],
            [
                json!(failed),
                json!("other"),
                json!("failed"),
                json!(2),
                Value::Null
            ],
        ]
    );
    let shown = site
        .ganger(&["occurrence", "show", done, "-o", "json"])
        .json();
    assert!(
        shown["duration_ms"].is_u64() && shown["events"] == json!([]),
        "{shown}"
    );
    let shown = site.ganger(&["occurrence", "show", failed]).good();
    assert!(
        shown.contains("queue         other") && !shown.contains("schedule"),
        "{shown}"
    );
    // The last of that id.
    let shown = site
        .ganger(&["occurrence", "show", failed, "-o", "json"])
        .json();
    assert_eq!(
        (&shown["queue"], &shown["reason"]),
        (&json!("other"), &json!("failed"))
    );
    daemon.stop();
}

/// Elsewhere it is kept with the dead letter.
fn a_reply_to_nobody_is_the_result_where_results_are_kept() {
    let site = Workspace::new();
    let pools = pools("all");
    site.configure_commands(&pools);
    let daemon = site.start(&pools);
    daemon.entered();
    let reply = "mode:answer:201";
    for (number, queue) in ["work", "other"].iter().enumerate() {
        send(&site, &daemon, queue, &[reply]);
        daemon.eventually("it to be recorded", || records(&site).len() == number + 1);
    }
    let word = json!(format!("the word on {reply}"));
    let found = records(&site);
    let found = found
        .iter()
        .map(|[_, queue, state, _, result]| (queue, state, result));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            (&json!("work"), &json!("completed"), &word),
            (&json!("other"), &json!("failed"), &Value::Null),
        ]
    );
    let config = daemon.config().to_str().unwrap();
    let dead = site
        .ganger(&["dead", "list", "-o", "json", "--config", config])
        .json();
    assert_eq!(
        (&dead[0]["queue"], &dead[0]["reason"]),
        (&json!("other"), &json!("unroutable_reply"))
    );
    assert_eq!(dead.as_array().unwrap().len(), 1);
    daemon.stop();
}

fn what_is_recorded_follows_a_reload() {
    let site = Workspace::new();
    let before = pools("scheduled");
    site.configure_commands(&before);
    let daemon = site.start(&before);
    daemon.entered();
    send(&site, &daemon, "work", &["mode:answer:201"]);
    daemon.eventually("it to be done", || {
        site.table().ask("SELECT count(*) FROM consumer_messages") == "0"
    });
    site.reconfigure(&daemon, &pools("all"));
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.logged("configuration reloaded");
    send(&site, &daemon, "work", &["mode:answer:200"]);
    daemon.eventually("the second to be recorded", || records(&site).len() == 1);
    assert_eq!(records(&site)[0][0], "mode:answer:200");
    daemon.stop();
}

fn the_result_of_a_message_is_waited_for_by_its_id() {
    let site = Workspace::new();
    let pools = pools("all");
    let daemon = site.start(&pools);
    daemon.entered();
    let api = Api::Socket(socket(&daemon));
    let path = "/v1/occurrences/mode:wait:go";
    api.get(path).problem(404);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| api.get(&format!("{path}?wait=20s")).json());
        send(&site, &daemon, "work", &["mode:wait:go"]);
        site.touch("go");
        let ended = waiting.join().unwrap();
        assert_eq!(
            (&ended["state"], &ended["message_id"]),
            (&json!("completed"), &json!("mode:wait:go"))
        );
    });
    let listed = api.get("/v1/occurrences?message_id=mode:wait:go").json();
    assert_eq!(listed["occurrences"][0]["queue"], "work");
    daemon.stop();
}

fn messages_of_rabbitmq_are_recorded() {
    let [work, _] = pools("all");
    let pools = [work.after("[ledger]\nrecord = \"all\"\n")];
    let scene = RabbitScene::at(Vhost::shared(), "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    // The last one replies to nobody.
    let bodies = ["mode:answer:200", "mode:answer:500", "mode:answer:201"];
    send(&scene.site, &scene.daemon, "work", &bodies);
    let daemon = &scene.daemon;
    daemon.eventually("all to be recorded", || records(&scene.site).len() == 3);
    let states: Vec<_> = records(&scene.site)
        .iter()
        .map(|one| one[2].clone())
        .collect();
    let count = |state: &str| states.iter().filter(|one| **one == state).count();
    assert_eq!((count("completed"), count("failed")), (2, 1), "{states:?}");
    let shown = scene
        .site
        .ganger(&["occurrence", "show", bodies[1], "-o", "json"])
        .json();
    assert_eq!(
        (
            &shown["source"],
            &shown["attempt"],
            &shown["worker"]["pool"],
            &shown["trace_id"]
        ),
        (&json!("main"), &json!(2), &json!("work"), &Value::Null)
    );
    scene.finish();
}

fn a_ledger_that_is_locked_holds_up_no_message_of_rabbitmq() {
    let [work, _] = pools("all");
    let pools = [work.after("[ledger]\nrecord = \"all\"\n")];
    let scene = RabbitScene::at(Vhost::shared(), "", &pools);
    scene.site.configure_commands(&pools);
    scene.daemon.entered();
    let lock = Connection::open(scene.site.path("ledger.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let bodies: Vec<String> = (0..20).map(|n| format!("mode:answer:200 {n}")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    send(&scene.site, &scene.daemon, "work", &bodies);
    scene.all_done();
    scene
        .daemon
        .logged("the ledger can't be written: it shows later what becomes of messages; retrying");
    lock.execute_batch("ROLLBACK").unwrap();
    scene.daemon.eventually("all to be recorded", || {
        records(&scene.site).len() == bodies.len()
    });
    scene.finish();
}
