//! Errors of MySQL and MariaDB as sentences, and the distinction between errors of a message and of its
//! environment.

use ganger_queue::fault::SourceFault;
use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use mysql_async::{DriverError, Error, IoError, ServerError};
use rustls::AlertDescription;

use crate::server::dialect::StatementError;
use crate::table::Fault;

/// Reason that a database of MySQL or MariaDB can't be used as a table queue, or that a command failed.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
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
    /// The connection would not be encrypted, so that an impostor of the server would get the password.
    #[error(
        "{server} has no TLS version in common with ganger, and without TLS any host that answers gets the \
         password: enable TLS on the server, or set ssl-mode=DISABLED if the network is trusted"
    )]
    Unencrypted {
        /// Address of the server.
        server: String,
    },
    /// A file with a certificate or a key can't be used.
    #[error("`{}` can't be used for TLS: {why}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// The server is too old.
    #[error(
        "{server} is {found}, but table queues need MySQL 8.0.13 or MariaDB 10.6, or a later version"
    )]
    Old {
        /// Address of the server.
        server: String,
        /// Its name and version.
        found: String,
    },
    /// The server has a bug that loses messages.
    #[error(
        "{server} is {found}, which loses values of rows that a query inserts into a table with triggers \
         (MDEV-36026): messages would be refused or lose their queue; install a later release of the same series"
    )]
    Losing {
        /// Address of the server.
        server: String,
        /// Its name and version.
        found: String,
    },
    /// A later release has changed the tables.
    #[error(
        "the tables in database `{database}` are of a later version of ganger: this one supports versions \
         up to {known}, found `{found}`"
    )]
    Newer {
        /// The database.
        database: String,
        /// Version of its tables.
        found: i64,
        /// Latest version known to this release.
        known: i64,
    },
    /// Tables of these names belong to another program.
    #[error(
        "the table `{table}` in database `{database}` belongs to another program: give ganger a database of \
         its own, or set `table_prefix`"
    )]
    Foreign {
        /// The database.
        database: String,
        /// The first such table.
        table: String,
    },
    /// The tables are missing, and may not be created.
    #[error(
        "database `{database}` lacks version {version} of ganger's tables, and `declare = false` forbids \
         creating them: have an administrator run the output of `ganger schema`"
    )]
    Missing {
        /// The database.
        database: String,
        /// The first version that is missing.
        version: usize,
    },
    /// The table for messages to topics is missing.
    #[error(
        "the table `published_messages` is missing, so topics can't be used: have an administrator run \
         the output of `ganger schema`: {why}"
    )]
    NoTopics {
        /// Reason that it was not created.
        why: String,
    },
    /// The tables of the ledger are missing, and may not be created.
    #[error(
        "database `{database}` lacks version {version} of the tables of the ledger, and `declare = false` forbids \
         creating them: have an administrator run the output of `ganger schema` from `-- Ledger, version {version}` on"
    )]
    NoLedger {
        /// The database.
        database: String,
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

impl MysqlError {
    /// Returns whether the cause may be transient.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Away { .. } | Self::Command { is_lost: true, .. }
        )
    }
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// An error of the server or the driver.
    #[error(transparent)]
    Driver(#[from] Error),
    /// The statement is too long for a packet.
    #[error(
        "a statement of {bytes} bytes is larger than the server accepts: its `max_allowed_packet` is \
         {most}"
    )]
    TooLarge { bytes: usize, most: usize },
    /// The result does not have the requested form.
    #[error("the server has answered with {0}")]
    Unexpected(String),
}

impl CallError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(Error::Server(said)) => Some(said.code),
            _ => None,
        }
    }
}

/// Returns a conversion of errors of that operation.
pub(crate) fn failed(doing: &'static str) -> impl Fn(CallError) -> MysqlError {
    move |error| MysqlError::Command {
        doing,
        why: sentence(&error),
        is_lost: is_lost(&error),
    }
}

/// Classifies the error of an attempt to connect to that server.
pub(crate) fn connect_error(server: &str, error: &CallError) -> MysqlError {
    let (server, why) = (server.to_owned(), sentence(error));
    let refuses = match error {
        CallError::Driver(Error::Server(said)) => !is_transient(said.code),
        CallError::Driver(error) => is_unconfigured(error),
        CallError::TooLarge { .. } | CallError::Unexpected(_) => false,
    };
    match refuses {
        true => MysqlError::Refused { server, why },
        false => MysqlError::Away { server, why },
    }
}

