//! Effects of settlements on their rows, and inserts of published messages. Every settlement is fenced by
//! the claim's token: a row that is no longer claimed under it is not changed, and no reply is published
//! for it.

use rusqlite::{Connection, params};

use super::clock::WallClock;
use super::columns::{self, columns, values};
use super::{occurrences, row};
use crate::rules::{error_text, texts};
use crate::table::{Claim, Settled, headers};
use ganger_queue::delivery::{Failure, Outcome, Outgoing};

/// Applies one settlement. Returns whether the row was still claimed by this daemon.
pub(crate) fn settle(
    tx: &Connection,
    pool: &str,
    settled: &Settled,
    clock: &WallClock,
) -> rusqlite::Result<bool> {
    let is_ours = apply(tx, pool, settled, clock)?;
    if let Some(run) = settled.occurrence.as_ref().filter(|_| is_ours) {
        occurrences::settled(tx, run, &settled.outcome, clock)?;
    }
    if let Some(end) = settled.recorded.as_ref().filter(|_| is_ours) {
        occurrences::record(tx, end, clock)?;
    }
    Ok(is_ours)
}

fn apply(
    tx: &Connection,
    pool: &str,
    settled: &Settled,
    clock: &WallClock,
) -> rusqlite::Result<bool> {
    let claim = settled.claim;
    match &settled.outcome {
        Outcome::Done => delete(tx, claim),
        Outcome::Reply(reply) => {
            let ours = delete(tx, claim)?;
            if ours {
                publish(tx, reply, clock)?;
            }
            Ok(ours)
        }
        Outcome::Requeue { after } => {
            note_span(tx, settled)?;
            later(tx, claim, clock.available_after(*after), true)
        }
        Outcome::ReturnAfter { delay } => {
            note_span(tx, settled)?;
            later(tx, claim, clock.available_after(*delay), false)
        }
        Outcome::Return { suspect } => {
            note_span(tx, settled)?;
            let statement = tx.prepare_cached(RETURN)?;
            hit(statement, params![claim.row, claim.token, suspect])
        }
        Outcome::RetryAfter { delay, failure } => {
            note_span(tx, settled)?;
            let available_after = clock.available_after(*delay);
            retry(tx, claim, failure, available_after, clock.now_ms())
        }
        Outcome::DeadLetter(failure) => {
            let ours = bury(
                tx,
                pool,
                claim.row,
                Some(claim.token),
                failure,
                clock.now_ms(),
            )?;
            Ok(ours && delete(tx, claim)?)
        }
    }
}

/// Inserts a message.
pub(crate) fn publish(
    tx: &Connection,
    message: &Outgoing,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(PUBLISH)?;
    columns::bind(&mut insert, message, clock)?;
    insert.raw_bind_parameter(columns::OWN, clock.now_ms())?;
    insert.raw_execute()?;
    Ok(())
}

/// Moves a row to the dead letters, if it is not claimed. Returns whether that was so.
pub(crate) fn bury_unclaimed(
    tx: &Connection,
    pool: &str,
    id: i64,
    failure: &Failure,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let is_free = bury(tx, pool, id, None, failure, now_ms)?;
    if is_free {
        occurrences::buried(tx, id, failure, now_ms)?;
        tx.prepare_cached("DELETE FROM consumer_messages WHERE id = ?1 AND claim IS NULL")?
            .execute([id])?;
    }
    Ok(is_free)
}

// Counters are limited to the range in which they are read: beyond its own range SQLite would compute a
// number of another type, and reject it.

const PUBLISH: &str = concat!(
    "INSERT INTO consumer_messages (queue, ",
    columns!(),
    ", created_at) VALUES (?1, ",
    values!(),
    ", ?11)"
);

/// The worker has answered, so the row is no longer a suspect.
const LATER: &str = "
UPDATE consumer_messages SET
  owner = NULL, claim = NULL, claim_alone = 0, lapses = 0, suspect = 0,
  attempts = max(attempts - 1, 0), requeues = min(requeues, 4294967294) + ?4, available_after = ?3
WHERE id = ?1 AND claim = ?2";

/// No worker has answered, so the suspicion stays.
const RETURN: &str = "
UPDATE consumer_messages SET
  owner = NULL, claim = NULL, claim_alone = 0,
  attempts = max(attempts - 1, 0), suspect = max(suspect, ?3)
