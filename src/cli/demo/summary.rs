//! Results of the demo.

use serde::Serialize;

use super::super::common::Format;
use super::super::output;
use super::burst::Burst;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) sent: u64,
    pub(super) done: u64,
    pub(super) lost: u64,
    pub(super) dead: u64,
    /// Number of schedules that have sent the messages, if any have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schedules: Option<u32>,
    pub(super) retried: u64,
    pub(super) duplicates: u64,
    pub(super) workers_killed: u64,
    pub(super) seconds: f64,
    pub(super) messages_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Messages that take no work; none if none were requested.
    pub(super) burst: Option<Burst>,
}

impl Summary {
    pub(super) fn print(&self, format: Format) -> miette::Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        let sent = match self.schedules {
            Some(schedules) => format!("{} by {schedules} schedules", self.sent),
            None => self.sent.to_string(),
        };
        let mut rows = vec![
            ("sent", sent),
            ("done", self.done.to_string()),
            ("lost", self.lost.to_string()),
            ("dead-lettered", self.dead.to_string()),
            ("retried", self.retried.to_string()),
            ("duplicates", self.duplicates.to_string()),
            ("workers killed", self.workers_killed.to_string()),
            ("seconds", format!("{:.2}", self.seconds)),
            ("messages/s", format!("{:.0}", self.messages_per_second)),
            ("p50 at a worker", format!("{:.2} ms", self.p50_ms)),
            ("p99 at a worker", format!("{:.2} ms", self.p99_ms)),
        ];
        if let Some(burst) = &self.burst {
            rows.push(("without work", burst.as_text()));
        }
        let rows = rows.into_iter();
        output::line(output::table(
            &["", ""],
            rows.map(|(name, value)| vec![name.to_owned(), value]),
        ))
    }
}
