//! The ledger in SQLite.

use std::mem;
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, TransactionBehavior, params_from_iter};

use super::clock::WallClock;
use super::commands::waiting_rows;
use super::error::SqliteError;
use super::identity::FileIdentity;
use super::schema::canonical;
use super::{journal, schema, settle};
use crate::ledger::sql::{InTransaction, LedgerDialect, LedgerSql};
use crate::ledger::store::{LedgerStore, LedgerWork};
use crate::ledger::values::{SqlCell, SqlRow, SqlValue};
use crate::table::Fault;
use ganger_queue::delivery::{CANCELLED, Failure, Outgoing, Reason};

const DIALECT: LedgerDialect = LedgerDialect {
    insert_new: (
        "INSERT",
        "ON CONFLICT (schedule, slot) WHERE slot IS NOT NULL DO NOTHING",
    ),
    replace: "ON CONFLICT (name) DO UPDATE SET",
    new_value: ("excluded.", ""),
    rows_together: 1,
    event_order: "rowid",
    by_index: Some(("INDEXED BY ", "")),
    lock: None,
};

/// A connection to the ledger.
#[derive(Debug)]
pub(crate) struct SqliteLedger {
    conn: Connection,
    path: PathBuf,
    /// Mode of the file if it is created.
    mode: u32,
    file: FileIdentity,
    clock: WallClock,
    /// It waits longer for the write lock.
    is_patient: bool,
    /// The file has replaced another, which nobody has asked for yet.
    is_another: bool,
}

impl SqliteLedger {
    /// Opens the database file, and creates it if it is missing.
    pub(crate) fn open(path: &Path, mode: u32, clock: WallClock) -> Result<Self, SqliteError> {
        let conn = schema::open(path, mode)?;
        let path = canonical(path)?;
        Ok(Self {
            conn,
            file: FileIdentity::of(&path),
            path,
            mode,
            clock,
            is_patient: false,
            is_another: false,
        })
    }

    /// Waits much longer for the write lock, as an operator's command may.
    pub(crate) fn extend_busy_timeout(&mut self) -> Result<(), SqliteError> {
        self.is_patient = true;
        let extended = schema::extend_busy_timeout(&mut self.conn);
        extended.map_err(|error| SqliteError::Command {
            doing: "opening",
            error,
        })
    }

    /// Switches to the file that has replaced the open one. What would be entered in a file that no other process sees
    /// would be lost, and beside a journal that was left behind it would do damage.
    fn follow_the_file(&mut self) -> Result<(), Fault> {
        if !self.file.is_replaced()? {
            return Ok(());
        }
        let reopened = self.reopened();
        let mut other = reopened.map_err(|error| Fault::transient(error.to_string()))?;
        other.is_another = true;
        *self = other;
        tracing::warn!(database = %self.path.display(), "the database file with the ledger was replaced; the new one is used from now on");
        // First its schedules are those of the configuration.
        Err(Fault::transient(
            "the database file was replaced; the new one is used from now on",
        ))
    }

    fn reopened(&self) -> Result<Self, SqliteError> {
        let mut other = Self::open(&self.path, self.mode, self.clock.clone())?;
        if self.is_patient {
            other.extend_busy_timeout()?;
        }
        Ok(other)
    }

    fn try_write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), WriteError> {
        let behavior = TransactionBehavior::Immediate;
        let tx = self.conn.transaction_with_behavior(behavior)?;
        let clock = &self.clock;
        work(&mut InTransaction(FileStatements { conn: &tx, clock }))?;
        Ok(tx.commit()?)
    }
}

/// Reason that a transaction was not committed.
enum WriteError {
    Sqlite(rusqlite::Error),
    Work(Fault),
}

impl WriteError {
    /// Returns whether the disk may have been full. Once the transaction has begun, little else passes.
    fn may_lack_space(&self) -> bool {
        match self {
            Self::Sqlite(error) => journal::is_out_of_space(error),
            Self::Work(fault) => !fault.is_permanent,
        }
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        Self::Work(fault)
    }
}

impl From<WriteError> for Fault {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Sqlite(error) => error.into(),
            WriteError::Work(fault) => fault,
        }
    }
}

impl LedgerStore for SqliteLedger {
    fn write(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.follow_the_file()?;
        match self.try_write(work) {
            Err(error) if error.may_lack_space() && journal::empty(&self.conn) => {
                Ok(self.try_write(work)?)
            }
            done => Ok(done?),
        }
    }

    fn write_beside(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.write(work)
    }