WHERE id = ?1 AND claim = ?2";

const RETRY: &str = "
UPDATE consumer_messages SET
  owner = NULL, claim = NULL, claim_alone = 0, lapses = 0, suspect = 0, requeues = 0,
  crashes = min(crashes, 4294967294) + ?3, available_after = ?4, last_error = ?5,
  first_failed_at = coalesce(first_failed_at, ?6)
WHERE id = ?1 AND claim = ?2";

const BURY: &str = "
INSERT INTO poisoned_messages (pool, queue, reason, error, attempts, crashes, lapses, exit_code,
  signal, oom, stderr, first_failed_at, last_failed_at, body, headers, correlation_id, reply_to,
  message_id, content_type, key, priority, created_at, unique_key, unique_scope, unique_until,
  row_id, reply_queue, reply_body, reply_headers)
SELECT ?3, queue, ?4, ?5, attempts, min(crashes, 4294967294) + ?6, lapses, ?7, ?8, ?9, ?10,
  coalesce(first_failed_at, ?11), ?11, body, headers, correlation_id, reply_to,
  message_id, content_type, key, priority, created_at, unique_key, unique_scope, unique_until,
  id, ?12, ?13, ?14
FROM consumer_messages WHERE id = ?1 AND claim IS ?2";

/// Stores the span of the attempt, to which the next one links. It goes into the headers, since the table
/// has no column for it.
const NOTE_SPAN: &str = r#"
UPDATE consumer_messages SET
  headers = json_set(coalesce(headers, '{}'), '$."x-ganger-span"', ?3)
WHERE id = ?1 AND claim = ?2 AND json_valid(coalesce(headers, '{}'))"#;

/// Stores the span, if there is one: only recorded attempts pay for it.
fn note_span(tx: &Connection, settled: &Settled) -> rusqlite::Result<()> {
    if let Some(span) = settled.span {
        let Claim { row, token } = settled.claim;
        let mut statement = tx.prepare_cached(NOTE_SPAN)?;
        statement.execute(params![row, token, span.to_string()])?;
    }
    Ok(())
}

fn hit(
    mut statement: rusqlite::CachedStatement<'_>,
    params: impl rusqlite::Params,
) -> rusqlite::Result<bool> {
    Ok(statement.execute(params)? > 0)
}

fn delete(tx: &Connection, claim: Claim) -> rusqlite::Result<bool> {
    let delete = "DELETE FROM consumer_messages WHERE id = ?1 AND claim = ?2";
    hit(tx.prepare_cached(delete)?, params![claim.row, claim.token])
}

/// Releases the row uncharged, delayed until `available_after`.
fn later(
    tx: &Connection,
    claim: Claim,
    available_after: i64,
    requeued: bool,
) -> rusqlite::Result<bool> {
    let values = params![claim.row, claim.token, available_after, requeued];
    hit(tx.prepare_cached(LATER)?, values)
}

fn retry(
    tx: &Connection,
    claim: Claim,
    failure: &Failure,
    available_after: i64,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let crash = failure.reason.is_crash();
    let values = params![
        claim.row,
        claim.token,
        crash,
        available_after,
        error_text(failure),
        now_ms
    ];
    hit(tx.prepare_cached(RETRY)?, values)
}

/// Copies the row as it is to the dead letters. A settled failure adds its crash; one found at the claim
/// was counted in the row before.
fn bury(
    tx: &Connection,
    pool: &str,
    id: i64,
    token: Option<i64>,
    failure: &Failure,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let texts = texts(failure);
    let crash = token.is_some() && failure.reason.is_crash();
    let exit = failure.exit.unwrap_or_default();
    let reply = failure.reply.as_deref();
    let values = params![
        id,
        token,
        pool,
        failure.reason.as_str(),
        texts.error,
        crash,
        exit.code,
        exit.signal,
        exit.oom,
        texts.stderr,
        now_ms,
        texts.reply_queue,
        reply.map(|reply| row::body_value(&reply.body)),
        reply.map(|reply| headers::json(&reply.headers)),
    ];
    hit(tx.prepare_cached(BURY)?, values)
}
