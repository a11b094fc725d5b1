//! Topics: a message for each queue that is subscribed, in the sender's transaction; and subscriptions,
//! which configurations add and nothing but a command removes.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Pool, Scene, Workspace, trials};

trials![
    each_queue_gets_a_message_in_the_senders_transaction,
    a_topic_without_subscribers_is_an_error_unless_it_may_be_dropped,
    a_reload_adds_and_takes_none_away,
    two_configurations_lose_none_of_each_others,
    a_subscription_ends_by_a_command,
    a_configuration_that_makes_no_sense,
    check_tells_how_each_subscription_stands,
];

const SUBSCRIBED: &str = "subscribed the queue to the topic";

fn subscription(topic: &str, queue: &str) -> String {
    format!("[[subscriptions]]\ntopic = \"{topic}\"\nqueue = \"{queue}\"\n")
}

/// A pool with what else is to stand in the configuration.
fn pool(subscriptions: &[(&str, &str)]) -> Pool {
    let all = subscriptions
        .iter()
        .map(|(topic, queue)| subscription(topic, queue));
    Pool::new(&["--v2=1"]).after(&all.collect::<String>())
}

/// The subscriptions of the table, as `topic queue`.
fn all(site: &Workspace) -> Vec<String> {
    let listed = site.ganger(&["subscriptions", "list", "-o", "json"]).json();
    let one = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        format!("{} {}", text("topic"), text("queue"))
    };
    listed.as_array().unwrap().iter().map(one).collect()
}

