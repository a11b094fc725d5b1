//! The keys of `[[pools]]`, except those of a worker's command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::shared::{DAY, HOUR, MILLISECOND, MONTH, ReadContext};
use super::{autopsy, command, idempotency, ledger, rabbitmq, retry, topics, workers};
use crate::model::{
    Database, DeadLetters, KafkaOptions, Options, Order, Pipeline, PoolConfig, Prefetch, Recycle,
    Restart, SourceConfig, TableSource, Topics,
};
use crate::print;
use crate::reader::Reader;
use crate::value_types::choice::choice;
use crate::value_types::compound::{auto_or, list_of};
use crate::value_types::{Wrong, duration, float, integer, name, size, word};
use ganger_core::backoff::Backoff;
use ganger_core::suggest::nearest;
use ganger_protocol::status::Answer;

/// The statuses that end a task; lower ones only report on it.
const ANSWERS: std::ops::RangeInclusive<i64> = 200..=599;
/// Factor by which the restart back-off grows, and the jitter.
const RESTART_FACTOR: f64 = 2.0;
const RESTART_JITTER: f64 = 0.2;

/// Meaning of `source` in a pool.
const SOURCE: &str = "Source that the pool reads from; may be omitted if there is only one.";

/// Reads every pool.
pub(super) fn read_all(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    around: ReadContext<'_>,
) -> Vec<Arc<PoolConfig>> {
    let mut taken = Taken::default();
    let meaning = "Worker pools, each in its own `[[pools]]`.";
    let pools = t.list("pools", meaning, |t| {
        let pool = read(t, sources, around);
        taken.check(t, &pool, sources);
        check_dead_letter(t, &pool);
        Arc::new(pool)
    });
    if pools.is_empty() && !t.has("pools") {
        t.missing(
            "pools",
            "write [[pools]] with a name, a queue and a command",
        );
    }
    pools
}

fn read(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    around: ReadContext<'_>,
) -> PoolConfig {
    aliases(t);
    let name = t.must(
        "name",
        name(),
        "Name of the pool in logs, metrics and commands; unique.",
    );
    let name_of_source = source(t, sources, SOURCE);
    let source = sources.get(&name_of_source);
    let (queue, topics) = topics::queue(t, is_kafka(source));
    PoolConfig {
        name,
        source: name_of_source.clone(),
        queue,
        workers: workers::workers(t),
        command: command::read(t, around),
        prefetch: prefetch(t),
        pipeline: pipeline(t),
        frame_bytes_max: frame_bytes_max(t),
        timeout: t.maybe(
            "timeout",
            duration(MILLISECOND..=MONTH),
            "Time after which a worker is asked to stop working on a message; no limit if omitted.",
        ),
        timeout_grace: t.or(
            "timeout_grace",
            duration(Duration::ZERO..=HOUR),
            "5s",
            "Time from `timeout` until the worker is killed.",
        ),
        stall_timeout: t.maybe(
            "stall_timeout",
            duration(MILLISECOND..=MONTH),
            "Time after which a busy worker that sends nothing is killed; no limit if omitted.",
        ),
        on_timeout: autopsy::on_timeout(t),
        start_timeout: start_timeout(t),
        stop_timeout: t.or(
            "stop_timeout",
            duration(MILLISECOND..=HOUR),
            "5s",
            "Time from `__quit__` to SIGTERM, and again from SIGTERM to SIGKILL.",
        ),
        crashes_max: retry::crashes_max(t),
        lapses_max: retry::lapses_max(t),
        steps_max: retry::steps_max(t),
        retry: t.table("retry", "Retries of messages whose attempt failed.", |t| {
            retry::retry(t, source, is_kafka(source))
        }),
        breaker: retry::breaker(t),
        recycle: t.table(
            "recycle",
            "Replacement of healthy workers by fresh ones.",
            recycle,
        ),
        restart: t.table(
            "restart",
            "Replacement of crashed workers, and of all workers in a rolling restart.",
            restart,
        ),
        statuses: statuses(t),
        publish_to: publish_to(t),
        idempotency: idempotency::idempotency(t, &name_of_source, sources),
        record: ledger::record_of_pool(t),
        options: options(t, source, topics),
    }
}

fn start_timeout(t: &mut Reader<'_>) -> Duration {
    let help = "Maximum time from the start of a worker until it has connected. Within that time it is \
         not killed for `timeout` or `stall_timeout` over its first message, either.";
    t.or("start_timeout", duration(MILLISECOND..=HOUR), "30s", help)
}

/// Registers the names that the seed system has for these keys.
fn aliases(t: &mut Reader<'_>) {
    t.alias("workers", "worker_unit_count");
    t.alias("command", "command_line");
    t.alias("args", "arguments");
    t.alias("queue", "queue_name");
    t.alias("prefetch", "prefetch_task_count");
}

/// Returns whether the source is Kafka, or unknown: a source that does not exist was misspelt, and no
/// key is refused because of it.
fn is_kafka(source: Option<&SourceConfig>) -> bool {
    source.is_none_or(|source| matches!(source, SourceConfig::Kafka(_)))
}

