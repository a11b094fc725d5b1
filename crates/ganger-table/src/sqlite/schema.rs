//! Opening of a database file: pragmas, and creation and migration of its tables. The content of the
//! tables is handled elsewhere.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, Error, ErrorCode, TransactionBehavior};
use tokio::time::Instant;

use super::error::SqliteError;
use super::{journal, permissions, topics};

/// Steps from one version of the tables to the next, the first from an empty file. A released step is
/// never changed.
const MIGRATIONS: &[Migration] = &[
    Migration {
        sql: include_str!("v1.sql"),
        known_by: None,
    },
    Migration {
        sql: include_str!("v2.sql"),
        known_by: Some(("consumer_messages", "suspicion")),
    },
    Migration {
        sql: include_str!("v3.sql"),
        known_by: Some(("finished_messages", "expires_at")),
    },
    Migration {
        sql: include_str!("v4.sql"),
        known_by: Some(("consumer_messages", "unique_hold")),
    },
    Migration {
        sql: include_str!("v5.sql"),
        known_by: Some(("poisoned_messages", "row_id")),
    },
    Migration {
        sql: include_str!("v6.sql"),
        known_by: Some(("consumer_messages_id", "BEFORE INSERT")),
    },
    Migration {
        sql: include_str!("v7.sql"),
        known_by: Some(("occurrence_events", "note")),
    },
    Migration {
        sql: include_str!("v8.sql"),
        known_by: Some(("ledger_audit_subject", "subject")),
    },
    Migration {
        sql: include_str!("v9.sql"),
        known_by: Some(("occurrences_ended", "ended_at")),
    },
    Migration {
        sql: include_str!("v10.sql"),
        known_by: Some(("occurrences_fingerprint", "fingerprint")),
    },
    Migration {
        sql: include_str!("v11.sql"),
        known_by: Some(("occurrences_of_schedule_not_completed", "state")),
    },
];

/// A step from one version of the tables to the next.
#[derive(Debug, Clone, Copy)]
struct Migration {
    sql: &'static str,
    /// Name of a schema object that the step made or changed, and a part of its SQL that shows that the
    /// step was done. Daemons of the version before work with the tables nevertheless, and must be able
    /// to open them after a roll-back: so `user_version` stays unchanged. None if they can't.
    known_by: Option<(&'static str, &'static str)>,
}

/// Time for which opening waits for another process that has locked the database to create it, migrate it
/// or recover it after a crash.
const OPEN_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of tries of a statement to get the write lock, about a millisecond apart. After that it fails,
/// is reported, and is retried after a pause.
const BUSY_TRIES: i32 = 250;

/// The same for an operator's command, which has no other work.
const BUSY_TRIES_OF_COMMANDS: i32 = 10_000;

/// More than there are statements, so that each is prepared once.
const STATEMENTS_CACHED: usize = 64;

/// Returns the statements that create the tables, for people who run them by hand.
pub(crate) fn statements() -> String {
    let migrations = MIGRATIONS.iter().map(|step| step.sql);
    let migrations: Vec<&str> = migrations.chain([topics::TABLES]).collect();
    let migrations = migrations.join("\n");
    format!("PRAGMA journal_mode = wal;\nBEGIN;\n{migrations}\nPRAGMA user_version = 1;\nCOMMIT;\n")
}

/// Opens the file, creates it with that mode if it is missing, and migrates its tables.
pub(crate) fn open(path: &Path, mode: u32) -> Result<Connection, SqliteError> {
    permissions::make_database(path, mode).map_err(|error| SqliteError::Path {
        path: path.to_owned(),
        error,
    })?;
    let mut conn = prepared(path).map_err(|error| failed(path, error))?;
    let mode = switch_to_wal(&conn).map_err(|error| failed(path, error))?;
    if mode != "wal" {
        let path = path.to_owned();
        return Err(SqliteError::NoWal { path, mode });
    }
    migrate(&mut conn, path, MIGRATIONS)?;
    conn.busy_handler(Some(wait_for_the_lock))
        .map_err(|error| failed(path, error))?;
    Ok(conn)
}

