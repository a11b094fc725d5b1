//! The operator's and the producer's side of a table queue, whichever database it is in.

#[cfg(any(feature = "mysql", feature = "postgres"))]
mod away;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

use ganger_config::model::{Database, TableSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;

/// A connection for commands.
pub fn open(config: &TableSource) -> Result<Box<dyn QueueClient>, SourceFault> {
    match &config.database {
        Database::Sqlite(path) => {
            let client = sqlite::SqliteClient::open(path, config.mode)?;
            Ok(Box::new(client))
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => {
            let client = postgres::PostgresClient::open(database)?;
            Ok(Box::new(client))
        }
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => Err(SourceFault::missing_feature("postgres")),
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => {
            let client = mysql::MysqlClient::open(database)?;
            Ok(Box::new(client))
        }
        #[cfg(not(feature = "mysql"))]
        Database::Mysql(_) => Err(SourceFault::missing_feature("mysql")),
    }
}

/// The statements that make its tables, if this program knows the database.
pub fn schema(config: &TableSource) -> Option<String> {
    match &config.database {
        Database::Sqlite(_) => Some(crate::sqlite::schema::statements()),
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => Some(crate::postgres::schema::statements(
            &database.schema,
            &database.table_prefix,
        )),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => None,
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => Some(crate::mysql::schema::statements(&database.table_prefix)),
        #[cfg(not(feature = "mysql"))]
        Database::Mysql(_) => None,
    }
}
