//! What speaks to one kind of broker each: connections, topology, records, SQL. No room here has a
//! loop, knows a pool, or sees another; `table` is what any database is asked for a table queue.

pub(crate) mod kafka;
pub(crate) mod rabbitmq;
pub(crate) mod sqlite;
pub(crate) mod table;

pub use kafka::error::KafkaError;
pub use rabbitmq::error::RabbitMqError;
pub use sqlite::SqliteError as TableError;

/// What is wrong with what is at the other end.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Fault {
    /// With a table queue.
    Table(#[from] TableError),
    /// With RabbitMQ.
    RabbitMq(#[from] RabbitMqError),
    /// With Kafka.
    Kafka(#[from] KafkaError),
}

impl Fault {
    /// As a fault of the source called `name`.
    pub(crate) fn of(self, name: &str) -> UnusableSource {
        UnusableSource {
            name: name.to_owned(),
            fault: Box::new(self),
        }
    }
}

/// What is at the other end of a source can't be used.
#[derive(Debug, thiserror::Error)]
#[error("source `{name}`: {fault}")]
pub struct UnusableSource {
    /// The source's name in the configuration.
    pub name: String,
    /// What is wrong.
    pub fault: Box<Fault>,
}
