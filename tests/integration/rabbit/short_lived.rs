//! Queues that the broker deletes with the messages in them once nobody consumes them: that is told of,
//! and not brought about by a pool that only rests.

use lapin::options::QueueDeclareOptions;
use lapin::types::AMQPValue;

use crate::harness::rabbit::{DEAD, Letter, RabbitScene, Vhost, rabbit_site, refused};
use crate::harness::{Pool, field, trials};

trials![
    a_pause_loses_nothing_of_an_auto_delete_queue,
    a_drain_loses_nothing_of_a_transient_auto_delete_queue,
    a_pause_does_not_let_a_queue_expire,
    a_check_warns_of_them,
    a_lasting_queue_is_not_warned_of,
    an_exclusive_queue_is_refused,
    an_auto_delete_queue_of_dead_letters_is_not_read,
];

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
const AUTO_DELETE: &str = "RabbitMQ deletes the queue `work` and its messages when its last consumer \
                           ends, since it is auto-delete";

fn auto_delete(durable: bool) -> QueueDeclareOptions {
    QueueDeclareOptions {
        durable,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    }
}

/// A daemon that reads a queue made so.
fn reads(durable: bool, pool: Pool) -> RabbitScene {
    let vhost = Vhost::shared();
    vhost
        .client()
        .declare_with("work", auto_delete(durable), &[]);
    let scene = RabbitScene::at(vhost, ADMIN, &[pool]);
    scene.is_consumed();
    scene.daemon.logged(AUTO_DELETE);
    scene
}

fn bodies(what: &str) -> Vec<String> {
    (0..20).map(|n| format!("{what} {n}")).collect()
}

fn is_paused(scene: &RabbitScene) {
    scene.steer("pause");
    scene
        .daemon
        .eventually("the pause", || field(&scene.status(), "state") == "paused");
}

fn a_pause_loses_nothing_of_an_auto_delete_queue() {
    let scene = reads(true, Pool::new(&[]).set("workers", "2"));
    let (before, later) = (bodies("before"), bodies("later"));
    scene.send(&before);
    scene.all_done();
    is_paused(&scene);
    scene.send(&later);
    let all = before.len();
    let in_hand = || scene.vhost.in_hand(&scene.client, "work") > 0;
    scene.daemon.eventually("some to be sent ahead", in_hand);
    assert_eq!(scene.left(), 20);
    scene.record().assert_done_once(&before);
    assert_eq!(scene.record().all(crate::harness::Event::Began).len(), all);
    scene.steer("resume");
    scene.all_done();
    scene.record().assert_done_once(&later);
    scene.finish();
}

fn a_drain_loses_nothing_of_a_transient_auto_delete_queue() {
    let pool = Pool::new(&["--mode=wait:go"]).set("workers", "2");
    let scene = reads(false, pool);
    scene.steer("drain");
    scene
        .daemon
        .eventually("the drain", || scene.daemon.has_workers(0).is_empty());
    let all = bodies("message");
    scene.send(&all);
    assert_eq!(scene.vhost.consumers().len(), 1);
    scene.site.touch("go");
    scene.steer("resume");
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}

fn a_pause_does_not_let_a_queue_expire() {
    let vhost = Vhost::shared();
    let expires = ("x-expires", AMQPValue::LongInt(60_000));
    vhost.client().declare("work", &[expires]);
    let scene = RabbitScene::at(vhost, ADMIN, &[Pool::new(&[])]);
    scene.is_consumed();
    scene.daemon.logged(
        "RabbitMQ deletes the queue `work` and its messages once it had no consumer for 60000 ms, by \
         its argument `x-expires`",
    );
    is_paused(&scene);
    scene.send(&["one"]);
    assert_eq!(scene.vhost.consumers().len(), 1);
    scene.steer("resume");
    scene.all_done();
    scene.finish();
}

fn a_check_warns_of_them() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare_with("work", auto_delete(true), &[]);
    client.declare("buried", &[("x-expires", AMQPValue::LongInt(60_000))]);
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[Pool::new(&[]).text("dead_letter", "buried")]);
    let told = site.ganger(&["check", "--online"]);
    for part in [
        AUTO_DELETE,
        "the queue `buried` and its messages once it had no consumer for 60000 ms",
    ] {
        assert!(told.err.contains(part), "{told:#?}");
    }
    told.good();
}

fn a_lasting_queue_is_not_warned_of() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let transient = QueueDeclareOptions::default();
    for (queue, options) in [
        ("durable", QueueDeclareOptions::durable()),
        ("transient", transient),
    ] {
        client.declare_with(queue, options, &[]);
        let site = rabbit_site(&vhost.url(), "");
        site.configure_commands(&[Pool::new(&[]).text("queue", queue)]);
        let told = site.ganger(&["check", "--online"]);
        assert!(!told.err.contains("RabbitMQ deletes"), "{told:#?}");
        told.good();
    }
}

fn an_exclusive_queue_is_refused() {
    let vhost = Vhost::shared();
    let owner = vhost.client();
    let exclusive = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    owner.declare_with("work", exclusive, &[]);
    let why = refused(&vhost.url(), "", &[Pool::new(&[])]);
    assert!(why.contains("`work`") && why.contains("exclusive"), "{why}");
}

fn an_auto_delete_queue_of_dead_letters_is_not_read() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare_with(DEAD, auto_delete(true), &[]);
    client.publish(&[Letter::new(DEAD, "dead")]);
    let site = rabbit_site(&vhost.url(), "");
    site.configure_commands(&[Pool::new(&[]).text("dead_letter", DEAD)]);
    let told = site.ganger(&["dead", "list"]).bad(1);
    assert!(told.contains("auto-delete"), "{told}");
    assert_eq!(client.ready(DEAD), Some(1));
}