/// Returns whether an error that is not the server's needs another configuration: an untrusted
/// certificate, TLS that the server does not offer, or an unknown authentication method.
fn is_unconfigured(error: &Error) -> bool {
    match error {
        Error::Io(IoError::Tls(_)) => true,
        // The driver passes the errors of a TLS handshake on as I/O errors.
        Error::Io(IoError::Io(error)) => error.kind() == io::ErrorKind::InvalidData,
        Error::Driver(error) => is_unoffered(error),
        Error::Server(_) | Error::Other(_) | Error::Url(_) => false,
    }
}

fn is_unoffered(error: &DriverError) -> bool {
    matches!(
        error,
        DriverError::NoClientSslFlagFromServer
            | DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled
            | DriverError::NoKeyFound
    )
}

/// Returns whether the server does not offer TLS.
pub(super) fn has_no_tls(error: &Error) -> bool {
    matches!(error, Error::Driver(DriverError::NoClientSslFlagFromServer))
}

/// Returns whether the server offers TLS, but no version or cipher that is supported here. MySQL built
/// with OpenSSL 1.0, such as 8.0.15, lacks ephemeral elliptic curves.
pub(super) fn has_other_tls(error: &Error) -> bool {
    let Error::Io(IoError::Io(error)) = error else {
        return false;
    };
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        error,
        Some(
            rustls::Error::AlertReceived(
                AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion
            ) | rustls::Error::PeerIncompatible(_)
        )
    )
}

/// Describes an error for an operator.
pub(crate) fn sentence(error: &CallError) -> String {
    match error {
        CallError::Driver(Error::Server(ServerError { code, message, .. })) => {
            format!("{message} (error {code})")
        }
        CallError::Driver(error) if has_no_tls(error) => {
            "TLS is required, but the server does not support it".to_owned()
        }
        CallError::Driver(error) if has_other_tls(error) => {
            format!("the server has no TLS version in common with ganger: {error}")
        }
        CallError::Driver(error) => {
            let causes = std::iter::successors(error.source(), |cause| (*cause).source());
            match causes.last() {
                Some(cause) => cause.to_string(),
                None => error.to_string(),
            }
        }
        CallError::TooLarge { .. } | CallError::Unexpected(_) => error.to_string(),
    }
}

/// Classifies an error of a transaction. It is permanent only if it is surely about the content to be
/// written; everything else, including a missing table, is retried.
pub(crate) fn fault(error: &CallError) -> Fault {
    let is_permanent = match error {
        CallError::TooLarge { .. } => true,
        CallError::Driver(_) | CallError::Unexpected(_) => {
            error.code().is_some_and(is_about_content)
        }
    };
    Fault {
        problem: sentence(error),
        is_permanent,
        is_lock_timeout: error.code() == Some(LOCK_WAIT_TIMEOUT),
    }
}

const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Returns whether the error is about the data: a value that no column accepts, a constraint, an
/// exception of a user's trigger, a message too large for a packet.
fn is_about_content(code: u16) -> bool {
    /// By name: `ER_BAD_NULL_ERROR`, `ER_DUP_ENTRY`, `ER_NET_PACKET_TOO_LARGE`, `ER_TOO_LONG_KEY`,
    /// `ER_INVALID_CHARACTER_STRING`, `ER_WARN_DATA_OUT_OF_RANGE`, `WARN_DATA_TRUNCATED`,
    /// `ER_NO_DEFAULT_FOR_FIELD`, `ER_TRUNCATED_WRONG_VALUE_FOR_FIELD`, `ER_DATA_TOO_LONG`,
    /// `ER_NO_REFERENCED_ROW_2`, `ER_ROW_IS_REFERENCED_2`, `ER_SIGNAL_EXCEPTION`, `ER_DATA_OUT_OF_RANGE`,
    /// `ER_INVALID_JSON_TEXT`, `ER_CHECK_CONSTRAINT_VIOLATED`, `ER_CONSTRAINT_FAILED`.
    const OF_IT: [u16; 17] = [
        1048, 1062, 1153, 1071, 1300, 1264, 1265, 1364, 1366, 1406, 1452, 1451, 1644, 1690, 3140,
        3819, 4025,
    ];
    OF_IT.contains(&code)
}