/// Returns the one path of a file that several paths may lead to.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, SqliteError> {
    path.canonicalize().map_err(|error| SqliteError::Path {
        path: path.to_owned(),
        error,
    })
}

/// Returns the resulting journal mode. SQLite does not wait for this switch, whatever the timeout:
/// opening a file that another process is just creating would fail as busy.
fn switch_to_wal(conn: &Connection) -> Result<String, Error> {
    let give_up = Instant::now() + OPEN_BUSY_TIMEOUT;
    loop {
        let switched = conn.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0));
        let busy = switched.as_ref().is_err_and(is_busy);
        if !busy || Instant::now() > give_up {
            return switched;
        }
        pause();
    }
}

fn is_busy(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Busy handler. SQLite's own timeout sleeps longer each time, and a long sleeper is overtaken again and
/// again by a daemon that commits a thousand times a second.
fn wait_for_the_lock(tries: i32) -> bool {
    pause();
    tries < BUSY_TRIES
}

fn pause() {
    thread::park_timeout(Duration::from_micros(fastrand::u64(500..1500)));
}

/// Lets a connection wait much longer for the write lock, as an operator's command and a start may.
pub(crate) fn extend_busy_timeout(conn: &mut Connection) -> Result<(), Error> {
    conn.busy_handler(Some(|tries| {
        pause();
        tries < BUSY_TRIES_OF_COMMANDS
    }))
}

/// Lets a connection wait for the write lock as [`open`] does, after [`extend_busy_timeout`].
pub(crate) fn restore_busy_timeout(conn: &mut Connection) -> Result<(), Error> {
    conn.busy_handler(Some(wait_for_the_lock))
}

fn prepared(path: &Path) -> Result<Connection, Error> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(OPEN_BUSY_TIMEOUT)?;
    // NORMAL could lose a commit in a power failure: a message would be done twice, or a reply lost.
    conn.pragma_update(None, "synchronous", "full")?;
    journal::limit(&conn, path)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Otherwise a value bound to the condition of a partial index has each statement prepared anew each
    // time.
    conn.set_db_config(
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
        true,
    )?;
    Ok(conn)
}

fn failed(path: &Path, error: Error) -> SqliteError {
    let path = path.to_owned();
    SqliteError::Open { path, error }
}

/// Runs the migrations that the file lacks, in one transaction.
fn migrate(
    conn: &mut Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), SqliteError> {
    let error = |error| failed(path, error);
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let found = stamp(conn).map_err(error)?;
    if applied(conn, found, migrations).map_err(error)? == Some(migrations.len()) {
        return recognised(conn, path, found);
    }
    let tx = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(error)?;
    let found = stamp(&tx).map_err(error)?;
    let Some(done) = applied(&tx, found, migrations).map_err(error)? else {
        let path = path.to_owned();
        return Err(SqliteError::Newer { path, found, known });
    };
    if found > 0 {
        recognised(&tx, path, found)?;
    }
    for (version, step) in (1_i64..).zip(migrations).skip(done) {
        tx.execute_batch(step.sql).map_err(error)?;
        if step.known_by.is_none() {
            tx.pragma_update(None, "user_version", version)
                .map_err(error)?;
        }
    }
    tx.commit().map_err(error)
}

/// Returns the oldest version whose daemons can work with the tables.
fn stamp(conn: &Connection) -> Result<i64, Error> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Returns the number of migrations applied; none if the tables are of a later version.
fn applied(
    conn: &Connection,
    stamp: i64,
    migrations: &[Migration],
) -> Result<Option<usize>, Error> {
    let Ok(mut done) = usize::try_from(stamp) else {
        return Ok(None);
    };
    while let Some(Migration {
        known_by: Some((name, part)),
        ..
    }) = migrations.get(done)
        && has(conn, name, part)?
    {
        done += 1;
    }
    Ok((done <= migrations.len()).then_some(done))
}

/// Queries the file's schema: the one cached by the connection may be older.
fn has(conn: &Connection, name: &str, part: &str) -> Result<bool, Error> {
    let count = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND instr(sql, ?2) > 0";
    let count: i64 = conn.query_row(count, [name, part], |row| row.get(0))?;
    Ok(count > 0)
}

