//! Workers, daemons and the broker are killed while a hundred thousand messages pass through: none
//! is lost, and each key's messages run first in the order in which they were written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
/// A daemon leaves and another comes whenever so many more are done: every few seconds.
const CHANGE_EVERY: usize = 2_000;
/// How long all of it may take, far more than it needs.
const IN_TIME: Duration = Duration::from_secs(600);

fn a_hundred_thousand_messages_outlive_workers_daemons_and_the_broker() {
    let kafka = Kafka::own();
    let site = Plan::on(Arc::clone(&kafka), PARTITIONS).make();
    let count = 100_000;
    site.kafka.send(&messages(&site, count));
    let pool = tireless(&site, 8);
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
    let daemon = run.daemon;
    daemon.within(IN_TIME, "everything to be committed", || {
        site.group.lag(&site.topic) == 0
    });
    site.all_done(&daemon);
    let twice = in_order_and_none_lost(&site.record(), count);
    // What two daemons had in hand or had not committed yet, and what was in killed workers' hands.
    assert!(twice <= count / 10, "{twice} of {count} done twice");
    assert!(run.killed.len() >= 100, "only {} kills", run.killed.len());
    daemon.stop();
}

enum Death {
    Daemon,
    Broker,
}

fn messages_outlive_daemons_that_join_and_leave() {
    let site = KafkaSite::new(PARTITIONS);
    let count = 30_000;
    site.kafka.send(&messages(&site, count));
    let pool = tireless(&site, 3).text("queue", &site.topic);
    let mut progress = Progress::of(&site.site);
    let mut daemons: Vec<Daemon> = (0..3).map(|_| site.start(&pool)).collect();
    let mut changes = 0;
    while progress.done() < count {
        let next = count.min(progress.done() + CHANGE_EVERY);
        daemons[1].within(IN_TIME, "more to be done", || progress.done() >= next);
        let leaving = daemons.remove(0);
        // Most of them leave in good order, one in three does not.
        if changes % 3 == 2 {
            leaving.crash();
        } else {
            leaving.stop();
        }
        daemons.push(site.start(&pool));
        changes += 1;
    }
    daemons[0].within(IN_TIME, "everything to be committed", || {
        site.group.lag(&site.topic) == 0
    });
    site.all_done(&daemons[0]);
    let twice = in_order_and_none_lost(&site.record(), count);
    assert!(changes >= 3, "only {changes} changes: the test is too fast");
    assert!(twice <= count / 10, "{twice} of {count} done twice");
    for daemon in daemons {
        daemon.stop();
    }
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
fn tireless(site: &KafkaSite, workers: usize) -> Pool {
    site.pool(&["--mode=sleep:1"])
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
}

impl<'a> Run<'a> {
    fn of(site: &'a KafkaSite, pool: &'a Pool) -> Self {
        Self {
            site,
            pool,
            daemon: site.start(pool),
            progress: Progress::of(&site.site),
            killed: BTreeSet::new(),
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
    }

    fn replaces_the_daemon(&mut self) {
        self.daemon.crash();
        self.daemon = self.site.start(self.pool);
    }
}

/// Sees that each message was done, that none was begun for the first time before the one before it
/// of the same key was done, and returns how many were done how often too often.
fn in_order_and_none_lost(record: &Record, count: usize) -> usize {
    let mut keys: BTreeMap<&str, Key> = BTreeMap::new();
    let mut done = 0;
    for Entry { event, text, .. } in &record.0 {
        if !matches!(event, Event::Began | Event::Done) {
            continue;
        }
        let (key, place) = text.split_once(' ').unwrap();
        let (key, place) = (keys.entry(key).or_default(), place.parse().unwrap());
        if *event == Event::Began {
            key.begins(place, text);
        } else {
            key.ends(place);
            done += 1;
        }
    }
    let first_runs: usize = keys.values().map(|key| key.done).sum();
    assert_eq!(first_runs, count, "messages done at least once");
    done - count
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
