//! Kafka support: topics and records, the reader of a pool, the client of commands.

mod broker;
mod client;
mod source;

use std::sync::Arc;

use ganger_config::model::{KafkaSource, PoolConfig};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;
use ganger_queue::source::{Link, Opening, Source, SourceError, open_on_thread};

pub use broker::features;

/// A configured Kafka cluster.
#[derive(Debug)]
pub struct Kafka {
    name: String,
    config: KafkaSource,
}

impl Kafka {
    /// Creates the source called `name`. It does not connect yet.
    pub fn new(name: &str, config: &KafkaSource) -> Self {
        Self {
            name: name.to_owned(),
            config: config.clone(),
        }
    }
}

impl Source for Kafka {
    fn reader(&self, link: Link) -> Result<Opening, SourceError> {
        let (name, config) = (self.name.clone(), self.config.clone());
        let pool = link.policy.borrow().name.clone();
        open_on_thread("source", &pool, move || {
            let opened = source::open(&config, link);
            opened.map_err(|error| SourceFault::from(error).of(&name).into())
        })
    }

    fn client(&self, pools: &[Arc<PoolConfig>]) -> Result<Box<dyn QueueClient>, SourceFault> {
        Ok(Box::new(client::KafkaClient::open(&self.config, pools)?))
    }
}
