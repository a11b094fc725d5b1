//! Changes of occurrences as their messages change: claimed, settled, dead-lettered, taken back. If the message
//! is in the database of the ledger, each is in the transaction that changes the message.

use std::borrow::Cow;
use std::time::Duration;

use super::values::SqlValue;
use crate::rules::{error_text, result_text};
use crate::table::{OccurrenceRun, headers};
use ganger_queue::delivery::{Begun, Failure, Outcome};
use ganger_schedule::occurrence::OccurrenceState;

/// Enters a change as an event, with the state before. The note on a cancelled run is the reason for which that
/// was asked for. Of a message that is returned for ever only the first thousand events and the end are entered.
pub(crate) const EVENT: &str = "
INSERT INTO occurrence_events (occurrence, at, from_state, to_state, attempt, note)
SELECT id, ?, state, ?, coalesce(?, attempt), coalesce(CASE WHEN ? = 4 THEN cancel_request END, ?)
FROM occurrences
WHERE id = ? AND state = coalesce(?, state) AND (state <> ? OR attempt <> coalesce(?, attempt))
  AND (? = 1 OR NOT EXISTS (SELECT 1 FROM occurrence_events WHERE occurrence = ? LIMIT 1 OFFSET 999))";

/// Makes it. An occurrence that the ledger no longer has is not missed. An end takes the request to cancel it
/// with it, and what was said of a failure before is over. If the end of a run was evaluated, that after it is again.
/// MySQL assigns in this order, and reads what it has assigned.
pub(crate) const CHANGE: &str = "
UPDATE occurrences SET
  watched = CASE WHEN ended_at IS NOT NULL AND watched = 2 THEN 1 ELSE watched END, state = ?,
  reason = CASE WHEN ? = 4 AND cancel_request = 'replaced' THEN cancel_request ELSE ? END,
  attempt = coalesce(?, attempt), error = coalesce(?, error), result = coalesce(?, result),
  started_at = coalesce(?, started_at), trace_id = CASE WHEN ? IS NULL THEN trace_id ELSE ? END,
  worker = coalesce(?, worker), ended_at = ?, resolved = NULL,
  cancel_request = CASE WHEN ? = 1 THEN NULL ELSE cancel_request END
WHERE id = ? AND state = coalesce(?, state)";

/// Condition of a change that is reported later than it was made. Once an occurrence has ended, only a message
/// changes it that was delivered after that; a state that is no end changes nothing if the ledger knows a
/// later change. A clock that was set back keeps no change out.
pub(crate) const FENCE: &str = "
AND (ended_at IS NULL OR ended_at < ?)
AND (? = 1 OR NOT EXISTS (SELECT 1 FROM occurrence_events later
  WHERE later.occurrence = occurrences.id AND later.at > ? AND later.at <= ?
    AND later.from_state <> later.to_state))";

/// A change of an occurrence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change<'a> {
    id: &'a str,
    /// State in which it must be; none for any.
    from: Option<OccurrenceState>,
    to: OccurrenceState,
    /// None if it remains the same.
    attempt: Option<u32>,
    reason: Option<&'static str>,
    error: Option<Cow<'a, str>>,
    result: Option<Cow<'a, str>>,
    /// Its beginning; none if no worker has got the message.
    begun: Option<&'a Begun>,
    /// Time since the change.
    ago: Duration,
}

/// State, reason, error and result of a change.
pub(crate) type ReportedChange = (
    OccurrenceState,
    Option<&'static str>,
    Option<String>,
    Option<String>,
);

impl<'a> Change<'a> {
    /// Notes that a worker has got the message.
    pub(crate) fn begun(run: &'a OccurrenceRun) -> Self {
        let begun = run.begun.as_ref();
        Self {
            id: &run.id,
            from: None,
            to: OccurrenceState::Running,
            attempt: Some(run.attempt),
            reason: None,
            error: None,
            result: None,
            begun,
            ago: begun.map(|begun| begun.at.elapsed()).unwrap_or_default(),
        }
    }

    /// Notes the outcome of the message.
    pub(crate) fn settled(run: &'a OccurrenceRun, outcome: &'a Outcome) -> Self {
        let (to, reason) = match outcome {
            Outcome::Reply(reply) if headers::occurrence(&reply.headers).is_some() => {
                (OccurrenceState::Queued, Some("step"))
            }
            Outcome::Done | Outcome::Reply(_) => (OccurrenceState::Completed, None),
            Outcome::Requeue { .. } => (OccurrenceState::Waiting, Some("requeue")),
            Outcome::Return { .. } => (OccurrenceState::Queued, None),
            Outcome::ReturnAfter { .. } => (OccurrenceState::Waiting, Some("pause")),
            Outcome::RetryAfter { .. } => (OccurrenceState::Waiting, Some("retry")),
            Outcome::DeadLetter(failure) => (failure.reason.end(), Some(failure.reason.as_str())),
        };
        let result = match outcome {
            Outcome::Done => result_text(&run.result),
            Outcome::Reply(reply) if to == OccurrenceState::Completed => result_text(&reply.body),
            _ => None,
        };
        Self {
            to,
            reason,
            error: outcome.failure().map(error_text),
            result,
            ago: Duration::ZERO,
            ..Self::begun(run)
        }
    }

