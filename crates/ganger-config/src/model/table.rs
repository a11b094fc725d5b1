//! A table queue, and the databases that can hold it.

use std::path::PathBuf;
use std::time::Duration;

use super::network::{Host, Identity};
use crate::secret::Secret;

/// A table queue.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSource {
    /// Where the database is.
    pub database: Database,
    /// Who may use a database that is made: the mode of its file.
    pub mode: u32,
    /// The longest time between two looks at the table when nothing else woke us.
    pub poll_interval: Duration,
    /// How long a daemon's heartbeat may stand still before the others take its messages.
    pub lease: Duration,
}

/// Which database holds the table.
#[derive(Debug, Clone, PartialEq)]
pub enum Database {
    /// SQLite, embedded: the path of its file.
    Sqlite(PathBuf),
    /// PostgreSQL.
    Postgres(Box<PostgresDatabase>),
    /// MySQL or MariaDB.
    Mysql(Box<MysqlDatabase>),
}

/// A database of PostgreSQL.
#[derive(Debug, Clone, PartialEq)]
pub struct PostgresDatabase {
    /// Where servers listen, of which the first is taken that may be written to; a name that begins with
    /// `/` is the directory of a Unix socket.
    pub hosts: Vec<Host>,
    /// The database's name.
    pub database: String,
    /// Who we are.
    pub username: String,
    /// What proves it, where that is needed.
    pub password: Option<Secret>,
    /// Whether the connection is encrypted, and whom we believe.
    pub ssl_mode: SslMode,
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate and its private key.
    pub identity: Option<Identity>,
    /// The schema that the tables are in.
    pub schema: String,
    /// What goes before the names of the tables.
    pub table_prefix: String,
    /// A pooler is between that hands each transaction to another session: nothing may outlive one.
    pub pgbouncer: bool,
    /// Whether tables that are missing are made.
    pub declare: bool,
}

impl PostgresDatabase {
    /// Its servers, as people are told of them.
    pub fn servers(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }
}

/// A database of MySQL or MariaDB.
#[derive(Debug, Clone, PartialEq)]
pub struct MysqlDatabase {
    /// Where servers listen, of which the first is taken that may be written to; a name that begins with
    /// `/` is the path of a Unix socket.
    pub hosts: Vec<Host>,
    /// The database's name.
    pub database: String,
    /// Who we are.
    pub username: String,
    /// What proves it, where that is needed.
    pub password: Option<Secret>,
    /// Whether the connection is encrypted, and whom we believe.
    pub ssl_mode: SslMode,
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate and its private key.
    pub identity: Option<Identity>,
    /// What goes before the names of the tables.
    pub table_prefix: String,
    /// Whether tables that are missing are made.
    pub declare: bool,
}

impl MysqlDatabase {
    /// Its servers, as people are told of them.
    pub fn servers(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }
}

/// Whether a connection is encrypted, as libpq knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server can.
    #[default]
    Prefer,
    /// Always, whoever the server is.
    Require,
    /// Always, and an authority has signed the server's certificate.
    VerifyCa,
    /// Always, and the certificate is that of the host.
    VerifyFull,
}

impl SslMode {
    /// The modes by their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("disable", Self::Disable),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        let named = Self::ALL.into_iter().find(|(_, mode)| *mode == self);
        named.map_or("", |(name, _)| name)
    }
}