impl StatementError for CallError {
    fn fault(&self) -> Fault {
        fault(self)
    }

    /// `ER_LOCK_DEADLOCK`, `ER_CHECKREAD`, `ER_TRANSACTION_ROLLBACK_DURING_COMMIT` after a conflict in a
    /// cluster, and `ER_LOCK_NOWAIT`.
    fn is_conflict(&self) -> bool {
        matches!(self.code(), Some(1213 | 1020 | 3101 | 3572))
    }

    /// `ER_QUERY_TIMEOUT` or `ER_STATEMENT_TIMEOUT`.
    fn is_timeout(&self) -> bool {
        matches!(self.code(), Some(3024 | 1969))
    }

    /// Besides the content, `ER_TABLEACCESS_DENIED_ERROR`, `ER_COLUMNACCESS_DENIED_ERROR`.
    fn is_refusal(&self) -> bool {
        let is_denied = matches!(self.code(), Some(1142 | 1143));
        fault(self).is_permanent || is_denied || is_missing_table(self) || is_missing_column(self)
    }
}

/// Returns whether another row already has the value in that unique index: `ER_DUP_ENTRY`.
pub(crate) fn is_taken(error: &CallError, index: &str) -> bool {
    match error {
        CallError::Driver(Error::Server(said)) => said.code == 1062 && said.message.contains(index),
        CallError::Driver(_) | CallError::TooLarge { .. } | CallError::Unexpected(_) => false,
    }
}

/// Returns whether the connection is lost, or about to be closed.
fn is_lost(error: &CallError) -> bool {
    match error {
        CallError::Driver(Error::Server(said)) => is_transient(said.code),
        CallError::Driver(Error::Io(_) | Error::Driver(_)) => true,
        CallError::Driver(_) | CallError::TooLarge { .. } | CallError::Unexpected(_) => false,
    }
}

/// Returns whether the connection can't be used any more: it is lost, the server shuts down, or it has
/// become read-only.
pub(crate) fn ends_the_connection(error: &CallError) -> bool {
    match error {
        CallError::Driver(Error::Server(said)) => {
            is_transient(said.code) || is_read_only(said.code)
        }
        CallError::Driver(_) => true,
        CallError::TooLarge { .. } | CallError::Unexpected(_) => false,
    }
}

/// Returns whether a table is missing: `ER_NO_SUCH_TABLE`.
pub(super) fn is_missing_table(error: &CallError) -> bool {
    error.code() == Some(1146)
}

/// Returns whether a column is missing: `ER_BAD_FIELD_ERROR`.
pub(super) fn is_missing_column(error: &CallError) -> bool {
    error.code() == Some(1054)
}

/// Returns whether a trigger may not be created: `ER_BINLOG_CREATE_ROUTINE_NEED_SUPER`, or
/// `ER_TABLEACCESS_DENIED_ERROR` without the privilege `TRIGGER`.
pub(super) fn is_trigger_denied(error: &CallError) -> bool {
    matches!(error.code(), Some(1419 | 1142))
}

/// Returns whether a trigger already exists (`ER_TRG_ALREADY_EXISTS`), or its table was in use for
/// longer than the lock timeout (`ER_LOCK_WAIT_TIMEOUT`).
pub(super) fn is_made_or_in_use(error: &CallError) -> bool {
    matches!(error.code(), Some(1359 | LOCK_WAIT_TIMEOUT))
}

/// Returns whether the server is read-only: `ER_OPTION_PREVENTS_STATEMENT`,
/// `ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION`, `ER_READ_ONLY_MODE`.
fn is_read_only(code: u16) -> bool {
    matches!(code, 1290 | 1792 | 1836)
}

