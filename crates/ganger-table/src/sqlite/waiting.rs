//! Counts and lists of waiting rows, by the indexes and up to a limit.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::clock::WallClock;
use super::row;
use crate::table::{PRIORITIES_MAX, WaitingRows, row_name};
use ganger_queue::client::{WAITING_BODY_BYTES, WaitingMessage};
use ganger_queue::dead_letter::rfc_3339;

/// Counts the rows that could be claimed now, up to `most` in each of the two indexes, and finds the
/// oldest, without a lock that others would notice.
pub(crate) fn waiting(
    conn: &Connection,
    queue: &str,
    most: u32,
    clock: &WallClock,
) -> rusqlite::Result<WaitingRows> {
    let ready = "SELECT COUNT(*) FROM (SELECT 1 FROM consumer_messages \
                 INDEXED BY consumer_messages_ready \
                 WHERE queue = ?1 AND owner IS NULL AND available_after = 0 LIMIT ?2)";
    let due = "SELECT COUNT(*), MIN(available_after) FROM (SELECT available_after \
               FROM consumer_messages INDEXED BY consumer_messages_delayed \
               WHERE queue = ?1 AND owner IS NULL \
                 AND available_after > 0 AND available_after <= ?3 LIMIT ?2)";
    let now_ms = clock.now_ms();
    let ready: u32 = conn
        .prepare_cached(ready)?
        .query_row(params![queue, most], |row| row.get(0))?;
    let (due, due_at): (u32, Option<i64>) = conn
        .prepare_cached(due)?
        .query_row(params![queue, most, now_ms], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let due_for = due_at.map(|at| now_ms.saturating_sub(at));
    let mut waiting = WaitingRows::new(ready.into(), due.into(), most, due_for);
    let first = "SELECT priority, created_at FROM consumer_messages \
                 INDEXED BY consumer_messages_ready \
                 WHERE queue = ?1 AND suspicion = 0 AND owner IS NULL AND available_after = 0 \
                   AND priority < ?2 ORDER BY priority DESC, id LIMIT 1";
    let mut first = conn.prepare_cached(first)?;
    let mut below = i64::MAX;
    for _ in 0..PRIORITIES_MAX {
        let row = first.query_row(params![queue, below], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?))
        });
        let Some((priority, created_at)) = row.optional()? else {
            break;
        };
        below = priority;
        waiting.is_for(now_ms.saturating_sub(created_at));
    }
    Ok(waiting)
}

/// Returns the first queues in the order of an index. The search continues behind each queue, however
/// many rows it has.
macro_rules! queues {
    ($rows:literal) => {
        concat!(
            "WITH RECURSIVE names (queue) AS (
               SELECT (SELECT queue FROM consumer_messages INDEXED BY ",
            $rows,
            " ORDER BY queue LIMIT 1)
               UNION ALL
               SELECT (SELECT queue FROM consumer_messages INDEXED BY ",
            $rows,
            " AND queue > names.queue ORDER BY queue LIMIT 1)
               FROM names WHERE names.queue IS NOT NULL LIMIT ?1)
             SELECT queue FROM names WHERE queue IS NOT NULL"
        )
    };
}

const QUEUES: [&str; 2] = [
    queues!("consumer_messages_ready WHERE owner IS NULL AND available_after = 0"),
    queues!("consumer_messages_delayed WHERE owner IS NULL AND available_after > 0"),
];

/// Returns the names of queues with rows that may be claimed or wait for a later time, up to `most` of
/// each kind.
pub(crate) fn queues(conn: &Connection, most: u32) -> rusqlite::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for queues in QUEUES {
        let mut queues = conn.prepare_cached(queues)?;
        let mut rows = queues.query([most])?;
        while let Some(row) = rows.next()? {
            names.extend(row::text(row.get_ref(0)?));
        }
    }
    Ok(names)
}

/// Counts the delayed rows of the queue, due or not, up to `most`.
pub(crate) fn count_delayed(conn: &Connection, queue: &str, most: u32) -> rusqlite::Result<u64> {
    let delayed = "SELECT COUNT(*) FROM (SELECT 1 FROM consumer_messages \
                   INDEXED BY consumer_messages_delayed \
                   WHERE queue = ?1 AND owner IS NULL AND available_after > 0 LIMIT ?2)";
    let delayed: u32 = conn
        .prepare_cached(delayed)?
        .query_row(params![queue, most], |row| row.get(0))?;
    Ok(u64::from(delayed))
}

/// Selects the columns of a list.
macro_rules! listed {
    ($index:literal, $rest:literal) => {
        concat!(
            "SELECT * FROM (
  SELECT id, suspicion, priority, available_after, created_at, attempts, last_error, message_id, correlation_id,
    reply_to, content_type, key, headers, substr(CAST(body AS BLOB), 1, ?4), length(CAST(body AS BLOB))
  FROM consumer_messages INDEXED BY ",
            $index,
            " WHERE queue = ?1 AND owner IS NULL ",
            $rest,
            " LIMIT ?2)"
        )
    };
}

/// The first rows in the order of claims, which due rows join at the next one.
const LIST: &str = concat!(
    "SELECT * FROM (",
    listed!(
        "consumer_messages_ready",
        "AND available_after = 0 ORDER BY suspicion, priority DESC, id"
    ),
    " UNION ALL ",
    listed!(
        "consumer_messages_delayed",
        "AND available_after > 0 ORDER BY available_after"
    ),
    ")
ORDER BY CASE WHEN available_after > ?3 THEN available_after ELSE 0 END, suspicion, priority DESC, id LIMIT ?2"
);

/// Returns the first rows of the queue without a claim, up to `most`, and the beginning of each body.
pub(crate) fn list(
    conn: &Connection,
    queue: &str,
    most: usize,
    clock: &WallClock,
) -> rusqlite::Result<Vec<WaitingMessage>> {
    let mut list = conn.prepare_cached(LIST)?;
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let (most, cut) = (number(most), number(WAITING_BODY_BYTES));
    let values = params![queue, most, clock.now_ms(), cut];
    let rows = list.query_map(values, |row| listed(row, queue))?;
    rows.collect()
}

fn listed(row: &Row<'_>, queue: &str) -> rusqlite::Result<WaitingMessage> {
    let text = |column: usize| row.get_ref(column).map(row::text);
    let available_after: i64 = row.get(3)?;
    let headers = row::headers(row.get_ref(12)?).unwrap_or_default().headers;
    let bytes: i64 = row.get(14)?;
    let message = WaitingMessage {
        id: row_name(queue, row.get(0)?),
        priority: row.get(2)?,
        available_at: (available_after > 0).then(|| rfc_3339(available_after)),
        created_at: Some(rfc_3339(row.get(4)?)),
        attempts: row::count(row.get(5)?),
        last_error: text(6)?,
        message_id: text(7)?,
        correlation_id: text(8)?,
        reply_to: text(9)?,
        content_type: text(10)?,
        key: text(11)?,
        ..WaitingMessage::default()
    };
    let beginning = row::body_bytes(row.get_ref(13)?);
    let message = message.with_headers(headers);
    Ok(message.with_body(&beginning, usize::try_from(bytes).unwrap_or_default()))
}
