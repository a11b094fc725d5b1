//! What the tests of the source need of SQLite's insides: another owner to play, and what was run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus, params};

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

/// One run of a statement: its text, the steps that SQLite's machine has made, and the rows that came.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) steps: i32,
    pub(crate) rows: i32,
}

/// What was run on the connections to each file that is listened to.
static RUNS: Mutex<BTreeMap<PathBuf, Vec<Run>>> = Mutex::new(BTreeMap::new());

fn with_runs<T>(work: impl FnOnce(&mut BTreeMap<PathBuf, Vec<Run>>) -> T) -> T {
    work(&mut RUNS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Listens from now on to what is run on connections to that file that are opened after this. Returns what
/// was run since this was called before.
pub(crate) fn runs(path: &Path) -> Vec<Run> {
    let runs = with_runs(|all| all.insert(path.to_owned(), Vec::new()));
    runs.unwrap_or_default()
}

/// A connection to a file, listened to if that is wanted of it.
pub(super) fn listened_to(mut conn: Connection, path: &Path) -> Connection {
    let path = path.to_owned();
    if !with_runs(|all| all.contains_key(&path)) {
        return conn;
    }
    // The steps of a statement are added up over all its runs.
    let mut begun: BTreeMap<String, (i32, i32)> = BTreeMap::new();
    let listen = move |event: TraceEvent<'_>| match event {
        TraceEvent::Stmt(statement, text) if !text.starts_with("--") => {
            let before = statement.get_status(StatementStatus::VmStep);
            begun.insert(statement.sql().into_owned(), (before, 0));
        }
        TraceEvent::Row(statement) => {
            if let Some((_, rows)) = begun.get_mut(&*statement.sql()) {
                *rows += 1;
            }
        }
        TraceEvent::Profile(statement, _) => {
            if let Some((text, (before, rows))) = begun.remove_entry(&*statement.sql()) {
                let steps = statement.get_status(StatementStatus::VmStep) - before;
                let run = Run { text, steps, rows };
                with_runs(|all| all.entry(path.clone()).or_default().push(run));
            }
        }
        _ => {}
    };
    let events = TraceEventCodes::SQLITE_TRACE_STMT
        | TraceEventCodes::SQLITE_TRACE_ROW
        | TraceEventCodes::SQLITE_TRACE_PROFILE;
    conn.trace_v2(events, Some(listen)).unwrap();
    conn
}
