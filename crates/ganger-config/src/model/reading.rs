//! The queue or topics that a pool reads.

use super::{Options, PoolConfig};

impl PoolConfig {
    /// Returns whether the pool reads that queue or topic.
    pub fn reads(&self, queue: &str) -> bool {
        match &self.options {
            Options::Kafka(options) => options.topics.include(queue),
            Options::Table | Options::RabbitMq(_) => *self.queue == *queue,
        }
    }

    /// Returns one of the queues or topics that it reads, if any is named.
    pub fn one_queue(&self) -> &str {
        let topic = match &self.options {
            Options::Kafka(options) => options.topics.names().first(),
            Options::Table | Options::RabbitMq(_) => None,
        };
        topic.map_or(&self.queue, String::as_str)
    }
}
