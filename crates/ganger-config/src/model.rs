//! The configuration as the other crates see it: validated, with every default filled in and every
//! duration and size in its unit. Nothing here reads a file or reports a problem.

mod admin;
mod alerts;
mod autopsy;
mod idempotency;
mod network;
mod reading;
mod schedule;
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
pub use admin::{
    AdminConfig, AdminPeer, LISTEN, NamedToken, ProxyAuth, PublicUrl, Role, TelemetryConfig,
};
pub use alerts::{AlertForm, AlertsConfig, WebhookConfig};
pub use autopsy::Autopsy;
use ganger_core::backoff::Backoff;
use ganger_protocol::status::Answer;
pub use idempotency::{Idempotency, MessageKey};
pub use network::{Host, Identity, Tls, is_loopback};
pub use schedule::{Keep, LedgerConfig, LogLimits, Record, RunLimits, ScheduleConfig};
pub use subscription::Subscription;
pub use table::{Database, MysqlDatabase, PostgresDatabase, SslMode, TableSource};
pub use telemetry::Otlp;
pub use topics::Topics;
pub use topics::{group_in_topics, is_legal_in_topics};
pub use workers::{Autoscale, WORKERS_MAX, Workers};

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Settings of the daemon itself.
    pub daemon: DaemonConfig,
    /// Settings of the admin API.
    pub admin: AdminConfig,
    /// Metrics and OpenTelemetry settings.
    pub telemetry: TelemetryConfig,
    /// Alert settings; none if no alerts are sent.
    pub alerts: Option<AlertsConfig>,
    /// The sources, by name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// The worker pools, in the order of the file.
    pub pools: Vec<Arc<PoolConfig>>,
    /// Subscriptions of queues to topics, in addition to those that the tables already hold.
    pub subscriptions: Vec<Subscription>,
    /// The database of the schedules; none if there are none.
    pub ledger: Option<LedgerConfig>,
    /// The schedules, in the order of the file.
    pub schedules: Vec<ScheduleConfig>,
    /// Every key by its dotted name, with its value; secrets are hidden.
    pub effective: BTreeMap<String, String>,
}

/// `[daemon]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonConfig {
    /// Longest time for work in flight to finish when the daemon is asked to stop.
    pub drain_timeout: Duration,
    /// Filter of the log records that are kept, in the syntax of tracing's `Targets`.
    pub log_level: String,
    /// Format of log records.
    pub log_format: LogFormat,
    /// Maximum bytes of messages in memory, over all pools; none for a share of the machine's memory.
    pub buffered_bytes_max: Option<usize>,
    /// Longest time that a thread of the daemon may show no sign of life before it counts as stuck.
    pub stall_timeout: Duration,
}

/// Format of log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// One line of text per record.
    Text,
    /// One JSON object per record.
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
    /// Returns its `kind` as written in the file.
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
    /// Addresses of the broker: at least one, tried in turn.
    pub hosts: Vec<Host>,
    /// TLS settings; none for plain TCP.
    pub tls: Option<Tls>,
    /// The virtual host.
    pub vhost: String,
    /// User name.
    pub username: String,
    /// Password.
    pub password: Secret,
    /// Secret that copies of messages are signed with; none for the password.
    pub signing_secret: Option<Secret>,
    /// Copies without a signature are accepted as a daemon's.
    pub unsigned_copies: bool,
    /// Heartbeat timeout: after half of it without a sign from the peer either side sends a heartbeat;
    /// after twice of it the connection ends.
    pub heartbeat: Duration,
    /// Timeout of an attempt to connect to one host.
    pub connect_timeout: Duration,
    /// Name of the connection in the broker's management; the pool's name is added.
    pub connection_name: String,
    /// Queues that are missing are declared.
    pub declare: bool,
    /// Declaration of queues, unless a pool has its own.
    pub queue: QueueDeclaration,
    /// Longest time that the broker waits for an acknowledgement before it closes the channel.
    pub consumer_timeout: Duration,
}

