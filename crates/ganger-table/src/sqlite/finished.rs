//! Entries of finished messages, in SQLite: written in the caller's transaction, or over a connection of
//! their own if the messages come from another source.

use async_trait::async_trait;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::clock::WallClock;
use super::error::SqliteError;
use super::identity::FileIdentity;
use super::schema::canonical;
use super::{journal, row, schema};
use crate::finished::FinishedStore;
use crate::table::Fault;
use crate::table::finished::{Entry, Found, Scope, StoredEntry};
use ganger_queue::delivery::Identity;

const ENTER: &str = "
INSERT INTO finished_messages (source, queue, key, emit_id, step, finished_at, expires_at,
  reply_queue, reply_body, reply_headers)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (source, queue, key, emit_id, step) DO UPDATE SET
  finished_at = excluded.finished_at, expires_at = excluded.expires_at,
  reply_queue = excluded.reply_queue, reply_body = excluded.reply_body,
  reply_headers = excluded.reply_headers
WHERE expires_at <= excluded.finished_at";

const FIND: &str = "
SELECT reply_queue, reply_body, reply_headers FROM finished_messages
WHERE source = ?1 AND queue = ?2 AND key = ?3 AND emit_id = ?4 AND step = ?5 AND expires_at > ?6";

const EXPIRE: &str = "
DELETE FROM finished_messages WHERE rowid IN (
  SELECT rowid FROM finished_messages WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

/// Writes an entry, unless a valid one exists. Returns that one if it is of the same message.
pub(super) fn enter(
    tx: &Connection,
    scope: &Scope,
    entry: Entry<'_>,
    clock: &WallClock,
) -> rusqlite::Result<Option<StoredEntry>> {
    let Entry { finished, outcome } = entry;
    let identity = &finished.identity;
    let now_ms = clock.now_ms();
    let reply = finished.reply_in(outcome);
    let entered = tx.prepare_cached(ENTER)?.execute(params![
        scope.source,
        identity.queue,
        identity.key,
        identity.emit,
        identity.step,
        now_ms,
        clock.available_after(finished.window),
        reply.and_then(|(queue, _)| queue),
        reply.map(|(_, reply)| row::body_value(&reply.body)),
        entry.headers(),
    ])?;
    match entered {
        0 => Ok(entry.first(find(tx, scope, identity, now_ms)?)),
        _ => Ok(None),
    }
}

fn find(
    conn: &Connection,
    scope: &Scope,
    identity: &Identity,
    now_ms: i64,
) -> rusqlite::Result<Option<StoredEntry>> {
    let of = params![
        scope.source,
        identity.queue,
        identity.key,
        identity.emit,
        identity.step,
        now_ms
    ];
    let mut statement = conn.prepare_cached(FIND)?;
    statement.query_row(of, stored_entry).optional()
}

fn stored_entry(found: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    let body = match found.get_ref(1)? {
        rusqlite::types::ValueRef::Null => None,
        body => Some(row::body_bytes(body)),
    };
    // Only ganger writes them.
    let headers = row::all_headers(found.get_ref(2)?).unwrap_or_default();
    Ok(StoredEntry::read(
        row::text(found.get_ref(0)?),
        body,
        headers,
    ))
}

/// A connection of its own to the file with the entries.
#[derive(Debug)]
pub(crate) struct SqliteFinishedStore {
    conn: Connection,
    path: PathBuf,
    /// Mode of the file if it is created.
    mode: u32,
    file: FileIdentity,
    scope: Scope,
    clock: WallClock,
}

impl SqliteFinishedStore {
    /// Opens the database file, and creates it if it is missing.
    pub(crate) fn open(
        path: PathBuf,
        mode: u32,
        scope: Scope,
        clock: WallClock,
    ) -> Result<Self, SqliteError> {
        let conn = schema::open(&path, mode)?;
        let path = canonical(&path)?;
        Ok(Self {
            conn,
            file: FileIdentity::of(&path),
            path,
            mode,
            scope,
            clock,
        })
    }

    /// Writes all entries in one transaction, or none. Returns earlier ones of the same messages.
    pub(crate) fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault> {
        self.follow_the_file()?;
        let first = match self.enter_all(entries) {
            Err(error) if journal::is_out_of_space(&error) && journal::empty(&self.conn) => {
                self.enter_all(entries)
            }
            entered => entered,
        };
        Ok(first?)
    }

    fn enter_all(&mut self, entries: &[Entry<'_>]) -> rusqlite::Result<Found> {
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let entries = entries.iter();
        let first = entries.map(|entry| enter(&tx, &self.scope, *entry, &self.clock));
        let first = first.collect::<Result<_, _>>()?;
        tx.commit()?;
        Ok(first)
    }

    /// Looks up the entry of each.
    pub(crate) fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault> {
        self.follow_the_file()?;
        let now_ms = self.clock.now_ms();
        let tx = self.conn.transaction()?;
        let found = identities.iter();
        let found = found.map(|identity| find(&tx, &self.scope, identity, now_ms));
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Removes at most `most` expired entries. Returns their number.
    pub(crate) fn expire(&mut self, most: u32) -> Result<usize, Fault> {
        self.follow_the_file()?;
        let now_ms = self.clock.now_ms();
        let mut statement = self.conn.prepare_cached(EXPIRE)?;
        Ok(statement.execute(params![now_ms, most])?)
    }

    /// Switches to the file that has replaced the open one. Entries in a file that no other process sees
    /// would be lost, and beside a journal that was left behind they would do damage.
    fn follow_the_file(&mut self) -> Result<(), Fault> {
        if !self.file.is_replaced()? {
            return Ok(());
        }
        let (scope, clock) = (self.scope.clone(), self.clock.clone());
        let reopened = Self::open(self.path.clone(), self.mode, scope, clock);
        *self = reopened.map_err(|error| Fault::transient(error.to_string()))?;
        tracing::warn!(database = %self.path.display(), "the database file with finished messages was replaced; the new one is used from now on");
        Ok(())
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }
}

#[async_trait(?Send)]
impl FinishedStore for SqliteFinishedStore {
    async fn enter(&mut self, entries: &[Entry<'_>]) -> Result<Found, Fault> {
        self.enter(entries)
    }

    async fn find(&mut self, identities: &[&Identity]) -> Result<Found, Fault> {
        self.find(identities)
    }

    async fn expire(&mut self, most: u32) -> Result<usize, Fault> {
        self.expire(most)
    }

    fn close(self: Box<Self>) {
        (*self).close();
    }
}

#[cfg(test)]
mod tests;
