//! Two versions of the daemon on one queue, and back: that of the commit that `tests/old_version` builds,
//! and this one. Both are killed while they share the queue; nothing is lost, and none is refused what
//! the other has left. Only `tests/run --long` runs these, since they need the older program.

use std::path::Path;
use std::time::Duration;

use crate::harness::kafka::{NewRecord, Plan};
use crate::harness::rabbit::{DEAD, Letter, Vhost, rabbit_site};
use crate::harness::{Daemon, Launch, NewMessage, Pool, Progress, Workspace};

crate::harness::trials![
    ; long:
    a_table_goes_on_to_the_new_version_and_back,
    a_queue_of_rabbitmq_goes_on_to_the_new_version_and_back,
    a_topic_of_kafka_goes_on_to_the_new_version_and_back,
];

/// Where the older program is; `tests/run --long` sets it.
const OLD_PROGRAM: &str = "GANGER_TEST_OLD";
/// So many come in each of the four parts of a run.
const A_PART: usize = 1_500;
const PARTS: usize = 4;
/// How often one of two is killed while both read the queue.
const KILLS: usize = 6;
/// How long a part may take on a busy machine.
const IN_TIME: Duration = Duration::from_mins(5);

/// Starts the older program instead of the one that it is given, with what that one would be told but
/// for what it does not know yet.
const AS_OLD: &str = r#"
unset ${!GANGER_*}
config=$4
awk '/^ *\[/ { skip = ($0 ~ /^ *\[(admin|telemetry|alerts)[].]/) }
    !skip && !/^lapses_max/' "$config" >"$config.old.toml"
exec "$0" run --config "$config.old.toml"
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

/// A queue, and how messages come to it and how many are left.
struct Queue<'a> {
    site: &'a Workspace,
    pool: Pool,
    send: &'a dyn Fn(&[String]),
    left: &'a dyn Fn() -> u64,
    dead: &'a dyn Fn() -> String,
}

impl Queue<'_> {
    fn start(&self, version: Version) -> Daemon {
        let pools = std::slice::from_ref(&self.pool);
        match version {
            Version::New => self.site.start(pools),
            Version::Old => self.site.launch(pools, as_old()),
        }
    }

    fn sends(&self, part: usize) {
        (self.send)(&bodies()[part * A_PART..(part + 1) * A_PART]);
    }
}

/// The launch of the older program. It lives as long as the tests, as launches do.
fn as_old() -> Launch {
    let program = std::env::var(OLD_PROGRAM)
        .unwrap_or_else(|_| panic!("{OLD_PROGRAM} is not set: tests/run --long does it"));
    assert!(Path::new(&program).exists(), "no program at {program}");
    let program: &'static str = Box::leak(program.into_boxed_str());
    let through: &'static [&'static str] = Box::leak(Box::new(["bash", "-c", AS_OLD, program]));
    Launch {
        through,
        ..Launch::default()
    }
}

/// One in ten fails at first and is tried again, in whatever way that goes there.
fn bodies() -> Vec<String> {
    let body = |n: usize| match n % 10 {
        0 => format!("mode:sleep:2,until-attempt:2:500 {n}"),
        _ => format!("message {n}"),
    };
    (0..PARTS * A_PART).map(body).collect()
}

/// A pool in which no message dies of the kills.
fn pool() -> Pool {
    Pool::new(&["--v2=2", "--mode=sleep:4"])
        .set("workers", "3")
        .attempts(1000)
        .set("crashes_max", "1000")
        .set("lapses_max", "1000")
}

