//! The examples of `docs/producers.md`: each sends to a broker or a database of its own, and a worker
//! answers with all that reached it. What can't be sent is not said to be.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lapin::types::AMQPValue;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::harness::kafka::{Kafka, Plan, Stored};
use crate::harness::rabbit::{RabbitScene, Vhost, rabbit_site, text};
use crate::harness::{PROGRAM, Pool, Scene, Workspace};
use crate::migrating::prepared;
use crate::python::python;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ORDERS: &str = "orders";
const REPLIES: &str = "orders.replies";

/// In which languages there are examples that can be run here, and whether they have one for Kafka.
const LANGUAGES: [(&str, Make, bool); 7] = [
    ("python", in_python, true),
    ("node", in_node, true),
    ("go", in_go, true),
    ("java", in_java, true),
    ("rust", in_rust, true),
    ("php", in_php, false),
    ("ruby", in_ruby, false),
];

/// Makes the command of an example, which may put what it needs into the directory.
type Make = fn(&Workspace, kind: &str) -> Command;

/// The tests of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let each = |kind: &str, test: fn(Make)| {
        LANGUAGES.map(|(language, make, _)| {
            Trial::test(format!("producers::{kind}_{language}"), move || {
                test(make);
                Ok(())
            })
        })
    };
    let kafka = Trial::test("producers::kafka", || {
        kafka();
        Ok(())
    });
    let tests = [each("rabbitmq", rabbitmq), each("table", table)];
    tests.into_iter().flatten().chain([kafka]).collect()
}

// -- the commands --

fn sample(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("samples/producers")
        .join(path)
}

fn in_python(_: &Workspace, kind: &str) -> Command {
    let mut command = Command::new(prepared("venv/bin/python3"));
    command.arg(sample(&format!("python/{kind}.py")));
    command
}

/// A module finds its libraries beside itself only.
fn in_node(site: &Workspace, kind: &str) -> Command {
    let script = format!("{kind}.mjs");
    let text = std::fs::read_to_string(sample("node").join(&script)).unwrap();
    site.put(&script, &text, false);
    let (modules, here) = (prepared("node/node_modules"), site.path("node_modules"));
    if !here.exists() {
        std::os::unix::fs::symlink(modules, here).unwrap();
    }
    let mut command = Command::new(prepared("node/bin/node"));
    command.arg(site.path(&script));
    command
}

fn in_go(_: &Workspace, kind: &str) -> Command {
    let mut command = Command::new("go");
    command
        .args(["run", &format!("./{kind}")])
        .current_dir(sample("go"));
    command
}

fn in_java(_: &Workspace, kind: &str) -> Command {
    let class = match kind {
        "rabbitmq" => "RabbitMq",
        "kafka" => "Kafka",
        _ => "Table",
    };
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(prepared("java").join("*"))
        .arg(sample(&format!("java/{class}.java")));
    command
}

/// An example of this crate, which `cargo test` builds if it is given no `--test`.
fn in_rust(_: &Workspace, kind: &str) -> Command {
    let examples = Path::new(PROGRAM).with_file_name("examples");
    let program = examples.join(format!("producer_{kind}"));
    assert!(
        program.exists(),
        "no {}: run cargo build --examples",
        program.display()
    );
    Command::new(program)
}

/// Composer's autoloader is Debian's here.
fn in_php(site: &Workspace, kind: &str) -> Command {
    std::fs::create_dir_all(site.path("vendor")).unwrap();
    let debian = "<?php require '/usr/share/php/PhpAmqpLib/autoload.php';\n";
    site.put("vendor/autoload.php", debian, false);
    let mut command = Command::new("php");
    command
        .args(["-d", "display_errors=stderr"])
        .arg(sample(&format!("php/{kind}.php")))
        .current_dir(site.path(""));
    command
}

fn in_ruby(_: &Workspace, kind: &str) -> Command {
    let mut command = Command::new("ruby");
    command.arg(sample(&format!("ruby/{kind}.rb")));
    command
}

/// Runs an example to its end.
fn run(mut command: Command, variable: &str, value: &str) -> Output {
    command.env("TRACEPARENT", TRACEPARENT).env(variable, value);
    let out = command.output();
    out.unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run installs what it needs"))
}

/// The correlation id that it has printed when all was well.
fn sent(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    let id = String::from_utf8(out.stdout.clone()).unwrap();
    let id = id.strip_suffix('\n').unwrap_or_default();
    assert!(
        id.len() >= 32 && !id.contains(char::is_whitespace),
        "{id:?}"
    );
    id.to_owned()
}

