//! The configuration as the rest of the house sees it: validated, with every default filled in and
//! every duration and size in its unit. Nothing here reads a file or reports a problem.

mod admin;
mod alerts;
mod autopsy;
mod idempotency;
mod network;
mod reading;
mod subscription;
mod table;
mod telemetry;
mod topics;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::redact;
pub use super::secret::Secret;
pub use admin::{AdminConfig, LISTEN, TelemetryConfig};
pub use alerts::{AlertForm, AlertsConfig, WebhookConfig};
pub use autopsy::Autopsy;
use ganger_core::backoff::Backoff;
use ganger_protocol::status::Answer;
pub use idempotency::{Idempotency, MessageKey};
pub use network::{Host, Identity, Tls, is_loopback};
pub use subscription::Subscription;
pub use table::{Database, MysqlDatabase, PostgresDatabase, SslMode, TableSource};
pub use telemetry::Otlp;
pub use topics::Topics;
pub use topics::{group_in_topics, is_legal_in_topics};
pub use workers::{Autoscale, WORKERS_MAX, Workers};

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What concerns the daemon itself.
    pub daemon: DaemonConfig,
    /// Where it can be looked at and steered.
    pub admin: AdminConfig,
    /// What it shows of itself.
    pub telemetry: TelemetryConfig,
    /// Who is told when something is wrong; none for nobody.
    pub alerts: Option<AlertsConfig>,
    /// The connections, by name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// The worker pools, in the order of the file.
    pub pools: Vec<Arc<PoolConfig>>,
    /// Which queues get the messages of which topics, beside those that the tables have already.
    pub subscriptions: Vec<Subscription>,
    /// Every key by its dotted name, with the value that it came to; secrets are hidden.
    pub effective: BTreeMap<String, String>,
}

/// `[daemon]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonConfig {
    /// How long work in flight may take to finish when the daemon is asked to stop.
    pub drain_timeout: Duration,
    /// Which log records are kept, in the syntax of tracing's `Targets`.
    pub log_level: String,
    /// How log records look.
    pub log_format: LogFormat,
    /// The most bytes of messages in memory, of all pools together; a part of the memory if none.
    pub buffered_bytes_max: Option<usize>,
    /// How long a thread of the daemon may show no sign of life before it counts as stuck.
    pub stall_timeout: Duration,
}

/// How log records look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON else.
    Auto,
    /// A line of text each.
    Text,
    /// A JSON object each.
    Json,
}

/// `[sources.NAME]`: a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceConfig {
    /// A database table.
    Table(TableSource),
    /// A RabbitMQ broker.
    RabbitMq(RabbitMqSource),
    /// A Kafka cluster.
    Kafka(KafkaSource),
}

impl SourceConfig {
    /// The word for it in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "table",
            Self::RabbitMq(_) => "rabbitmq",
            Self::Kafka(_) => "kafka",
        }
    }
}

/// A RabbitMQ broker.
#[derive(Debug, Clone, PartialEq)]
pub struct RabbitMqSource {
    /// Where it listens: at least one, tried in turn.
    pub hosts: Vec<Host>,
    /// How the connection is encrypted; none for plain TCP.
    pub tls: Option<Tls>,
    /// The virtual host.
    pub vhost: String,
    /// Who we are.
    pub username: String,
    /// What proves it.
    pub password: Secret,
    /// What copies of messages are signed with; none for the password.
    pub signing_secret: Option<Secret>,
    /// Whether copies without a signature are taken for those of a daemon.
    pub unsigned_copies: bool,
    /// Half of this without a sign from the other side makes either side send one; twice this ends
    /// the connection.
    pub heartbeat: Duration,
    /// How long an attempt to connect to one host may take.
    pub connect_timeout: Duration,
    /// What the broker's management shows the connection as; the pool's name is added.
    pub connection_name: String,
    /// Whether queues that are missing are declared.
    pub declare: bool,
    /// How they are declared, unless a pool says otherwise.
    pub queue: QueueDeclaration,
    /// How long the broker waits for an acknowledgement before it closes the channel.
    pub consumer_timeout: Duration,
}

/// How a queue of RabbitMQ is declared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueDeclaration {
    /// Its type.
    pub queue_type: QueueType,
    /// Its arguments, beside those that we set.
    pub arguments: BTreeMap<String, Argument>,
}

