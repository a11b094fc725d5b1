//! A network that misbehaves between the daemon and the broker: nothing is lost, and what is done
//! twice can be told by the connections that were lost.

use std::time::Duration;

use crate::harness::rabbit::{RabbitScene, Vhost};
use crate::harness::{Event, Flow, Pool, Proxy, field, trials};

trials![
    all_of_it_under_load,
    a_stalled_connection_is_left,
    a_lost_connections_late_answers_are_void_and_counted,
    what_no_worker_has_begun_when_a_connection_is_lost_is_begun_once,
    replies_outlive_lost_connections,
    a_stop_does_not_wait_for_a_broker_that_is_gone,
];

/// How long the many messages may take on a busy machine.
const LONG: Duration = Duration::from_mins(2);
const SETTINGS: &str = "heartbeat = \"1s\"\nconnect_timeout = \"2s\"";

const DRIPS: Flow = Flow {
    up_is_stalled: false,
    down_is_stalled: false,
    drips: true,
    refuses: false,
    up_becomes: None,
    up_ends: None,
};
const STALLS: Flow = Flow {
    up_is_stalled: true,
    down_is_stalled: true,
    drips: false,
    refuses: false,
    up_becomes: None,
    up_ends: None,
};

fn behind_a_proxy(pool: Pool) -> (Proxy, RabbitScene) {
    let vhost = Vhost::shared();
    let proxy = Proxy::to(vhost.port());
    let url = vhost.url_by(proxy.port());
    (proxy, RabbitScene::by(&url, vhost, SETTINGS, &[pool]))
}

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn is_connected_again(proxy: &Proxy, scene: &RabbitScene, times: usize) {
    scene
        .daemon
        .eventually("another connection", || proxy.accepted() > times);
    scene.has_no_problem();
}

fn all_of_it_under_load() {
    let (workers, prefetch) = (4, 20);
    let pool = Pool::new(&["--mode=sleep:1"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string());
    let (proxy, scene) = behind_a_proxy(pool);
    let all = bodies("message", 4_000);
    scene.send(&all);
    scene.done(200);
    proxy.flow(DRIPS);
    scene.done(600);
    proxy.flow(Flow::default());
    let losses: [&dyn Fn(); 4] = [
        &|| proxy.cut(),
        &|| proxy.reset(),
        &|| proxy.flow(STALLS),
        &|| {
            proxy.flow(Flow {
                down_is_stalled: true,
                ..Flow::default()
            });
        },
    ];
    for (n, lose) in (1..).zip(losses) {
        scene.done(600 + 500 * n);
        let times = proxy.accepted();
        lose();
        scene
            .daemon
            .eventually("the loss to be noticed", || proxy.accepted() > times);
        proxy.flow(Flow::default());
    }
    scene
        .daemon
        .within(LONG, "all to be settled", || scene.left() == 0);
    scene.all_done();
    let twice = scene.record().assert_none_lost(&all);
    let most = 4 * workers * prefetch;
    assert!(twice <= most, "{twice} done twice by four losses");
    scene.has_no_problem();
    scene.finish();
}

fn a_stalled_connection_is_left() {
    let (proxy, scene) = behind_a_proxy(Pool::new(&[]));
    scene.send(&["before"]);
    scene.all_done();
    let times = proxy.accepted();
    proxy.flow(STALLS);
    scene.daemon.logged("not connected to the broker");
    proxy.flow(Flow::default());
    is_connected_again(&proxy, &scene, times);
    scene.send(&["after"]);
    scene.all_done();
    scene.record().assert_done_once(&["before", "after"]);
    scene.finish();
}

/// The work goes on; its settlement is void, since the broker has given the message to the next
/// connection.
fn a_lost_connections_late_answers_are_void_and_counted() {
    let pool = Pool::new(&["--mode=wait:go,reply:answers"]).set("workers", "2");
    let (proxy, scene) = behind_a_proxy(pool);
    scene.client.declare("answers", &[]);
    let held = bodies("held", 2);
    scene.send(&held);
    scene.begun(&held);
    let times = proxy.accepted();
    proxy.cut();
    is_connected_again(&proxy, &scene, times);
    scene.site.touch("go");
    scene.settled();
    let done = scene.record().all(Event::Done).len();
    assert!((2..=4).contains(&done), "{done}");
    assert_eq!(scene.record().assert_none_lost(&held), done - 2);
    let answers = scene.client.take_all("answers").len();
    assert_eq!(answers, 2, "no answer for a void settlement");
    assert_eq!(field(&scene.status(), "likely_duplicates"), "2");
    let up = scene.daemon.times_logged("worker lost");
    assert_eq!(up, 0, "the workers are kept");
    scene.finish();
}

/// What waits for a worker comes again, so there is no use in it.
fn what_no_worker_has_begun_when_a_connection_is_lost_is_begun_once() {
    let (workers, prefetch) = (2, 20);
    let pool = Pool::new(&["--mode=wait:go"])
        .set("workers", &workers.to_string())
        .set("prefetch", &prefetch.to_string());
    let (proxy, scene) = behind_a_proxy(pool);
    let all = bodies("message", workers * prefetch);
    scene.send(&all);
    scene.daemon.eventually("all to be in hand", || {
        let in_hand = scene.vhost.in_hand(&scene.client, "work");
        let begun = scene.record().all(Event::Began).len();
        (in_hand, begun) == (all.len() as u64, workers)
    });
    let times = proxy.accepted();
    proxy.cut();
    is_connected_again(&proxy, &scene, times);
    scene.site.touch("go");
    scene.settled();
    assert_eq!(scene.record().assert_none_lost(&all), workers);
    assert_eq!(
        field(&scene.status(), "likely_duplicates"),
        workers.to_string()
    );
    scene.finish();
}

/// Each answer arrives at least once, however often its confirmation is lost, and none is blamed for
/// that.
fn replies_outlive_lost_connections() {
    let pool = Pool::new(&["--mode=reply:answers"]).set("workers", "2");
    let (proxy, scene) = behind_a_proxy(pool);
    scene.client.declare("answers", &[]);
    let all = bodies("message", 1_000);
    scene.send(&all);
    for n in 1..=9 {
        scene.done(n * 100);
        proxy.reset();
    }
    scene.all_done();
    scene.record().assert_none_lost(&all);
    scene.assert_answered("answers", &all);
    scene.finish();
}

fn a_stop_does_not_wait_for_a_broker_that_is_gone() {
    let (proxy, scene) = behind_a_proxy(Pool::new(&["--mode=wait:go"]));
    scene.send(&["held"]);
    scene.begun(&["held"]);
    proxy.flow(Flow {
        refuses: true,
        ..Flow::default()
    });
    proxy.cut();
    scene.daemon.logged("not connected to the broker");
    scene.site.touch("go");
    scene.daemon.stop();
    assert_eq!(scene.left(), 1, "it is not lost");
}
