//! Everything about RabbitMQ: connections and topology, the reader of a pool, the client of commands.

mod broker;
mod client;
mod rules;
mod source;

use std::sync::Arc;

use ganger_config::model::{PoolConfig, RabbitMqSource};
use ganger_queue::client::QueueClient;
use ganger_queue::fault::SourceFault;
use ganger_queue::source::{Link, Opening, Source, SourceError, open_beside_pool};

/// A configured broker.
#[derive(Debug)]
pub struct RabbitMq {
    name: String,
    config: RabbitMqSource,
}

impl RabbitMq {
    /// Creates the source called `name`. Nothing is connected yet.
    pub fn new(name: &str, config: &RabbitMqSource) -> Self {
        Self {
            name: name.to_owned(),
            config: config.clone(),
        }
    }
}

impl Source for RabbitMq {
    fn reader(&self, link: Link) -> Result<Opening, SourceError> {
        let (name, config) = (self.name.clone(), self.config.clone());
        let pool = link.policy.borrow().name.clone();
        open_beside_pool(&pool, move |event_loop| {
            let opened = source::open(&config, link, event_loop);
            opened.map_err(|error| SourceFault::from(error).of(&name).into())
        })
    }

    fn client(&self, pools: &[Arc<PoolConfig>]) -> Result<Box<dyn QueueClient>, SourceFault> {
        Ok(Box::new(client::RabbitMqClient::open(&self.config, pools)?))
    }
}
