//! Queries of the table of owners.

use std::time::Duration;

use rusqlite::Connection;

use super::heartbeats::HeartbeatRow;

pub(super) fn exists(conn: &Connection, owner: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM owners WHERE id = ?1")?
        .exists([owner])
}

pub(super) fn lock_files(conn: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut statement = conn.prepare_cached("SELECT id, lock_file FROM owners")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

pub(super) fn beats(conn: &Connection, me: i64) -> rusqlite::Result<Vec<HeartbeatRow>> {
    let others = "SELECT id, heartbeat, lease_ms FROM owners WHERE id <> ?1";
    let mut statement = conn.prepare_cached(others)?;
    let rows = statement.query_map([me], |row| {
        let lease_ms: i64 = row.get(2)?;
        Ok(HeartbeatRow {
            owner: row.get(0)?,
            heartbeat: row.get(1)?,
            lease: Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0)),
        })
    })?;
    rows.collect()
}
