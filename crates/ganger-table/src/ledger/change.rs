//! Changes of occurrences as their messages change: claimed, settled, dead-lettered, taken back. If the message
//! is in the database of the ledger, each is in the transaction that changes the message.

use std::borrow::Cow;
use std::time::Duration;

use super::failure::KeptFailure;
use super::values::SqlValue;
use crate::rules::result_text;
use crate::table::{OccurrenceRun, headers};
use ganger_queue::delivery::{Begun, Exit, Failure, Outcome, Reason};
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
  attempt = coalesce(?, attempt), error = coalesce(?, error),
  exit_code = CASE WHEN ? IS NULL THEN exit_code ELSE ? END,
  \"signal\" = CASE WHEN ? IS NULL THEN \"signal\" ELSE ? END,
  fingerprint = coalesce(?, fingerprint), result = coalesce(?, result),
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
    pub(crate) from: Option<OccurrenceState>,
    /// None if it remains the same.
    pub(crate) attempt: Option<u32>,
    pub(crate) effect: Effect<'a>,
    /// Its beginning; none if no worker has got the message.
    begun: Option<&'a Begun>,
    /// Time since the change.
    ago: Duration,
}

/// The state to which an occurrence changes, and what is kept of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect<'a> {
    pub(crate) to: OccurrenceState,
    pub(crate) reason: Option<&'static str>,
    pub(crate) failure: Option<KeptFailure<'a>>,
    pub(super) result: Option<Cow<'a, str>>,
}

impl<'a> Effect<'a> {
    /// Makes the effect of nothing but another state.
    pub(super) fn of(to: OccurrenceState, reason: Option<&'static str>) -> Self {
        Self {
            to,
            reason,
            failure: None,
            result: None,
        }
    }

    /// Makes the effect of a failure after which the message is a dead letter.
    pub(super) fn dead(reason: Reason, error: &'a str, exit: Option<Exit>) -> Self {
        Self {
            failure: Some(KeptFailure::new(error, exit)),
            ..Self::of(reason.end(), Some(reason.as_str()))
        }
    }

    /// Makes the effect of work that is done, with this result.
    pub(super) fn done(result: &'a [u8]) -> Self {
        Self {
            result: result_text(result),
            ..Self::of(OccurrenceState::Completed, None)
        }
    }

    /// Returns it with texts of its own.
    pub(super) fn into_owned(self) -> Effect<'static> {
        Effect {
            failure: self.failure.map(KeptFailure::into_owned),
            result: self.result.map(|result| Cow::Owned(result.into_owned())),
            ..self
        }
    }
}

impl<'a> Change<'a> {
    /// Notes that a worker has got the message.
    pub(crate) fn begun(run: &'a OccurrenceRun) -> Self {
        let begun = run.begun.as_ref();
        Self {
            id: &run.id,
            from: None,
            attempt: Some(run.attempt),
            effect: Effect::of(OccurrenceState::Running, None),
            begun,
            ago: begun.map(|begun| begun.at.elapsed()).unwrap_or_default(),
        }
    }

    /// Notes the outcome of the message.
    pub(crate) fn settled(run: &'a OccurrenceRun, outcome: &'a Outcome) -> Self {
        let waiting = |reason| Effect::of(OccurrenceState::Waiting, Some(reason));
        let effect = match outcome {
            Outcome::Reply(reply) if headers::occurrence(&reply.headers).is_some() => {
                Effect::of(OccurrenceState::Queued, Some("step"))
            }
            Outcome::Done => Effect::done(&run.result),
            Outcome::Reply(reply) => Effect::done(&reply.body),
            Outcome::Requeue { .. } => waiting("requeue"),
            Outcome::Return { .. } => Effect::of(OccurrenceState::Queued, None),
            Outcome::ReturnAfter { .. } => waiting("pause"),
            Outcome::RetryAfter { failure, .. } => Effect {
                failure: Some(KeptFailure::new(&failure.error, failure.exit)),
                ..waiting("retry")
            },
            Outcome::DeadLetter(failure) => {
                Effect::dead(failure.reason, &failure.error, failure.exit)
            }
        };
        Self {
            effect,
            ago: Duration::ZERO,
            ..Self::begun(run)
        }
    }

