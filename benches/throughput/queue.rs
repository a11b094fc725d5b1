//! The queue's file as any program sees it: plain SQL on a connection of its own, beside the daemon's. It
//! lies on the disk where the project is built, since a file in memory would make durable commits look free.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ganger_config::model::{Database, SourceConfig, TableSource};
use ganger_queue::client::Client;
use miette::{IntoDiagnostic, bail, ensure};
use rusqlite::{Connection, params};
use tempfile::TempDir;
use tokio::time::Instant;

/// Timeout for the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout after which a run that is not done counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Content of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) body_bytes: usize,
}

impl Load {
    /// Returns the body of each message: text, as version 1 workers need it.
    pub(crate) fn body(self) -> String {
        "x".repeat(self.body_bytes)
    }
}

/// A new database file, removed when dropped.
#[derive(Debug)]
pub(crate) struct QueueFile {
    directory: TempDir,
    conn: Connection,
}

impl QueueFile {
    /// Creates the file with ganger's tables.
    pub(crate) fn create() -> miette::Result<Self> {
        let directory = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
        let directory = directory.into_diagnostic()?;
        let path = database_in(directory.path());
        drop(client(&path)?);
        let conn = connect(&path)?;
        Ok(Self { directory, conn })
    }

    /// Returns the directory of the file, and of everything that belongs to it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of the database file.
    fn database(&self) -> PathBuf {
        database_in(self.directory())
    }

    /// Returns the URL for the configuration of a source.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.database().display())
    }

    /// Opens another connection.
    pub(crate) fn connect(&self) -> miette::Result<Connection> {
        connect(&self.database())
    }

    /// Opens a producer's connection, as `ganger send` does.
    pub(crate) fn client(&self) -> miette::Result<Client> {
        client(&self.database())
    }

    /// Inserts the load into the queues, the same share in each.
    pub(crate) fn fill(&self, queues: &[String], load: Load) -> miette::Result<()> {
        let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3) \
                      INSERT INTO consumer_messages (queue, body) SELECT ?1, ?2 FROM n";
        let (body, share) = (load.body(), load.messages / queues.len());
        ensure!(share * queues.len() == load.messages, "an uneven load");
        let rows = i64::try_from(share).into_diagnostic()?;
        for queue in queues {
            let inserted = self.conn.execute(insert, params![queue, body, rows]);
            inserted.into_diagnostic()?;
        }
        Ok(())
    }

    /// Moves the journal into the database file. Returns true unless another connection prevented that.
    pub(crate) fn checkpoint(&self) -> miette::Result<bool> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy = self.conn.query_row(checkpoint, [], |row| row.get(0));
        let busy: bool = busy.into_diagnostic()?;
        Ok(!busy)
    }

    /// Returns whether no other connection holds a lock. A reader that needs only the database file, not the
    /// journal, is detected only after a write: it blocks the next checkpoint that has something to move.
    pub(crate) fn is_free(&self) -> miette::Result<bool> {
        if !self.checkpoint()? {
            return Ok(false);
        }
        self.insert("nobody", "")?;
        let delete = "DELETE FROM consumer_messages WHERE queue = 'nobody'";
        self.conn.execute(delete, []).into_diagnostic()?;
        self.checkpoint()
    }

    /// Inserts one message by plain SQL. It is durable when this returns.
    pub(crate) fn insert(&self, queue: &str, body: &str) -> miette::Result<()> {
        let insert = "INSERT INTO consumer_messages (queue, body) VALUES (?1, ?2)";
        let mut statement = self.conn.prepare_cached(insert).into_diagnostic()?;
        statement.execute([queue, body]).into_diagnostic()?;
        Ok(())
    }

    /// Returns whether every message is done.
    fn is_empty(&self) -> miette::Result<bool> {
        let any = "SELECT 1 FROM consumer_messages LIMIT 1";
        let mut statement = self.conn.prepare_cached(any).into_diagnostic()?;
        Ok(!statement.exists([]).into_diagnostic()?)
    }

    /// Waits until every message is done, with polls at the given interval. Returns the time of the last
    /// poll.
    pub(crate) fn wait_until_done(&self, look_every: Duration) -> miette::Result<Instant> {
        let begun = Instant::now();
        while !self.is_empty()? {
            if begun.elapsed() > STUCK_AFTER {
                bail!("messages are left after {STUCK_AFTER:?}");
            }
            std::thread::park_timeout(look_every);
        }
        let done = Instant::now();
        let dead = self.count("poisoned_messages")?;
        ensure!(dead == 0, "{dead} messages were given up");
        Ok(done)
    }

    fn count(&self, table: &str) -> miette::Result<i64> {
        let count = format!("SELECT count(*) FROM {table}");
        self.conn
            .query_row(&count, [], |row| row.get(0))
            .into_diagnostic()
    }
}

fn database_in(directory: &Path) -> PathBuf {
    directory.join("bench.db")
}

fn client(database: &Path) -> miette::Result<Client> {
    let source = SourceConfig::Table(TableSource {
        database: Database::Sqlite(database.to_owned()),
        mode: 0o600,
        poll_interval: Duration::from_millis(500),
        lease: Duration::from_secs(30),
    });
    ganger::kinds::client("bench", &source, &[]).into_diagnostic()
}

/// Opens a connection that is as durable as the daemon's own.
fn connect(database: &Path) -> miette::Result<Connection> {
    let conn = Connection::open(database).into_diagnostic()?;
    conn.busy_timeout(BUSY_TIMEOUT).into_diagnostic()?;
    let full = conn.pragma_update(None, "synchronous", "full");
    full.into_diagnostic()?;
    Ok(conn)
}
