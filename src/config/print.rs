//! The effective configuration as TOML that loads again to the same model. Nothing here reads it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use super::expand::escape;
use super::model::{
    Argument, Config, DaemonConfig, Database, DeadLetters, KafkaOptions, KafkaSource, LogFormat,
    Options, Order, Pipeline, PoolConfig, Prefetch, QueueDeclaration, RabbitMqOptions,
    RabbitMqSource, SourceConfig, TableSource, Tls, UnroutableReply, WorkerCommand,
};
use super::redact::{is_secret, redact};
use super::units::{show_duration, show_size};
use crate::protocol::status::Answer;

const HEAD: &str = "\
# The effective configuration. Secrets are not shown: each is written as the environment variable
# of its name.
";

/// The configuration with every default filled in, as TOML. In the same environment it loads to
/// the same model, save for secrets that do not come from variables of their own names.
pub fn print(config: &Config) -> String {
    let mut page = Page(HEAD.into());
    page.daemon(&config.daemon);
    for (name, source) in &config.sources {
        page.source(name, source);
    }
    for pool in &config.pools {
        page.pool(pool);
    }
    page.0
}

struct Page(String);

impl Page {
    fn header(&mut self, header: &str) {
        self.0.push_str(&format!("\n{header}\n"));
    }

    fn pair(&mut self, key: &str, value: impl Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.pair(key, value);
        }
    }

    fn daemon(&mut self, daemon: &DaemonConfig) {
        self.header("[daemon]");
        self.pair("drain_timeout", duration(daemon.drain_timeout));
        self.pair("log_level", text(&daemon.log_level));
        self.pair("log_format", text(log_format(daemon.log_format)));
        let bytes = daemon.buffered_bytes_max.map(|bytes| size(bytes as u64));
        self.maybe("buffered_bytes_max", bytes);
    }

    fn source(&mut self, name: &str, source: &SourceConfig) {
        self.header(&format!("[sources.{}]", key(name)));
        self.pair("kind", text(source.kind()));
        match source {
            SourceConfig::Table(table) => self.table(table),
            SourceConfig::RabbitMq(rabbitmq) => self.rabbitmq(rabbitmq),
            SourceConfig::Kafka(kafka) => self.kafka(kafka),
        }
    }

    fn table(&mut self, table: &TableSource) {
        let Database::Sqlite(path) = &table.database;
        self.pair("url", text(&format!("sqlite://{}", path.display())));
        self.pair("poll_interval", duration(table.poll_interval));
        self.pair("lease", duration(table.lease));
    }

    fn rabbitmq(&mut self, source: &RabbitMqSource) {
        let scheme = if source.tls.is_some() {
            "amqps"
        } else {
            "amqp"
        };
        let mut hosts = source.hosts.iter().map(ToString::to_string);
        let url = format!("{scheme}://{}", hosts.next().unwrap_or_default());
        self.pair("url", text(&url));
        self.pair("hosts", list(hosts.map(|host| text(&host))));
        self.pair("vhost", text(&source.vhost));
        self.pair("username", text(&source.username));
        self.pair("password", hidden("password"));
        if let Some(tls) = &source.tls {
            self.tls(tls);
        }
        self.pair("heartbeat", duration(source.heartbeat));
        self.pair("connect_timeout", duration(source.connect_timeout));
        self.pair("connection_name", text(&source.connection_name));
        self.pair("declare", source.declare);
        self.queue_declaration(&source.queue);
        self.pair("consumer_timeout", duration(source.consumer_timeout));
    }

    fn tls(&mut self, tls: &Tls) {
        let path = |path: &PathBuf| text(&path.to_string_lossy());
        let identity = tls.identity.as_ref();
        self.maybe("ca_file", tls.ca_file.as_ref().map(path));
        self.maybe("cert_file", identity.map(|i| path(&i.cert_file)));
        self.maybe("key_file", identity.map(|i| path(&i.key_file)));
        self.maybe("server_name", tls.server_name.as_deref().map(text));
    }

    fn queue_declaration(&mut self, queue: &QueueDeclaration) {
        self.pair("queue_type", text(queue.queue_type.as_str()));
        self.pair("queue_arguments", arguments(&queue.arguments));
    }

    fn kafka(&mut self, source: &KafkaSource) {
        self.pair("brokers", text(&source.brokers));
        self.pair("group", text(&source.group));
        self.pair("declare", source.declare);
        self.maybe("partitions", source.partitions);
        self.maybe("replication", source.replication);
        self.pair("commit_interval", duration(source.commit_interval));
        self.pair("buffered_bytes_max", size(source.buffered_bytes_max as u64));
        self.pair("retry_retention", duration(source.retry_retention));
        self.pair("client", properties(&source.client));
        self.pair("consumer", properties(&source.consumer));
        self.pair("producer", properties(&source.producer));
    }

    fn pool(&mut self, pool: &PoolConfig) {
        self.header("[[pools]]");
        self.pair("name", text(&pool.name));
        self.pair("source", text(&pool.source));
        self.pair("queue", text(&pool.queue));
        self.pair("workers", pool.workers);
        self.command(&pool.command);
        self.pair("prefetch", prefetch(pool.prefetch));
        self.pair("pipeline", pipeline(pool.pipeline));
        self.pair("frame_bytes_max", size(pool.frame_bytes_max as u64));
        self.maybe("timeout", pool.timeout.map(duration));
        self.pair("timeout_grace", duration(pool.timeout_grace));
        self.maybe("stall_timeout", pool.stall_timeout.map(duration));
        self.pair("start_timeout", duration(pool.start_timeout));
        self.pair("stop_timeout", duration(pool.stop_timeout));
        self.pair("crashes_max", pool.crashes_max);
        self.pair("lapses_max", pool.lapses_max);
        self.policies(pool);
        match &pool.options {
            Options::Table => {}
            Options::RabbitMq(options) => self.rabbitmq_options(options),
            Options::Kafka(options) => self.kafka_options(options),
        }
    }

    fn rabbitmq_options(&mut self, options: &RabbitMqOptions) {
        let dead_letter = match &options.dead_letter {
            DeadLetters::Default => None,
            DeadLetters::Queue(queue) => Some(queue.as_str()),
            DeadLetters::Broker => Some("broker"),
        };
        self.maybe("dead_letter", dead_letter.map(text));
        let unroutable = match options.unroutable_reply {
            UnroutableReply::DeadLetter => "dead_letter",
            UnroutableReply::Drop => "drop",
        };
        self.pair("unroutable_reply", text(unroutable));
        self.maybe("consumer_priority", options.consumer_priority);
        self.pair("consumer_arguments", arguments(&options.consumer_arguments));
        self.queue_declaration(&options.queue);
    }

    fn kafka_options(&mut self, options: &KafkaOptions) {
        let order = match options.order {
            Order::Key => "key",
            Order::Partition => "partition",
            Order::None => "none",
        };
        self.pair("order", text(order));
        self.maybe("dead_letter", options.dead_letter.as_deref().map(text));
    }

    fn command(&mut self, command: &WorkerCommand) {
        self.pair("command", text(&command.program));
        let args = command.args.iter().map(|arg| text(&redact(arg)));
        self.pair("args", list(args));
        let env = command.env.iter();
        let env = env.map(|(name, value)| (key(name), variable(name, value)));
        self.pair("env", table(env));
        let cwd = command.cwd.as_ref();
        self.maybe("cwd", cwd.map(|cwd| text(&cwd.to_string_lossy())));
        self.maybe("user", command.user.as_deref().map(text));
        let limits = &command.limits;
        let limits = [
            ("memory", limits.memory_bytes.map(size)),
            ("open_files", limits.open_files.map(|n| n.to_string())),
            ("cpu_nice", limits.cpu_nice.map(|n| n.to_string())),
        ];
        self.pair("limits", table(given(limits)));
    }

    fn policies(&mut self, pool: &PoolConfig) {
        let (retry, recycle, restart) = (&pool.retry, &pool.recycle, &pool.restart);
        let in_place = matches!(pool.options, Options::Kafka(_));
        let retry = [
            ("attempts", Some(retry.attempts.to_string())),
            ("initial", Some(duration(retry.backoff.initial))),
            ("factor", Some(float(retry.backoff.factor))),
            ("max", Some(duration(retry.backoff.max))),
            ("jitter", Some(float(retry.backoff.jitter))),
            (
                "in_place_max",
                in_place.then(|| duration(retry.in_place_max)),
            ),
        ];
        self.pair("retry", table(given(retry)));
        let breaker = pool.breaker.map(|breaker| {
            table([
                ("failures", float(breaker.failures)),
                ("of", breaker.of.to_string()),
                ("probe", duration(breaker.probe)),
            ])
        });
        self.pair("breaker", breaker.unwrap_or_else(|| text("off")));
        let recycle = [
            ("tasks", recycle.tasks.map(|n| n.to_string())),
            ("age", recycle.age.map(duration)),
            ("memory", recycle.memory_bytes.map(size)),
            ("jitter", Some(float(recycle.jitter))),
        ];
        self.pair("recycle", table(given(recycle)));
        let restart = [
            ("initial", duration(restart.backoff.initial)),
            ("max", duration(restart.backoff.max)),
            ("surge", restart.surge.to_string()),
        ];
        self.pair("restart", table(restart));
        let statuses = pool.statuses.iter();
        let statuses = statuses.map(|(code, meaning)| (code, text(status_meaning(*meaning))));
        self.pair("statuses", table(statuses));
        let queues = pool.publish_to.as_ref();
        let queues = queues.map(|queues| list(queues.iter().map(|queue| text(queue))));
        self.maybe("publish_to", queues);
    }
}

