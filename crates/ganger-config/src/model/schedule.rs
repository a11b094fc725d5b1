//! `[ledger]` and `[[schedules]]`.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_schedule::occurrence::OccurrenceState;
use ganger_schedule::spec::Spec;
use ganger_schedule::template::Template;

use super::table::TableSource;

/// The database that holds schedules and their occurrences.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerConfig {
    /// Name of its source.
    pub source: String,
    /// Its settings.
    pub table: TableSource,
    /// It is a file of its own, which belongs to no source and has no queues.
    pub is_embedded: bool,
    /// Name of this configuration among those that share the ledger.
    pub group: String,
    /// Occurrences that are kept after their end.
    pub keep: Keep,
    /// Messages that it has a record of, unless their pool says otherwise.
    pub record: Record,
    /// Limits of the log of each occurrence.
    pub log: LogLimits,
}

/// Occurrences that are kept after their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// Time, for each state in which they end.
    pub times: [(OccurrenceState, Duration); OccurrenceState::ENDS.len()],
    /// Maximum number of each schedule; none for any number.
    pub per_schedule: Option<u32>,
}

impl Keep {
    /// Keeps all for that time.
    pub fn all(time: Duration) -> Self {
        Self {
            times: OccurrenceState::ENDS.map(|state| (state, time)),
            per_schedule: None,
        }
    }

    /// Returns the longest of the times.
    pub fn longest(&self) -> Duration {
        let times = self.times.iter().map(|(_, time)| *time);
        times.max().unwrap_or_default()
    }
}

/// Messages that the ledger has a record of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Record {
    /// Those of schedules alone.
    #[default]
    Scheduled,
    /// Also those that end as dead letters.
    Failed,
    /// All.
    All,
}

/// Limits of the log of an occurrence. The first fifth of each stays, and otherwise the newest lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Maximum number of lines; 0 for no log.
    pub lines: u32,
    /// Maximum size of all lines together.
    pub bytes: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            lines: 1000,
            bytes: 256 * 1024,
        }
    }
}

/// A schedule and its message.
#[derive(Debug, Clone, Eq)]
pub struct ScheduleConfig {
    /// Its name and its slots, and what becomes of them.
    pub spec: Spec,
    /// The source of its queue; none for that of the ledger.
    pub source: Option<String>,
    /// The queue that gets a message for each slot; the routing key if there is an exchange.
    pub queue: String,
    /// The exchange that gets the messages instead.
    pub exchange: Option<String>,
    /// Body of the message.
    pub body: Template,
    /// MIME type of the body.
    pub content_type: Option<String>,
    /// Headers of the message.
    pub headers: BTreeMap<String, String>,
    /// Key of the message.
    pub key: Option<String>,
    /// Priority of the message.
    pub priority: i32,
    /// Limits of its runs.
    pub limits: RunLimits,
    /// Words by which people find it.
    pub tags: Vec<String>,
    /// Its purpose, for people.
    pub description: Option<String>,
    /// Its keys as they were written but the name, as JSON: what the ledger holds.
    pub definition: String,
}

/// Limits of the runs of a schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// Time limit of an attempt, which may only shorten the pool's.
    pub timeout: Option<Duration>,
    /// Number of attempts; none for that of the pool.
    pub attempts: Option<u32>,
}

/// Two that mean the same are equal, however they are written.
impl PartialEq for ScheduleConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            spec,
            source,
            queue,
            exchange,
            body,
            content_type,
            headers,
            key,
            priority,
            limits,
            tags,
            description,
            definition: _,
        } = self;
        (spec, queue, body, content_type)
            == (&other.spec, &other.queue, &other.body, &other.content_type)
            && (source, exchange) == (&other.source, &other.exchange)
            && (headers, key, priority) == (&other.headers, &other.key, &other.priority)
            && limits == &other.limits
            && (tags, description) == (&other.tags, &other.description)
    }
}

impl ScheduleConfig {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}