/// The type of a queue of RabbitMQ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueType {
    /// Replicated, and counts deliveries.
    #[default]
    Quorum,
    /// On one node.
    Classic,
}

impl QueueType {
    /// The word for it, in the file and to the broker.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

/// The value of an argument of a queue or a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Yes or no.
    Boolean(bool),
}

/// A Kafka cluster, read as one consumer group.
#[derive(Clone, PartialEq)]
pub struct KafkaSource {
    /// `host:port`, several with commas between them.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// Whether topics that are missing are created.
    pub declare: bool,
    /// How many partitions they get; none for the broker's default.
    pub partitions: Option<i32>,
    /// How many replicas; none for the broker's default.
    pub replication: Option<i32>,
    /// How often what is done is committed.
    pub commit_interval: Duration,
    /// The most bytes that a pool holds in memory.
    pub buffered_bytes_max: usize,
    /// How long tier topics keep a message at least: longer than the longest delay.
    pub retry_retention: Duration,
    /// Properties of librdkafka for every connection.
    pub client: BTreeMap<String, String>,
    /// Properties of librdkafka for consumers.
    pub consumer: BTreeMap<String, String>,
    /// Properties of librdkafka for producers.
    pub producer: BTreeMap<String, String>,
}

/// Shows the names of its properties, not their values: those may be secrets.
impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource")
            .field("brokers", &self.brokers)
            .field("group", &self.group)
            .field("client", &self.client.keys())
            .field("consumer", &self.consumer.keys())
            .field("producer", &self.producer.keys())
            .finish_non_exhaustive()
    }
}

/// `[[pools]]`: workers of one kind on one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Its name, unique.
    pub name: String,
    /// The name of the connection it reads from.
    pub source: String,
    /// The queue it reads; of several topics their names and patterns, with commas between them.
    pub queue: Arc<str>,
    /// How many worker processes it keeps.
    pub workers: Workers,
    /// How a worker is started.
    pub command: WorkerCommand,
    /// How many messages are fetched per worker, those it works on included.
    pub prefetch: Prefetch,
    /// How many frames may be in a version 1 worker's pipe.
    pub pipeline: Pipeline,
    /// The longest frame in either direction, in bytes, the length not counted.
    pub frame_bytes_max: usize,
    /// When a worker is asked to stop working on a message; none for never.
    pub timeout: Option<Duration>,
    /// How much later it is killed.
    pub timeout_grace: Duration,
    /// How long a busy worker may be silent; none for as long as it likes.
    pub stall_timeout: Option<Duration>,
    /// What looks at a worker before it is killed for either; none for nothing.
    pub on_timeout: Option<Autopsy>,
    /// From the start of the process until it has connected.
    pub start_timeout: Duration,
    /// From `__quit__` to SIGTERM, and from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// A message that killed so many workers is dead, attempts left or not.
    pub crashes_max: u32,
    /// A message over which so many daemons vanished in a row is dead.
    pub lapses_max: u32,
    /// How often a task may go on as another message.
    pub steps_max: u32,
    /// What becomes of a message whose attempt failed.
    pub retry: Retry,
    /// When nearly all attempts fail; none for going on whatever fails.
    pub breaker: Option<Breaker>,
    /// When a healthy worker is replaced by a fresh one.
    pub recycle: Recycle,
    /// How workers are replaced.
    pub restart: Restart,
    /// Statuses that mean something else in this pool.
    pub statuses: BTreeMap<i64, Answer>,
    /// Patterns of the queues that its workers may send to; none for any on its source.
    pub publish_to: Option<Vec<String>>,
    /// What is remembered of messages that are done; none for nothing.
    pub idempotency: Option<Idempotency>,
    /// What only sources of one kind have.
    pub options: Options,
}

/// The settings of a pool that only sources of one kind have.
#[derive(Debug, Clone, PartialEq)]
pub enum Options {
    /// None.
    Table,
    /// Those of a queue of RabbitMQ.
    RabbitMq(RabbitMqOptions),
    /// Those of topics of Kafka.
    Kafka(KafkaOptions),
}

impl Options {
    /// The word for their kind of source in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::RabbitMq(_) => "rabbitmq",
            Self::Kafka(_) => "kafka",
        }
    }
}

