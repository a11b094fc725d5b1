//! Workers that are killed all the time: nothing is lost, little is done twice, and the pool is
//! soon whole again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::Instant;

use crate::harness::{DEADLINE, Daemon, Pool, Scene, field, said, trials};

trials![
    ten_thousand_messages_outlive_a_kill_every_50_ms,
    messages_in_windows_of_eight_outlive_a_kill_every_50_ms,
];

const WORKERS: usize = 4;
/// The rhythm of the kills; nothing waits for it.
const KILL_EVERY: Duration = Duration::from_millis(50);
/// How soon a worker that was killed must be replaced, as a rule, with the default back-off.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

fn ten_thousand_messages_outlive_a_kill_every_50_ms() {
    let pool = Pool::new(&["--mode=sleep:1"]).set("pipeline", "4");
    messages_outlive_kills(10_000, 4, pool);
}

fn messages_in_windows_of_eight_outlive_a_kill_every_50_ms() {
    let pool = Pool::new(&["--v2=8", "--mode=sleep:10"]);
    messages_outlive_kills(2_000, 8, pool);
}

fn messages_outlive_kills(count: usize, window: usize, pool: Pool) {
    let pool = pool
        .set("workers", &WORKERS.to_string())
        .set("restart", "{}")
        .attempts(100)
        .set("crashes_max", "100");
    let scene = Scene::of(pool);
    let bodies: Vec<String> = (0..count).map(|n| format!("message {n}")).collect();
    scene.daemon.has_workers(WORKERS);
    scene.send(&bodies);
    let killed = kill_until_settled(&scene);
    is_whole_again(&scene.daemon);
    scene.all_done();
    let twice = scene.record().assert_none_lost(&bodies);
    let kills = killed.len();
    assert!(kills >= 10, "only {kills} kills: the test is too fast");
    assert!(
        twice <= kills * window,
        "{twice} done twice by {kills} kills"
    );
    every_kill_is_told(&scene.daemon, &killed);
    scene.finish();
}

/// Kills workers, each in its turn, until the queue is empty, and one more then. Returns which.
///
/// How long all of them take is the machine's business. But the oldest goes first, so none may stay
/// the oldest for long: it would be stuck.
fn kill_until_settled(scene: &Scene) -> BTreeSet<i32> {
    let mut oldest = (scene.table.oldest("work"), Instant::now());
    let mut killed = BTreeSet::new();
    loop {
        let now_oldest = scene.table.oldest("work");
        killed.extend(kill_one(&scene.daemon, &killed));
        if now_oldest.is_none() {
            return killed;
        }
        if now_oldest != oldest.0 {
            oldest = (now_oldest, Instant::now());
        }
        let (kills, stuck) = (killed.len(), oldest.1.elapsed());
        assert!(
            stuck < DEADLINE,
            "row {now_oldest:?} is stuck after {kills} kills: {:#?}",
            scene.table.messages("work").first()
        );
        std::thread::park_timeout(KILL_EVERY);
    }
}

/// One that has not been killed yet: on a busy machine that may take its time. Never the last: where
/// each were killed as soon as it is there, none could answer, and the pool would be right to take
/// that for a crash loop and to wait.
fn kill_one(daemon: &Daemon, killed: &BTreeSet<i32>) -> Option<i32> {
    let mut victims = alive(daemon);
    victims.retain(|pid| !killed.contains(pid));
    if victims.len() < 2 {
        return None;
    }
    let victim = victims[killed.len() % victims.len()];
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    Some(victim)
}

fn alive(daemon: &Daemon) -> Vec<i32> {
    let processes = daemon.processes();
    processes.iter().map(|process| process.pid).collect()
}

fn is_whole_again(daemon: &Daemon) {
    daemon.eventually("all workers to be up and alive", || {
        let mut up = daemon.workers_up();
        up.sort_unstable();
        up.len() == WORKERS && up == alive(daemon)
    });
    let mut waits = waits_for_replacements(daemon);
    waits.sort_unstable();
    // One that has died again and again before its first answer is waited with, and a machine may be
    // The usual one: after several deaths without an answer the wait is longer, as it should be.
    let usual = waits[waits.len() / 2];
    assert!(usual < REPLACED_WITHIN, "usually {usual:?}: {waits:?}");
}

/// From the loss of each worker to when there was another in its place, by the daemon's log.
fn waits_for_replacements(daemon: &Daemon) -> Vec<Duration> {
    let mut lost_at: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut waits = Vec::new();
    for record in daemon.records(|record| said(record, "worker lost") || said(record, "worker up"))
    {
        let at: Timestamp = field(&record, "timestamp").parse().unwrap();
        let place = field(&record, "worker");
        if said(&record, "worker lost") {
            // One that was lost before it was up was not there yet.
            lost_at.entry(place).or_insert(at);
        } else if let Some(lost_at) = lost_at.remove(&place) {
            waits.push(at.duration_since(lost_at).unsigned_abs());
        }
    }
    waits
}

fn every_kill_is_told(daemon: &Daemon, killed: &BTreeSet<i32>) {
    let lost = daemon.records(|record| said(record, "worker lost"));
    let by_signal = |record: &&Value| field(record, "cause").contains("SIGKILL");
    let pids = lost.iter().filter(by_signal);
    let pids: Vec<i64> = pids.filter_map(|record| record["pid"].as_i64()).collect();
    let told: BTreeSet<i64> = pids.iter().copied().collect();
    assert_eq!(pids.len(), told.len(), "each once: {pids:?}");
    assert_eq!(told, killed.iter().map(|pid| i64::from(*pid)).collect());
    assert_eq!(lost.len(), killed.len(), "no other was lost: {lost:#?}");
}
