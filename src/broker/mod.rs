//! What speaks to one kind of broker each: connections, topology, records, SQL. No room here has a
//! loop, knows a pool, or sees another; `table` is what any database is asked for a table queue.

use std::fmt;

#[cfg(feature = "sqlite")]
pub(crate) mod finished;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "sqlite")]
pub(crate) mod store;
#[cfg(feature = "sqlite")]
pub(crate) mod table;

#[cfg(feature = "kafka")]
pub use kafka::error::KafkaError;
#[cfg(feature = "mysql")]
pub use mysql::MysqlError;
#[cfg(feature = "postgres")]
pub use postgres::PostgresError;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::error::RabbitMqError;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteError as TableError;

/// What is wrong with what is at the other end.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// With a table queue.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Table(#[from] TableError),
    /// With a table queue in PostgreSQL.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// With a table queue in MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    #[error(transparent)]
    Mysql(#[from] MysqlError),
    /// With RabbitMQ.
    #[cfg(feature = "rabbitmq")]
    #[error(transparent)]
    RabbitMq(#[from] RabbitMqError),
    /// With Kafka.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// This program was built without the kind.
    #[error("this ganger was built without {0}: build it with the cargo feature `{0}`")]
    LeftOut(&'static str),
    /// The kind has no such thing.
    #[error("only a table knows unique keys")]
    NoUnique,
    /// Likewise.
    #[error("only a table has topics")]
    NoTopics,
    /// Its dead letters can't go elsewhere.
    #[error("the dead letters of a table go back to their own queue only: leave `to` out")]
    NoOtherWayBack,
    /// It was asked for through the admin API of a daemon, which has said this.
    #[cfg(feature = "admin")]
    #[error("{0}")]
    Remote(String),
}

impl Fault {
    /// Returns whether there is no such queue or topic.
    #[cfg(feature = "admin")]
    pub(crate) fn is_no_queue(&self) -> bool {
        match self {
            #[cfg(feature = "rabbitmq")]
            Self::RabbitMq(error) => error.is_no_queue(),
            #[cfg(feature = "kafka")]
            Self::Kafka(error) => error.is_no_topic(),
            _ => false,
        }
    }

    /// As a fault of the source called `name`.
    pub(crate) fn of(self, name: &str) -> UnusableSource {
        UnusableSource {
            name: name.to_owned(),
            fault: Box::new(self),
        }
    }
}

#[cfg(not(all(feature = "kafka", feature = "rabbitmq", feature = "sqlite")))]
impl Fault {
    /// Of a source whose kind this program was built without.
    pub(crate) fn left_out(source: &crate::config::model::SourceConfig) -> Self {
        use crate::config::model::SourceConfig;
        Self::LeftOut(match source {
            SourceConfig::Table(_) => "sqlite",
            SourceConfig::RabbitMq(_) => "rabbitmq",
            SourceConfig::Kafka(_) => "kafka",
        })
    }
}

/// What is at the other end of a source can't be used.
#[derive(Debug, thiserror::Error)]
pub struct UnusableSource {
    /// The source's name in the configuration.
    pub name: String,
    /// What is wrong.
    pub fault: Box<Fault>,
}

impl fmt::Display for UnusableSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, fault } = self;
        match **fault {
            // The daemon names the source itself, where it is one that is at fault.
            #[cfg(feature = "admin")]
            Fault::Remote(ref why) => f.write_str(why),
            ref fault => write!(f, "source `{name}`: {fault}"),
        }
    }
}
