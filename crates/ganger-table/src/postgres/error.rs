//! Errors of PostgreSQL as sentences, and the distinction between errors of a message and of its
//! environment.

use ganger_queue::fault::SourceFault;
use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::server::dialect::StatementError;
use crate::table::Fault;

/// Reason that a database of PostgreSQL can't be used as a table queue, or that a command failed.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// No server is reachable, or none accepts writes. The connection is retried.
    #[error("{server} can't be reached: {why}")]
    Away {
        /// Address of the server.
        server: String,
        /// The attempt that failed.
        why: String,
    },
    /// The server refuses the connection.
    #[error("{server} refuses the connection: {why}")]
    Refused {
        /// Address of the server.
        server: String,
        /// The server's message, or the driver's.
        why: String,
    },
    /// A file with a certificate or a key can't be used.
    #[error("`{}` can't be used for TLS: {why}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// There is no certificate authority to trust.
    #[error("the system's certificate authorities can't be read, and no `ca_file` is given: {why}")]
    NoAuthorities {
        /// Description of the problem.
        why: String,
    },
    /// The server is too old.
    #[error("{server} is PostgreSQL {found}, but table queues need version 12 or later")]
    Old {
        /// Address of the server.
        server: String,
        /// Its version.
        found: String,
    },
    /// The encoding of the database is not UTF-8.
    #[error(
        "the database at {server} must have the encoding UTF8, so that every text can be stored: \
         `{found}`"
    )]
    Encoding {
        /// Address of the server.
        server: String,
        /// The encoding.
        found: String,
    },
    /// A later release has changed the tables.
    #[error(
        "the tables in schema `{schema}` are of a later version of ganger: this one supports versions \
         up to {known}, found `{found}`"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// Version of its tables.
        found: i32,
        /// Latest version known to this release.
        known: i32,
    },
    /// Tables of these names belong to another program.
    #[error(
        "the table `{table}` in schema `{schema}` belongs to another program: set the source's `schema` \
         to one of ganger's own, or set `table_prefix`"
    )]
    Foreign {
        /// The schema.
        schema: String,
        /// The first such table.
        table: String,
    },
    /// A pooler shares the sessions, which is not configured.
    #[error(
        "{server} runs each transaction in another session, as PgBouncer does in transaction mode: \
         set `pgbouncer = true` in the source, or connect to the server directly"
    )]
    Pooled {
        /// Address of the server.
        server: String,
    },
    /// The tables are missing, and may not be created.
    #[error(
        "schema `{schema}` lacks version {version} of ganger's tables, and `declare = false` forbids creating \
         them: have an administrator run the output of `ganger schema` from `-- Version {version}` on"
    )]
    Missing {
        /// The schema.
        schema: String,
        /// The first version that is missing.
        version: usize,
    },
    /// The tables of the ledger are missing, and may not be created.
    #[error(
        "schema `{schema}` lacks version {version} of the tables of the ledger, and `declare = false` forbids \
         creating them: have an administrator run the output of `ganger schema` from `-- Ledger, version {version}` on"
    )]
    NoLedger {
        /// The schema.
        schema: String,
        /// The first version that is missing.
        version: usize,
    },
    /// The operating system refused a resource.
    #[error("{why}")]
    System {
        /// The system's error.
        why: String,
    },
    /// A request failed.
    #[error("{doing} failed: {why}")]
    Command {
        /// Operation that failed.
        doing: &'static str,
        /// Description of the problem.
        why: String,
        /// True if the connection was lost.
        is_lost: bool,
    },
}

impl PostgresError {
    /// Returns whether the cause may be transient.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Away { .. } | Self::Command { is_lost: true, .. }
        )
    }
}

/// Maximum bytes of a message: PostgreSQL limits a value, and a statement with it, to 1 GB.
pub(super) const MESSAGE_BYTES_MAX: usize = 1000 << 20;

/// Rejects messages of these sizes, in bytes, if no statement can hold one of them.
pub(super) fn too_large(bytes: impl Iterator<Item = usize>) -> Result<(), Fault> {
    match bytes.max() {
        Some(bytes) if bytes > MESSAGE_BYTES_MAX => Err(Fault {
            problem: format!(
                "a message of {bytes} bytes is larger than PostgreSQL can store in a row: at most \
                 {MESSAGE_BYTES_MAX}"
            ),
            is_permanent: true,
            is_lock_timeout: false,
        }),
        _ => Ok(()),
    }
}

/// Returns a conversion of errors of that operation.
pub(crate) fn failed(doing: &'static str) -> impl Fn(Error) -> PostgresError {
    move |error| PostgresError::Command {
        doing,
        why: sentence(&error),
        is_lost: is_lost(&error),
    }
}