/// How a pool uses its queue of RabbitMQ.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RabbitMqOptions {
    /// Where dead letters go.
    pub dead_letter: DeadLetters,
    /// What becomes of a message whose reply no queue takes.
    pub unroutable_reply: UnroutableReply,
    /// Consumers of a higher priority get messages first; none for the broker's default.
    pub consumer_priority: Option<i32>,
    /// Further arguments of the consumer.
    pub consumer_arguments: BTreeMap<String, Argument>,
    /// How the queue is declared if it is missing.
    pub queue: QueueDeclaration,
    /// What leads messages to it beside its name.
    pub bind: Vec<Binding>,
}

/// A queue's binding to an exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// How the exchange is declared; none if it has to be there.
    pub exchange_type: Option<ExchangeType>,
    /// Which messages of it: a routing key, or a pattern of a topic.
    pub routing_key: String,
    /// Which messages, by their headers.
    pub arguments: BTreeMap<String, Argument>,
}

/// The types of exchanges that every broker has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExchangeType {
    /// By the routing key.
    #[default]
    Direct,
    /// By a pattern of the routing key.
    Topic,
    /// By headers.
    Headers,
    /// To all.
    Fanout,
}

/// Where dead letters go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeadLetters {
    /// To the queue named after the one they come from.
    #[default]
    Default,
    /// To this queue.
    Queue(String),
    /// Where the broker's own policy sends what is rejected.
    Broker,
}

/// `unroutable_reply`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnroutableReply {
    /// The message goes to the dead letters, with the reply.
    #[default]
    DeadLetter,
    /// The message is done and the reply is gone.
    Drop,
}

/// How a pool uses its topics of Kafka.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Which those are.
    pub topics: Topics,
    /// Which messages wait for one another.
    pub order: Order,
    /// The topic of all dead letters; none for those named after topic and group.
    pub dead_letter: Option<String>,
}

/// `order`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Messages of one key, one at a time.
    #[default]
    Key,
    /// Messages of one partition, one at a time.
    Partition,
    /// None.
    None,
}

/// How a worker process is started. Its `Debug` shows the names of its variables, not their
/// values: those may be secrets.
#[derive(Clone, PartialEq)]
pub struct WorkerCommand {
    /// The program: a path, or a name looked up in the worker's `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The whole environment, resolved: what is inherited, then what the file sets. The
    /// variables that tell the worker about its pool come on top when it is started.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in; none for the daemon's own.
    pub cwd: Option<PathBuf>,
    /// The user it runs as; none for the daemon's own.
    pub user: Option<String>,
    /// What the kernel holds it to.
    pub limits: Limits,
}

impl fmt::Debug for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCommand")
            .field("program", &self.program)
            .field("args", &redact::words(&self.args))
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("user", &self.user)
            .field("limits", &self.limits)
            .finish()
    }
}

/// What the kernel holds a worker to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most private memory, in bytes (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// The most open files (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// The niceness, -20 to 19.
    pub cpu_nice: Option<i32>,
}

/// `prefetch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// By the worker's window: enough that the next batch is there when this one is done.
    Auto,
    /// So many, but never fewer than the worker's window.
    PerWorker(usize),
}

/// `pipeline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// As many as the worker empties in about a millisecond; 1 for slow tasks.
    Auto,
    /// So many.
    Fixed(usize),
}

/// `retry`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How many attempts a message has, the first included.
    pub attempts: u32,
    /// How long it waits between them. Its `max` also bounds what a worker may ask for.
    pub backoff: Backoff,
    /// Kafka: a wait up to this holds the key or the partition, a longer one leaves the order.
    pub in_place_max: Duration,
}

/// `restart`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restart {
    /// How long a crashed worker's place stays empty.
    pub backoff: Backoff,
    /// How many new workers of a rolling restart may be on trial at once.
    pub surge: usize,
    /// Number of successes by which one on trial shows that it works.
    pub success: u64,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaker {
    /// It opens when this share of the last first attempts failed, above 0 to 1.
    pub failures: f64,
    /// How many first attempts it looks at.
    pub of: usize,
    /// While it is open, one message is taken each time this has passed.
    pub probe: Duration,
}

/// `recycle`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recycle {
    /// After so many messages.
    pub tasks: Option<u64>,
    /// At such an age.
    pub age: Option<Duration>,
    /// At such a resident size, in bytes.
    pub memory_bytes: Option<u64>,
    /// The share of `tasks` and `age` that chance takes off, 0 to 1, so that workers that were
    /// started together do not leave together.
    pub jitter: f64,
}