/// It has failed, and has not said that anything was sent.
fn assert_not_sent(out: &Output) {
    assert!(!out.status.success() && out.stdout.is_empty(), "{out:?}");
}

// -- the worker --

/// A pool of workers that answer with all that they were told.
fn echo() -> Pool {
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/echo.py");
    Pool::of_program(python().to_str().unwrap(), &[worker]).text("queue", ORDERS)
}

/// Sees that the worker was told all that the example has sent.
fn assert_all_arrived(reply: &str, correlation_id: &str) -> Value {
    let told: Value = serde_json::from_str(reply).unwrap();
    let body: Value = serde_json::from_str(told["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({ "order": 17 }), "{told}");
    assert_eq!(told["correlation_id"], correlation_id, "{told}");
    assert_eq!(told["headers"]["tenant"], "blue", "{told}");
    assert_eq!(told["headers"]["traceparent"], TRACEPARENT, "{told}");
    let properties = &told["properties"];
    assert_eq!(properties["content_type"], "application/json", "{told}");
    let id = properties["message_id"].as_str().unwrap_or_default();
    assert!(id.len() >= 32 && id != correlation_id, "{told}");
    told
}

// -- the tests --

fn rabbitmq(make: Make) {
    let vhost = Vhost::shared();
    let (url, client) = (vhost.url(), vhost.client());
    let site = rabbit_site(&url, "");
    // There is no queue yet, and then one that is full.
    assert_not_sent(&run(make(&site, "rabbitmq"), "AMQP_URL", &url));
    let refuses = ("x-overflow", text("reject-publish"));
    client.declare(ORDERS, &[("x-max-length", AMQPValue::LongInt(1)), refuses]);
    client.fill(ORDERS);
    assert_not_sent(&run(make(&site, "rabbitmq"), "AMQP_URL", &url));
    client.delete(ORDERS);
    client.declare(REPLIES, &[]);
    let daemon = site.start(&[echo()]);
    let scene = RabbitScene {
        daemon,
        client,
        site,
        vhost,
    };
    let ready = || scene.client.ready(ORDERS).is_some();
    scene.daemon.eventually("the queue", ready);
    let id = sent(&run(make(&scene.site, "rabbitmq"), "AMQP_URL", &url));
    let reply = scene.daemon.eventually_some("the reply", || {
        scene.client.take_all(REPLIES).into_iter().next()
    });
    assert_all_arrived(reply.text(), &id);
    assert_eq!(reply.id(), id);
    scene.finish();
}

fn table(make: Make) {
    let scene = Scene::of(echo());
    let own = "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)";
    scene.table.0.execute(own, []).unwrap();
    let database = scene.site.path("queue.db");
    let database = database.to_str().unwrap();
    let id = sent(&run(make(&scene.site, "table"), "DATABASE", database));
    let reply = scene.daemon.eventually_some("the reply", || {
        scene.table.messages(REPLIES).into_iter().next()
    });
    assert_all_arrived(&reply.body, &id);
    assert_eq!(reply.correlation_id.as_deref(), Some(id.as_str()));
    // The order is there already: neither it nor a message is written.
    assert_not_sent(&run(make(&scene.site, "table"), "DATABASE", database));
    let written = "SELECT (SELECT count(*) FROM orders),
        (SELECT seq FROM sqlite_sequence WHERE name = 'consumer_messages')";
    let numbers = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let written: (u32, u32) = scene.table.0.query_row(written, [], numbers).unwrap();
    assert_eq!(written, (1, 2), "the order, the message and its reply");
    scene.finish();
}

/// One after the other, for they share the topics that they name.
fn kafka() {
    let site = Plan::on(Kafka::shared(), 0).make();
    site.kafka.make_topic(ORDERS, 3);
    site.kafka.make_topic(REPLIES, 1);
    let daemon = site.start(&echo());
    let here = Workspace::new();
    let brokers = site.kafka.address();
    let mut partitions = Vec::new();
    for (_, make, _) in LANGUAGES.iter().filter(|(_, _, kafka)| *kafka) {
        let id = sent(&run(make(&here, "kafka"), "KAFKA_BROKERS", &brokers));
        let reply = daemon.eventually_some("the reply", || {
            let replies = site.kafka.read(REPLIES);
            let mine = |reply: &Stored| reply.header("CorrelationId").as_deref() == Some(&id);
            replies.into_iter().find(mine)
        });
        let told = assert_all_arrived(&reply.text(), &id);
        assert_eq!(told["properties"]["key"], "customer-4", "{told}");
        partitions.push(told["properties"]["partition"].clone());
    }
    assert!(
        partitions.iter().all(|one| *one == partitions[0]),
        "a key has one partition: {partitions:?}"
    );
    daemon.stop();
}
