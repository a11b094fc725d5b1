//! What the tests of the source need of SQLite's insides: another owner to play.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};

use super::leases::directory;
use super::lock::LockFile;

/// An owner in another process, as far as its row and its lock file can tell.
pub(crate) struct OtherOwner {
    id: i64,
    /// Held while it lives.
    _lock: LockFile,
}

impl OtherOwner {
    pub(crate) fn new(database: &Path, lease: Duration) -> Self {
        let dir: PathBuf = directory(database);
        std::fs::create_dir_all(&dir).unwrap();
        let lock = LockFile::create(&dir).unwrap();
        let conn = super::open_for_tests(database);
        let insert = "INSERT INTO owners (host, pid, started_at, lease_ms, lock_file) \
                      VALUES ('h', 1, 0, ?1, ?2) RETURNING id";
        let row = params![i64::try_from(lease.as_millis()).unwrap(), lock.name()];
        let id = conn.query_row(insert, row, |row| row.get(0)).unwrap();
        Self { id, _lock: lock }
    }

    /// Claims every row that is free.
    pub(crate) fn claims_all(&self, conn: &Connection, alone: bool) {
        let claim = "UPDATE consumer_messages \
                     SET owner = ?1, claim = 1, claim_alone = ?2, attempts = attempts + 1 \
                     WHERE owner IS NULL";
        conn.execute(claim, params![self.id, alone]).unwrap();
    }

    pub(crate) fn beats(&self, conn: &Connection) {
        conn.execute(
            "UPDATE owners SET heartbeat = heartbeat + 1 WHERE id = ?1",
            [self.id],
        )
        .unwrap();
    }

    /// The kernel closes its files.
    pub(crate) fn dies(self) {}
}
