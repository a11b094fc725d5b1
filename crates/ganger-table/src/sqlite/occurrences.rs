//! Occurrences of the ledger as their messages change: claimed, settled, dead-lettered, taken back. Each
//! change is in the transaction that changes the message.

use rusqlite::{Connection, OptionalExtension, params};

use super::clock::WallClock;
use super::error::{fault, sentence};
use crate::rules::error_text;
use crate::table::{Claim, OccurrenceRun, headers};
use ganger_queue::delivery::{Failure, Outcome, Reason};
use ganger_schedule::occurrence::OccurrenceState;

/// State of an occurrence, as it changes.
struct Change<'a> {
    id: &'a str,
    to: OccurrenceState,
    attempt: u32,
    reason: Option<&'a str>,
    error: Option<&'a str>,
    started_ms: Option<i64>,
    at_ms: i64,
}

/// Notes that a worker has got the message of an occurrence, if its row is still claimed so.
pub(super) fn begun(
    tx: &Connection,
    claim: Claim,
    run: &OccurrenceRun,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let is_ours = "SELECT id FROM consumer_messages WHERE id = ?1 AND claim = ?2";
    let mut is_ours = tx.prepare_cached(is_ours)?;
    if !is_ours.exists([claim.row, claim.token])? {
        return Ok(());
    }
    let started_ms = started(run, clock);
    let at_ms = started_ms.unwrap_or_else(|| clock.now_ms());
    change(
        tx,
        &Change {
            id: &run.id,
            to: OccurrenceState::Running,
            attempt: run.attempt,
            reason: None,
            error: None,
            started_ms,
            at_ms,
        },
    )
}

/// Notes the outcome of the message of an occurrence.
pub(super) fn settled(
    tx: &Connection,
    run: &OccurrenceRun,
    outcome: &Outcome,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let (to, reason) = match outcome {
        Outcome::Reply(reply) if headers::occurrence(&reply.headers).is_some() => {
            (OccurrenceState::Queued, Some("step"))
        }
        Outcome::Done | Outcome::Reply(_) => (OccurrenceState::Completed, None),
        Outcome::Requeue { .. } => (OccurrenceState::Waiting, Some("requeue")),
        Outcome::Return { .. } => (OccurrenceState::Queued, None),
        Outcome::ReturnAfter { .. } => (OccurrenceState::Waiting, Some("pause")),
        Outcome::RetryAfter { .. } => (OccurrenceState::Waiting, Some("retry")),
        Outcome::DeadLetter(failure) => (end_of(failure), Some(failure.reason.as_str())),
    };
    let error = outcome.failure().map(error_text);
    change(
        tx,
        &Change {
            id: &run.id,
            to,
            attempt: run.attempt,
            reason,
            error: error.as_deref(),
            started_ms: started(run, clock),
            at_ms: clock.now_ms(),
        },
    )
}

/// Notes that a message has become a dead letter without an attempt, if it is of an occurrence. Its row
/// must still be there.
pub(super) fn buried(
    tx: &Connection,
    row: i64,
    failure: &Failure,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let Some(found) = of_row(tx, row)? else {
        return Ok(());
    };
    let error = error_text(failure);
    unless_refused(
        tx,
        &Change {
            id: &found.id,
            to: end_of(failure),
            attempt: found.attempt,
            reason: Some(failure.reason.as_str()),
            error: Some(&error),
            started_ms: None,
            at_ms: now_ms,
        },
    )
}

/// Notes that the daemon is lost whose worker had the message of that row, if it is of an occurrence.
pub(super) fn lost(tx: &Connection, row: i64) -> rusqlite::Result<()> {
    let running = of_row(tx, row)?.filter(|found| found.state == OccurrenceState::Running);
    let Some(found) = running else {
        return Ok(());
    };
    unless_refused(
        tx,
        &Change {
            id: &found.id,
            to: OccurrenceState::Unknown,
            attempt: found.attempt,
            reason: Some("daemon_lost"),
            error: None,
            started_ms: None,
            at_ms: WallClock::system().now_ms(),
        },
    )
}

/// The occurrence of a message.
struct OfRow {
    id: String,
    attempt: u32,
    state: OccurrenceState,
}

/// Returns the occurrence of the message of a row, if it is of one.
fn of_row(tx: &Connection, row: i64) -> rusqlite::Result<Option<OfRow>> {
    let of_row = "SELECT o.id, o.attempt, o.state FROM consumer_messages m
                  JOIN occurrences o ON o.id = json_extract(m.headers, '$.\"x-ganger-occurrence\"')
                  WHERE m.id = ?1 AND json_valid(m.headers)";
    let mut of_row = tx.prepare_cached(of_row)?;
    let found = of_row.query_row([row], |row| {
        Ok(OfRow {
            id: row.get(0)?,
            attempt: number(row.get(1)?),
            state: state(row.get(2)?),
        })
    });
    found.optional()
}

fn end_of(failure: &Failure) -> OccurrenceState {
    match failure.reason {
        Reason::Cancelled => OccurrenceState::Cancelled,
        Reason::TimedOut => OccurrenceState::TimedOut,
        _ => OccurrenceState::Failed,
    }
}

fn started(run: &OccurrenceRun, clock: &WallClock) -> Option<i64> {
    let passed = run.begun?.elapsed().as_millis();
    let passed = i64::try_from(passed).unwrap_or(i64::MAX);
    Some(clock.now_ms().saturating_sub(passed))
}

/// Makes the change, unless the database refuses it, as a trigger of someone's may: the message goes on.
fn unless_refused(tx: &Connection, wanted: &Change<'_>) -> rusqlite::Result<()> {
    match change(tx, wanted) {
        // Unless it has ended the transaction, too.
        Err(error) if fault(&error).is_permanent && !tx.is_autocommit() => {
            let (occurrence, problem) = (wanted.id, sentence(&error));
            tracing::error!(
                occurrence,
                problem,
                "the database rejects a change of an occurrence: the ledger does not show it"
            );
            Ok(())
        }
        done => done,
    }
}

/// Enters the change as an event, with the state before, then makes it. One that the ledger no longer has
/// is not missed.
fn change(tx: &Connection, change: &Change<'_>) -> rusqlite::Result<()> {
    let to = change.to.code();
    let event =
        "INSERT INTO occurrence_events (occurrence, at, from_state, to_state, attempt, note)
                 SELECT id, ?2, state, ?3, ?4, ?5 FROM occurrences
                 WHERE id = ?1 AND (state <> ?3 OR attempt <> ?4)";
    let note = change.error.or(change.reason);
    let values = params![change.id, change.at_ms, to, change.attempt, note];
    tx.prepare_cached(event)?.execute(values)?;
    let update = "UPDATE occurrences SET state = ?2, reason = ?3, attempt = ?4,
                    error = coalesce(?5, error), started_at = coalesce(?6, started_at), ended_at = ?7
                  WHERE id = ?1";
    let ended_at = change.to.is_end().then_some(change.at_ms);
    tx.prepare_cached(update)?.execute(params![
        change.id,
        to,
        change.reason,
        change.attempt,
        change.error,
        change.started_ms,
        ended_at
    ])?;
    Ok(())
}

/// Returns a counter, clamped to its range.
pub(super) fn number(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

/// Returns the state of a code, which only ganger writes.
pub(super) fn state(code: i64) -> OccurrenceState {
    OccurrenceState::of_code(code).unwrap_or(OccurrenceState::Unknown)
}
