//! Stops and reloads at bad moments: what was fetched goes back once and at once, and the stop comes
//! to its end.

use lapin::types::AMQPValue;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::rabbit::{Client, DEAD, Letter, RabbitScene, Vhost, kind, text};
use crate::harness::{Event, Pool, look, trials};

trials![
    a_stop_right_after_the_pool_was_made_smaller,
    a_stop_gives_back_what_was_fetched_once,
    without_workers_nothing_is_kept,
    a_stop_while_the_dead_letter_queue_is_missing,
    a_stop_while_the_own_queue_is_full,
    a_stop_while_the_broker_goes_down_and_up,
    what_its_worker_puts_off_at_a_stop_is_put_off_uncharged,
    a_stop_takes_nothing_more_from_its_queue,
];

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn letters(bodies: &[String]) -> Vec<Letter> {
    let letter = |body: &String| Letter::new("work", body);
    bodies.iter().map(letter).collect()
}

fn waiting_pool(workers: u32, prefetch: u32) -> Pool {
    Pool::new(&["--mode=wait:go"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string())
}

fn has_in_hand(scene: &RabbitScene, count: u64) {
    let what = format!("{count} messages in hand");
    let in_hand = || scene.vhost.in_hand(&scene.client, "work");
    scene.daemon.eventually(&what, || in_hand() == count);
}

/// Two messages, each of which must run with nothing else in hand.
fn two_that_came_back(client: &Client) {
    client.publish(&letters(&bodies("came back", 2)));
    client.give_back("work");
    client.give_back("work");
    let first = client.hold("work");
    client.give_back("work");
    client.give_back("work");
    drop(first);
}

/// How often each message of the queue has come back, by the broker's own count.
fn returns(scene: &RabbitScene) -> Vec<i64> {
    let count = |letter: &Letter| match letter.value("x-delivery-count") {
        None => 0,
        Some(AMQPValue::LongLongInt(count)) => count,
        Some(other) => panic!("no count: {other:?}"),
    };
    // The broker has the last of it back a moment after the daemon's end.
    has_in_hand(scene, 0);
    scene.client.take_all("work").iter().map(count).collect()
}

fn a_stop_right_after_the_pool_was_made_smaller() {
    let scene = RabbitScene::of(waiting_pool(4, 10));
    let all = bodies("message", 60);
    scene.send(&all);
    has_in_hand(&scene, 40);
    scene.daemon.eventually("four to be begun", || {
        scene.record().all(Event::Began).len() == 4
    });
    scene.reload(&[waiting_pool(1, 10)]);
    scene.daemon.signal(Signal::SIGTERM);
    // What no worker has begun is back before the others are done.
    has_in_hand(&scene, 4);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    assert_eq!(scene.record().all(Event::Done).len(), 4);
    assert_eq!(scene.left(), 56);
}

fn a_stop_gives_back_what_was_fetched_once() {
    let scene = RabbitScene::of(waiting_pool(1, 100));
    scene.send(&bodies("message", 200));
    has_in_hand(&scene, 100);
    scene.begun(&["message 0"]);
    scene.daemon.signal(Signal::SIGTERM);
    has_in_hand(&scene, 1);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    let returns = returns(&scene);
    assert_eq!(returns.len(), 199);
    // As many as were fetched, each once.
    assert_eq!(returns.iter().sum::<i64>(), 99);
    assert!(returns.iter().all(|times| *times <= 1), "{returns:?}");
}

/// Not even what must wait until nothing else is in hand.
fn without_workers_nothing_is_kept() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    client.declare("work", &[kind("quorum")]);
    two_that_came_back(&client);
    let pool = waiting_pool(1, 10).set("restart", r#"{ initial = "1h", max = "1h" }"#);
    let scene = RabbitScene::at(vhost, "", &[pool]);
    scene.daemon.eventually("one to be begun", || {
        scene.record().all(Event::Began).len() == 1
    });
    scene.send(&bodies("message", 5));
    has_in_hand(&scene, 7);
    let worker = scene.daemon.has_workers(1)[0];
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    has_in_hand(&scene, 0);
    // Copies of two of them may be there a moment before those are gone.
    let left = || scene.left() == 7;
    scene.daemon.eventually("they are there for others", left);
    assert!(scene.vhost.consumers().is_empty());
    scene.finish();
}

/// Nobody may make it: the letter stays with its message, and the others go back once.
fn a_stop_while_the_dead_letter_queue_is_missing() {
    let pool = Pool::new(&[]).set("prefetch", "10");
    let before = RabbitScene::of(pool.clone());
    before.daemon.stop();
    let scene = RabbitScene::at(before.vhost, "declare = false", &[pool]);
    scene.client.delete(DEAD);
    scene.send(&["mode:answer:400"]);
    scene.has_problem(DEAD);
    scene.send(&bodies("message", 50));
    // One letter that waits stops nobody.
    scene.done(50);
    has_in_hand(&scene, 1);
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.exit();
    let returns = returns(&scene);
    assert_eq!(returns.len(), 1, "it is not lost");
    assert!(returns.iter().all(|times| *times <= 1), "{returns:?}");
}

/// A message that came back goes as a copy, since the broker would count it; there is no room for
/// one.
fn a_stop_while_the_own_queue_is_full() {
    let vhost = Vhost::shared();
    let client = vhost.client();
    let most = ("x-max-length", AMQPValue::LongInt(2));
    let refuse = ("x-overflow", text("reject-publish"));
    client.declare("work", &[kind("quorum"), most, refuse]);
    two_that_came_back(&client);
    let scene = RabbitScene::at(vhost, "", &[waiting_pool(1, 2)]);
    has_in_hand(&scene, 2);
    scene.daemon.eventually("one to be begun", || {
        scene.record().all(Event::Began).len() == 1
    });
    let more = scene.client.fill("work");
    scene.daemon.signal(Signal::SIGTERM);
    has_in_hand(&scene, 1);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    // The broker has taken the last acknowledgement a moment after the daemon's end.
    has_in_hand(&scene, 0);
    assert_eq!(scene.left(), 1 + more);
}

fn a_stop_while_the_broker_goes_down_and_up() {
    let node = crate::harness::rabbit::rough();
    let vhost = node.vhost();
    let url = vhost.url();
    let mut scene = RabbitScene::by(&url, vhost, "", &[waiting_pool(2, 5)]);
    let all = bodies("message", 20);
    scene.send(&all);
    scene.begun(&all[..2]);
    scene.daemon.signal(Signal::SIGTERM);
    has_in_hand(&scene, 2);
    node.stop();
    scene.daemon.logged("not connected to the broker");
    node.start_again();
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.client = scene.vhost.client();
    assert_eq!(scene.left(), 20, "the two may run twice");
    assert_eq!(scene.record().all(Event::Began).len(), 2);
}

fn what_its_worker_puts_off_at_a_stop_is_put_off_uncharged() {
    let pool = Pool::new(&["--v2=1"]).attempts(2);
    let mut scene = RabbitScene::of(pool.clone());
    scene.send(&["mode:until-cancelled,answer:429:700"]);
    for deploy in 1..=3 {
        scene.daemon.eventually("it to be begun", || {
            scene.record().all(Event::Began).len() == deploy
        });
        scene.daemon.signal(Signal::SIGTERM);
        scene
            .daemon
            .logged("stopping: messages in hand are finished first");
        scene.daemon.signal(Signal::SIGTERM);
        assert!(scene.daemon.exit().success());
        assert_eq!(scene.left(), 1);
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    let record = scene.record();
    let attempts: Vec<_> = record.all(Event::Began).iter().map(|e| e.attempt).collect();
    assert_eq!(attempts[..3], [Some(1); 3]);
}

/// More is acknowledged at the end than the channel passes on at once, while there is more in the
/// queue, which drops what comes back, or has a single consumer. Nothing tells when a worker ends its
/// message but the file that all wait for, so they end together.
fn a_stop_takes_nothing_more_from_its_queue() {
    let single = || ("x-single-active-consumer", AMQPValue::Boolean(true));
    let limit = || ("x-delivery-limit", AMQPValue::LongInt(1));
    for arguments in [
        vec![kind("quorum"), limit()],
        vec![kind("quorum"), single()],
    ] {
        let vhost = Vhost::shared();
        vhost.client().declare("work", &arguments);
        let pool = Pool::new(&["--v2=64", "--mode=wait:go"]).set("prefetch", "64");
        let scene = RabbitScene::at(vhost, "", &[pool]);
        let all = bodies("message", 80);
        scene.send(&all);
        scene.begun(&all[..60]);
        has_in_hand(&scene, 64);
        scene.daemon.signal(Signal::SIGTERM);
        scene
            .daemon
            .eventually("no consumer", || scene.vhost.consumers().is_empty());
        scene.site.touch("go");
        assert!(scene.daemon.exit().success());
        let done = scene.record().all(Event::Done).len();
        assert!(done >= 60, "{done} done");
        // A quorum queue writes acknowledgements down before they count, after they were sent.
        let left = u64::try_from(80 - done).unwrap();
        let all_count = look(|| (scene.left() == left).then_some(()));
        assert!(all_count.is_some(), "{} left: {arguments:?}", scene.left());
    }
}
