//! Records of messages that are of no schedule: one row each, entered when the message ends. If it is in the ledger's
//! own database, that is in the transaction that settles it.

use jiff::Timestamp;

use super::change::{Effect, before, beginning};
use super::failure::KeptFailure;
use super::message;
use super::values::SqlValue;
use ganger_queue::delivery::{MessageEnd, RecordedEnd};

/// Enters the record. The name of its schedule is empty: none can have it.
pub(crate) const RECORD: &str = "
INSERT INTO occurrences (id, schedule, version, queue, source, message_id, correlation_id, state, reason, attempt,
  queued_at, started_at, worker, trace_id, ended_at, error, fingerprint, exit_code, \"signal\", result)
VALUES (?, '', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// A record.
#[derive(Debug)]
pub(crate) struct RecordRow<'a> {
    id: &'a str,
    end: &'a RecordedEnd,
    now_ms: i64,
    effect: Effect<'a>,
}

impl<'a> RecordRow<'a> {
    /// Makes the record of an end, at that time of the ledger's clock.
    pub(crate) fn new(end: &'a RecordedEnd, now_ms: i64) -> Self {
        let now = || Timestamp::from_millisecond(now_ms).unwrap_or_default();
        let id = end.id.get_or_init(|| message::id(now()));
        let effect = match &end.end {
            MessageEnd::Done(result) => Effect::done(result),
            MessageEnd::Failed {
                reason,
                error,
                exit,
            } => Effect::dead(*reason, error, *exit),
        };
        Self {
            id,
            end,
            now_ms,
            effect,
        }
    }

    /// Returns the values of [`RECORD`].
    pub(crate) fn values(&self) -> Vec<SqlValue<'_>> {
        let record = &self.end.message;
        let at = |time: tokio::time::Instant| before(self.now_ms, time.elapsed());
        let [started, worker, trace] = beginning(record.begun.as_ref(), self.now_ms);
        let Effect {
            to,
            reason,
            failure,
            result,
        } = &self.effect;
        let [error, fingerprint, exit_code, signal] = KeptFailure::values(failure.as_ref());
        vec![
            SqlValue::from(self.id),
            (&*record.queue).into(),
            record.source.as_deref().into(),
            record.message_id.as_deref().into(),
            record.correlation_id.as_deref().into(),
            to.code().into(),
            (*reason).into(),
            record.attempt.into(),
            at(record.arrived).into(),
            started,
            worker,
            trace,
            at(self.end.made).into(),
            error,
            fingerprint,
            exit_code,
            signal,
            result.as_deref().into(),
        ]
    }
}
