//! A table queue, and the databases that can hold it.

use std::path::PathBuf;
use std::time::Duration;

use super::network::{Host, Identity};
use crate::secret::Secret;

/// A table queue.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSource {
    /// Location of the database.
    pub database: Database,
    /// Mode of the database's file if it is created: its access rights.
    pub mode: u32,
    /// Longest interval between two polls of the table when nothing else wakes the source.
    pub poll_interval: Duration,
    /// Time without a heartbeat after which other daemons take a daemon's messages.
    pub lease: Duration,
}

/// Database that holds the table.
#[derive(Debug, Clone, PartialEq)]
pub enum Database {
    /// SQLite, embedded: the path of its file.
    Sqlite(PathBuf),
    /// PostgreSQL.
    Postgres(Box<PostgresDatabase>),
    /// MySQL or MariaDB.
    Mysql(Box<MysqlDatabase>),
}

impl Database {
    /// Returns the name of its kind, which is also the cargo feature that it needs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Mysql(_) => "mysql",
        }
    }
}

/// A database of PostgreSQL.
#[derive(Debug, Clone, PartialEq)]
pub struct PostgresDatabase {
    /// Servers; the first that accepts writes is used. A name that begins with `/` is the directory of a
    /// Unix socket.
    pub hosts: Vec<Host>,
    /// The database's name.
    pub database: String,
    /// User name.
    pub username: String,
    /// Password, if one is needed.
    pub password: Option<Secret>,
    /// TLS mode: encryption, and verification of the server.
    pub ssl_mode: SslMode,
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate and its private key.
    pub identity: Option<Identity>,
    /// The schema that the tables are in.
    pub schema: String,
    /// Prefix of the table names.
    pub table_prefix: String,
    /// A pooler such as PgBouncer hands each transaction to another session: no session state may be
    /// kept.
    pub pgbouncer: bool,
    /// Tables that are missing are created.
    pub declare: bool,
}

impl PostgresDatabase {
    /// Returns its servers as text for people.
    pub fn servers(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }
}

/// A database of MySQL or MariaDB.
#[derive(Debug, Clone, PartialEq)]
pub struct MysqlDatabase {
    /// Servers; the first that accepts writes is used. A name that begins with `/` is the path of a Unix
    /// socket.
    pub hosts: Vec<Host>,
    /// The database's name.
    pub database: String,
    /// User name.
    pub username: String,
    /// Password, if one is needed.
    pub password: Option<Secret>,
    /// TLS mode: encryption, and verification of the server.
    pub ssl_mode: SslMode,
    /// PEM: the authorities that may have signed the server's certificate; none for the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM: our certificate and its private key.
    pub identity: Option<Identity>,
    /// Prefix of the table names.
    pub table_prefix: String,
    /// Tables that are missing are created.
    pub declare: bool,
}

impl MysqlDatabase {
    /// Returns its servers as text for people.
    pub fn servers(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        hosts.join(",")
    }
}

/// TLS mode of a connection, as defined by libpq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server supports it.
    #[default]
    Prefer,
    /// Always encrypted; the server is not verified.
    Require,
    /// Always encrypted; an authority must have signed the server's certificate.
    VerifyCa,
    /// Always encrypted; the certificate must also be that of the host.
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

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        let named = Self::ALL.into_iter().find(|(_, mode)| *mode == self);
        named.map_or("", |(name, _)| name)
    }
}