/// Checks that the tables are ganger's: any program may set `user_version`.
fn recognised(conn: &Connection, path: &Path, found: i64) -> Result<(), SqliteError> {
    // Queries the file's schema: the one cached by the connection may be older than the version.
    let tables: i64 = conn
        .query_row(
            "SELECT count(*) FROM sqlite_schema
             WHERE type = 'table' AND name IN ('consumer_messages', 'poisoned_messages', 'owners')",
            [],
            |row| row.get(0),
        )
        .map_err(|error| failed(path, error))?;
    let ours = tables == 3;
    if ours {
        return Ok(());
    }
    let path = path.to_owned();
    Err(SqliteError::Foreign { path, found })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn open(path: &Path) -> Result<Connection, SqliteError> {
        super::open(path, 0o600)
    }

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        (dir, path)
    }

    #[test]
    fn a_new_file_has_the_latest_tables_and_is_durable() {
        let (_dir, path) = file();
        let conn = open(&path).unwrap();
        assert_eq!(stamp(&conn).unwrap(), 1);
        let synchronous: i64 = conn
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .unwrap();
        assert_eq!(synchronous, 2);
        open(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_made_by_hand_is_as_good() {
        let (_dir, path) = file();
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(&statements()).unwrap();
        let conn = open(&path).unwrap();
        assert_eq!(stamp(&conn).unwrap(), 1);
    }

    #[test]
    fn who_opens_a_file_that_another_is_making_waits_for_it() {
        let (_dir, path) = file();
        let mut maker = Connection::open(&path).unwrap();
        let making = maker.transaction_with_behavior(TransactionBehavior::Immediate);
        let making = making.unwrap();
        making.execute_batch("CREATE TABLE orders (id)").unwrap();
        let (tell, told) = sync_channel(1);
        let opener = thread::spawn(move || tell.send(open(&path).map(drop)).unwrap());
        let so_far = told.recv_timeout(Duration::from_millis(100));
        assert!(so_far.is_err(), "did not wait: {so_far:?}");
        making.commit().unwrap();
        told.recv().unwrap().unwrap();
        opener.join().unwrap();
    }

    /// A sender's id could be the largest one, which leaves none for later messages.
    #[test]
    fn no_sender_gives_a_message_its_number() {
        let (_dir, path) = file();
        let conn = open(&path).unwrap();
        conn.execute_batch(topics::TABLES).unwrap();
        let insert = |id: &str| {
            let insert = format!(
                "INSERT INTO consumer_messages (id, queue, body) VALUES ({id}, 'q', 'b'), (NULL, 'q', 'b')"
            );
            conn.execute(&insert, [])
        };
        for id in ["9223372036854775807", "1", "4611686018427387904"] {
            let refused = insert(id).unwrap_err().to_string();
            assert!(refused.contains("id must be left out"), "{refused}");
        }
        insert("NULL").unwrap();
        conn.execute("DELETE FROM consumer_messages", []).unwrap();
        assert_eq!(insert("2").unwrap(), 2, "one that there was may come again");
        insert("NULL").unwrap();
        let last = "SELECT max(id) FROM consumer_messages";
        let last: i64 = conn.query_row(last, [], |row| row.get(0)).unwrap();
        assert_eq!(last, 5);
        let topic = "INSERT INTO published_messages (id, topic, body, unsubscribed) \
                     VALUES (9223372036854775807, 't', 'b', 'drop')";
        let refused = conn.execute(topic, []).unwrap_err().to_string();
        assert!(refused.contains("id must be left out"), "{refused}");
    }

    fn step(sql: &'static str) -> Migration {
        let known_by = None;
        Migration { sql, known_by }
    }

    #[test]
    fn an_old_version_is_brought_up_to_date_with_its_rows() {
        let (_dir, path) = file();
        let mut conn = open(&path).unwrap();
        let insert = "INSERT INTO consumer_messages (queue, body) VALUES ('q', 'b')";
        conn.execute(insert, []).unwrap();
        let next = "ALTER TABLE consumer_messages ADD COLUMN colour TEXT DEFAULT 'red'";
        migrate(&mut conn, &path, &[MIGRATIONS, &[step(next)]].concat()).unwrap();
        let row = "SELECT body || colour FROM consumer_messages";
        let row: String = conn.query_row(row, [], |row| row.get(0)).unwrap();
        assert_eq!((row.as_str(), stamp(&conn).unwrap()), ("bred", 12));
    }

    /// Query by which a daemon of version 1 finds rows. It checks the version only when it opens the
    /// file, and must not be hindered when another daemon migrates it meanwhile.
    const NEXT_OF_VERSION_1: &str = "
        SELECT body FROM consumer_messages INDEXED BY consumer_messages_ready
        WHERE queue = ?1 AND owner IS NULL AND available_after = 0
        ORDER BY priority DESC, id LIMIT 1";

    #[test]
    fn version_1_is_brought_up_to_date_beside_a_daemon_that_knows_no_other() {
        let (_dir, path) = file();
        let mut old = prepared(&path).unwrap();
        old.pragma_update(None, "journal_mode", "wal").unwrap();
        migrate(&mut old, &path, &MIGRATIONS[..1]).unwrap();
        let rows = "INSERT INTO consumer_messages (queue, body, lapses) VALUES \
                    ('q', 'a', 1), ('q', 'b', 5), ('q', 'c', -9223372036854775808)";
        old.execute(rows, []).unwrap();
        let mut next = old.prepare(NEXT_OF_VERSION_1).unwrap();
        let mut next = || {
            next.query_row(["q"], |row| row.get::<_, String>(0))
                .unwrap()
        };
        assert_eq!(next(), "a");

        let new = open(&path).unwrap();
        assert_eq!(stamp(&new).unwrap(), 1);
        let suspicions = "SELECT group_concat(suspicion) FROM consumer_messages";
        let suspicions: String = new.query_row(suspicions, [], |row| row.get(0)).unwrap();
        assert_eq!(suspicions, "0,4,0");
        assert_eq!(next(), "a");

        // After a roll-back, and after another upgrade.
        let mut old = prepared(&path).unwrap();
        migrate(&mut old, &path, &MIGRATIONS[..1]).unwrap();
        open(&path).unwrap();
    }

    /// Builds between two releases counted the second step in `user_version`.
    #[test]
    fn a_file_that_says_version_2_is_as_good() {
        let (_dir, path) = file();
        let conn = open(&path).unwrap();
        conn.pragma_update(None, "user_version", 2).unwrap();
        open(&path).unwrap();
        assert_eq!(stamp(&conn).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let (_dir, path) = file();
        let mut conn = open(&path).unwrap();
        let next = "DROP TABLE poisoned_messages; SELECT nonsense";
        migrate(&mut conn, &path, &[MIGRATIONS, &[step(next)]].concat()).unwrap_err();
        assert_eq!(stamp(&conn).unwrap(), 1);
        assert!(conn.table_exists(None, "poisoned_messages").unwrap());
    }

    #[test]
    fn a_later_version_is_refused() {
        let (_dir, path) = file();
        let conn = open(&path).unwrap();
        conn.pragma_update(None, "user_version", 12).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("of a later version of ganger"), "{error}");
        assert!(error.ends_with("up to 11, found `12`"), "{error}");
    }

    #[test]
    fn another_programs_database_is_refused() {
        let (_dir, path) = file();
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", 1).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("of another program"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let (_dir, path) = file();
        std::fs::write(&path, "a letter to my aunt".repeat(100)).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("not a SQLite database"), "{error}");
    }

    #[test]
    fn tables_of_others_in_the_same_file_stay() {
        let (_dir, path) = file();
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("CREATE TABLE orders (id); INSERT INTO orders VALUES (7)")
            .unwrap();
        open(&path).unwrap();
        let id: i64 = conn
            .query_row("SELECT id FROM orders", [], |row| row.get(0))
            .unwrap();
        assert_eq!(id, 7);
    }
}
