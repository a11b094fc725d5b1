//! The databases that this build supports. No other module lists them.

use crate::sqlite::database::DatabaseFile;
use crate::table_database::TableDatabase;
use ganger_config::model::{Database, TableSource};
use ganger_queue::fault::SourceFault;

/// Returns the database of a source, or an error if this build does not support it.
pub(crate) fn database(config: &TableSource) -> Result<Box<dyn TableDatabase + '_>, SourceFault> {
    Ok(match &config.database {
        Database::Sqlite(path) => Box::new(DatabaseFile::new(path, config.mode)),
        #[cfg(feature = "postgres")]
        Database::Postgres(database) => Box::new(&**database),
        #[cfg(feature = "mysql")]
        Database::Mysql(database) => Box::new(&**database),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        other => return Err(SourceFault::missing_feature(other.kind())),
    })
}
