//! The dead letters in a database file: read, sent back, counted, dropped.

use std::collections::BTreeSet;

use bytes::Bytes;
use rusqlite::types::{Null, ValueRef};
use rusqlite::{Connection, Row, TransactionBehavior, params};

use crate::sqlite::row;
use crate::table::message_name;
use ganger_queue::client::DeadFilter;
use ganger_queue::dead_letter::{DeadLetter, DeadReply, rfc_3339};

/// Number of bytes of dead letters after which no more of them are read at once.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Returns the first dead letters after row `after`: at most `count_max`, limited by their size; empty if
/// there are none. The caller may be slow: nothing is locked while it handles them.
pub(super) fn read_batch(
    conn: &Connection,
    filter: &DeadFilter,
    after: i64,
    count_max: usize,
) -> rusqlite::Result<Vec<(i64, DeadLetter)>> {
    let (chosen, ids, pool) = chosen(filter);
    let sql = format!("{READ_BATCH} {chosen} AND id > ?3 ORDER BY id LIMIT ?4");
    let mut statement = conn.prepare_cached(&sql)?;
    let (mut some, mut bytes) = (Vec::new(), 0);
    for id in ids {
        let left = i64::try_from(count_max - some.len()).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![id, pool, after, left])?;
        while bytes < BATCH_BYTES_MAX
            && let Some(row) = rows.next()?
        {
            let letter = dead_letter(row)?;
            let reply = letter.reply.as_ref();
            bytes += letter.body.len() + reply.map_or(0, |reply| reply.body.len());
            some.push((row.get(0)?, letter));
        }
    }
    Ok(some)
}

/// Moves dead letters back to their queues, in one transaction. Those without a key to hold go first, all
/// at once; then the others, one by one: each takes its key, or stays if that is held. Returns the number
/// moved.
pub(super) fn send_back(
    conn: &mut Connection,
    filter: &DeadFilter,
    edit: Option<&Bytes>,
    now_ms: i64,
) -> rusqlite::Result<usize> {
    let (chosen, ids, pool) = chosen(filter);
    let body = edit.map(|edit| row::body_value(edit));
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let keyless = format!("{chosen} AND NOT {KEEPS_ITS_KEY}");
    let (back, drop) = (
        format!("{BACK} {keyless} ORDER BY id"),
        format!("{DROP} {keyless}"),
    );
    let find = format!("SELECT id FROM poisoned_messages {chosen} AND {KEEPS_ITS_KEY} ORDER BY id");
    let (mut moved, mut keyed) = (0, Vec::<i64>::new());
    for id in ids {
        let which = params![id, pool, now_ms];
        moved += tx
            .prepare_cached(&back)?
            .execute(params![id, pool, now_ms, body])?;
        tx.prepare_cached(&drop)?.execute(which)?;
        let mut found = tx.prepare_cached(&find)?;
        for row in found.query_map(which, |row| row.get(0))? {
            keyed.push(row?);
        }
    }
    let back = format!("{BACK} WHERE id = ?1 {IF_FREE}");
    for id in keyed {
        // `BACK` with this condition does not use the second parameter.
        let values = params![id, Null, now_ms, body];
        if tx.prepare_cached(&back)?.execute(values)? > 0 {
            let drop = format!("{DROP} WHERE id = ?1");
            tx.prepare_cached(&drop)?.execute([id])?;
            moved += 1;
        }
    }
    tx.commit()?;
    Ok(moved)
}

/// Deletes the dead letters, all or none. Returns their number.
pub(super) fn drop_all(conn: &mut Connection, filter: &DeadFilter) -> rusqlite::Result<usize> {
    let (chosen, ids, pool) = chosen(filter);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (drop, mut dropped) = (format!("{DROP} {chosen}"), 0);
    for id in ids {
        dropped += tx.prepare_cached(&drop)?.execute(params![id, pool])?;
    }
    tx.commit()?;
    Ok(dropped)
}

/// Counts the dead letters whose key another message holds now.
pub(super) fn held(conn: &Connection, filter: &DeadFilter, now_ms: i64) -> rusqlite::Result<usize> {
    let (chosen, ids, pool) = chosen(filter);
    let sql = format!("{HELD} {chosen} AND {KEEPS_ITS_KEY} AND {KEY_IS_TAKEN}");
    let mut count = conn.prepare_cached(&sql)?;
    let mut held = 0;
    for id in ids {
        let of_id = count.query_row(params![id, pool, now_ms], |row| row.get(0).map(row::count))?;
        held += of_id as usize;
    }
    Ok(held)
}

