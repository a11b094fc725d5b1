//! The record of a delivery: its data, and its state, which only the book changes.

use std::time::Duration;

use bytes::Bytes;
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::broker::republish::Original;
use crate::rules::Arrival;
use crate::source::publication::{Publication, Subject};
use ganger_core::budget::Hold;
use ganger_queue::delivery::LogName;

/// A held delivery.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) original: Original,
    pub(crate) arrival: Arrival,
    pub(crate) body: Bytes,
    /// Memory of the daemon that it takes.
    #[expect(dead_code, reason = "it is there to be dropped with the body")]
    hold: Hold,
    /// Time of its arrival.
    pub(crate) since: Instant,
    pub(super) state: DeliveryState,
    /// Number of warnings that the broker's timeout is close.
    warnings: u8,
    /// True if it is counted among those that the broker delivers again.
    is_counted: bool,
}

/// State of a delivery. One that is settled or given back has no record any more: the ledger keeps its tag
/// until that is acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeliveryState {
    /// Just arrived; nothing is decided yet.
    Here,
    /// Waiting for the pool's credit.
    Ready,
    /// A suspect, waiting for its turn, or in its turn for the pool to have room.
    Suspect,
    /// Held by the pool.
    Out,
    /// Waiting for a publication, to be acknowledged after that.
    Publishing(Publication),
    /// Settled, but the broker refuses the publication for it.
    Parked,
}

impl Held {
    /// Creates the record of a delivery that has just come.
    pub(crate) fn new(
        original: Original,
        arrival: Arrival,
        body: Bytes,
        hold: Hold,
        since: Instant,
    ) -> Self {
        Self {
            original,
            arrival,
            body,
            hold,
            since,
            state: DeliveryState::Here,
            warnings: 0,
            is_counted: false,
        }
    }

    /// Name for log records.
    pub(super) fn log_name(&self) -> LogName {
        let properties = &self.original.properties;
        let text = |text: &Option<ShortString>| {
            let text = text.as_ref().map(ToString::to_string);
            text.unwrap_or_default()
        };
        LogName::or(&text(properties.correlation_id()), || {
            text(properties.message_id())
        })
    }

    /// Time for which it has been held.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Message for which a record is published.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            original: &self.original,
            body: &self.body,
            arrival: self.arrival,
        }
    }

    /// Returns whether a warning about its age is due: the age has reached one limit or the `late` one.
    pub(super) fn is_to_be_warned_of(&mut self, late: bool) -> bool {
        let due = 1 + u8::from(late);
        let is_new = self.warnings < due;
        self.warnings = self.warnings.max(due);
        is_new
    }

    #[cfg(test)]
    pub(super) fn warnings(&self) -> u8 {
        self.warnings
    }

    /// Counts it among those that the broker delivers again. Returns whether it was not counted yet.
    pub(super) fn is_to_be_counted(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }
}
