//! Occurrences of a ledger in the file, which follow their messages.

use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::clock::WallClock;
use super::error::{fault, sentence};
use crate::ledger::change::{CHANGE, Change, EVENT};
use crate::ledger::recorded::{RECORD, RecordRow};
use crate::table::{Claim, OccurrenceRun};
use ganger_queue::delivery::{Failure, Outcome, RecordedEnd};

/// Notes that a worker has got the message of an occurrence, if its row is still claimed so.
pub(super) fn begun(
    tx: &Connection,
    claim: Claim,
    run: &OccurrenceRun,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let is_ours = "SELECT id FROM consumer_messages WHERE id = ?1 AND claim = ?2";
    let mut is_ours = tx.prepare_cached(is_ours)?;
    match is_ours.exists([claim.row, claim.token])? {
        true => change(tx, &Change::begun(run), clock.now_ms()),
        false => Ok(()),
    }
}

/// Notes the outcome of the message of an occurrence.
pub(super) fn settled(
    tx: &Connection,
    run: &OccurrenceRun,
    outcome: &Outcome,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    change(tx, &Change::settled(run, outcome), clock.now_ms())
}

/// Records the end of a message that is of no occurrence.
pub(super) fn record(
    tx: &Connection,
    end: &RecordedEnd,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let row = RecordRow::new(end, clock.now_ms());
    let values = params_from_iter(row.values());
    tx.prepare_cached(RECORD)?.execute(values).map(drop)
}

/// Notes that a message has become a dead letter without an attempt, if it is of an occurrence. Its row
/// must still be there.
pub(super) fn buried(
    tx: &Connection,
    row: i64,
    failure: &Failure,
    now_ms: i64,
) -> rusqlite::Result<()> {
    match of_row(tx, row)? {
        Some(id) => unless_refused(tx, &Change::buried(&id, failure), now_ms),
        None => Ok(()),
    }
}

/// Notes that the daemon is lost whose worker had the message of that row, if it is of an occurrence.
pub(super) fn lost(tx: &Connection, row: i64) -> rusqlite::Result<()> {
    match of_row(tx, row)? {
        Some(id) => unless_refused(tx, &Change::lost(&id), WallClock::system().now_ms()),
        None => Ok(()),
    }
}

/// Returns the occurrence of the message of a row, if it is of one.
fn of_row(tx: &Connection, row: i64) -> rusqlite::Result<Option<String>> {
    let of_row = "SELECT json_extract(headers, '$.\"x-ganger-occurrence\"') FROM consumer_messages
                  WHERE id = ?1 AND json_valid(headers)";
    let mut of_row = tx.prepare_cached(of_row)?;
    let found = of_row.query_row([row], |row| Ok(super::row::text(row.get_ref(0)?)));
    Ok(found.optional()?.flatten())
}

/// Makes the change, unless the database refuses it, as a trigger of someone's may: the message goes on.
fn unless_refused(tx: &Connection, wanted: &Change<'_>, now_ms: i64) -> rusqlite::Result<()> {
    match change(tx, wanted, now_ms) {
        // Unless it has ended the transaction, too.
        Err(error) if fault(&error).is_permanent && !tx.is_autocommit() => {
            let (occurrence, problem) = (wanted.id(), sentence(&error));
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

fn change(tx: &Connection, change: &Change<'_>, now_ms: i64) -> rusqlite::Result<()> {
    let event = params_from_iter(change.event(now_ms));
    tx.prepare_cached(EVENT)?.execute(event)?;
    let values = params_from_iter(change.change(now_ms));
    tx.prepare_cached(CHANGE)?.execute(values)?;
    Ok(())
}
