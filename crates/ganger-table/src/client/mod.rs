//! The operator's and the producer's side of a table queue, whichever database it is in.

#[cfg(any(feature = "mysql", feature = "postgres"))]
mod away;
mod dead_letters;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
mod sqlite;

use ganger_config::model::{Database, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;

/// Connects for commands.
///
/// # Errors
/// If the database can't be reached, or is not fit to be used.
pub fn open(config: &TableSource) -> Result<Box<dyn QueueClient>, SourceFault> {
    Ok(match &config.database {
        Database::Sqlite(path) => Box::new(sqlite::SqliteClient::open(path, config.mode)?),
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => Box::new(postgres::open(database)?),
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => Box::new(mysql::open(database)?),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}

/// Returns the statements that make its tables, if this program knows the database.
pub fn schema(config: &TableSource) -> Option<String> {
    match &config.database {
        Database::Sqlite(_) => Some(crate::sqlite::schema::statements()),
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => Some(crate::postgres::schema::statements(
            &database.schema,
            &database.table_prefix,
        )),
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => Some(crate::mysql::schema::statements(&database.table_prefix)),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        _ => None,
    }
}
