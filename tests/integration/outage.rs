//! What the workers depend on is away, or some messages are bad: the breaker on failures, at the
//! real daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{DEADLINE, Event, Pool, Progress, Record, Scene, field, said, trials};

trials![
    a_downstream_that_is_away_costs_few_tries_and_no_message,
    what_waits_in_lanes_and_pipes_is_not_tried,
    a_fifth_of_bad_ones_never_opens_it,
    a_thousand_bad_ones_in_a_row_drain_and_the_good_ones_follow,
    what_succeeds_at_its_third_attempt_is_not_starved,
    a_reload_may_turn_it_off;
    long: a_downstream_that_is_away_for_a_minute,
];

const OPEN: &str = "breaker opened: nearly all first attempts fail; trying one message at a time";
const CLOSED: &str = "breaker closed: attempts succeed again";

/// Its downstream is there as long as the file `up` is.
fn pool(args: &[&str]) -> Pool {
    let args = [args, &["--mode=sleep:1,unless:up:503"]].concat();
    Pool::new(&args).set("workers", "4").set("retry", "{}")
}

fn bodies(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

fn away(scene: &Scene) {
    std::fs::remove_file(scene.site.path("up")).unwrap();
}

/// Attempts that have not ended well so far.
fn failed(record: &Record) -> usize {
    record.all(Event::Began).len() - record.all(Event::Done).len()
}

fn status(scene: &Scene, state: &str) -> Value {
    scene.daemon.eventually_some("a status that tells", || {
        scene.daemon.signal(Signal::SIGUSR1);
        let told = scene.daemon.records(|record| {
            said(record, "status of the pool") && field(record, "state") == state
        });
        told.into_iter().next()
    })
}

fn a_downstream_that_is_away_costs_few_tries_and_no_message() {
    outage(8, 4);
}

fn a_downstream_that_is_away_for_a_minute() {
    // Half of the probes are of those that were tried before, the one first that has been due for longest.
    outage(60, 5);
}

/// With five thousand messages in the queue it goes away until so many probes have failed, one a
/// second. No message is tried more often than that before it comes back.
fn outage(probes: usize, attempts_max: u32) {
    const COUNT: usize = 5_000;
    let scene = Scene::of(pool(&["--v2=1"]));
    scene.site.touch("up");
    scene.send(&bodies("message", COUNT));
    let mut progress = Progress::of(&scene.site);
    scene
        .daemon
        .eventually("a tenth to be done", || progress.done() >= COUNT / 10);
    away(&scene);
    scene.daemon.logged(OPEN);
    let before = failed(&scene.record());
    let time = DEADLINE + Duration::from_secs(2 * probes as u64);
    scene.daemon.within(time, "the probes", || {
        failed(&scene.record()) >= before + probes
    });
    let error = field(&status(&scene, "open"), "breaker_error");
    assert!(error.contains("asked for a retry"), "{error}");
    scene.site.touch("up");
    let returned = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    scene.daemon.logged(CLOSED);
    scene
        .daemon
        .within(2 * DEADLINE, "all to be done", || progress.done() == COUNT);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&bodies("message", COUNT));
    assert!(failed(&record) < 200, "{} failed", failed(&record));
    let attempts = record.0.iter().filter_map(|entry| entry.attempt);
    let most = attempts.max().unwrap();
    assert!(most <= attempts_max, "{most} attempts");
    // A second after the first one, doubled each time, and a fifth more by chance.
    let longest = 1_200_000 * 2_u64.pow(attempts_max - 1);
    assert_soon_done(
        &record,
        u64::try_from(returned.as_micros()).unwrap(),
        longest,
    );
    scene.finish();
}

/// Within the `longest` back-off since the return, and what as many take when nothing is wrong.
fn assert_soon_done(record: &Record, returned: u64, longest: u64) {
    let done = record.all(Event::Done);
    let before: Vec<u64> = done
        .iter()
        .map(|entry| entry.micros)
        .filter(|at| *at < returned)
        .collect();
    let each = (before[before.len() - 1] - before[0]).min(60_000_000) / before.len() as u64;
    let took = done.iter().map(|entry| entry.micros).max().unwrap() - returned;
    let usual = each * (done.len() - before.len()) as u64;
    assert!(took < longest + 2 * usual, "{took} µs, usually {usual}");
}

