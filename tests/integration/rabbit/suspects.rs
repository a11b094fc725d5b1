//! Messages over which daemons vanish: found out, and in nobody's way meanwhile but each other's.

use lapin::types::AMQPValue;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, kind, rough, text};
use crate::harness::{Event, Pool, field, trials};

trials![
    a_message_that_takes_the_daemon_down_is_found_out,
    a_broker_that_restarts_makes_nothing_a_suspect,
    a_suspect_holds_up_only_the_suspects_of_other_pools,
    a_hundred_suspects_hold_up_nobody,
    a_message_that_has_no_room_to_go_back_is_not_lost,
];

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// A message over which two daemons have vanished.
fn suspect(queue: &str, body: &str) -> Letter {
    let letter = Letter::new(queue, body).header("x-ganger-queue", text(queue));
    letter.header("x-ganger-lapses", text("2")).signed("guest")
}

fn pool(name: &str) -> Pool {
    let pool = Pool::new(&["--v2=1"]).set("workers", "2");
    pool.text("name", name).text("queue", name)
}

/// The daemon is killed whenever a worker has begun the one message, until it is given up: after
/// the first time, which is forgiven, and the second, which makes it a suspect, by its turns.
fn a_message_that_takes_the_daemon_down_is_found_out() {
    let pool = [pool("work").set("lapses_max", "4").set("crashes_max", "1")];
    let mut scene = RabbitScene::at(Vhost::shared(), "", &pool);
    let culprit = "mode:hang the culprit";
    let neighbours = bodies("mode:wait:go neighbour", 3);
    scene.send(&[culprit]);
    scene.send(&neighbours);
    let mut deaths = 0;
    while brings_the_daemon_down(&scene, culprit, deaths) {
        deaths += 1;
        assert!(deaths < 20, "it goes on for ever");
        scene.daemon = scene.site.start(&pool);
        if deaths == 2 {
            scene.site.touch("go");
        }
    }
    scene.site.touch("go");
    let dead = scene.one_dead();
    assert_eq!(dead.text(), culprit);
    assert_eq!(deaths, 4);
    let why = "took the daemon down 4 times in a row";
    assert_eq!(dead.word("x-ganger-error"), why);
    let record = scene.record();
    record.assert_none_lost(&neighbours);
    for body in &neighbours {
        let began = record.of(Event::Began, body);
        let uncharged = began.iter().all(|entry| entry.attempt == Some(1));
        assert!(uncharged, "{began:#?}");
    }
    scene.finish();
}

/// Waits until a worker has begun it once more, and kills the daemon; false once it is dead.
fn brings_the_daemon_down(scene: &RabbitScene, culprit: &str, times: usize) -> bool {
    let is_begun = scene.daemon.eventually_some("the culprit's fate", || {
        let begun = scene.record().of(Event::Began, culprit).len() > times;
        let buried = scene.client.ready(DEAD) == Some(1);
        (begun || buried).then_some(begun)
    });
    if is_begun {
        scene.daemon.crash();
    }
    is_begun
}

/// Two pools, one with tasks that take longer than the broker lives: the other goes on after each
/// restart, and nothing of the first is held against its messages.
fn a_broker_that_restarts_makes_nothing_a_suspect() {
    let node = rough();
    let vhost = node.vhost();
    let url = vhost.url();
    let settings = "heartbeat = \"2s\"\nconnect_timeout = \"5s\"";
    let pools = [pool("work"), pool("fast")];
    let mut scene = RabbitScene::by(&url, vhost, settings, &pools);
    let slow = bodies("mode:wait:go slow", 2);
    scene.send(&slow);
    scene.begun(&slow);
    for time in 0..5 {
        node.stop();
        node.start_again();
        scene.client = scene.vhost.client();
        let fast = bodies(&format!("fast {time}"), 20);
        let letters = fast.iter().map(|body| Letter::new("fast", body));
        scene.client.publish(&letters.collect::<Vec<_>>());
        scene.daemon.eventually("the fast ones", || {
            let record = scene.record();
            let done = |body: &String| !record.of(Event::Done, body).is_empty();
            fast.iter().all(done)
        });
        // Those that wait for a worker are in hand again, and come back the next time.
        scene.daemon.eventually("the slow ones to be in hand", || {
            scene.vhost.in_hand(&scene.client, "work") == 2
        });
    }
    let suspected = |record: &Value| field(record, "message").contains("suspect");
    assert_eq!(scene.daemon.records(suspected), [] as [Value; 0]);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_none_lost(&slow);
    scene.finish();
}

