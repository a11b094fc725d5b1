//! Access to SQLite's internals for tests of the source: another owner, and a record of the statements
//! run.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use rusqlite::auto_extension::{init_auto_extension, register_auto_extension};
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus, ffi, params};

use super::leases::directory;
use super::lock::LockFile;

/// A simulated owner in another process, with its row and its lock file.
pub(crate) struct OtherOwner {
    id: i64,
    /// Held while the owner lives.
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

    /// Claims every free row.
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

    /// Ends the owner: its lock file is closed.
    pub(crate) fn dies(self) {}
}

/// One run of a statement: its text, the steps of SQLite's virtual machine, and the rows returned.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) steps: i32,
    pub(crate) rows: i32,
}

/// Statements run on the connections to each recorded file.
static RUNS: Mutex<BTreeMap<PathBuf, Vec<Run>>> = Mutex::new(BTreeMap::new());

fn with_runs<T>(work: impl FnOnce(&mut BTreeMap<PathBuf, Vec<Run>>) -> T) -> T {
    work(&mut RUNS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Records from now on the statements run on connections to that file that are opened later. Returns
/// those recorded since the last call.
pub(crate) fn runs(path: &Path) -> Vec<Run> {
    attend_to_new_connections();
    let runs = with_runs(|all| all.insert(path.to_owned(), Vec::new()));
    runs.unwrap_or_default()
}

/// Returns whether a statement with that beginning was run since [`runs`] was called.
pub(crate) fn has_run(path: &Path, begin: &str) -> bool {
    let begins = |run: &Run| run.text.trim_start().starts_with(begin);
    with_runs(|all| all.get(path).is_some_and(|runs| runs.iter().any(begins)))
}

/// Has SQLite call `listen` with each connection opened in this process.
#[expect(
    unsafe_code,
    reason = "SQLite hands out new connections by this door alone, and it is one of C"
)]
fn attend_to_new_connections() {
    static ONCE: Once = Once::new();
    unsafe extern "C" fn opened(
        db: *mut ffi::sqlite3,
        error: *mut *mut c_char,
        _: *const ffi::sqlite3_api_routines,
    ) -> c_int {
        // SAFETY: both pointers are SQLite's own, and `listen` neither opens nor closes a database.
        unsafe { init_auto_extension(db, error, listen) }
    }
    // SAFETY: `opened` neither opens nor closes a database, nor does it change the list.
    ONCE.call_once(|| unsafe { register_auto_extension(opened) }.unwrap());
}

/// Records the statements run on a connection, if its file is recorded.
fn listen(mut conn: Connection) -> rusqlite::Result<()> {
    let Some(path) = conn.path().map(PathBuf::from) else {
        return Ok(());
    };
    if !with_runs(|all| all.contains_key(&path)) {
        return Ok(());
    }
    // SQLite adds up a statement's steps over all its runs.
    let mut begun: BTreeMap<String, (i32, i32)> = BTreeMap::new();
    let note = move |event: TraceEvent<'_>| match event {
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
    conn.trace_v2(events, Some(note))
}
