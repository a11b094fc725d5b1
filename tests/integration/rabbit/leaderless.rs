//! Quorum queues of which most replicas are away: they take what is published and say nothing. The
//! broker stops the channel that publishes to one, and at last reads nothing more of its connection.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::rabbit::{DEAD, RabbitScene, Vhost, kind};
use crate::harness::{Event, Pool, trials};
use crate::servers::rabbit::Node;

trials![reply_queues_without_a_leader_hold_up_nobody_and_lose_nothing];

/// What many messages may take on a busy machine.
const LONG: Duration = Duration::from_mins(5);
/// The broker's channel waits so long for a queue that does not know it yet.
const STANDSTILL: Duration = Duration::from_secs(65);
const LOST: &str = "not connected to the broker";
const PAUSES: &str = "publish backlog is full; intake paused";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// What does not concern those queues.
fn go_on(scene: &RabbitScene, retried: &[String]) {
    scene.daemon.within(STANDSTILL, "the dead letters", || {
        scene.client.ready(DEAD) == Some(20)
    });
    scene.daemon.within(STANDSTILL, "the others' replies", || {
        scene.client.ready("healthy") == Some(300)
    });
    scene.daemon.within(STANDSTILL, "the retries", || {
        let record = scene.record();
        let done = |body: &String| !record.of(Event::Done, body).is_empty();
        retried.iter().all(done)
    });
}

/// One of them has had a reply before, and has more to take than a channel may leave unconfirmed; the
/// other is new to us. The pool's own queues are on the node that stays.
fn reply_queues_without_a_leader_hold_up_nobody_and_lose_nothing() {
    let node = Arc::new(Node::start(""));
    let vhost = Vhost::at(Arc::clone(&node));
    vhost.client().declare("work", &[kind("classic")]);
    let pool = Pool::new(&["--v2=1"])
        .set("workers", "2")
        .set("prefetch", "20");
    let scene = RabbitScene::at(vhost, "", &[pool]);
    let others = [node.join(), node.join()];
    scene.client.declare("healthy", &[kind("classic")]);
    scene.client.declare("known", &[kind("quorum")]);
    scene.client.declare("new", &[kind("quorum")]);
    let mut known = bodies("mode:reply:known early", 1);
    scene.send(&known);
    scene.all_done();
    for node in &others {
        node.kill();
    }

    let new = bodies("mode:reply:new message", 5);
    scene.send(&new);
    let large = bodies(&format!("mode:reply:known {}", "x".repeat(900_000)), 3);
    scene.send(&large);
    known.extend(bodies("mode:reply:known small", 300));
    scene.send(&known[1..]);
    let healthy = bodies("mode:reply:healthy message", 300);
    scene.send(&healthy);
    let retried = bodies("mode:until-attempt:2:500 retried", 20);
    scene.send(&retried);
    let dead = bodies("mode:answer:400 dead", 20);
    scene.send(&dead);
    go_on(&scene, &retried);
    scene.has_problem("the queues `known`, `new` have not confirmed a message for 30s");
    let later = bodies("mode:reply:healthy later", 50);
    scene.send(&later);
    scene.daemon.within(STANDSTILL, "later replies", || {
        scene.client.ready("healthy") == Some(350)
    });

    for node in &others {
        node.start_again();
    }
    scene
        .daemon
        .within(LONG, "all to be settled", || scene.left() == 0);
    scene.has_no_problem();
    let record = scene.record();
    for some in [&known, &new, &healthy, &later, &retried] {
        record.assert_done_once(some);
    }
    known.extend(large);
    scene.assert_answered("known", &known);
    scene.assert_answered("new", &new);
    scene.assert_answered("healthy", &[healthy, later].concat());
    let mut buried: Vec<String> = Vec::new();
    for letter in scene.client.take_all(DEAD) {
        buried.push(letter.text().to_owned());
    }
    buried.sort_unstable();
    let mut expected = dead;
    expected.sort_unstable();
    assert_eq!(buried, expected);
    assert_eq!(scene.daemon.times_logged(PAUSES), 0);
    assert_eq!(scene.daemon.times_logged(LOST), 0);
    scene.finish();
}