/// Two pools of one daemon: the suspect of one waits for that of the other, and is named; all else
/// in both goes on.
fn a_suspect_holds_up_only_the_suspects_of_other_pools() {
    let pools = [pool("slow"), pool("fast")];
    let scene = RabbitScene::at(Vhost::shared(), "", &pools);
    scene.client.publish(&[suspect("slow", "mode:wait:go")]);
    scene.begun(&["mode:wait:go"]);
    scene.client.publish(&[suspect("fast", "a suspect")]);
    let waits = scene
        .daemon
        .logged("suspect message held until others are settled; other messages unaffected");
    assert_eq!(field(&waits, "pool"), "fast", "{waits}");
    let fresh = |queue: &str| bodies(&format!("fresh in {queue}"), 100);
    for queue in ["slow", "fast"] {
        let letters = fresh(queue)
            .into_iter()
            .map(|body| Letter::new(queue, body));
        scene.client.publish(&letters.collect::<Vec<_>>());
    }
    scene.done(200);
    scene.daemon.signal(Signal::SIGUSR1);
    let of_fast = |record: &Value| field(record, "pool") == "fast";
    let status = scene.daemon.logs("status of the pool", of_fast);
    let waits_for = "the suspect of pool `slow` to end";
    assert_eq!(field(&status, "waits_for"), waits_for, "{status}");
    assert!(scene.record().of(Event::Began, "a suspect").is_empty());
    scene.site.touch("go");
    scene.done(202);
    let record = scene.record();
    for queue in ["slow", "fast"] {
        record.assert_done_once(&fresh(queue));
    }
    record.assert_done_once(&["mode:wait:go", "a suspect"]);
    scene.finish();
}

/// More than the broker sends ahead, at the head of the queue.
fn a_hundred_suspects_hold_up_nobody() {
    let pool = pool("work").set("prefetch", "4");
    let scene = RabbitScene::at(Vhost::shared(), "", std::slice::from_ref(&pool));
    let all: Vec<String> = std::iter::once("mode:wait:go first".to_owned())
        .chain(bodies("suspect", 100))
        .collect();
    let letters = all.iter().map(|body| suspect("work", body));
    scene.client.publish(&letters.collect::<Vec<_>>());
    scene.begun(&all[..1]);
    let fresh = bodies("fresh", 50);
    scene.send(&fresh);
    scene.done(50);
    assert_eq!(scene.record().all(Event::Began).len(), 51);
    scene.site.touch("go");
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&fresh);
    record.assert_done_once(&all);
    scene.finish();
}

/// The broker drops it when it has come back too often: it must go on as a copy before that, and
/// the queue has no room for one as long as others are not worked on.
fn a_message_that_has_no_room_to_go_back_is_not_lost() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let number = AMQPValue::LongInt;
    let most = ("x-max-length", number(2));
    let limit = ("x-delivery-limit", number(20));
    let refuse = ("x-overflow", text("reject-publish"));
    client.declare("work", &[kind("quorum"), most, limit, refuse]);
    client.publish(&[Letter::new("work", "came back")]);
    for _ in 0..15 {
        client.give_back("work");
    }
    client.publish(&[Letter::new("work", "mode:wait:go before")]);
    client.fill("work");
    let pool = pool("work").set("workers", "1").set("prefetch", "1");
    let scene = RabbitScene::at(vhost, "", &[pool]);
    scene.begun(&["mode:wait:go before".to_owned()]);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&["came back"]);
    scene.finish();
}