    fn read(&mut self, work: &mut LedgerWork<'_>) -> Result<(), Fault> {
        self.follow_the_file()?;
        let tx = self.conn.transaction()?;
        let clock = &self.clock;
        work(&mut InTransaction(FileStatements { conn: &tx, clock }))?;
        Ok(tx.commit()?)
    }

    fn take_another(&mut self) -> bool {
        mem::take(&mut self.is_another)
    }
}

/// Statements in the open transaction.
#[derive(Debug)]
struct FileStatements<'a> {
    conn: &'a Connection,
    clock: &'a WallClock,
}

impl LedgerSql for FileStatements<'_> {
    fn dialect(&self) -> &'static LedgerDialect {
        &DIALECT
    }

    fn writes(&self) -> bool {
        true
    }

    fn now_ms(&mut self) -> Result<i64, Fault> {
        Ok(self.clock.now_ms())
    }

    fn query(&mut self, text: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, Fault> {
        let mut statement = self.conn.prepare_cached(text)?;
        let columns = statement.column_count();
        let rows = statement.query_map(params_from_iter(values), |row| {
            let cells = (0..columns).map(|column| row.get_ref(column).map(cell));
            cells.collect::<rusqlite::Result<_>>().map(SqlRow)
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn each(&mut self, text: &str, values: &[Vec<SqlValue<'_>>]) -> Result<Vec<u64>, Fault> {
        let mut statement = self.conn.prepare_cached(text)?;
        let changed = values.iter().map(|values| {
            let changed = statement.execute(params_from_iter(values))?;
            Ok(u64::try_from(changed).unwrap_or(u64::MAX))
        });
        Ok(changed.collect::<rusqlite::Result<_>>()?)
    }

    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), Fault> {
        for message in messages {
            settle::publish(self.conn, message, self.clock)?;
        }
        Ok(())
    }

    fn bury(&mut self, queue: &str, id: &str) -> Result<usize, Fault> {
        let failure = Failure::new(Reason::Cancelled, CANCELLED);
        let mut buried = 0;
        for row in waiting_rows(self.conn, queue, id)? {
            let now_ms = self.clock.now_ms();
            // No pool has it; its queue stands for one.
            let is_buried = settle::bury_unclaimed(self.conn, queue, row, &failure, now_ms)?;
            buried += usize::from(is_buried);
        }
        Ok(buried)
    }
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Number(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}

fn cell(value: ValueRef<'_>) -> SqlCell {
    match value {
        ValueRef::Null => SqlCell::Null,
        ValueRef::Integer(number) => SqlCell::Number(number),
        ValueRef::Real(number) => SqlCell::Text(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            SqlCell::Text(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::identity::{SHM, WAL, beside};
    use super::*;

    #[test]
    fn a_transaction_that_found_no_space_is_tried_again_with_an_empty_journal() {
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::system();
        let mut ledger = SqliteLedger::open(&dir.path().join("q.db"), 0o600, clock).unwrap();
        let mut tries = |fault: &dyn Fn() -> Fault| {
            let mut tries = 0;
            let done = ledger.write(&mut |_| {
                tries += 1;
                if tries == 1 { Err(fault()) } else { Ok(()) }
            });
            (tries, done.is_ok())
        };
        let full = || Fault::transient("database or disk is full");
        assert_eq!(tries(&full), (2, true));
        let refused = || Fault {
            is_permanent: true,
            ..full()
        };
        assert_eq!(tries(&refused), (1, false));
    }

    #[test]
    fn a_file_that_has_replaced_it_is_used_and_another_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let [path, aside] = ["q.db", "aside.db"].map(|name| dir.path().join(name));
        let open = |path| SqliteLedger::open(path, 0o600, WallClock::system()).unwrap();
        let mut ledger = open(&path);
        let mut does = |what: &str| {
            let mut ran = false;
            let done = ledger.write(&mut |_| {
                ran = true;
                Ok(())
            });
            assert_eq!(ran, done.is_ok(), "{what}");
            (ran, ledger.take_another())
        };
        assert_eq!(does("at first"), (true, false));
        fs::rename(&path, &aside).unwrap();
        assert_eq!(does("torn"), (false, false));
        for end in [WAL, SHM] {
            fs::rename(beside(&path, end), beside(&aside, end)).unwrap();
        }
        assert_eq!(does("gone"), (false, false));
        assert!(!path.exists(), "none is made");
        drop(open(&path));
        assert_eq!(does("it may be in the making"), (false, false));
        assert_eq!(does("opened"), (false, true));
        assert_eq!(does("used"), (true, false));
    }
}