const READ_BATCH: &str = "
SELECT id, pool, queue, reason, error, attempts, crashes, exit_code, signal, oom, stderr,
  first_failed_at, last_failed_at, correlation_id, reply_to, message_id, content_type, key,
  priority, headers, body, reply_queue, reply_headers, reply_body, row_id
FROM poisoned_messages";

const BACK: &str = "
INSERT INTO consumer_messages (queue, body, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, unique_key, unique_scope, unique_until, unique_released)
SELECT queue, coalesce(?4, body), headers, correlation_id, reply_to, message_id,
  content_type, key, priority, unique_key, unique_scope, unique_until,
  unique_key IS NOT NULL
    AND (coalesce(unique_scope, 'waiting') = 'waiting' OR coalesce(unique_until <= ?3, 0))
FROM poisoned_messages";

/// Condition that a dead letter needs its unique key again. A key that was held only until the first
/// claim was released for good then.
const KEEPS_ITS_KEY: &str =
    "(unique_key IS NOT NULL AND coalesce(unique_scope, 'waiting') <> 'waiting'
  AND coalesce(unique_until > ?3, 1))";

const IF_FREE: &str = "ON CONFLICT (queue, unique_hold) WHERE unique_hold IS NOT NULL DO NOTHING";

const HELD: &str = "SELECT count(*) FROM poisoned_messages AS letter";

const KEY_IS_TAKEN: &str = "EXISTS (SELECT 1 FROM consumer_messages AS other
  WHERE other.queue = letter.queue AND other.unique_hold = letter.unique_key)";

const DROP: &str = "DELETE FROM poisoned_messages";

/// Conditions that a [`DeadFilter`] stands for, after the table's name. Ids are looked up one at a time,
/// and the index is given by name: if the statistics say that the table is nearly empty, SQLite would
/// scan it otherwise.
const BY_ID: &str = "WHERE id = ?1 AND (?2 IS NULL OR pool = ?2)";
const OF_A_POOL: &str = "INDEXED BY poisoned_messages_pool WHERE ?1 IS NULL AND pool = ?2";
const ALL: &str = "WHERE ?1 IS NULL AND ?2 IS NULL";

/// Returns the condition for a filter and its parameters: values for `?1`, one run of the statement each,
/// and the value of `?2`.
fn chosen(filter: &DeadFilter) -> (&'static str, Vec<Option<i64>>, Option<&str>) {
    let pool = filter.pool.as_deref();
    match &filter.ids {
        Some(ids) => (BY_ID, rows(ids), pool),
        None if pool.is_some() => (OF_A_POOL, vec![None], pool),
        None => (ALL, vec![None], pool),
    }
}

/// Returns the rows with these ids, each once, in order. An id that is not a number matches none.
fn rows(ids: &BTreeSet<String>) -> Vec<Option<i64>> {
    let rows: BTreeSet<i64> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    rows.into_iter().map(Some).collect()
}

fn dead_letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    let string = |column| Ok::<_, rusqlite::Error>(row::text(row.get_ref(column)?));
    let queue: String = row.get(2)?;
    Ok(DeadLetter {
        id: row.get::<_, i64>(0)?.to_string(),
        pool: row.get(1)?,
        message_name: message_name(&queue, row.get(24)?),
        queue,
        reason: row.get(3)?,
        error: row.get(4)?,
        attempts: row::count(row.get(5)?),
        crashes: row::count(row.get(6)?),
        exit_code: row.get(7)?,
        signal: row.get(8)?,
        oom: row.get(9)?,
        stderr: serde_json::from_str(&row.get::<_, String>(10)?).unwrap_or_default(),
        first_failed_at: rfc_3339(row.get(11)?),
        last_failed_at: rfc_3339(row.get(12)?),
        correlation_id: string(13)?.unwrap_or_default(),
        reply_to: string(14)?,
        message_id: string(15)?,
        content_type: string(16)?,
        key: string(17)?,
        priority: row.get(18)?,
        headers: row::all_headers(row.get_ref(19)?).unwrap_or_default(),
        body: row::body_bytes(row.get_ref(20)?),
        reply: dead_reply(row)?,
    })
}

fn dead_reply(row: &Row<'_>) -> rusqlite::Result<Option<DeadReply>> {
    // The reply may have had no queue to go to, which is why it is here.
    let body = row.get_ref(23)?;
    if body == ValueRef::Null {
        return Ok(None);
    }
    Ok(Some(DeadReply {
        queue: row::text(row.get_ref(21)?).unwrap_or_default(),
        headers: row::all_headers(row.get_ref(22)?).unwrap_or_default(),
        body: row::body_bytes(body),
    }))
}
