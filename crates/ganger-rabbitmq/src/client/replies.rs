//! Replies to the messages of a command. They use the broker's direct reply-to: no queue is created, and a
//! reply that arrives when nothing waits any more is dropped.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::BasicConsumeOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::time::timeout;

use crate::broker::error::RabbitMqError;
use crate::broker::republish::{Received, unwrap};
use ganger_queue::client::{Answers, Reply};

/// Address for replies, which the broker replaces.
pub(super) const DIRECT: &str = "amq.rabbitmq.reply-to";

/// Replies that have arrived and were not taken.
#[derive(Debug)]
pub(super) struct Replies {
    consumer: Consumer,
    received: Answers,
    /// Reason why no more will arrive.
    ended: Option<RabbitMqError>,
}

impl Replies {
    /// Prepares for replies to messages that will be published through this very channel.
    pub(super) async fn open(channel: &Channel) -> Result<Self, RabbitMqError> {
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let tag = "ganger-replies".into();
        let consumer = channel.basic_consume(DIRECT.into(), tag, options, FieldTable::default());
        Ok(Self {
            consumer: consumer
                .await
                .map_err(|error| RabbitMqError::lost(&error))?,
            received: Answers::default(),
            ended: None,
        })
    }

    /// Takes the oldest reply with this correlation id, if one has arrived.
    pub(super) fn take(&mut self, correlation_id: &str) -> Result<Option<Reply>, RabbitMqError> {
        match (self.received.take(correlation_id), &self.ended) {
            (None, Some(error)) => Err(error.clone()),
            (reply, _) => Ok(reply),
        }
    }

    /// Waits until a reply has arrived or no more will, or for the given time.
    pub(super) async fn wait(&mut self, longest: Duration) {
        if self.ended.is_some() {
            return;
        }
        match timeout(longest, self.consumer.next()).await {
            Ok(Some(Ok(delivery))) => self.received.push(reply(delivery)),
            Ok(Some(Err(error))) => self.ended = Some(RabbitMqError::lost(&error)),
            Ok(None) => {
                let why = "the broker closed it while replies were awaited".to_owned();
                self.ended = Some(RabbitMqError::ChannelClosed { why });
            }
            Err(_) => {}
        }
    }
}

fn reply(delivery: Delivery) -> Reply {
    let received = Received {
        properties: delivery.properties,
        exchange: delivery.exchange,
        routing_key: delivery.routing_key,
        redelivered: delivery.redelivered,
    };
    let (original, _) = unwrap(received, false);
    let text = |text: &Option<lapin::types::ShortString>| text.as_ref().map(ToString::to_string);
    Reply {
        headers: original.text_headers(),
        correlation_id: text(original.properties.correlation_id()).unwrap_or_default(),
        content_type: text(original.properties.content_type()),
        body: delivery.data.into(),
    }
}