/// Declaration of a RabbitMQ queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueDeclaration {
    /// Its type.
    pub queue_type: QueueType,
    /// Its arguments, beside those that ganger sets.
    pub arguments: BTreeMap<String, Argument>,
}

/// The type of a queue of RabbitMQ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueType {
    /// Replicated; counts deliveries.
    #[default]
    Quorum,
    /// On one node.
    Classic,
}

impl QueueType {
    /// Returns its name, in the file and to the broker.
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
    /// True or false.
    Boolean(bool),
}

/// A Kafka cluster, read as one consumer group.
#[derive(Clone, PartialEq)]
pub struct KafkaSource {
    /// Bootstrap brokers: `host:port`, several separated by commas.
    pub brokers: String,
    /// The consumer group.
    pub group: String,
    /// Topics that are missing are created.
    pub declare: bool,
    /// Number of partitions of created topics; none for the broker's default.
    pub partitions: Option<i32>,
    /// Replication factor of created topics; none for the broker's default.
    pub replication: Option<i32>,
    /// Interval at which offsets are committed.
    pub commit_interval: Duration,
    /// Maximum bytes that a pool buffers in memory.
    pub buffered_bytes_max: usize,
    /// Shortest retention of tier topics: longer than the longest delay.
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
    /// The name of the source it reads from.
    pub source: String,
    /// The queue it reads; for several topics their names and patterns, separated by commas.
    pub queue: Arc<str>,
    /// Number of worker processes.
    pub workers: Workers,
    /// Command that starts a worker.
    pub command: WorkerCommand,
    /// Number of messages fetched per worker, including those in its hands.
    pub prefetch: Prefetch,
    /// Number of frames that may be in the pipe of a version 1 worker.
    pub pipeline: Pipeline,
    /// Maximum frame length in either direction, in bytes, without the length prefix.
    pub frame_bytes_max: usize,
    /// Time after which a worker is asked to stop working on a message; none for never.
    pub timeout: Option<Duration>,
    /// Time from that request until the worker is killed.
    pub timeout_grace: Duration,
    /// Longest time that a busy worker may be silent; none for no limit.
    pub stall_timeout: Option<Duration>,
    /// Program that inspects a worker before it is killed for either timeout; none for no inspection.
    pub on_timeout: Option<Autopsy>,
    /// Longest time from the start of the process until it has connected.
    pub start_timeout: Duration,
    /// Time from `__quit__` to SIGTERM, and from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// Number of worker crashes after which a message is dead-lettered, whatever attempts are left.
    pub crashes_max: u32,
    /// Number of daemons in a row that vanished over a message, after which it is dead-lettered.
    pub lapses_max: u32,
    /// Maximum number of times that a task may continue as another message.
    pub steps_max: u32,
    /// Retry policy for failed attempts.
    pub retry: Retry,
    /// Breaker, which opens when nearly all attempts fail; none for no breaker.
    pub breaker: Option<Breaker>,
    /// Conditions under which a healthy worker is replaced.
    pub recycle: Recycle,
    /// Rules by which workers are replaced.
    pub restart: Restart,
    /// Statuses that have another meaning in this pool.
    pub statuses: BTreeMap<i64, Answer>,
    /// Patterns of the queues that its workers may publish to; none for any on its source.
    pub publish_to: Option<Vec<String>>,
    /// Memory of finished messages, to recognise repetitions; none for no such memory.
    pub idempotency: Option<Idempotency>,
    /// Messages that the ledger has a record of; none for those that the ledger says.
    pub record: Option<Record>,
    /// Settings that only sources of one kind have.
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
    /// Returns their kind of source as written in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::RabbitMq(_) => "rabbitmq",
            Self::Kafka(_) => "kafka",
        }
    }
}