    /// Notes what was reported: the state, the beginning, and how long ago it changed.
    pub(crate) fn reported(
        id: &'a str,
        (to, attempt): (OccurrenceState, Option<u32>),
        reason: Option<&'static str>,
        (error, result): (Option<&'a str>, Option<&'a str>),
        (begun, ago): (Option<&'a Begun>, Duration),
    ) -> Self {
        Self {
            id,
            from: None,
            to,
            attempt,
            reason,
            error: error.map(Cow::Borrowed),
            result: result.map(Cow::Borrowed),
            begun,
            ago,
        }
    }

    /// Returns the state that it leads to, with its reason and the error.
    pub(crate) fn into_state(self) -> ReportedChange {
        let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        (self.to, self.reason, owned(self.error), owned(self.result))
    }

    /// Notes that the message has become a dead letter without an attempt.
    pub(crate) fn buried(id: &'a str, failure: &'a Failure) -> Self {
        Self {
            from: None,
            to: failure.reason.end(),
            reason: Some(failure.reason.as_str()),
            error: Some(error_text(failure)),
            ..Self::lost(id)
        }
    }

    /// Notes that the message of a run is sent that has waited for others to end.
    pub(crate) fn admitted(id: &'a str) -> Self {
        Self {
            from: Some(OccurrenceState::Waiting),
            to: OccurrenceState::Queued,
            reason: None,
            ..Self::lost(id)
        }
    }

    /// Notes that the schedule of a run is gone that has waited for others to end.
    pub(crate) fn removed(id: &'a str) -> Self {
        Self {
            to: OccurrenceState::Cancelled,
            reason: Some("removed"),
            ..Self::admitted(id)
        }
    }

    /// Notes that the message of a run is sent whose slot was skipped.
    pub(crate) fn revived(id: &'a str, reason: &'static str) -> Self {
        Self {
            from: Some(OccurrenceState::Skipped),
            to: OccurrenceState::Queued,
            reason: Some(reason),
            ..Self::lost(id)
        }
    }

    /// Notes that a run is cancelled whose message nobody else has.
    pub(crate) fn cancelled(id: &'a str, from: OccurrenceState) -> Self {
        Self {
            from: Some(from),
            to: OccurrenceState::Cancelled,
            reason: Some("cancelled"),
            ..Self::lost(id)
        }
    }

    /// Notes that the dead letter of a run that has ended so was sent back.
    pub(crate) fn sent_back(id: &'a str, from: OccurrenceState) -> Self {
        Self {
            from: Some(from),
            to: OccurrenceState::Queued,
            reason: Some("sent_back"),
            ..Self::lost(id)
        }
    }

    /// Notes that the daemon is lost whose worker had the message, if one had it.
    pub(crate) fn lost(id: &'a str) -> Self {
        Self {
            id,
            from: Some(OccurrenceState::Running),
            to: OccurrenceState::Unknown,
            attempt: None,
            reason: Some("daemon_lost"),
            error: None,
            result: None,
            begun: None,
            ago: Duration::ZERO,
        }
    }

    /// Id of the occurrence.
    pub(crate) fn id(&self) -> &'a str {
        self.id
    }

    /// Returns the time of the change.
    pub(crate) fn at(&self, now_ms: i64) -> i64 {
        before(now_ms, self.ago)
    }

    /// Returns the values of [`EVENT`].
    pub(crate) fn event(&self, now_ms: i64) -> Vec<SqlValue<'_>> {
        let to = self.to.code();
        let attempt = self.attempt.map(i64::from);
        let note = self.error.as_deref().or(self.reason);
        vec![
            self.at(now_ms).into(),
            to.into(),
            attempt.into(),
            to.into(),
            note.into(),
            self.id.into(),
            self.from.map(OccurrenceState::code).into(),
            to.into(),
            attempt.into(),
            self.to.is_end().into(),
            self.id.into(),
        ]
    }

    /// Returns the values of [`CHANGE`].
    pub(crate) fn change(&self, now_ms: i64) -> Vec<SqlValue<'_>> {
        let [started, worker, trace] = beginning(self.begun, now_ms);
        vec![
            self.to.code().into(),
            self.to.code().into(),
            self.reason.into(),
            self.attempt.map(i64::from).into(),
            self.error.as_deref().into(),
            self.result.as_deref().into(),
            started,
            worker,
            trace,
            worker,
            self.to.is_end().then(|| self.at(now_ms)).into(),
            self.to.is_end().into(),
            self.id.into(),
            self.from.map(OccurrenceState::code).into(),
        ]
    }
}

/// Returns the time of a beginning, the worker and the trace.
pub(crate) fn beginning(begun: Option<&Begun>, now_ms: i64) -> [SqlValue<'_>; 3] {
    let started = begun.map(|begun| before(now_ms, begun.at.elapsed()));
    let worker = begun.map(|begun| &*begun.worker);
    let trace = begun.and_then(|begun| begun.trace.as_deref());
    [started.into(), worker.into(), trace.into()]
}

/// Returns the time so long ago.
pub(crate) fn before(now_ms: i64, passed: Duration) -> i64 {
    now_ms.saturating_sub(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX))
}
