//! How a daemon stops: what is in hand finishes, what is late is named and made to leave, the rest
//! goes back untouched, and nothing outlives it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::Instant;

use crate::harness::{
    Daemon, Event, NewMessage, Pool, Scene, Waiting, Workspace, field, said, trials,
};

trials![
    what_is_in_flight_finishes_and_the_rest_is_untouched,
    every_message_in_a_version_2_window_finishes,
    a_worker_that_ignores_everything_is_gone_before_its_message_is_back,
    the_log_names_who_is_late_and_each_further_signal_skips_a_phase,
    a_stop_does_not_wait_for_workers_that_are_starting,
    a_stop_does_not_wait_for_workers_that_can_not_start,
    an_idle_pool_stops_quickly,
    a_worker_that_dies_while_it_drains_is_charged_and_not_replaced,
    a_long_task_gives_up_its_worker_and_goes_on_after_the_restart,
    a_version_2_worker_is_asked_to_cancel_what_it_has,
    what_fails_because_it_was_asked_to_stop_is_never_charged,
    what_was_late_before_the_stop_is_charged,
];

/// More than the daemon needs on a busy machine for what has no deadline of its own.
const MARGIN: Duration = Duration::from_secs(3);

const LATE: &str = "stop is waiting for this worker";

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// Sends the signal and sees the daemon end well, with nothing left behind. Returns how long it took.
fn stop_by(signal: Signal, daemon: &Daemon) -> Duration {
    let asked = Instant::now();
    daemon.signal(signal);
    let status = daemon.exit();
    let took = asked.elapsed();
    assert!(status.success(), "the daemon ended with {status}");
    daemon.leaves_nothing();
    took
}

/// All that is left of the queue is these, as if they had never been handed out.
fn untouched<T: AsRef<str>>(scene: &Scene, bodies: &[T]) {
    let left = scene.table.messages("work");
    let texts: Vec<&str> = left.iter().map(|row| row.body.as_str()).collect();
    let wanted: Vec<&str> = bodies.iter().map(AsRef::as_ref).collect();
    assert_eq!(texts, wanted);
    let fresh = |row: &Waiting| row.attempts == 0 && row.crashes == 0 && !row.claimed;
    assert!(left.iter().all(fresh), "{left:#?}");
}

/// Waits until the daemon has claimed so many messages.
fn claimed(scene: &Scene, count: usize) {
    scene
        .daemon
        .eventually(&format!("{count} claimed messages"), || {
            let rows = scene.table.messages("work");
            rows.iter().filter(|row| row.claimed).count() == count
        });
}

fn what_is_in_flight_finishes_and_the_rest_is_untouched() {
    let pool = Pool::new(&[]).set("workers", "2").set("prefetch", "3");
    let scene = Scene::of(pool);
    let held = bodies("mode:wait:go", 2);
    scene.send(&held);
    scene.begun(&held);
    let rest = bodies("rest", 20);
    scene.send(&rest);
    claimed(&scene, 6);
    scene.daemon.signal(Signal::SIGTERM);
    // What no worker has goes back before anything else.
    claimed(&scene, 2);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    untouched(&scene, &rest);
    let record = scene.record();
    record.assert_done_once(&held);
    assert_eq!(
        record.all(Event::Began).len(),
        held.len(),
        "nothing new was begun"
    );
}

fn every_message_in_a_version_2_window_finishes() {
    let scene = Scene::of(Pool::new(&["--v2=4"]).set("prefetch", "6"));
    let held = bodies("mode:wait:go,reply", 4);
    let message = |body: &String| NewMessage::new(body).reply_to("answers");
    let messages: Vec<NewMessage> = held.iter().map(message).collect();
    scene.table.insert(&messages);
    scene.begun(&held);
    let rest = bodies("rest", 20);
    scene.send(&rest);
    claimed(&scene, 6);
    scene.daemon.signal(Signal::SIGTERM);
    claimed(&scene, 4);
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    untouched(&scene, &rest);
    scene.record().assert_done_once(&held);
    assert_eq!(scene.table.count("answers"), 4);
}