/// A pool's settings for its RabbitMQ queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RabbitMqOptions {
    /// Destination of dead letters.
    pub dead_letter: DeadLetters,
    /// Treatment of a message whose reply no queue takes.
    pub unroutable_reply: UnroutableReply,
    /// Consumer priority: higher ones get messages first; none for the broker's default.
    pub consumer_priority: Option<i32>,
    /// Further arguments of the consumer.
    pub consumer_arguments: BTreeMap<String, Argument>,
    /// Declaration of the queue if it is missing.
    pub queue: QueueDeclaration,
    /// Bindings that route messages to it, beside its name.
    pub bind: Vec<Binding>,
}

/// A queue's binding to an exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// Type by which the exchange is declared; none if it must exist.
    pub exchange_type: Option<ExchangeType>,
    /// Messages to route: a routing key, or a pattern for a topic exchange.
    pub routing_key: String,
    /// Messages to route, by their headers.
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

/// Destination of dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeadLetters {
    /// A queue named after the one they come from.
    #[default]
    Default,
    /// To this queue.
    Queue(String),
    /// The destination that the broker's own policy gives to rejected messages.
    Broker,
}

/// `unroutable_reply`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnroutableReply {
    /// The message is dead-lettered, with the reply.
    #[default]
    DeadLetter,
    /// The message is acknowledged and the reply is dropped.
    Drop,
}

/// A pool's settings for its Kafka topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaOptions {
    /// The topics.
    pub topics: Topics,
    /// Order in which messages are worked on.
    pub order: Order,
    /// Topic of all dead letters; none for topics named after topic and group.
    pub dead_letter: Option<String>,
}

/// `order`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// One at a time for each key.
    #[default]
    Key,
    /// One at a time for each partition.
    Partition,
    /// No order.
    None,
}

/// Command that starts a worker process. Its `Debug` shows the names of its variables, not their values:
/// those may be secrets.
#[derive(Clone, PartialEq)]
pub struct WorkerCommand {
    /// The program: a path, or a name looked up in the worker's `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The whole environment, resolved: inherited variables, then those that the file sets. The variables
    /// that describe the pool to the worker are added when it is started.
    pub env: BTreeMap<String, String>,
    /// Working directory; none for the daemon's own.
    pub cwd: Option<PathBuf>,
    /// User it runs as; none for the daemon's own.
    pub user: Option<String>,
    /// Resource limits.
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

/// Resource limits of a worker, enforced by the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum private memory, in bytes (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// Maximum number of open files (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Niceness, -20 to 19.
    pub cpu_nice: Option<i32>,
}

/// `prefetch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// Derived from the worker's window: the next batch is there when this one is done.
    Auto,
    /// This number, but never fewer than the worker's window.
    PerWorker(usize),
}

/// `pipeline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipeline {
    /// As many as the worker empties in about a millisecond; 1 for slow tasks.
    Auto,
    /// This number.
    Fixed(usize),
}

/// `retry`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Maximum number of attempts, including the first.
    pub attempts: u32,
    /// Back-off between attempts. Its `max` also bounds the delay that a worker may ask for.
    pub backoff: Backoff,
    /// Kafka: a delay up to this holds the key or the partition, a longer one gives up the order.
    pub in_place_max: Duration,
}

/// `restart`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restart {
    /// Back-off before a crashed worker is replaced.
    pub backoff: Backoff,
    /// Maximum number of new workers on trial at once in a rolling restart.
    pub surge: usize,
    /// Number of successes that end a worker's trial.
    pub success: u64,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breaker {
    /// Share of failures among the last first attempts at which it opens, above 0 to 1.
    pub failures: f64,
    /// Number of first attempts considered.
    pub of: usize,
    /// Interval at which one message is taken while it is open.
    pub probe: Duration,
}

/// `recycle`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Recycle {
    /// Maximum number of messages.
    pub tasks: Option<u64>,
    /// Maximum age.
    pub age: Option<Duration>,
    /// Maximum resident size, in bytes.
    pub memory_bytes: Option<u64>,
    /// Share of `tasks` and `age` that chance takes off, 0 to 1, so that workers that were started
    /// together are not replaced together.
    pub jitter: f64,
}