    /// Notes what was reported: the effect, the beginning, and how long ago it changed.
    pub(crate) fn reported(
        id: &'a str,
        attempt: Option<u32>,
        effect: Effect<'a>,
        (begun, ago): (Option<&'a Begun>, Duration),
    ) -> Self {
        Self {
            id,
            from: None,
            attempt,
            effect,
            begun,
            ago,
        }
    }

    /// Returns what it does.
    pub(crate) fn into_effect(self) -> Effect<'a> {
        self.effect
    }

    /// Notes that the message has become a dead letter without an attempt.
    pub(crate) fn buried(id: &'a str, failure: &'a Failure) -> Self {
        Self {
            from: None,
            effect: Effect::dead(failure.reason, &failure.error, failure.exit),
            ..Self::lost(id)
        }
    }

    /// Notes that the message of a run is sent that has waited for others to end.
    pub(crate) fn admitted(id: &'a str) -> Self {
        Self {
            from: Some(OccurrenceState::Waiting),
            effect: Effect::of(OccurrenceState::Queued, None),
            ..Self::lost(id)
        }
    }

    /// Notes that the schedule of a run is gone that has waited for others to end.
    pub(crate) fn removed(id: &'a str) -> Self {
        Self {
            effect: Effect::of(OccurrenceState::Cancelled, Some("removed")),
            ..Self::admitted(id)
        }
    }

    /// Notes that the message of a run is sent whose slot was skipped.
    pub(crate) fn revived(id: &'a str, reason: &'static str) -> Self {
        Self {
            from: Some(OccurrenceState::Skipped),
            effect: Effect::of(OccurrenceState::Queued, Some(reason)),
            ..Self::lost(id)
        }
    }

    /// Notes that a run is cancelled whose message nobody else has.
    pub(crate) fn cancelled(id: &'a str, from: OccurrenceState) -> Self {
        Self {
            from: Some(from),
            effect: Effect::of(OccurrenceState::Cancelled, Some("cancelled")),
            ..Self::lost(id)
        }
    }

    /// Notes that the dead letter of a run that has ended so was sent back.
    pub(crate) fn sent_back(id: &'a str, from: OccurrenceState) -> Self {
        Self {
            from: Some(from),
            effect: Effect::of(OccurrenceState::Queued, Some("sent_back")),
            ..Self::lost(id)
        }
    }

    /// Notes that the daemon is lost whose worker had the message, if one had it.
    pub(crate) fn lost(id: &'a str) -> Self {
        Self {
            id,
            from: Some(OccurrenceState::Running),
            attempt: None,
            effect: Effect::of(OccurrenceState::Unknown, Some("daemon_lost")),
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
        let Effect { to, reason, .. } = self.effect;
        let is_end = to.is_end();
        let to = to.code();
        let attempt = self.attempt.map(i64::from);
        let error = self.effect.failure.as_ref().map(KeptFailure::error);
        let note = error.or(reason);
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
            is_end.into(),
            self.id.into(),
        ]
    }

    /// Returns the values of [`CHANGE`].
    pub(crate) fn change(&self, now_ms: i64) -> Vec<SqlValue<'_>> {
        let [started, worker, trace] = beginning(self.begun, now_ms);
        let Effect {
            to,
            reason,
            failure,
            result,
        } = &self.effect;
        let [error, fingerprint, exit_code, signal] = KeptFailure::values(failure.as_ref());
        vec![
            to.code().into(),
            to.code().into(),
            (*reason).into(),
            self.attempt.map(i64::from).into(),
            error,
            fingerprint,
            exit_code,
            fingerprint,
            signal,
            fingerprint,
            result.as_deref().into(),
            started,
            worker,
            trace,
            worker,
            to.is_end().then(|| self.at(now_ms)).into(),
            to.is_end().into(),
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