/// Reads the keys that only sources of one kind have.
fn options(t: &mut Reader<'_>, source: Option<&SourceConfig>, topics: Topics) -> Options {
    let is_rabbitmq = source.is_none_or(|source| matches!(source, SourceConfig::RabbitMq(_)));
    let is_broker = is_rabbitmq || is_kafka(source);
    let dead_letter = t.only("RabbitMQ or Kafka", is_broker, |t| {
        t.maybe(
            "dead_letter",
            word(),
            "Queue or topic for the pool's dead letters, instead of `QUEUE.dead` or \
             `TOPIC.GROUP.dead`. On RabbitMQ `broker` leaves them to the broker's own policy.",
        )
    });
    let dead_letter = dead_letter.flatten();
    let rabbitmq = t.only("RabbitMQ", is_rabbitmq, |t| {
        rabbitmq::options(t, source, dead_letter.clone())
    });
    let kafka = t.only("Kafka", is_kafka(source), |t| KafkaOptions {
        topics,
        order: order(t),
        dead_letter: dead_letter.clone(),
    });
    match source {
        Some(SourceConfig::RabbitMq(_)) => Options::RabbitMq(rabbitmq.unwrap_or_default()),
        Some(SourceConfig::Kafka(_)) => Options::Kafka(kafka.unwrap_or_default()),
        Some(SourceConfig::Table(_)) | None => Options::Table,
    }
}

/// Checks that dead letters do not come back to the pool at once and for ever.
fn check_dead_letter(t: &Reader<'_>, pool: &PoolConfig) {
    let dead = match &pool.options {
        Options::RabbitMq(options) => match &options.dead_letter {
            DeadLetters::Queue(queue) => Some(queue),
            DeadLetters::Default | DeadLetters::Broker => None,
        },
        Options::Kafka(options) => options.dead_letter.as_ref(),
        Options::Table => None,
    };
    let Some(dead) = dead else { return };
    let help = "its dead letters would be read and fail again: name another one, or leave it out";
    if pool.reads(dead) {
        let wrong = Wrong::new("must not be what the pool itself reads", help);
        t.wrong("dead_letter", &wrong);
    } else if dead.starts_with(&format!("{}.retry.", pool.queue)) {
        let wrong = Wrong::new(
            "must not be where the pool's messages wait for a retry",
            help,
        );
        t.wrong("dead_letter", &wrong);
    }
}

fn order(t: &mut Reader<'_>) -> Order {
    t.or(
        "order",
        choice(&[
            ("key", Order::Key),
            ("partition", Order::Partition),
            ("none", Order::None),
        ]),
        "key",
        "Messages of a topic that are processed in order: those of a key, those of a partition, or \
         none.",
    )
}

pub(super) fn source(
    t: &mut Reader<'_>,
    sources: &BTreeMap<String, SourceConfig>,
    meaning: &'static str,
) -> String {
    let given = t.maybe("source", word(), meaning);
    let names: Vec<&str> = sources.keys().map(String::as_str).collect();
    match (given, names.as_slice()) {
        (Some(given), _) if !names.contains(&given.as_str()) => {
            let near = nearest(&given, names.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", names.join(", ")),
            };
            t.wrong("source", &Wrong::new("must be one of the sources", help));
            given
        }
        (Some(given), _) => given,
        (None, [only]) => {
            t.print("source", Some(print::text(only)));
            (*only).into()
        }
        (None, several) => {
            if !several.is_empty() && !t.has("source") {
                t.missing("source", &format!("there are: {}", names.join(", ")));
            }
            String::new()
        }
    }
}

fn prefetch(t: &mut Reader<'_>) -> Prefetch {
    let messages = t.or(
        "prefetch",
        auto_or(1..=10_000),
        "auto",
        "Number of messages fetched per worker, including those in progress; never less than the \
         worker may have in its pipe.",
    );
    messages.map_or(Prefetch::Auto, Prefetch::PerWorker)
}

fn pipeline(t: &mut Reader<'_>) -> Pipeline {
    let messages = t.or(
        "pipeline",
        auto_or(1..=1024),
        "auto",
        "Maximum number of messages in the pipe of a version 1 worker: `auto` allows many for fast \
         tasks and 1 for slow ones. Time spent waiting for a core is not counted as part of a \
         task.",
    );
    messages.map_or(Pipeline::Auto, Pipeline::Fixed)
}