/// Its message is claimed as long as it lives, and uncharged in the end.
fn a_worker_that_ignores_everything_is_gone_before_its_message_is_back() {
    let (drain, phase) = (Duration::from_millis(300), Duration::from_millis(200));
    let site = Workspace::with_daemon(r#"drain_timeout = "300ms""#);
    let pool = Pool::new(&["--stubborn"]).text("stop_timeout", "200ms");
    let scene = Scene::at(site, &[pool]);
    scene.send(&["mode:hang"]);
    scene.begun(&["mode:hang"]);
    let worker = Pid::from_raw(scene.daemon.has_workers(1)[0]);
    let asked = Instant::now();
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.eventually("the message to be back", || {
        let is_back = !scene.table.messages("work")[0].claimed;
        // Looked at afterwards: if it lives now, it did when its message was back.
        let lives = kill(worker, None).is_ok();
        assert!(!(is_back && lives), "back while {worker} may work on it");
        is_back
    });
    assert!(scene.daemon.exit().success());
    let took = asked.elapsed();
    scene.daemon.leaves_nothing();
    untouched(&scene, &["mode:hang"]);
    let told = scene.record();
    assert_eq!(
        told.texts(Event::Told),
        ["__context_switch__", "__quit__"],
        "each once, in this order"
    );
    let deadlines = drain + 3 * phase;
    assert!(
        (deadlines..deadlines + MARGIN).contains(&took),
        "it took {took:?}, the deadlines are {deadlines:?} together"
    );
}

/// With deadlines of an hour only the signals move it on.
fn the_log_names_who_is_late_and_each_further_signal_skips_a_phase() {
    let site = Workspace::with_daemon(r#"drain_timeout = "1h""#);
    let pool = Pool::new(&["--stubborn"])
        .set("workers", "2")
        .text("stop_timeout", "1h");
    let scene = Scene::at(site, &[pool]);
    let worker = scene.daemon.has_workers(2);
    scene.send(&["mode:hang"]);
    scene.begun(&["mode:hang"]);
    let busy = scene.record().all(Event::Began)[0].pid;
    assert!(worker.contains(&busy));
    scene.daemon.signal(Signal::SIGTERM);
    let late = scene.daemon.logs(LATE, |record| record["pid"] == busy);
    assert_eq!(
        (
            field(&late, "pool"),
            field(&late, "state"),
            field(&late, "in_flight")
        ),
        ("work".to_owned(), "draining".to_owned(), "1".to_owned()),
        "{late}"
    );
    assert!(
        late["message_age"].as_f64().is_some_and(|age| age > 0.0),
        "{late}"
    );
    for (times, state) in ["asked to yield", "asked to quit", "sent SIGTERM"]
        .iter()
        .enumerate()
    {
        skip_a_phase(&scene, times + 1);
        is_in_state(&scene.daemon, busy, state);
    }
    scene.daemon.signal(Signal::SIGTERM);
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    untouched(&scene, &["mode:hang"]);
}

/// Signals that come too fast merge, so each is waited for.
fn skip_a_phase(scene: &Scene, times: usize) {
    let again = "asked to stop again: next phase begins at once";
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.eventually("the signal to be obeyed", || {
        scene.daemon.times_logged(again) == times
    });
}

fn is_in_state(daemon: &Daemon, pid: i32, state: &str) {
    daemon.eventually(&format!("the worker to be {state}"), || {
        daemon.signal(Signal::SIGUSR1);
        let last = daemon.records(|record| {
            field(record, "message") == "status of the worker" && record["pid"] == pid
        });
        last.last()
            .is_some_and(|record| field(record, "state") == state)
    });
}

fn a_stop_does_not_wait_for_workers_that_are_starting() {
    let pool = Pool::new(&["--start=idle"])
        .set("workers", "4")
        .text("start_timeout", "1h");
    let scene = Scene::of(pool);
    scene.send(&["a", "b"]);
    scene.daemon.eventually("the workers to be started", || {
        scene.daemon.processes().len() == 4
    });
    let took = stop_by(Signal::SIGTERM, &scene.daemon);
    assert!(took < MARGIN, "it took {took:?}");
    untouched(&scene, &["a", "b"]);
}

fn a_stop_does_not_wait_for_workers_that_can_not_start() {
    let pool = Pool::new(&["--start=exit:1"])
        .set("workers", "4")
        .set("restart", r#"{ initial = "1m", max = "1h" }"#);
    let scene = Scene::of(pool);
    scene.daemon.eventually("all of them to fail", || {
        scene.daemon.times_logged("worker lost") == 4
    });
    let took = stop_by(Signal::SIGTERM, &scene.daemon);
    assert!(took < MARGIN, "it took {took:?}");
}

/// Quicker than any deadline, for either signal, again and again.
fn an_idle_pool_stops_quickly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let pool = Pool::new(&[]).set("workers", "4");
        let scene = Scene::of(pool.text("stop_timeout", "1m"));
        scene.daemon.has_workers(4);
        let took = stop_by(signal, &scene.daemon);
        assert!(took < MARGIN, "it took {took:?}");
        let gone = scene.daemon.records(|record| said(record, "worker gone"));
        let by_itself = |record: &&Value| field(record, "cause").contains("code 0");
        assert_eq!(gone.iter().filter(by_itself).count(), 4, "{gone:#?}");
    }
}

fn a_worker_that_dies_while_it_drains_is_charged_and_not_replaced() {
    let scene = Scene::of(Pool::new(&[]));
    scene.send(&["mode:wait:go,die:exit:7"]);
    scene.begun(&["mode:wait:go,die:exit:7"]);
    scene.daemon.signal(Signal::SIGTERM);
    let worker = scene.record().all(Event::Began)[0].pid;
    is_in_state(&scene.daemon, worker, "draining");
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    scene.daemon.leaves_nothing();
    let left = scene.table.messages("work");
    assert_eq!(
        (left.len(), left[0].attempts, left[0].crashes),
        (1, 1, 1),
        "{left:#?}"
    );
    assert_eq!(scene.daemon.times_logged("worker up"), 1);
}

/// Asked to yield, it answers with a reply to its own queue; the last part answers the caller.
fn a_long_task_gives_up_its_worker_and_goes_on_after_the_restart() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let pool = Pool::new(&[]);
    let scene = Scene::at(site, std::slice::from_ref(&pool));
    let long = "mode:until-told:__context_switch__,switch:1";
    let message = NewMessage::new(long)
        .reply_to("answers")
        .correlation_id("c-1");
    scene.table.insert(&[message]);
    scene.begun(&[long]);
    stop_by(Signal::SIGTERM, &scene.daemon);
    untouched(&scene, &["mode:switch:0"]);
    let successor = scene.site.start(&[pool]);
    successor.eventually("the answer", || scene.table.count("answers") == 1);
    let answer = &scene.table.messages("answers")[0];
    assert_eq!(answer.body, "all parts done");
    assert_eq!(answer.correlation_id.as_deref(), Some("c-1"));
    scene.record().assert_done_once(&[long, "mode:switch:0"]);
    successor.stop();
}

