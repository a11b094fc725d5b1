//! Replaces `scheduling.rs` in a build without tables: no configuration has schedules there.

use ganger_config::model::{Config, LedgerConfig};
use ganger_pool::overview::Overview;

/// Schedules of a build without tables: none.
#[derive(Debug, Default)]
pub(super) struct NoScheduling;

pub(super) use NoScheduling as Scheduling;

impl NoScheduling {
    /// Returns a task without schedules.
    pub(super) fn begin(self, _: &Config, _: Option<&LedgerConfig>, _: &Overview) -> Self {
        self
    }

    /// Ends nothing.
    pub(super) fn stop(&mut self) {}

    /// Waits for nothing.
    pub(super) async fn end(self) {}
}