/// A key is never expanded. Between quotes, TOML writes it as JSON does.
fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.into()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

fn text(text: &str) -> String {
    Value::String(escape(text)).to_string()
}

/// A variable of the worker, unless it is a secret.
fn variable(name: &str, value: &str) -> String {
    if is_secret(name) || redact(value) != value {
        format!("\"${{{name}}}\"")
    } else {
        text(value)
    }
}

/// A secret of ours, written as the variable of its name.
fn hidden(name: &str) -> String {
    let variable = name.to_ascii_uppercase().replace(['.', '-'], "_");
    format!("\"${{{variable}}}\"")
}

fn arguments(arguments: &BTreeMap<String, Argument>) -> String {
    let shown = |value: &Argument| match value {
        Argument::Text(value) => text(value),
        Argument::Integer(value) => value.to_string(),
        Argument::Boolean(value) => value.to_string(),
    };
    table(
        arguments
            .iter()
            .map(|(name, value)| (key(name), shown(value))),
    )
}

fn properties(properties: &BTreeMap<String, String>) -> String {
    let shown = |name: &str, value: &str| match is_secret(name) {
        true => hidden(name),
        false => text(value),
    };
    table(
        properties
            .iter()
            .map(|(name, value)| (key(name), shown(name, value))),
    )
}

