//! What is finished is remembered on a server, beside another broker.

use std::collections::BTreeSet;

use crate::harness::kafka::Plan;
use crate::harness::rabbit::{Letter, RabbitScene};
use crate::harness::{Database, Event, field, trials_on};
use crate::kafka::idempotency as kafka;
use crate::rabbit::idempotency::{answers, letter, pool};

trials_on![
    what_is_sent_to_rabbitmq_twice_is_worked_on_once_and_answered_twice,
    a_store_that_dies_is_waited_for,
    two_groups_of_kafka_with_one_store_each_work_on_every_message,
];

/// The source that remembers.
fn memory(database: &Database) -> String {
    let url = database.url();
    format!("[sources.memory]\nkind = \"table\"\nurl = \"{url}\"")
}

fn what_is_sent_to_rabbitmq_twice_is_worked_on_once_and_answered_twice() {
    let database = Database::shared();
    let scene = RabbitScene::with(&memory(&database), pool(&["--v2=1", "--mode=reply"]));
    scene.client.declare("answers", &[]);
    let binary = letter("", "b").with(|properties| properties.with_correlation_id("b".into()));
    let binary = Letter {
        body: vec![0xff, 0],
        ..binary
    };
    let first = letter("first", "m").correlation_id("1");
    scene.client.publish(&[first, binary.clone()]);
    let mut bodies: Vec<Vec<u8>> = answers(&scene, 2).into_iter().map(|one| one.body).collect();
    let second = letter("first", "m").correlation_id("2");
    scene.client.publish(&[second, binary]);
    let again = answers(&scene, 2);
    let callers: BTreeSet<&str> = again.iter().map(Letter::id).collect();
    assert_eq!(callers, BTreeSet::from(["2", "b"]));
    let mut bodies_again: Vec<Vec<u8>> = again.into_iter().map(|one| one.body).collect();
    bodies.sort_unstable();
    bodies_again.sort_unstable();
    assert_eq!(bodies, bodies_again);
    scene.all_done();
    assert_eq!(scene.record().all(Event::Done).len(), 2);
    assert_eq!(database.table().finished(), 2);
    scene.finish();
}

/// As for a broker that is away: nothing is acknowledged, nothing is lost, and it goes on by itself.
fn a_store_that_dies_is_waited_for() {
    let database = Database::alone();
    let pool = pool(&["--mode=sleep:1"]).set("workers", "2");
    let scene = RabbitScene::with(&memory(&database), pool);
    let bodies: Vec<String> = (0..500).map(|n| format!("message {n}")).collect();
    let letters: Vec<Letter> = bodies.iter().map(|body| letter(body, body)).collect();
    scene.client.publish(&letters);
    scene.done(100);
    database.kill();
    let down = "finished messages can't be looked up; nothing is acknowledged, intake pauses";
    scene.daemon.logged(down);
    scene.daemon.eventually("it to be said", || {
        let problem = field(&scene.status(), "source_problem");
        problem.starts_with("finished messages can't be looked up: ")
    });
    database.start_again();
    scene
        .daemon
        .logged("resolved: finished messages can't be looked up");
    scene.all_done();
    scene.record().assert_done_once(&bodies);
    assert_eq!(database.table().finished(), 500);
    scene.finish();
}

/// Their sources are called alike.
fn two_groups_of_kafka_with_one_store_each_work_on_every_message() {
    let database = Database::shared();
    let memory = memory(&database);
    let [one, other] = [1, 0].map(|partitions| Plan::new(partitions).tables(&memory).make());
    let daemons = [&one, &other].map(|site| site.start(&kafka::pool(&one, &[])));
    let records = ["a", "b"].map(|body| one.message(body).header("MessageId", body));
    // Twice each.
    one.kafka.send(&[records.clone(), records].concat());
    for (site, daemon) in [&one, &other].into_iter().zip(daemons) {
        daemon.eventually("all to be committed", || site.group.lag(&one.topic) == 0);
        site.record().assert_done_once(&["a", "b"]);
        daemon.stop();
    }
    assert_eq!(database.table().finished(), 4);
}