fn frame_bytes_max(t: &mut Reader<'_>) -> usize {
    let bytes = t.or(
        "frame_bytes_max",
        size(1 << 10..=1 << 30),
        "64MiB",
        "Maximum size of a message to or from a worker.",
    );
    // At most 1 GiB, which any machine's usize holds.
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn restart(t: &mut Reader<'_>) -> Restart {
    let backoff = Backoff {
        initial: t.or(
            "initial",
            duration(MILLISECOND..=HOUR),
            "100ms",
            "Delay before a crashed worker is replaced; it doubles with each consecutive crash.",
        ),
        factor: RESTART_FACTOR,
        max: t.or("max", duration(MILLISECOND..=DAY), "30s", "Maximum delay."),
        jitter: RESTART_JITTER,
    };
    retry::check_backoff(t, &backoff);
    Restart {
        backoff,
        surge: t.or(
            "surge",
            integer(1..=1024),
            "1",
            "Number of new workers of a rolling restart on trial at once, in addition to the old \
             ones.",
        ),
        success: t.or(
            "success",
            integer(1..=1_000_000),
            "3",
            "Number of messages that a new worker of a rolling restart must finish before an old \
             one is stopped; 5 s without a message or 60 s of work without a failure suffice as \
             well. A rolling restart stops if the new workers fail more messages than the old \
             ones' failure rate explains.",
        ),
    }
}

fn recycle(t: &mut Reader<'_>) -> Recycle {
    Recycle {
        tasks: t.maybe(
            "tasks",
            integer(1..=1_000_000_000_000),
            "Number of messages after which a worker is replaced; unlimited if omitted.",
        ),
        age: t.maybe(
            "age",
            duration(Duration::from_secs(1)..=MONTH),
            "Age at which a worker is replaced; unlimited if omitted.",
        ),
        memory_bytes: t.maybe(
            "memory",
            size(1 << 20..=1 << 44),
            "Resident memory at which a worker is replaced, checked between messages; unlimited if \
             omitted.",
        ),
        jitter: t.or(
            "jitter",
            float(0.0..=1.0),
            "0.1",
            "Maximum share by which `tasks` and `age` are randomly reduced, so that workers that \
             were started together are not replaced together.",
        ),
    }
}

fn statuses(t: &mut Reader<'_>) -> BTreeMap<i64, Answer> {
    let meanings = choice(&[
        ("done", Answer::Done),
        ("reply", Answer::Reply),
        ("requeue", Answer::Requeue),
        ("retry", Answer::Retry),
        ("reject", Answer::Reject),
    ]);
    t.map(
        "statuses",
        "a status, 200..=599",
        status,
        meanings,
        "Statuses of an answer that have another meaning in this pool, as in `404 = \"reject\"`.",
    )
}

fn publish_to(t: &mut Reader<'_>) -> Option<Vec<String>> {
    t.maybe(
        "publish_to",
        list_of(word()),
        "Queues or topics that the replies and emits of its workers may go to, including those \
         that a message asks for, as names in which `*` matches any text; any on its source if \
         omitted. A reply to another one is kept with a dead letter; an emit to another one fails \
         its task.",
    )
}

fn status(key: &str) -> Result<i64, Wrong> {
    let code = key.parse().ok().filter(|code| ANSWERS.contains(code));
    let help = "only answers can be given another meaning: a status below 200 does not end a task";
    code.ok_or(Wrong::new("must be a status within 200..=599", help))
}

/// Names and queues taken by the pools read so far; each queue with the pool that reads it.
#[derive(Default)]
struct Taken {
    names: BTreeMap<String, String>,
    queues: BTreeMap<(String, Arc<str>), String>,
    topics: topics::Readers,
}

impl Taken {
    fn check(
        &mut self,
        t: &Reader<'_>,
        pool: &PoolConfig,
        sources: &BTreeMap<String, SourceConfig>,
    ) {
        if !pool.name.is_empty() {
            if let Some(place) = self.names.get(&pool.name) {
                let rule = format!("is already used by the pool {place}");
                t.wrong(
                    "name",
                    &Wrong::new(rule, "give each pool a name of its own"),
                );
            }
            self.names.insert(pool.name.clone(), t.place("name"));
        }
        let Some(source) = sources.get(&pool.source) else {
            return;
        };
        if pool.queue.is_empty() {
            return;
        }
        let address = match source {
            SourceConfig::Kafka(source) => return self.topics.check(t, pool, source),
            SourceConfig::Table(source) => address(source),
            SourceConfig::RabbitMq(source) => {
                let host = source.hosts.first().map(ToString::to_string);
                format!("amqp://{}/{}", host.unwrap_or_default(), source.vhost)
            }
        };
        let key = (address, Arc::clone(&pool.queue));
        if let Some(other) = self.queues.get(&key) {
            let rule = format!("is already read by the pool `{other}`");
            let help = "two programs would share its messages at random: give each pool a queue \
                        of its own, or raise `workers` of the one";
            t.wrong("queue", &Wrong::new(rule, help));
        }
        self.queues.insert(key, pool.name.clone());
    }
}

/// Returns the address of a table, whatever its source is called.
fn address(source: &TableSource) -> String {
    match &source.database {
        Database::Sqlite(path) => path.to_string_lossy().into_owned(),
        Database::Postgres(at) => {
            let tables = format!("{}/{}", at.schema, at.table_prefix);
            format!("postgres://{}/{}/{tables}", at.servers(), at.database)
        }
        Database::Mysql(at) => {
            let tables = &at.table_prefix;
            format!("mysql://{}/{}/{tables}", at.servers(), at.database)
        }
    }
}
