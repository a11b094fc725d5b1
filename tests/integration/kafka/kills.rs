//! Workers, daemons and the broker are killed while a hundred thousand messages pass through: none
//! is lost, each key's messages run first in the order in which they were written, and none runs
//! twice that was not in the hands of something killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::kafka::{Kafka, KafkaSite, NewRecord, Plan};
use crate::harness::{Daemon, Entry, Event, Pool, Progress, Record, trials};

trials![
    a_hundred_thousand_messages_outlive_workers_daemons_and_the_broker,
    messages_outlive_daemons_that_join_and_leave,
];

const PARTITIONS: usize = 6;
const KEYS: usize = 1_000;
/// A worker is killed whenever so many more are done, however long that takes.
const KILL_EVERY: usize = 200;
/// How often a daemon leaves and another comes.
const CHANGES: usize = 9;
/// So many messages come for each change, a few seconds of work, half of which are done before it.
const A_CHANGE: usize = 4_000;
/// How long all of it may take, far more than it needs.
const IN_TIME: Duration = Duration::from_secs(600);

fn a_hundred_thousand_messages_outlive_workers_daemons_and_the_broker() {
    let kafka = Kafka::own();
    let site = Plan::on(Arc::clone(&kafka), PARTITIONS).make();
    let count = 100_000;
    site.kafka.send(&messages(&site, count));
    let pool = tireless(&site, 8, "sleep:1");
    let mut run = Run::of(&site, &pool);
    for (part, death) in [Death::Daemon, Death::Broker, Death::Daemon, Death::Broker]
        .into_iter()
        .enumerate()
    {
        run.kills_workers_until_done(count * (part + 1) / 5);
        match death {
            Death::Daemon => run.replaces_the_daemon(),
            Death::Broker => {
                kafka.kill();
                kafka.start_again();
            }
        }
    }
    run.kills_workers_until_done(count);
    run.daemon
        .within(IN_TIME, "everything to be committed", || {
            site.group.lag(&site.topic) == 0
        });
    site.all_done(&run.daemon);
    assert!(run.killed.len() >= 100, "only {} kills", run.killed.len());
    run.daemon.stop();
    run.repeaters.extend(workers_that_lost(&run.daemon));
    in_order_and_none_lost(&site.record(), count, &run.repeaters);
}

enum Death {
    Daemon,
    Broker,
}

fn messages_outlive_daemons_that_join_and_leave() {
    let site = KafkaSite::new(PARTITIONS);
    let count = CHANGES * A_CHANGE;
    let pool = tireless(&site, 3, "sleep:4").text("queue", &site.topic);
    let mut progress = Progress::of(&site.site);
    let mut repeaters = BTreeSet::new();
    let mut daemons: Vec<Daemon> = (0..3).map(|_| site.start(&pool)).collect();
    for (change, messages) in messages(&site, count).chunks(A_CHANGE).enumerate() {
        site.kafka.send(messages);
        let enough = change * A_CHANGE + A_CHANGE / 2;
        daemons[1].within(IN_TIME, "more to be done", || progress.done() >= enough);
        let leaving = daemons.remove(0);
        // Most of them leave in good order, one in three does not.
        if change % 3 == 2 {
            leaving.crash();
            repeaters.extend(workers_ever(&leaving));
        } else {
            leaving.stop();
            repeaters.extend(workers_that_lost(&leaving));
        }
        daemons.push(site.start(&pool));
    }
    daemons[0].within(IN_TIME, "everything to be done", || {
        progress.done() == count && site.group.lag(&site.topic) == 0
    });
    site.all_done(&daemons[0]);
    for daemon in daemons {
        daemon.stop();
        repeaters.extend(workers_that_lost(&daemon));
    }
    in_order_and_none_lost(&site.record(), count, &repeaters);
}

/// Messages whose texts say their key and their place in its order.
fn messages(site: &KafkaSite, count: usize) -> Vec<NewRecord> {
    let message = |n: usize| {
        let (key, place) = (n % KEYS, n / KEYS);
        site.message(&format!("{key} {place}")).key(key.to_string())
    };
    (0..count).map(message).collect()
}

/// A pool in which no message dies of its workers' deaths.
fn tireless(site: &KafkaSite, workers: usize, mode: &str) -> Pool {
    site.pool(&[&format!("--mode={mode}")])
        .set("workers", &workers.to_string())
        .set("pipeline", "4")
        .set("restart", "{}")
        .attempts(1000)
        .set("crashes_max", "1000")
}

