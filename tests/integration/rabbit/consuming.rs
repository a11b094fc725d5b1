//! How a queue is consumed: how much is fetched, who comes first, what happens to what is fetched
//! when the consumer ends.

use nix::sys::signal::Signal;

use lapin::types::AMQPValue;
use serde_json::Value;

use crate::harness::rabbit::{Letter, RabbitScene, Vhost, kind};
use crate::harness::{Daemon, Event, Pool, field, look, trials};
use crate::servers::rabbit::binary;

trials![
    a_pool_and_its_source_live_on_one_thread,
    no_more_is_fetched_than_asked_for,
    a_scaled_pool_fetches_more_or_less_on_the_same_connection,
    one_workers_end_does_not_touch_the_connection,
    a_consumer_has_its_priority_and_arguments,
    the_higher_priority_has_the_messages,
    the_prefetch_follows_the_pace_and_leaves_slow_tasks_to_others,
    a_single_active_consumer_is_followed_by_the_other,
    a_single_active_consumer_that_nobody_told_of_keeps_the_order,
    a_single_active_consumer_that_is_outgrown_is_told_of_and_made_anew_after_a_pause,
    a_queue_that_is_deleted_is_made_again_under_load,
    a_consumer_that_the_broker_cancels_is_made_again_while_its_queue_is_there,
    a_pool_moves_to_another_queue,
    two_pools_of_one_source_mind_their_own_queues,
    a_stop_acknowledges_what_is_done_and_returns_the_rest,
    a_message_that_waits_too_long_for_its_worker_is_returned_before_the_broker_objects,
    a_message_that_is_worked_on_for_too_long_is_warned_about,
    a_message_that_is_late_when_the_broker_cancels_its_consumer_is_counted,
    a_high_delivery_count_does_not_cost_a_message,
];

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn waiting_pool(workers: u32, prefetch: u32) -> Pool {
    Pool::new(&["--mode=wait:go"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string())
}

fn has_in_hand(scene: &RabbitScene, count: u64) {
    let in_hand = || scene.vhost.in_hand(&scene.client, "work");
    let found = look(|| (in_hand() == count).then_some(()));
    assert!(found.is_some(), "{} in hand, not {count}", in_hand());
}

/// Of each consumer.
fn prefetches(scene: &RabbitScene) -> Vec<u32> {
    let consumers = scene.vhost.consumers();
    let prefetch = |one: &String| one.split(' ').nth(1)?.parse().ok();
    consumers.iter().filter_map(prefetch).collect()
}

fn a_pool_and_its_source_live_on_one_thread() {
    let scene = RabbitScene::of(Pool::new(&[]));
    let all = bodies("message", 10);
    scene.send(&all);
    scene.all_done();
    scene.record().assert_done_once(&all);
    let threads = scene.daemon.threads();
    let are = |what: &str| threads.iter().filter(|name| name.starts_with(what)).count();
    assert_eq!((are("pool-"), are("source-")), (1, 0), "{threads:?}");
    scene.finish();
}

fn no_more_is_fetched_than_asked_for() {
    for kind in ["quorum", "classic"] {
        let scene = RabbitScene::of(waiting_pool(2, 5).text("queue_type", kind));
        let bodies = bodies("message", 40);
        scene.send(&bodies);
        has_in_hand(&scene, 10);
        scene.site.touch("go");
        scene.all_done();
        scene.record().assert_done_once(&bodies);
        scene.finish();
    }
}

fn a_scaled_pool_fetches_more_or_less_on_the_same_connection() {
    let scene = RabbitScene::of(waiting_pool(1, 5));
    let all = bodies("message", 60);
    scene.send(&all);
    has_in_hand(&scene, 5);
    let connections = scene.vhost.connections();
    assert_eq!(connections.len(), 1);
    scene.reload(&[waiting_pool(4, 10)]);
    has_in_hand(&scene, 40);
    scene.reload(&[waiting_pool(2, 3)]);
    scene.daemon.eventually("a smaller prefetch", || {
        prefetches(&scene).iter().sum::<u32>() == 6
    });
    scene.site.touch("go");
    scene.all_done();
    assert_eq!(scene.vhost.connections(), connections);
    scene.record().assert_done_once(&all);
    scene.finish();
}

fn one_workers_end_does_not_touch_the_connection() {
    let scene = RabbitScene::of(Pool::new(&[]).set("workers", "2").attempts(1));
    let connections = scene.vhost.connections();
    scene.send(&["mode:die:kill"]);
    scene.one_dead();
    scene.daemon.has_workers(2);
    let now = scene.vhost.connections();
    assert!(now.starts_with(&connections), "{now:?}");
    scene.finish();
}

fn a_consumer_has_its_priority_and_arguments() {
    let pool = Pool::new(&[])
        .set("consumer_priority", "7")
        .set("consumer_arguments", "{ x-note = \"ours\" }");
    let scene = RabbitScene::of(pool);
    scene.is_consumed();
    let consumers = scene.vhost.consumers();
    assert_eq!(consumers.len(), 1, "{consumers:?}");
    for part in [
        "<<\"x-priority\">>",
        ",7}",
        "<<\"x-note\">>",
        "<<\"ours\">>",
    ] {
        assert!(consumers[0].contains(part), "{part}: {consumers:?}");
    }
    scene.finish();
}

/// Two daemons at one queue, of which the more important one has room for all.
fn the_higher_priority_has_the_messages() {
    let pool = |priority: &str| {
        let pool = Pool::new(&["--mode=note:env:WHO"]).set("prefetch", "100");
        pool.set("consumer_priority", priority).env("WHO", priority)
    };
    let scene = RabbitScene::of(pool("1"));
    let other = scene.site.start(&[pool("9")]);
    other.eventually("both to consume", || scene.vhost.consumers().len() == 2);
    let all = bodies("message", 50);
    scene.send(&all);
    scene.all_done();
    let record = scene.record();
    assert_eq!(record.of(Event::Noted, "env:WHO=9").len(), 50, "{record:?}");
    other.stop();
    scene.finish();
}

/// A pool that was fast has many messages sent ahead. Once its tasks are slow it has few, and the other
/// daemon at the queue has its share.
fn the_prefetch_follows_the_pace_and_leaves_slow_tasks_to_others() {
    for kind in ["quorum", "classic"] {
        let pool = |who: &str| {
            let pool = Pool::new(&["--mode=note:env:WHO"]).env("WHO", who);
            pool.set("workers", "2").text("queue_type", kind)
        };
        let scene = RabbitScene::of(pool("first"));
        scene.is_consumed();
        assert_eq!(prefetches(&scene), [4], "what two workers usually use");
        // A look takes long on a busy machine, and it is there only as long as there is work.
        scene.daemon.eventually("an extra consumer", || {
            if scene.left() < 3000 {
                scene.send(&bodies("fast", 3000));
            }
            prefetches(&scene).len() == 2
        });
        scene.all_done();
        scene.send(&bodies("mode:sleep:300 slower", 8));
        scene
            .daemon
            .eventually("the extra one to be gone", || prefetches(&scene) == [4]);
        scene.all_done();
        let other = scene.site.start(&[pool("other")]);
        other.eventually("both to consume", || prefetches(&scene) == [4, 4]);
        let slow = bodies("mode:sleep:300,note:env:WHO slow", 40);
        scene.send(&slow);
        scene.all_done();
        scene.record().assert_done_once(&slow);
        let others = noted(&scene, "other");
        assert!(others >= 10, "the other had {others} of 40");
        other.stop();
        scene.finish();
    }
}

/// A daemon that reads the queue, and one that waits.
fn two_at_a_single_active_consumer(queue_type: &str, pool: &Pool) -> (RabbitScene, Daemon) {
    let vhost = Vhost::shared();
    let single = ("x-single-active-consumer", AMQPValue::Boolean(true));
    vhost.client().declare("work", &[kind(queue_type), single]);
    let pool = |who| pool.clone().env("WHO", who);
    let scene = RabbitScene::at(vhost, "", &[pool("first")]);
    scene.is_consumed();
    let other = scene.site.start(&[pool("second")]);
    other.eventually("both to consume", || scene.vhost.consumers().len() == 2);
    (scene, other)
}

fn noted(scene: &RabbitScene, who: &str) -> usize {
    let note = format!("env:WHO={who}");
    scene.record().of(Event::Noted, &note).len()
}

fn a_single_active_consumer_is_followed_by_the_other() {
    let pool = Pool::new(&["--mode=note:env:WHO"]);
    let (scene, other) = two_at_a_single_active_consumer("quorum", &pool);
    scene.send(&bodies("before", 20));
    scene.all_done();
    assert_eq!((noted(&scene, "first"), noted(&scene, "second")), (20, 0));
    scene.daemon.crash();
    scene.send(&bodies("after", 20));
    other.eventually("the other to do them", || noted(&scene, "second") == 20);
    assert_eq!(noted(&scene, "first"), 20);
    other.stop();
}

/// The pace of the worker rises and falls, and with it the prefetch that is wanted. The consumer that
/// is fed stays all the same, and with it all messages.
fn a_single_active_consumer_that_nobody_told_of_keeps_the_order() {
    for kind in ["quorum", "classic"] {
        let pool = Pool::new(&["--mode=note:env:WHO"]);
        let (scene, other) = two_at_a_single_active_consumer(kind, &pool);
        let mut all = Vec::new();
        for phase in ["", "again "] {
            let fast = bodies(&format!("{phase}fast"), 1000);
            let slow = bodies(&format!("mode:note:env:WHO,sleep:150 {phase}slow"), 20);
            for part in [fast, slow] {
                scene.send(&part);
                scene.all_done();
                all.extend(part);
            }
        }
        let ours = (noted(&scene, "first"), noted(&scene, "second"));
        assert_eq!(ours, (all.len(), 0), "{kind}");
        assert_eq!(scene.record().texts(Event::Done), all, "{kind}");
        other.stop();
        scene.finish();
    }
}

/// It stays, or the queue would go to another daemon while its messages are out.
fn a_single_active_consumer_that_is_outgrown_is_told_of_and_made_anew_after_a_pause() {
    let single = |pool: Pool| pool.set("queue_arguments", "{ x-single-active-consumer = true }");
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let scene = RabbitScene::with(admin, single(waiting_pool(2, 1)));
    let all = bodies("message", 30);
    scene.send(&all);
    has_in_hand(&scene, 2);
    scene.reload(&[single(waiting_pool(8, 1))]);
    let told = scene.daemon.logged(
        "the prefetch of the queue's single active consumer is too low for the workers, and \
         changing it would hand the queue to another daemon: pause and resume the pool, which does \
         that too, or set `workers` or `prefetch` that high from the start",
    );
    let figures = (told["prefetch"].as_u64(), told["useful"].as_u64());
    assert_eq!(figures, (Some(2), Some(8)), "{told}");
    assert_eq!(prefetches(&scene), [2]);
    scene.steer("pause");
    scene
        .daemon
        .eventually("no consumer", || scene.vhost.consumers().is_empty());
    scene.steer("resume");
    scene.daemon.eventually("all workers to have one", || {
        scene.record().all(Event::Began).len() == 8
    });
    assert_eq!(prefetches(&scene), [8]);
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}

fn a_queue_that_is_deleted_is_made_again_under_load() {
    let pool = Pool::new(&["--mode=sleep:1"]).set("workers", "2");
    let mut scene = RabbitScene::of(pool);
    scene.send(&bodies("lost with the queue", 500));
    scene.done(50);
    scene.client.delete("work");
    scene.is_consumed();
    let after = bodies("after", 200);
    // A channel that has published to the old queue may be told of its end by a refusal.
    scene.client = scene.vhost.client();
    scene.send(&after);
    scene.daemon.eventually("what came after to be done", || {
        let record = scene.record();
        let done = |body: &String| !record.of(Event::Done, body).is_empty();
        after.iter().all(done)
    });
    scene.all_done();
    scene.record().assert_done_once(&after);
    assert!(scene.vhost.queues()["work"].contains("x-delivery-limit"));
    scene.has_no_problem();
    scene.finish();
}

/// With a queue that cancels its consumers when it has to be recovered.
fn cancelling(settings: &str, pool: Pool) -> RabbitScene {
    let vhost = Vhost::shared();
    vhost.client().declare("work", &[kind("classic")]);
    let url = vhost.url();
    let pool = pool.set("consumer_arguments", "{ x-cancel-on-ha-failover = true }");
    RabbitScene::by(&url, vhost, settings, &[pool])
}

/// The queue hands out again what is not acknowledged.
fn cancel_consumers(scene: &RabbitScene) {
    let vhost = binary(scene.vhost.name());
    scene.vhost.order(&format!(
        "begin
            Name = rabbit_misc:r({vhost}, queue, <<\"work\">>),
            {{ok, Queue}} = rabbit_amqqueue:lookup(Name),
            exit(amqqueue:get_pid(Queue), kill),
            ok
        end"
    ));
}

/// As RabbitMQ 4.3 does when a message is not acknowledged in time. Here it does so since the queue
/// has crashed, and is back at once.
fn a_consumer_that_the_broker_cancels_is_made_again_while_its_queue_is_there() {
    let scene = cancelling("", Pool::new(&[]));
    let cancelled = |record: &Value| field(record, "problem").contains("cancelled the consumer");
    for times in 1..=3 {
        let some = bodies(&format!("message {times}"), 20);
        scene.send(&some);
        scene.all_done();
        scene.record().assert_done_once(&some);
        scene.is_consumed();
        cancel_consumers(&scene);
        scene.daemon.eventually("the end of the consumer", || {
            scene.daemon.records(cancelled).len() >= times
        });
        scene.has_no_problem();
        scene.is_consumed();
    }
    scene.all_done();
    assert_eq!(scene.daemon.times_logged("not connected to the broker"), 0);
    scene.finish();
}

fn a_pool_moves_to_another_queue() {
    let pool = |queue: &str| Pool::new(&["--mode=wait:go"]).text("queue", queue);
    let scene = RabbitScene::of(pool("work"));
    let held = bodies("held", 1);
    scene.send(&held);
    scene.begun(&held);
    scene.client.declare("other", &[kind("quorum")]);
    let there = Letter::new("other", "there");
    scene.client.publish(&[there]);
    scene.reload(&[pool("other")]);
    scene.site.touch("go");
    scene.daemon.eventually("both to be done", || {
        scene.record().all(Event::Done).len() == 2
    });
    scene.daemon.eventually("one consumer", || {
        let consumers = scene.vhost.consumers();
        consumers.len() == 1 && consumers[0].starts_with("other ")
    });
    scene.record().assert_done_once(&["held 0", "there"]);
    scene.daemon.eventually("the last acknowledgement", || {
        scene.vhost.totals().values().all(|total| *total == 0)
    });
    scene.finish();
}

fn two_pools_of_one_source_mind_their_own_queues() {
    let pool = |name: &str| {
        let note = format!(
            "--mode=note:env:GANGER_POOL,answer:{}",
            if name == "work" { 200 } else { 400 }
        );
        Pool::new(&["--v2=1", &note])
            .text("name", name)
            .text("queue", name)
    };
    let scene = RabbitScene::at(Vhost::shared(), "", &[pool("work"), pool("other")]);
    let there = Letter::new("other", "there");
    scene.client.publish(&[Letter::new("work", "here"), there]);
    scene.daemon.eventually("the other's dead letter", || {
        scene.client.ready("other.dead") == Some(1)
    });
    scene.all_done();
    let record = scene.record();
    let mut noted = record.texts(Event::Noted);
    noted.sort_unstable();
    assert_eq!(noted, ["env:GANGER_POOL=other", "env:GANGER_POOL=work"]);
    assert_eq!(scene.client.take("other.dead").unwrap().text(), "there");
    scene.finish();
}

/// What is in hand ends, what is only fetched goes back, what was never fetched is not touched.
fn a_stop_acknowledges_what_is_done_and_returns_the_rest() {
    for kind in ["quorum", "classic"] {
        let pool = Pool::new(&["--v2=1", "--mode=wait:go"])
            .set("workers", "2")
            .set("prefetch", "5")
            .text("queue_type", kind);
        let scene = RabbitScene::of(pool.clone());
        let all = bodies("message", 30);
        scene.send(&all);
        scene.daemon.eventually("two to be begun", || {
            scene.record().all(Event::Began).len() == 2
        });
        has_in_hand(&scene, 10);
        scene.daemon.signal(Signal::SIGTERM);
        // What no worker has been given does not wait for those that work.
        has_in_hand(&scene, 2);
        scene.site.touch("go");
        assert!(scene.daemon.exit().success());
        let done = scene.record().all(Event::Done).len();
        assert_eq!(done, 2);
        let left = scene.client.take_all("work");
        assert_eq!(left.len(), 28);
        let fetched = left.iter().filter(|letter| letter.redelivered).count();
        assert!(fetched <= 8, "{fetched} of those were fetched");
        let ours = |letter: &&Letter| {
            let headers = letter.headers();
            let mut names = headers.inner().keys();
            names.any(|name| name.as_str().starts_with("x-ganger-"))
        };
        let charged = left.iter().filter(ours).count();
        assert_eq!(charged, 0, "nothing is charged: {left:#?}");
    }
}

/// The source's own setting stands for the broker's.
fn a_message_that_waits_too_long_for_its_worker_is_returned_before_the_broker_objects() {
    let settings = "consumer_timeout = \"4s\"";
    let pool = Pool::new(&["--mode=wait:go"]).set("prefetch", "5");
    let scene = RabbitScene::with(settings, pool);
    let all = bodies("message", 3);
    scene.send(&all);
    scene.begun(&all[..1]);
    has_in_hand(&scene, 3);
    // They come again at once, so that only the broker's word tells that they were away.
    scene.daemon.eventually("a word about those that wait", || {
        let told = scene
            .daemon
            .records(|record| record.to_string().contains("consumer_timeout"));
        !told.is_empty()
    });
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}

/// Which is what a quorum queue does about such a message from 4.3 on.
fn a_message_that_is_late_when_the_broker_cancels_its_consumer_is_counted() {
    let pool = Pool::new(&["--mode=wait:go"]).set("workers", "2");
    let scene = cancelling("consumer_timeout = \"1s\"", pool);
    scene.send(&["long"]);
    scene.begun(&["long"]);
    let warned = |record: &Value| record.to_string().contains("held by a worker for so long");
    // At half of the time, and at three quarters of it.
    scene
        .daemon
        .eventually("two warnings", || scene.daemon.records(warned).len() == 2);
    assert_eq!(field(&scene.status(), "likely_duplicates"), "0");
    cancel_consumers(&scene);
    let told = scene.daemon.logged("messages may run twice");
    assert!(field(&told, "why").contains("cancelled"), "{told}");
    assert_eq!(field(&scene.status(), "likely_duplicates"), "1");
    scene.daemon.eventually("it to be handed out again", || {
        scene.record().of(Event::Began, "long").len() == 2
    });
    scene.site.touch("go");
    scene.all_done();
    scene.finish();
}

fn a_message_that_is_worked_on_for_too_long_is_warned_about() {
    let settings = "consumer_timeout = \"2s\"";
    let scene = RabbitScene::with(settings, Pool::new(&["--mode=wait:go"]));
    scene.send(&["long"]);
    scene.begun(&["long"]);
    let warned = scene.daemon.eventually_some("a warning", || {
        let told = scene.daemon.records(|record| {
            field(record, "level") == "WARN" && record.to_string().contains("consumer_timeout")
        });
        told.into_iter().next()
    });
    assert_eq!(field(&warned, "pool"), "work", "{warned}");
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&["long"]);
    scene.finish();
}

/// A queue that others have declared, whose broker drops a message that has been returned more than
/// twenty times.
fn a_high_delivery_count_does_not_cost_a_message() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let limit = ("x-delivery-limit", AMQPValue::LongInt(20));
    client.declare("work", &[kind("quorum"), limit]);
    client.publish(&[Letter::new("work", BODY)]);
    for _ in 0..19 {
        client.give_back("work");
    }
    let pool = Pool::new(&["--v2=1"]).text("stop_timeout", "50ms");
    let pool = pool.set("crashes_max", "1000");
    let mut scene = RabbitScene::at(vhost, "", std::slice::from_ref(&pool));
    for begun in 1..=4 {
        stop_in_mid_work(&scene, begun);
        // The queue may have heard of the last acknowledgement, and not have written it down.
        let what = format!("one message to be left after {begun} stops");
        scene.daemon.eventually(&what, || scene.left() == 1);
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    scene.site.touch("go");
    scene.all_done();
    scene.record().assert_done_once(&[BODY]);
    scene.finish();
}

const BODY: &str = "mode:wait:go";

/// Waits until it is begun once more, and stops the daemon without waiting for the worker.
fn stop_in_mid_work(scene: &RabbitScene, times: usize) {
    scene.daemon.eventually("it to be begun", || {
        scene.record().of(Event::Began, BODY).len() == times
    });
    scene.daemon.signal(Signal::SIGTERM);
    scene
        .daemon
        .logged("stopping: messages in hand are finished first");
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
}
