//! SQLite's errors as sentences, and the distinction between errors of a message and of its environment.

use ganger_queue::fault::SourceFault;
use std::io;
use std::path::PathBuf;

use rusqlite::{Error, ErrorCode};

use crate::table::Fault;

/// Reason that a database file can't be used as a table queue, or that a command failed.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// The file can't be opened or prepared.
    #[error("`{}` can't be used as a table queue: {}", path.display(), sentence(error))]
    Open {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        error: Error,
    },
    /// The path can't be resolved, or the file can't be created.
    #[error("`{}` can't be used as a table queue: {error}", path.display())]
    Path {
        /// The database file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A later release has changed the tables.
    #[error(
        "the tables in `{}` are of a later version of ganger: this one supports versions up to {known}, found `{found}`",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Version of its tables.
        found: i64,
        /// Latest version known to this release.
        known: i64,
    },
    /// Another program uses the file's `user_version` for its own schema.
    #[error(
        "`{}` is the database of another program: its `user_version` must be 0 or ganger's own, and its tables are not ganger's: `{found}`",
        path.display()
    )]
    Foreign {
        /// The database file.
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
    },
    /// The file system does not support write-ahead logging.
    #[error("`{}` must be on a file system that allows SQLite's WAL journal, but the journal mode remains `{mode}`", path.display())]
    NoWal {
        /// The database file.
        path: PathBuf,
        /// Journal mode that SQLite uses instead.
        mode: String,
    },
    /// This daemon can't be entered in the table of owners.
    #[error("`{}` can't be used as a table queue: {problem}", path.display())]
    Owners {
        /// The database file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// An operator's command failed.
    #[error("{doing} failed: {}", sentence(error))]
    Command {
        /// Operation that failed.
        doing: &'static str,
        /// SQLite's error.
        error: Error,
    },
}

/// Describes an error for an operator.
pub(crate) fn sentence(error: &Error) -> String {
    let plain = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "the database is busy: another process holds its write lock"
        }
        Some(ErrorCode::DiskFull) => "the disk or the database is full",
        Some(ErrorCode::ReadOnly) => "the database is read-only",
        Some(ErrorCode::CannotOpen) => "the database file can't be opened",
        Some(ErrorCode::NotADatabase) => "the file is not a SQLite database",
        Some(ErrorCode::TooBig) => "the message is larger than SQLite allows",
        _ => return error.to_string(),
    };
    format!("{plain} ({error})")
}

/// Classifies an error of a transaction. It is permanent only if it is surely about the content to be
/// written; everything else, including a missing table, is retried.
pub(crate) fn fault(error: &Error) -> Fault {
    let refused = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::TooBig | ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch)
    );
    Fault {
        problem: sentence(error),
        is_permanent: refused || matches!(error, Error::ToSqlConversionFailure(_)),
        is_lock_timeout: false,
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        fault(&error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::transient(format!(
            "the directory of lock files can't be used: {error}"
        ))
    }
}

impl From<SqliteError> for SourceFault {
    fn from(error: SqliteError) -> Self {
        Self::unusable(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn only_what_was_to_be_written_is_refused_for_good() {
        let table = [
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_BUSY, false),
            (ffi::SQLITE_IOERR, false),
            (ffi::SQLITE_READONLY, false),
            (ffi::SQLITE_CORRUPT, false),
            (ffi::SQLITE_ERROR, false),
            (ffi::SQLITE_TOOBIG, true),
            (ffi::SQLITE_CONSTRAINT, true),
        ];
        for (code, is_permanent) in table {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(fault(&error).is_permanent, is_permanent, "{error}");
        }
    }
}