/// Returns whether the server is starting, shutting down or out of resources: `ER_CON_COUNT_ERROR`,
/// `ER_OUT_OF_RESOURCES`, `ER_HOST_IS_BLOCKED`, `ER_SERVER_SHUTDOWN`, `ER_NORMAL_SHUTDOWN`, network
/// errors, `ER_TOO_MANY_USER_CONNECTIONS`, `ER_USER_LIMIT_REACHED` of an account, `ER_UNKNOWN_COM_ERROR`
/// of a cluster's node that is not ready, `ER_QUERY_INTERRUPTED`, `ER_CONNECTION_KILLED`,
/// `ER_CLIENT_INTERACTION_TIMEOUT`, `ER_SERVER_OFFLINE_MODE`.
fn is_transient(code: u16) -> bool {
    matches!(
        code,
        1040 | 1041 | 1129 | 1053 | 1077 | 1158
            ..=1161 | 1203 | 1226 | 1047 | 1317 | 1927 | 4031 | 3032
    )
}

impl From<MysqlError> for SourceFault {
    fn from(error: MysqlError) -> Self {
        Self::unusable(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16) -> CallError {
        CallError::Driver(Error::Server(ServerError {
            code,
            message: "no".to_owned(),
            state: "HY000".to_owned(),
        }))
    }

    #[test]
    fn only_what_was_to_be_written_is_refused_for_good() {
        for (what, code, is_permanent) in [
            ("a full table", 1114, false),
            ("a full disk", 1021, false),
            ("a lock", 1205, false),
            ("a deadlock", 1213, false),
            ("a time", 1969, false),
            ("a missing table", 1146, false),
            ("a missing right", 1142, false),
            ("a server to read from", 1290, false),
            ("a text that is none", 1366, true),
            ("a text too long", 1406, true),
            ("a check of MySQL's", 3819, true),
            ("a check of MariaDB's", 4025, true),
            ("a trigger's signal", 1644, true),
            ("a packet", 1153, true),
        ] {
            assert_eq!(fault(&said(code)).is_permanent, is_permanent, "{what}");
        }
        let (bytes, most) = (17 << 20, 16 << 20);
        let too_large = fault(&CallError::TooLarge { bytes, most });
        assert!(too_large.is_permanent && too_large.problem.contains("`max_allowed_packet`"));
    }

    #[test]
    fn a_server_that_ends_is_waited_for_and_a_wrong_password_is_not() {
        for code in [1040, 1053, 1203, 1226, 1927] {
            assert!(connect_error("h", &said(code)).is_transient(), "{code}");
            assert!(ends_the_connection(&said(code)), "{code}");
        }
        for code in [1044, 1045, 1049] {
            assert!(!connect_error("h", &said(code)).is_transient(), "{code}");
        }
        for code in [1205, 1213, 1406] {
            assert!(!ends_the_connection(&said(code)), "{code}");
        }
    }

    #[test]
    fn what_was_to_be_made_ready_when_the_server_ended_is_waited_for() {
        let closed = io::Error::from(io::ErrorKind::ConnectionReset);
        let closed = CallError::Driver(Error::Io(IoError::Io(closed)));
        for lost in [closed, said(1053), said(1927)] {
            assert!(failed("making the tables")(lost).is_transient());
        }
        for code in [1142, 1044, 1290] {
            assert!(
                !failed("making the tables")(said(code)).is_transient(),
                "{code}"
            );
        }
    }

    #[test]
    fn no_cipher_in_common_is_as_if_there_were_no_tls() {
        let io = |error| {
            Error::Io(IoError::Io(io::Error::new(
                io::ErrorKind::InvalidData,
                error,
            )))
        };
        let alert = |alert| io(rustls::Error::AlertReceived(alert));
        assert!(has_other_tls(&alert(AlertDescription::HandshakeFailure)));
        assert!(!has_other_tls(&alert(AlertDescription::BadCertificate)));
        let forged = rustls::CertificateError::BadSignature;
        let forged = io(rustls::Error::InvalidCertificate(forged));
        assert!(!has_other_tls(&forged));
        let error = CallError::Driver(alert(AlertDescription::HandshakeFailure));
        assert!(!connect_error("h", &error).is_transient());
        assert!(sentence(&error).contains("no TLS version in common"));
    }

    #[test]
    fn a_sentence_has_the_servers_word_and_its_number() {
        assert_eq!(sentence(&said(1146)), "no (error 1146)");
    }
}
