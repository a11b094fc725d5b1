//! Topics: the subscriptions of queues, and messages for all queues of a topic.

use rusqlite::Connection;

use super::clock::WallClock;
use super::columns::{self, columns, values};
use ganger_queue::delivery::{IfUnsubscribed, Outgoing};

/// Statements that create the tables for topics.
pub(super) const TABLES: &str = include_str!("topics.sql");

/// Returns whether the tables exist.
pub(crate) fn are_there(conn: &Connection) -> rusqlite::Result<bool> {
    let table = "SELECT 1 FROM sqlite_schema
                 WHERE type = 'table' AND name = 'published_messages' AND instr(sql, 'unsubscribed') > 0";
    conn.prepare(table)?.exists([])
}

/// Creates the tables if they are missing, in the caller's transaction.
pub(crate) fn make_tables(tx: &Connection) -> rusqlite::Result<()> {
    match are_there(tx)? {
        true => Ok(()),
        false => tx.execute_batch(TABLES),
    }
}

/// Subscribes a queue to a topic. Returns whether it is a new subscription.
pub(crate) fn subscribe(tx: &Connection, topic: &str, queue: &str) -> rusqlite::Result<bool> {
    let add = "INSERT INTO subscriptions (topic, queue) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Ok(tx.prepare_cached(add)?.execute([topic, queue])? > 0)
}

/// Inserts a message for a topic, and creates the tables if they are missing. A trigger copies it to the
/// queues.
pub(crate) fn publish(
    tx: &Connection,
    message: &Outgoing,
    unsubscribed: IfUnsubscribed,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    make_tables(tx)?;
    let mut insert = tx.prepare_cached(PUBLISH)?;
    columns::bind(&mut insert, message, clock)?;
    insert.raw_bind_parameter(columns::OWN, unsubscribed.name())?;
    insert.raw_execute()?;
    Ok(())
}

const PUBLISH: &str = concat!(
    "INSERT INTO published_messages (topic, ",
    columns!(),
    ", unsubscribed) VALUES (?1, ",
    values!(),
    ", ?11)"
);
