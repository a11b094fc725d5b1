//! The queues on which two versions of the daemon meet: how each version is started, told and asked
//! there, and what it sends.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::harness::kafka::Plan;
use crate::harness::rabbit::{DEAD, Vhost, rabbit_site};
use crate::harness::{Daemon, Launch, PROGRAM, Pool, Ran, Workspace};

/// Where the older program is; `tests/run --long` sets it.
const OLD_PROGRAM: &str = "GANGER_TEST_OLD";
/// So many come in each part of a run.
pub(super) const A_PART: usize = 1_500;

/// Starts the older program instead of the one that it is given, without the variables that it does not
/// know yet.
const AS_OLD: &str = r#"unset ${!GANGER_*}; exec "$0" "${@:2}""#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Old,
    New,
}

pub(super) const BOTH: [Version; 2] = [Version::Old, Version::New];

impl Version {
    /// Its program. It lives as long as the tests, as launches do.
    pub(super) fn program(self) -> &'static str {
        if self == Self::New {
            return PROGRAM;
        }
        let program = std::env::var(OLD_PROGRAM)
            .unwrap_or_else(|_| panic!("{OLD_PROGRAM} is not set: tests/run --long does it"));
        assert!(Path::new(&program).exists(), "no program at {program}");
        Box::leak(program.into_boxed_str())
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

/// A queue, how messages come to it and how many are left.
pub(super) struct Queue<'a> {
    pub(super) site: &'a Workspace,
    pub(super) name: &'a str,
    /// As both versions know it.
    pub(super) pool: Pool,
    /// What the older one is told beside.
    pub(super) older: fn(Pool) -> Pool,
    /// What only the newer one knows.
    pub(super) newer: fn(Pool) -> Pool,
    /// What starts the newer one.
    pub(super) through: &'static [&'static str],
    /// What a message of that number says beside its body, as this version sends it.
    pub(super) with: fn(Version, usize) -> Value,
    /// The topic to which the queue is subscribed by the newer one.
    pub(super) topic: Option<&'static str>,
    pub(super) left: &'a dyn Fn() -> u64,
}

impl Queue<'_> {
    pub(super) fn start(&self, version: Version) -> Daemon {
        match version {
            Version::New => {
                let launch = Launch {
                    through: self.through,
                    ..Launch::default()
                };
                self.site.launch(&[(self.newer)(self.pool.clone())], launch)
            }
            Version::Old => {
                let through: [&'static str; 4] = ["bash", "-c", AS_OLD, version.program()];
                let launch = Launch {
                    through: Box::leak(Box::new(through)),
                    ..Launch::default()
                };
                self.site.launch(&[(self.older)(self.pool.clone())], launch)
            }
        }
    }

    /// Lets commands of both versions know the queue.
    pub(super) fn is_known_to_commands(&self) {
        self.site
            .configure_commands(std::slice::from_ref(&self.pool));
    }

    pub(super) fn command(&self, version: Version, args: &[&str]) -> Ran {
        self.site.ganger_of(version.program(), args, b"")
    }

    pub(super) fn sends(&self, version: Version, part: usize) {
        let all: Vec<usize> = (part * A_PART..(part + 1) * A_PART).collect();
        let by_topic = |n: &usize| version == Version::New && n % 10 == 3;
        match self.topic {
            Some(topic) => {
                let (by_topic, direct): (Vec<_>, Vec<_>) = all.into_iter().partition(by_topic);
                self.send(version, &direct, &["send", self.name]);
                if !by_topic.is_empty() {
                    self.send(version, &by_topic, &["send", "--topic", topic]);
                }
            }
            None => self.send(version, &all, &["send", self.name]),
        }
    }

    fn send(&self, version: Version, numbers: &[usize], command: &[&str]) {
        let line = |n: &usize| {
            let mut line = json!({ "body": body(*n), "message_id": format!("m-{n}") });
            let own: Map<String, Value> = serde_json::from_value((self.with)(version, *n)).unwrap();
            line.as_object_mut().unwrap().extend(own);
            if n % 10 == 5 {
                line["delay"] = "1s".into();
            }
            format!("{line}\n")
        };
        let lines: String = numbers.iter().map(line).collect();
        let command = [command, &["--file", "-"]].concat();
        let program = version.program();
        let ran = self.site.ganger_of(program, &command, lines.as_bytes());
        assert_eq!(ran.good(), format!("sent {}\n", numbers.len()));
    }

    pub(super) fn letters(&self, version: Version) -> Vec<Value> {
        let listed = self.command(version, &["dead", "list", "--output", "json"]);
        listed.json().as_array().unwrap().clone()
    }

    pub(super) fn has_no_letters(&self) {
        for version in BOTH {
            assert_eq!(self.letters(version), Vec::<Value>::new());
        }
    }

    /// The dead letter with that body, as commands of that version show it.
    pub(super) fn letter(&self, version: Version, body: &str) -> Option<Value> {
        let letters = self.letters(version).into_iter();
        letters.into_iter().find(|letter| letter["body"] == body)
    }
}