/// A deep pipe and a large prefetch: when it opens, only what is in the pipes is tried still.
fn what_waits_in_lanes_and_pipes_is_not_tried() {
    let breaker = r#"{ of = 10, probe = "1h" }"#;
    let pool = pool(&["--v2=1"])
        .set("prefetch", "200")
        .set("breaker", breaker);
    let scene = Scene::of(pool);
    scene.send(&bodies("message", 2_000));
    scene.daemon.logged(OPEN);
    status(&scene, "open");
    scene.daemon.eventually("the surplus to go back", || {
        let rows = scene.table.messages("work");
        rows.iter().filter(|row| row.claimed).count() <= 10 + 4
    });
    let tried = scene.record().all(Event::Began).len();
    assert!(tried <= 10 + 2 * 4, "{tried} tries");
    let rows = scene.table.messages("work");
    let charged = rows.iter().filter(|row| !row.claimed && row.attempts > 0);
    assert_eq!(charged.count(), tried, "what went back is not charged");
    scene.finish();
}

fn a_fifth_of_bad_ones_never_opens_it() {
    let pool = Pool::new(&[]).set("workers", "4").attempts(1);
    let scene = Scene::of(pool);
    let body = |n: usize| match n % 5 {
        0 => format!("mode:answer:500 {n}"),
        _ => format!("good {n}"),
    };
    let all: Vec<String> = (0..2_000).map(body).collect();
    scene.send(&all);
    scene.settled();
    assert_eq!(scene.table.dead().len(), 400);
    assert_eq!(scene.daemon.times_logged(OPEN), 0);
    scene.finish();
}

fn a_thousand_bad_ones_in_a_row_drain_and_the_good_ones_follow() {
    let pool = Pool::new(&[])
        .set("workers", "4")
        .set("breaker", r#"{ probe = "5ms" }"#)
        .attempts(1);
    let scene = Scene::of(pool);
    scene.send(&bodies("mode:answer:500 bad", 1_000));
    let good = bodies("good", 200);
    scene.send(&good);
    scene.daemon.within(2 * DEADLINE, "all to be settled", || {
        scene.table.count("work") == 0
    });
    assert_eq!(scene.table.dead().len(), 1_000);
    scene.record().assert_done_once(&good);
    scene.daemon.logged(OPEN);
    scene.daemon.logged(CLOSED);
    status(&scene, "running");
    scene.finish();
}

/// Messages that wait for something of their own, while what all depend on is there: one succeeds before
/// there were as many tries as messages.
fn what_succeeds_at_its_third_attempt_is_not_starved() {
    const COUNT: usize = 60;
    let pool = Pool::new(&["--v2=1", "--mode=until-attempt:3:503"])
        .set("workers", "4")
        .set("breaker", r#"{ probe = "500ms" }"#)
        .set("retry", r#"{ initial = "500ms", jitter = 0.0 }"#);
    let scene = Scene::of(pool);
    let all = bodies("message", COUNT);
    scene.send(&all);
    scene.daemon.logged(OPEN);
    scene.all_done();
    let record = scene.record();
    record.assert_done_once(&all);
    assert_eq!(record.all(Event::Began).len(), 3 * COUNT);
    let entries = record.0.iter();
    let before = entries.take_while(|entry| entry.event != Event::Done);
    let tries = before.filter(|entry| entry.event == Event::Began).count();
    assert!(tries < COUNT, "{tries} tries before one succeeded");
    scene.finish();
}

fn a_reload_may_turn_it_off() {
    let scene = Scene::of(pool(&[]).set("breaker", r#"{ of = 10, probe = "1h" }"#));
    let all = bodies("message", 100);
    scene.send(&all);
    scene.daemon.logged(OPEN);
    scene.site.touch("up");
    scene
        .site
        .reconfigure(&scene.daemon, &[pool(&[]).text("breaker", "off")]);
    scene.daemon.signal(Signal::SIGHUP);
    scene.all_done();
    scene.record().assert_done_once(&all);
    scene.finish();
}
