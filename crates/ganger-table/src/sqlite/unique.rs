//! Unique keys, each held by one message of a queue at a time. An index enforces that. A conflict can
//! only occur when a row is inserted, since a row never regains a key that it has released.

use rusqlite::{Connection, OptionalExtension, params};

use super::clock::WallClock;
use super::columns::{self, columns, values};
use super::rejected::{RowError, with};
use ganger_queue::delivery::{IfTaken, Outgoing, Unique, UniqueScope};

/// Releases the keys that rows held until their first claim. Most claims have no such rows, and need no
/// statement.
pub(super) fn release(tx: &Connection, rows: &[i64]) -> Result<(), RowError> {
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

/// Inserts a message, unless another one holds its key. Returns the row of that one, if it exists.
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
    // None if a user's trigger dropped the message.
    holder
        .query_row(params![message.queue, unique.key], |row| row.get(0))
        .optional()
}

const INSERT: &str = concat!(
    "INSERT INTO consumer_messages (queue, ",
    columns!(),
    ", created_at, unique_key, unique_scope, unique_until) VALUES (?1, ",
    values!(),
    ", ?11, ?12, ?13, ?14) ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING"
);

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
    let mut insert = tx.prepare_cached(INSERT)?;
    columns::bind(&mut insert, message, clock)?;
    insert.raw_bind_parameter(columns::OWN, clock.now_ms())?;
    insert.raw_bind_parameter(columns::OWN + 1, &unique.key)?;
    insert.raw_bind_parameter(columns::OWN + 2, unique.scope.name())?;
    insert.raw_bind_parameter(columns::OWN + 3, until)?;
    Ok(insert.raw_execute()? > 0)
}

/// A claimed row stays as it is.
const REPLACE: &str = "
UPDATE consumer_messages SET
  body = ?2, headers = ?3, correlation_id = ?4, reply_to = ?5, message_id = ?6, content_type = ?7,
  key = ?8, priority = ?9,
  available_after = CASE WHEN ?11 IS NULL THEN available_after ELSE min(?10, created_at + ?11) END
WHERE queue = ?1 AND unique_hold = ?12 AND owner IS NULL";

/// Replaces the content of the pending message. With `longest`, it falls due when the new message would,
/// but no later than `longest` milliseconds after its own sending.
fn replace(
    tx: &Connection,
    message: &Outgoing,
    key: &str,
    longest: Option<i64>,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let mut update = tx.prepare_cached(REPLACE)?;
    columns::bind(&mut update, message, clock)?;
    update.raw_bind_parameter(columns::OWN, longest)?;
    update.raw_bind_parameter(columns::OWN + 1, key)?;
    update.raw_execute()?;
    Ok(())
}