/// A daemon and whoever comes after it, whose workers are killed.
struct Run<'a> {
    site: &'a KafkaSite,
    pool: &'a Pool,
    daemon: Daemon,
    progress: Progress,
    killed: BTreeSet<i32>,
    /// The workers whose messages may run twice.
    repeaters: BTreeSet<i32>,
}

impl<'a> Run<'a> {
    fn of(site: &'a KafkaSite, pool: &'a Pool) -> Self {
        Self {
            site,
            pool,
            daemon: site.start(pool),
            progress: Progress::of(&site.site),
            killed: BTreeSet::new(),
            repeaters: BTreeSet::new(),
        }
    }

    fn kills_workers_until_done(&mut self, count: usize) {
        while self.progress.done() < count {
            self.kills_a_worker();
            let next = count.min(self.progress.done() + KILL_EVERY);
            let progress = &mut self.progress;
            self.daemon
                .within(IN_TIME, "more to be done", || progress.done() >= next);
        }
    }

    /// Any that has not been killed yet.
    fn kills_a_worker(&mut self) {
        let mut victims = self.daemon.processes();
        victims.retain(|victim| !self.killed.contains(&victim.pid));
        let Some(victim) = fastrand::choice(&victims) else {
            return;
        };
        let killed = kill(Pid::from_raw(victim.pid), Signal::SIGKILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
        self.killed.insert(victim.pid);
        self.repeaters.insert(victim.pid);
    }

    fn replaces_the_daemon(&mut self) {
        self.daemon.crash();
        self.repeaters.extend(workers_ever(&self.daemon));
        self.daemon = self.site.start(self.pool);
    }
}

/// All workers that a daemon has had.
fn workers_ever(daemon: &Daemon) -> Vec<i32> {
    let up = daemon.records(|record| record["message"] == "worker up");
    let pid = |record: &Value| record["pid"].as_i64()?.try_into().ok();
    up.iter().map(|record| pid(record).unwrap()).collect()
}

/// The same of a daemon that the group has put out, as a busy machine can make it; none of another.
fn workers_that_lost(daemon: &Daemon) -> Vec<i32> {
    let lost = |record: &Value| {
        let message = record["message"].as_str();
        message.is_some_and(|message| message.starts_with("partitions lost"))
    };
    if daemon.records(lost).is_empty() {
        return Vec::new();
    }
    workers_ever(daemon)
}

/// Sees that each message was done, that none was begun for the first time before the one before it
/// of the same key was done, and that only those were done again that one of `repeaters` did first.
#[expect(clippy::print_stderr, reason = "a count that belongs to the result")]
fn in_order_and_none_lost(record: &Record, count: usize, repeaters: &BTreeSet<i32>) {
    let mut keys: BTreeMap<&str, Key> = BTreeMap::new();
    let mut twice = 0;
    let mut done_first_by: BTreeMap<&str, i32> = BTreeMap::new();
    for Entry {
        event, text, pid, ..
    } in &record.0
    {
        if !matches!(event, Event::Began | Event::Done) {
            continue;
        }
        let (key, place) = text.split_once(' ').unwrap();
        let (key, place) = (keys.entry(key).or_default(), place.parse().unwrap());
        if *event == Event::Began {
            key.begins(place, text);
        } else {
            key.ends(place);
            if let Some(first) = done_first_by.get(text.as_str()) {
                assert!(
                    repeaters.contains(first),
                    "{text:?} done again, although {first}, which did it first, was not killed"
                );
                twice += 1;
            } else {
                done_first_by.insert(text, *pid);
            }
        }
    }
    let first_runs: usize = keys.values().map(|key| key.done).sum();
    assert_eq!(first_runs, count, "messages done at least once");
    // How many depends on how far the commits were behind, and so on the machine.
    eprintln!("{twice} of {count} messages done again after a kill");
}

/// How far the first runs of a key's messages have come.
#[derive(Default)]
struct Key {
    begun: usize,
    done: usize,
}

impl Key {
    fn begins(&mut self, place: usize, text: &str) {
        if place == self.begun {
            assert_eq!(
                self.done, place,
                "{text:?} before the one before it was done"
            );
            self.begun += 1;
        }
        assert!(place < self.begun, "{text:?} comes too early");
    }

    fn ends(&mut self, place: usize) {
        self.done = self.done.max(place + 1);
    }
}