fn each_queue_gets_a_message_in_the_senders_transaction() {
    let pool = pool(&[("placed", "work"), ("placed", "other"), ("paid", "other")]);
    let scene = Scene::of(pool.clone());
    scene.site.configure_commands(&[pool]);
    scene
        .daemon
        .eventually("the subscriptions to be there", || {
            scene.daemon.times_logged(SUBSCRIBED) == 3
        });
    let shop = scene.site.table();
    shop.run("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .unwrap();
    for (number, end) in [(1, "ROLLBACK"), (2, "COMMIT")] {
        let placed = format!(
            "BEGIN;
             INSERT INTO orders VALUES ({number});
             INSERT INTO published_messages (topic, body, headers)
             VALUES ('placed', 'note:header:topic {number}', '{{ \"tenant\": \"blue\" }}');
             {end}"
        );
        shop.run(&placed).unwrap();
    }
    scene.all_done();
    scene.record().assert_done_once(&["note:header:topic 2"]);
    let other = scene.table.messages("other");
    assert_eq!(other.len(), 1);
    assert_eq!(other[0].body, "note:header:topic 2");
    assert_eq!(
        other[0].headers,
        json!({ "tenant": "blue", "topic": "placed" })
    );
    let sends = |args: &[&str]| scene.site.ganger(&[&["send", "--topic"], args].concat());
    sends(&["paid", "a", "b", "--delay", "1h"]).sent(2);
    let own = ["paid", "c", "-H", "topic=mine"];
    sends(&own).sent(1);
    let other = scene.table.messages("other");
    assert_eq!(other[1].headers, json!({ "topic": "paid" }));
    assert_eq!(other[3].headers, json!({ "topic": "mine" }));
    scene
        .daemon
        .eventually("what was published to be gone", || {
            scene.table.ask("SELECT count(*) FROM published_messages") == "0"
        });
    scene.finish();
}

fn a_topic_without_subscribers_is_an_error_unless_it_may_be_dropped() {
    let scene = Scene::of(pool(&[("placed", "work")]));
    scene.site.configure_commands(&[pool(&[])]);
    scene.daemon.logged(SUBSCRIBED);
    let nobody = "no queue is subscribed to the topic of this message";
    let insert = "INSERT INTO published_messages (topic, body) VALUES ('lost', 'a')";
    let error = scene.table.run(insert).unwrap_err();
    assert!(error.contains(nobody), "{error}");
    let send = ["send", "--topic", "lost", "a"];
    let why = scene.site.ganger(&send).bad(1);
    assert!(
        why.contains(nobody) && why.contains("nothing was sent"),
        "{why}"
    );
    let dropped = [&send[..], &["--drop-unsubscribed"]].concat();
    scene.site.ganger(&dropped).sent(1);
    assert_eq!(scene.table.count("lost"), 0);
    scene.finish();
}

fn a_reload_adds_and_takes_none_away() {
    let scene = Scene::of(pool(&[("placed", "work")]));
    scene.site.configure_commands(&[pool(&[])]);
    scene.daemon.logged(SUBSCRIBED);
    scene
        .site
        .reconfigure(&scene.daemon, &[pool(&[("paid", "work")])]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.daemon.eventually("the other one to be there", || {
        scene.daemon.times_logged(SUBSCRIBED) == 2
    });
    assert_eq!(all(&scene.site), ["paid work", "placed work"]);
    scene.finish();
}

/// As it is while a new version takes over from an old one, whose daemons are killed and started.
fn two_configurations_lose_none_of_each_others() {
    let (old, new) = (pool(&[("placed", "work")]), pool(&[("paid", "work")]));
    let site = Workspace::new();
    site.configure_commands(&[pool(&[])]);
    let first = site.start(std::slice::from_ref(&old));
    first.logged(SUBSCRIBED);
    let second = site.start(std::slice::from_ref(&new));
    second.logged(SUBSCRIBED);
    first.crash();
    let first = site.start(&[old]);
    first.has_workers(1);
    let both = ["paid work", "placed work"];
    assert_eq!(all(&site), both);
    let table = site.table();
    for topic in ["placed", "paid"] {
        let insert =
            format!("INSERT INTO published_messages (topic, body) VALUES ('{topic}', '{topic}')");
        table.run(&insert).unwrap();
    }
    second.eventually("both to be done", || table.count("work") == 0);
    site.record().assert_done_once(&["placed", "paid"]);
    first.stop();
    second.stop();
    assert_eq!(all(&site), both, "they stay");
}

fn a_subscription_ends_by_a_command() {
    let pool = pool(&[("placed", "work")]);
    let scene = Scene::of(pool.clone());
    scene.daemon.logged(SUBSCRIBED);
    scene.site.configure_commands(&[pool]);
    let listed = scene.site.ganger(&["subscriptions", "list"]).good();
    for part in ["TOPIC", "placed", "work", "main", "yes"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let drop = |topic: &str| scene.site.ganger(&["subscriptions", "drop", topic, "work"]);
    let why = drop("paid").bad(2);
    assert!(why.contains("is not subscribed to topic `paid`"), "{why}");
    assert_eq!(drop("placed").good(), "dropped 1\n");
    assert_eq!(
        scene.site.ganger(&["subscriptions", "list"]).good(),
        "no subscriptions\n"
    );
    scene.finish();
}

fn a_configuration_that_makes_no_sense() {
    let site = Workspace::new();
    for (wrong, part) in [
        (
            subscription("t", "q").repeat(2),
            "is already subscribed to this topic",
        ),
        (
            "[[subscriptions]]\ntopic = \"t\"\n".to_owned(),
            "subscriptions[0].queue is missing",
        ),
        (
            format!("{}source = \"none\"\n", subscription("t", "q")),
            "must be one of the sources",
        ),
    ] {
        site.configure_commands(&[Pool::new(&[]).after(&wrong)]);
        let why = site.ganger(&["check"]).bad(2);
        assert!(why.contains(part), "{part}: {why}");
    }
}

fn check_tells_how_each_subscription_stands() {
    let pool = pool(&[("placed", "work"), ("placed", "nobodys")]);
    let site = Workspace::new();
    site.configure_commands(std::slice::from_ref(&pool));
    let check = |more: &[&str]| site.ganger(&[&["check", "--online"], more].concat());
    let told = |is_there: bool| {
        let one = |queue: &str, pool: Option<&str>| {
            json!({ "source": "main", "topic": "placed", "queue": queue,
                "subscribed": is_there, "pool": pool })
        };
        let told = check(&["-o", "json"]).json();
        assert_eq!(told["valid"], true);
        assert_eq!(
            told["subscriptions"],
            json!([one("work", Some("work")), one("nobodys", None)])
        );
        // Of a password in the file it warns, too.
        let warnings = told["warnings"].as_array().unwrap().iter();
        let warnings: Vec<&Value> = warnings
            .filter(|warning| warning["path"] == "subscriptions")
            .collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let message = warnings[0]["message"].as_str().unwrap();
        let why = "no pool of this configuration reads a queue";
        assert!(
            message.contains(why) && message.contains("`nobodys`"),
            "{message}"
        );
    };
    told(false);
    let made = "queue `work` will be subscribed when the daemon starts, which creates the tables for it, \
                to topic `placed` in main";
    let text = check(&[]).good();
    assert!(text.contains(made), "{text}");
    let daemon = site.start(std::slice::from_ref(&pool));
    daemon.eventually("the subscriptions to be there", || {
        daemon.times_logged(SUBSCRIBED) == 2
    });
    daemon.stop();
    told(true);
    let text = check(&[]).good();
    assert!(
        text.contains("queue `work` is subscribed, to topic"),
        "{text}"
    );
    check(&["--strict"]).bad(2);
    assert_eq!(
        site.ganger(&["check", "-o", "json"])
            .json()
            .get("subscriptions"),
        None
    );
}