/// One in ten fails at first and is tried again, at once or after a second, in whatever way that goes there.
pub(super) fn body(n: usize) -> String {
    match n % 20 {
        0 => format!("mode:sleep:2,until-attempt:2:500:1000 {n}"),
        10 => format!("mode:sleep:2,until-attempt:2:500 {n}"),
        _ => format!("message {n}"),
    }
}

/// A pool in which no message dies of the kills.
fn pool() -> Pool {
    Pool::new(&["--v2=2", "--mode=sleep:4"])
        .set("workers", "3")
        .attempts(1000)
        .set("crashes_max", "1000")
}

fn newer(pool: Pool) -> Pool {
    pool.set("lapses_max", "1000")
}

/// A directory whose file the older daemon has made.
pub(super) fn table_of_the_old() -> Workspace {
    let site = Workspace::with_source("lease = \"2s\"");
    let queue = on_table(&site, &|| 0);
    queue.start(Version::Old).stop();
    site
}

pub(super) fn on_table<'a>(site: &'a Workspace, left: &'a dyn Fn() -> u64) -> Queue<'a> {
    Queue {
        site,
        name: "work",
        pool: pool(),
        older: |pool| pool,
        newer: |pool| {
            newer(pool)
                .set("idempotency", "{ key = \"message_id\" }")
                .after("[[subscriptions]]\ntopic = \"placed\"\nqueue = \"work\"\n")
        },
        through: &[],
        with: |version, n| match (version, n % 30) {
            (Version::New, 7) => json!({ "unique_key": n.to_string() }),
            (Version::New, 17) => {
                json!({ "unique_key": n.to_string(), "unique_scope": "waiting_or_running" })
            }
            (Version::New, 27) => json!({ "unique_key": n.to_string(), "unique_scope": "1h" }),
            _ => json!({}),
        },
        topic: Some("placed"),
        left,
    }
}

/// Has a test done with a queue of RabbitMQ.
pub(super) fn on_rabbitmq(test: fn(&Queue<'_>)) {
    let vhost = Vhost::shared();
    let site = rabbit_site(&vhost.url(), "heartbeat = \"5s\"");
    let left = || {
        let totals = vhost.totals();
        let own = totals.iter().filter(|(queue, _)| *queue != DEAD);
        own.map(|(_, total)| total).sum()
    };
    test(&Queue {
        site: &site,
        name: "work",
        pool: pool(),
        older: |pool| pool,
        newer,
        through: &["env", "GANGER_SOURCES__MAIN__UNSIGNED_COPIES=true"],
        with: |_, n| json!({ "priority": n % 5 }),
        topic: None,
        left: &left,
    });
}

/// Has a test done with a topic of Kafka.
pub(super) fn on_kafka(test: fn(&Queue<'_>)) {
    let site = Plan::new(6).make();
    let left = || {
        let topics = [vec![site.topic.clone()], site.tier_topics()].concat();
        let lags = topics.iter().map(|topic| site.group.lag(topic));
        lags.sum::<i64>().unsigned_abs()
    };
    test(&Queue {
        site: &site.site,
        name: &site.topic,
        // Each retry goes through a topic, and so perhaps from one version to the other.
        pool: pool().text("queue", &site.topic).text("order", "none"),
        older: |pool| pool,
        newer,
        through: &[],
        with: |_, n| json!({ "key": (n % 100).to_string() }),
        topic: None,
        left: &left,
    });
}
