//! `[ledger]` and `[[schedules]]`.

use std::collections::BTreeMap;
use std::time::Duration;

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
    /// Name of this configuration among those that share the ledger.
    pub group: String,
    /// Time for which occurrences are kept that have ended.
    pub keep: Duration,
}

/// A schedule and its message.
#[derive(Debug, Clone, Eq)]
pub struct ScheduleConfig {
    /// Its name and its slots, and what becomes of them.
    pub spec: Spec,
    /// The queue that gets a message for each slot.
    pub queue: String,
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
    /// Words by which people find it.
    pub tags: Vec<String>,
    /// Its purpose, for people.
    pub description: Option<String>,
    /// Its keys as they were written but the name, as JSON: what the ledger holds.
    pub definition: String,
}

/// Two that mean the same are equal, however they are written.
impl PartialEq for ScheduleConfig {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            spec,
            queue,
            body,
            content_type,
            headers,
            key,
            priority,
            tags,
            description,
            definition: _,
        } = self;
        (spec, queue, body, content_type)
            == (&other.spec, &other.queue, &other.body, &other.content_type)
            && (headers, key, priority) == (&other.headers, &other.key, &other.priority)
            && (tags, description) == (&other.tags, &other.description)
    }
}

impl ScheduleConfig {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
}