/// Classifies the error of an attempt to connect to that server.
pub(crate) fn connect_error(server: &str, error: &Error) -> PostgresError {
    let (server, why) = (server.to_owned(), sentence(error));
    match error.code() {
        Some(code) if !is_transient(code) => PostgresError::Refused { server, why },
        Some(_) => PostgresError::Away { server, why },
        None if is_unconfigured(error) => PostgresError::Refused { server, why },
        None => PostgresError::Away { server, why },
    }
}

/// Returns whether an error that is not the server's needs another configuration: an untrusted
/// certificate, TLS that the server does not offer, or a missing password.
fn is_unconfigured(error: &Error) -> bool {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let mut io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    let said = error.to_string();
    let by_tls = said.starts_with("error performing TLS handshake")
        && !io.any(|io| is_of_the_network(io.kind()));
    by_tls || said.starts_with("invalid configuration")
}

/// Returns whether the network ended a TLS handshake, not the content of a message in it.
fn is_of_the_network(kind: io::ErrorKind) -> bool {
    !matches!(
        kind,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
    )
}

/// Returns whether the connection is lost, or about to be closed.
fn is_lost(error: &Error) -> bool {
    match error.code() {
        Some(code) => ["08", "57P"]
            .into_iter()
            .any(|class| code.code().starts_with(class)),
        None => {
            let cause = error.source();
            let by_io = cause.is_some_and(|cause| cause.is::<io::Error>());
            error.is_closed()
                || by_io
                    && error
                        .to_string()
                        .starts_with("error communicating with the server")
        }
    }
}

/// Describes an error for an operator.
pub(crate) fn sentence(error: &Error) -> String {
    if is_read_only(error) {
        return "the server is read-only: it is a standby, or `default_transaction_read_only` is on \
                for the role or the database"
            .to_owned();
    }
    let Some(said) = error.as_db_error() else {
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        return causes.fold(error.to_string(), |text, cause| {
            let cause = cause.to_string();
            match text.contains(&cause) {
                true => text,
                false => format!("{text}: {cause}"),
            }
        });
    };
    let detail = said.detail().map(|detail| format!(": {detail}"));
    let (message, detail) = (said.message(), detail.unwrap_or_default());
    let hint = match is_of_another_session(said.code()) {
        true => {
            "; if a pooler such as PgBouncer in transaction mode is in between, set `pgbouncer = true`"
        }
        false => "",
    };
    format!("{message}{detail} (SQLSTATE {}){hint}", said.code().code())
}

/// Returns whether the driver found the server read-only. The connection requires one that accepts
/// writes.
fn is_read_only(error: &Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref());
    io.is_some_and(|io: &io::Error| {
        io.kind() == io::ErrorKind::PermissionDenied
            && io.to_string() == "database does not allow writes"
    })
}

/// Returns whether a prepared statement is missing, or exists although it was not prepared here.
fn is_of_another_session(code: &SqlState) -> bool {
    let codes = [
        &SqlState::INVALID_SQL_STATEMENT_NAME,
        &SqlState::DUPLICATE_PSTATEMENT,
    ];
    codes.contains(&code)
}

/// Classifies an error of a transaction. It is permanent only if it is surely about the content to be
/// written; everything else, including a missing table, is retried.
pub(crate) fn fault(error: &Error) -> Fault {
    Fault {
        problem: sentence(error),
        is_permanent: error.code().is_some_and(is_about_content) && !is_of_notifications(error),
        is_lock_timeout: error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE),
    }
}

/// Returns whether the server's queue of notifications was full at a commit. It has room again once a
/// listener in a long transaction has read it. The code is that of any limit and the text is localised,
/// so the routine decides.
fn is_of_notifications(error: &Error) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|said| {
        *said.code() == SqlState::PROGRAM_LIMIT_EXCEEDED
            && said.routine() == Some("PreCommit_Notify")
    })
}

/// Returns whether the error is about the data: a value that no column accepts, a constraint, a limit of
/// the server, an exception of a user's trigger.
fn is_about_content(code: &SqlState) -> bool {
    let of_class = |class| code.code().starts_with(class);
    ["22", "23", "54"].into_iter().any(of_class) || *code == SqlState::RAISE_EXCEPTION
}

impl StatementError for Error {
    fn fault(&self) -> Fault {
        fault(self)
    }

    fn is_conflict(&self) -> bool {
        let conflicts = [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
        ];
        self.code().is_some_and(|code| conflicts.contains(&code))
    }

    fn is_timeout(&self) -> bool {
        self.code() == Some(&SqlState::QUERY_CANCELED)
    }

