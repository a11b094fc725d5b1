//! Topics: which queues are subscribed to which, and messages for all of them.

use rusqlite::{Connection, params};

use super::clock::WallClock;
use super::row;
use crate::broker::table::headers;
use crate::delivery::{IfUnsubscribed, Outgoing};

/// The tables for it.
pub(super) const TABLES: &str = include_str!("topics.sql");

/// Whether they are there.
pub(crate) fn are_there(conn: &Connection) -> rusqlite::Result<bool> {
    let table = "SELECT 1 FROM sqlite_schema
                 WHERE type = 'table' AND name = 'published_messages' AND instr(sql, 'unsubscribed') > 0";
    conn.prepare(table)?.exists([])
}

/// Makes the tables if they are missing, in the caller's transaction.
pub(crate) fn make_tables(tx: &Connection) -> rusqlite::Result<()> {
    match are_there(tx)? {
        true => Ok(()),
        false => tx.execute_batch(TABLES),
    }
}

/// Subscribes a queue to a topic. Returns whether it was not yet.
pub(crate) fn subscribe(tx: &Connection, topic: &str, queue: &str) -> rusqlite::Result<bool> {
    let add = "INSERT INTO subscriptions (topic, queue) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Ok(tx.prepare_cached(add)?.execute([topic, queue])? > 0)
}

/// Inserts a message for a topic; the trigger does the rest.
pub(crate) fn publish(
    tx: &Connection,
    message: &Outgoing,
    unsubscribed: IfUnsubscribed,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    make_tables(tx)?;
    tx.prepare_cached(PUBLISH)?.execute(params![
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
        unsubscribed.name(),
    ])?;
    Ok(())
}

const PUBLISH: &str = "
INSERT INTO published_messages (topic, body, headers, correlation_id, reply_to, message_id,
  content_type, key, priority, available_after, unsubscribed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
