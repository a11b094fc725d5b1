//! Keys that one message of a queue has at a time. An index sees to that: a conflict can arise where a
//! row is inserted, and nowhere else, since a key that a row has let go it never has again.

use rusqlite::{Connection, OptionalExtension, params};

use super::clock::WallClock;
use super::passed_over::{Refused, with};
use super::row;
use crate::broker::table::headers;
use crate::delivery::{IfTaken, Outgoing, Unique, UniqueScope};

/// Lets go the keys that rows have as long as they wait: they are begun. Most rows have none, and
/// nothing is asked of the database for them.
pub(super) fn release(tx: &Connection, rows: &[i64]) -> Result<(), Refused> {
    if rows.is_empty() {
        return Ok(());
    }
    let release = "UPDATE consumer_messages SET unique_released = 1 WHERE id = ?1";
    let mut release = tx.prepare_cached(release)?;
    for row in rows {
        release.execute([row]).map_err(with(*row))?;
    }
    Ok(())
}

/// Inserts a message, unless another one has its key. Returns the row of that one.
pub(crate) fn publish(
    tx: &Connection,
    message: &Outgoing,
    unique: &Unique,
    clock: &WallClock,
) -> rusqlite::Result<Option<i64>> {
    if insert(tx, message, unique, clock)? {
        return Ok(None);
    }
    match unique.taken {
        IfTaken::Keep => {}
        IfTaken::Replace => replace(tx, message, &unique.key, None, clock)?,
        IfTaken::Debounce { longest } => {
            let longest = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX >> 8);
            replace(tx, message, &unique.key, Some(longest), clock)?;
        }
    }
    let holder = "SELECT id FROM consumer_messages WHERE queue = ?1 AND unique_hold = ?2";
    let mut holder = tx.prepare_cached(holder)?;
    // None where a trigger of someone's has swallowed the message.
    holder
        .query_row(params![message.queue, unique.key], |row| row.get(0))
        .optional()
}

const INSERT: &str = "
INSERT INTO consumer_messages (queue, body, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, available_after, created_at, unique_key, unique_scope, unique_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING";

fn insert(
    tx: &Connection,
    message: &Outgoing,
    unique: &Unique,
    clock: &WallClock,
) -> rusqlite::Result<bool> {
    let until = match unique.scope {
        UniqueScope::Waiting | UniqueScope::WaitingOrRunning => None,
        UniqueScope::For(time) => Some(clock.available_after(time)),
    };
    let inserted = tx.prepare_cached(INSERT)?.execute(params![
        message.queue,
        row::body_value(&message.body),
        headers::json(&message.headers),
        (!message.correlation_id.is_empty()).then_some(&message.correlation_id),
        message.reply_to,
        message.message_id,
        message.content_type,
        message.key,
        message.priority,
        clock.available_after(message.delay),
        clock.now_ms(),
        unique.key,
        unique.scope.name(),
        until,
    ])?;
    Ok(inserted > 0)
}

/// What somebody works on stays as it is.
const REPLACE: &str = "
UPDATE consumer_messages SET
  body = ?3, headers = ?4, correlation_id = ?5, reply_to = ?6, message_id = ?7, content_type = ?8,
  key = ?9, priority = ?10,
  available_after = CASE WHEN ?12 IS NULL THEN available_after ELSE min(?11, created_at + ?12) END
WHERE queue = ?1 AND unique_hold = ?2 AND owner IS NULL";

/// With a `longest` time it falls due when the message would, but no longer after it was sent than that.
fn replace(
    tx: &Connection,
    message: &Outgoing,
    key: &str,
    longest: Option<i64>,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    tx.prepare_cached(REPLACE)?.execute(params![
        message.queue,
        key,
        row::body_value(&message.body),
        headers::json(&message.headers),
        (!message.correlation_id.is_empty()).then_some(&message.correlation_id),
        message.reply_to,
        message.message_id,
        message.content_type,
        message.key,
        message.priority,
        clock.available_after(message.delay),
        longest,
    ])?;
    Ok(())
}