    fn is_refusal(&self) -> bool {
        let missing = [
            &SqlState::INSUFFICIENT_PRIVILEGE,
            &SqlState::UNDEFINED_COLUMN,
            &SqlState::UNDEFINED_TABLE,
        ];
        fault(self).is_permanent || self.code().is_some_and(|code| missing.contains(&code))
    }
}

/// Returns whether the connection can't be used any more: it is lost, the server shuts down, it has
/// become read-only, or its prepared statements are invalid.
pub(crate) fn ends_the_connection(error: &Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => is_transient(code) || is_of_the_session(code),
    }
}

/// Returns whether the session has become read-only, or its prepared statements are invalid, as after a
/// change of the tables.
fn is_of_the_session(code: &SqlState) -> bool {
    let codes = [
        &SqlState::READ_ONLY_SQL_TRANSACTION,
        &SqlState::FEATURE_NOT_SUPPORTED,
        &SqlState::INVALID_SQL_STATEMENT_NAME,
    ];
    codes.contains(&code)
}

/// Returns whether the connection failed, or the server is starting, shutting down, out of resources, or
/// has an internal error.
fn is_transient(code: &SqlState) -> bool {
    let of_class = |class| code.code().starts_with(class);
    ["08", "53", "57P", "58", "XX"].into_iter().any(of_class)
}

impl From<PostgresError> for SourceFault {
    fn from(error: PostgresError) -> Self {
        Self::unusable(error)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn only_what_was_to_be_written_is_refused_for_good() {
        let table = [
            (SqlState::DISK_FULL, false),
            (SqlState::LOCK_NOT_AVAILABLE, false),
            (SqlState::QUERY_CANCELED, false),
            (SqlState::ADMIN_SHUTDOWN, false),
            (SqlState::UNDEFINED_TABLE, false),
            (SqlState::INSUFFICIENT_PRIVILEGE, false),
            (SqlState::READ_ONLY_SQL_TRANSACTION, false),
            (SqlState::T_R_DEADLOCK_DETECTED, false),
            (SqlState::CHARACTER_NOT_IN_REPERTOIRE, true),
            (SqlState::CHECK_VIOLATION, true),
            (SqlState::PROGRAM_LIMIT_EXCEEDED, true),
            (SqlState::RAISE_EXCEPTION, true),
        ];
        for (code, is_permanent) in table {
            assert_eq!(is_about_content(&code), is_permanent, "{code:?}");
        }
    }

    /// Returns the error of connecting to a server that sends this answer.
    async fn answered(answer: &[u8]) -> Error {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let mut config = tokio_postgres::Config::new();
        let connected = config.user("u").connect_raw(ours, tokio_postgres::NoTls);
        connected.await.err().unwrap()
    }

    /// Encodes an error as a server sends it.
    fn said(code: &str, routine: &str) -> Vec<u8> {
        let fields = format!("SERROR\0C{code}\0Mno\0R{routine}\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        [b"E".as_slice(), &length, fields.as_bytes()].concat()
    }

    #[tokio::test]
    async fn a_full_queue_of_notifications_is_waited_for_and_another_limit_is_not() {
        for (routine, is_permanent) in [("PreCommit_Notify", false), ("index_form_tuple", true)] {
            let error = answered(&said("54000", routine)).await;
            assert_eq!(fault(&error).is_permanent, is_permanent, "{routine}");
        }
    }

    #[tokio::test]
    async fn what_was_to_be_made_ready_when_the_server_ended_is_waited_for() {
        for answer in [Vec::new(), said("57P01", "ProcessInterrupts")] {
            let lost = failed("making the tables")(answered(&answer).await);
            assert!(lost.is_transient(), "{lost}");
        }
        for code in ["42501", "53100"] {
            let refused = failed("making the tables")(answered(&said(code, "any")).await);
            assert!(!refused.is_transient(), "{refused}");
        }
    }

    #[test]
    fn what_no_statement_can_hold_is_refused_for_good() {
        too_large([1, MESSAGE_BYTES_MAX].into_iter()).unwrap();
        too_large(std::iter::empty()).unwrap();
        let refused = too_large([1, MESSAGE_BYTES_MAX + 1].into_iter());
        assert!(refused.unwrap_err().is_permanent);
    }

    #[test]
    fn a_handshake_that_the_network_ends_is_made_again() {
        for kind in [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::TimedOut,
        ] {
            assert!(is_of_the_network(kind), "{kind}");
        }
        for kind in [io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput] {
            assert!(!is_of_the_network(kind), "{kind}");
        }
    }

    #[test]
    fn a_server_that_starts_is_waited_for_and_a_wrong_password_is_not() {
        for code in [
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::ADMIN_SHUTDOWN,
        ] {
            assert!(is_transient(&code), "{code:?}");
        }
        for code in [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ] {
            assert!(!is_transient(&code), "{code:?}");
        }
    }
}
