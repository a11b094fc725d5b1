//! The database: a file of SQLite, or one on a private PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use miette::{IntoDiagnostic, WrapErr, miette};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tempfile::TempDir;

use crate::Kind;
use crate::servers::postgres::Cluster;

/// Time for which statements wait for the lock of a file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Name of the database on a server.
const DATABASE: &str = "bench";

/// A database, and the directory of the daemon.
pub(crate) struct Place {
    cluster: Option<Cluster>,
    path: PathBuf,
    /// Removed at the end.
    _directory: Option<TempDir>,
}

impl Place {
    /// Opens the file in a directory, or makes a place that is removed at the end.
    pub(crate) fn open(kind: Kind, keep: Option<&Path>) -> miette::Result<Self> {
        let directory = match keep {
            Some(_) => None,
            None => {
                let made = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
                Some(made.into_diagnostic()?)
            }
        };
        let own = directory.as_ref().map(TempDir::path);
        let path = keep.or(own).unwrap_or(Path::new("."));
        fs::create_dir_all(path).into_diagnostic()?;
        let cluster = (kind == Kind::Postgres).then(|| {
            let cluster = Cluster::start(&["fsync=on", "max_wal_size=4GB", "shared_buffers=512MB"]);
            cluster.create_database(DATABASE);
            cluster
        });
        Ok(Self {
            cluster,
            path: path.to_owned(),
            _directory: directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_file(&self) -> bool {
        self.cluster.is_none()
    }

    pub(crate) fn url(&self) -> String {
        match &self.cluster {
            Some(cluster) => cluster.url(DATABASE),
            None => format!("sqlite:{}", self.file().display()),
        }
    }

    fn file(&self) -> PathBuf {
        self.path.join("bench.db")
    }

    /// Opens the file.
    pub(crate) fn connect(&self) -> miette::Result<Connection> {
        let conn = Connection::open(self.file()).into_diagnostic()?;
        conn.busy_timeout(BUSY_TIMEOUT).into_diagnostic()?;
        Ok(conn)
    }

    /// Runs statements.
    pub(crate) fn run(&self, sql: &str) -> miette::Result<()> {
        match &self.cluster {
            Some(cluster) => {
                let done = cluster.try_psql(DATABASE, sql);
                done.map_err(|error| miette!("{sql}: {error}"))?;
                Ok(())
            }
            None => {
                let done = self.connect()?.execute_batch(sql).into_diagnostic();
                done.wrap_err_with(|| sql.to_owned())
            }
        }
    }

    /// Returns the rows of a query with one column.
    pub(crate) fn column(&self, sql: &str) -> miette::Result<Vec<String>> {
        if let Some(cluster) = &self.cluster {
            let rows = cluster.try_psql(DATABASE, sql);
            let rows = rows.map_err(|error| miette!("{sql}: {error}"))?;
            return Ok(rows.lines().map(str::to_owned).collect());
        }
        let conn = self.connect()?;
        let mut statement = conn.prepare(sql).into_diagnostic()?;
        let rows = statement.query_map([], |row| {
            Ok(match row.get_ref(0)? {
                ValueRef::Integer(number) => number.to_string(),
                value => value.as_str().unwrap_or_default().to_owned(),
            })
        });
        rows.into_diagnostic()?
            .collect::<Result<_, _>>()
            .into_diagnostic()
    }

    /// Returns the number that a query finds.
    pub(crate) fn number(&self, sql: &str) -> miette::Result<u64> {
        let found = self.column(sql)?;
        let found = found.first().ok_or_else(|| miette!("nothing: {sql}"))?;
        found.parse().into_diagnostic()
    }
}
