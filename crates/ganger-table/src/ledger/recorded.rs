//! Records of messages that are of no schedule: one row each, entered when the message ends. If it is in the ledger's
//! own database, that is in the transaction that settles it.

use std::borrow::Cow;

use jiff::Timestamp;

use super::change::{before, beginning};
use super::message;
use super::values::SqlValue;
use crate::rules::{cut_error, result_text};
use ganger_queue::delivery::{MessageEnd, RecordedEnd};
use ganger_schedule::occurrence::OccurrenceState;

/// Enters the record. The name of its schedule is empty: none can have it.
pub(crate) const RECORD: &str = "
INSERT INTO occurrences (id, schedule, version, queue, source, message_id, state, reason, attempt, queued_at,
  started_at, worker, trace_id, ended_at, error, result)
VALUES (?, '', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// A record.
#[derive(Debug)]
pub(crate) struct RecordRow<'a> {
    id: &'a str,
    end: &'a RecordedEnd,
    now_ms: i64,
    state: OccurrenceState,
    reason: Option<&'static str>,
    error: Option<Cow<'a, str>>,
    result: Option<Cow<'a, str>>,
}

impl<'a> RecordRow<'a> {
    /// Makes the record of an end, at that time of the ledger's clock.
    pub(crate) fn new(end: &'a RecordedEnd, now_ms: i64) -> Self {
        let now = || Timestamp::from_millisecond(now_ms).unwrap_or_default();
        let id = end.id.get_or_init(|| message::id(now()));
        let (state, reason, error, result) = match &end.end {
            MessageEnd::Done(result) => {
                (OccurrenceState::Completed, None, None, result_text(result))
            }
            MessageEnd::Failed(reason, error) => {
                let error = cut_error(error);
                (reason.end(), Some(reason.as_str()), Some(error), None)
            }
        };
        Self {
            id,
            end,
            now_ms,
            state,
            reason,
            error,
            result,
        }
    }

    /// Returns the values of [`RECORD`].
    pub(crate) fn values(&self) -> Vec<SqlValue<'_>> {
        let record = &self.end.message;
        let at = |time: tokio::time::Instant| before(self.now_ms, time.elapsed());
        let [started, worker, trace] = beginning(record.begun.as_ref(), self.now_ms);
        vec![
            SqlValue::from(self.id),
            (&*record.queue).into(),
            record.source.as_deref().into(),
            record.message_id.as_deref().into(),
            self.state.code().into(),
            self.reason.into(),
            record.attempt.into(),
            at(record.arrived).into(),
            started,
            worker,
            trace,
            at(self.end.made).into(),
            self.error.as_deref().into(),
            self.result.as_deref().into(),
        ]
    }
}