/// It hands one back, which counts for nothing, and finishes the other.
fn a_version_2_worker_is_asked_to_cancel_what_it_has() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let scene = Scene::at(site, &[Pool::new(&["--v2=2"])]);
    let held = [
        "mode:until-cancelled,answer:300",
        "mode:until-cancelled,answer:200",
    ];
    scene.send(&held);
    scene.begun(&held);
    stop_by(Signal::SIGTERM, &scene.daemon);
    let left = scene.table.messages("work");
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(
        (left[0].body.as_str(), left[0].attempts, left[0].requeues),
        (held[0], 0, 0)
    );
    scene.record().assert_done_once(&held[1..]);
}

/// More deploys than a message has attempts.
fn what_fails_because_it_was_asked_to_stop_is_never_charged() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let pool = Pool::new(&["--v2=2"]).attempts(2);
    let mut scene = Scene::at(site, std::slice::from_ref(&pool));
    let held = [
        "mode:until-cancelled,answer:500",
        "mode:until-cancelled,answer:429:50",
    ];
    scene.send(&held);
    for deploy in 1..=3 {
        scene.daemon.eventually("both to be begun", || {
            scene.record().all(Event::Began).len() == 2 * deploy
        });
        stop_by(Signal::SIGTERM, &scene.daemon);
        untouched(&scene, &held);
        scene.daemon = scene.site.start(std::slice::from_ref(&pool));
    }
    scene.daemon.stop();
    assert!(scene.table.dead().is_empty());
}

/// Its time was up while it still had our leave to work, so it fails for that.
fn what_was_late_before_the_stop_is_charged() {
    let site = Workspace::with_daemon(r#"drain_timeout = "100ms""#);
    let pool = Pool::new(&["--v2=1"])
        .text("timeout", "100ms")
        .text("timeout_grace", "1h");
    let scene = Scene::at(site, &[pool.text("stop_timeout", "1h")]);
    let late = "mode:until-cancelled,wait:go,answer:500";
    scene.send(&[late]);
    scene.daemon.eventually("its soft timeout", || {
        !scene.record().all(Event::Told).is_empty()
    });
    scene.daemon.signal(Signal::SIGTERM);
    scene.daemon.eventually("it to be asked again", || {
        scene.record().all(Event::Told).len() == 2
    });
    scene.site.touch("go");
    assert!(scene.daemon.exit().success());
    let left = scene.table.messages("work");
    assert_eq!((left.len(), left[0].attempts), (1, 1), "{left:#?}");
}