/// The old version alone, both, the new one alone, both, and the old one alone.
fn goes_on_and_back(queue: &Queue<'_>) {
    let mut progress = Progress::of(queue.site);
    let old = queue.start(Version::Old);
    queue.sends(0);
    old.within(IN_TIME, "some to be done", || progress.done() > A_PART / 4);

    queue.sends(1);
    let pair = are_killed(queue, [old, queue.start(Version::New)], &mut progress, 2);
    let [old, new] = pair;
    old.stop();

    queue.sends(2);
    new.within(IN_TIME, "the new one to do more", || {
        progress.done() > 2 * A_PART + A_PART / 2
    });
    new.crash();
    let new = queue.start(Version::New);

    queue.sends(3);
    let pair = are_killed(queue, [queue.start(Version::Old), new], &mut progress, 3);
    let [old, new] = pair;
    new.stop();
    old.within(IN_TIME, "all to be done", || {
        progress.done() == PARTS * A_PART
    });
    old.within(IN_TIME, "all to be settled", || (queue.left)() == 0);
    assert_eq!((queue.dead)(), "");
    old.stop();
    queue.site.record().assert_none_lost(&bodies());
}

/// Kills one and the other in turn while the queue is worked off, and starts it again.
fn are_killed(
    queue: &Queue<'_>,
    mut pair: [Daemon; 2],
    progress: &mut Progress,
    parts: usize,
) -> [Daemon; 2] {
    for round in 0..KILLS {
        let before = progress.done();
        let more = before + A_PART / (2 * KILLS);
        let enough = more.min(parts * A_PART);
        let (turn, version) = match round % 2 {
            0 => (0, Version::Old),
            _ => (1, Version::New),
        };
        pair[1 - turn].within(IN_TIME, "more to be done", || progress.done() >= enough);
        pair[turn].crash();
        pair[turn] = queue.start(version);
    }
    pair
}

fn a_table_goes_on_to_the_new_version_and_back() {
    let site = Workspace::with_source("lease = \"2s\"");
    // The older daemon makes the file.
    site.launch(&[pool()], as_old()).stop();
    let table = site.table();
    let send = |bodies: &[String]| {
        let messages: Vec<NewMessage> = bodies.iter().map(|body| NewMessage::new(body)).collect();
        table.insert(&messages);
    };
    goes_on_and_back(&Queue {
        site: &site,
        pool: pool(),
        send: &send,
        left: &|| table.count("work").into(),
        dead: &|| {
            table
                .dead()
                .iter()
                .map(|letter| format!("{letter:?}"))
                .collect()
        },
    });
}

fn a_queue_of_rabbitmq_goes_on_to_the_new_version_and_back() {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "heartbeat = \"5s\"");
    let client = vhost.client();
    let send = |bodies: &[String]| {
        let letters: Vec<Letter> = bodies
            .iter()
            .map(|body| Letter::new("work", body))
            .collect();
        vhost.client().publish(&letters);
    };
    let left = || {
        let totals = vhost.totals();
        let own = totals.iter().filter(|(queue, _)| *queue != DEAD);
        own.map(|(_, total)| total).sum()
    };
    goes_on_and_back(&Queue {
        site: &site,
        pool: pool(),
        send: &send,
        left: &left,
        dead: &|| match client.ready(DEAD) {
            None | Some(0) => String::new(),
            Some(count) => format!("{count} dead letters"),
        },
    });
}

fn a_topic_of_kafka_goes_on_to_the_new_version_and_back() {
    let site = Plan::new(6).make();
    let send = |bodies: &[String]| {
        let records: Vec<NewRecord> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| site.message(body).key((n % 100).to_string()))
            .collect();
        site.kafka.send(&records);
    };
    let left = || {
        let topics = [vec![site.topic.clone()], site.tier_topics()].concat();
        let lags = topics.iter().map(|topic| site.group.lag(topic));
        lags.sum::<i64>().unsigned_abs()
    };
    goes_on_and_back(&Queue {
        site: &site.site,
        // Each retry goes through a topic, and so perhaps from one version to the other.
        pool: pool().text("queue", &site.topic).text("order", "none"),
        send: &send,
        left: &left,
        dead: &|| site.kafka.texts(&site.dead_topic()).concat(),
    });
}