fn duration(duration: Duration) -> String {
    text(&show_duration(duration))
}

fn size(bytes: u64) -> String {
    text(&show_size(bytes))
}

fn float(number: f64) -> String {
    Value::Float(number).to_string()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn table<K: Display>(pairs: impl IntoIterator<Item = (K, String)>) -> String {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}"));
    let pairs = pairs.collect::<Vec<_>>().join(", ");
    if pairs.is_empty() {
        "{}".into()
    } else {
        format!("{{ {pairs} }}")
    }
}

fn given<const N: usize>(
    pairs: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
}

fn prefetch(prefetch: Prefetch) -> String {
    match prefetch {
        Prefetch::Auto => text("auto"),
        Prefetch::PerWorker(number) => number.to_string(),
    }
}

fn pipeline(pipeline: Pipeline) -> String {
    match pipeline {
        Pipeline::Auto => text("auto"),
        Pipeline::Fixed(number) => number.to_string(),
    }
}

fn log_format(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Auto => "auto",
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    }
}

fn status_meaning(meaning: Answer) -> &'static str {
    match meaning {
        Answer::Done => "done",
        Answer::Reply => "reply",
        Answer::Requeue => "requeue",
        Answer::Retry => "retry",
        Answer::Reject => "reject",
        Answer::Failed => "failed",
    }
}
