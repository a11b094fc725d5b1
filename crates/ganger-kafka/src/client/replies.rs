//! Answers to the messages that a command has sent. Kafka has no place of its own for them, so a topic
//! is created for one command, and deleted when the command ends. If the command is killed the topic
//! stays; its content is deleted after an hour.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::reader::{Reader, Stored};
use crate::broker::error::KafkaError;
use crate::broker::{headers, topics};
use ganger_config::model::KafkaSource;
use ganger_core::names::REPLY_TOPICS;
use ganger_queue::client::{Answers, Reply};

/// A topic for answers, and the answers received.
#[derive(Debug)]
pub(super) struct Replies {
    config: KafkaSource,
    topic: String,
    reader: Reader,
    received: Answers,
    /// Error after which nothing more can be read.
    error: Option<KafkaError>,
}

impl Replies {
    /// Creates the topic.
    pub(super) fn open(
        config: &KafkaSource,
        runtime: &Runtime,
        unique: &str,
    ) -> Result<Self, KafkaError> {
        let topic = format!("{REPLY_TOPICS}{unique}");
        let reader = Reader::open(config)?;
        runtime.block_on(topics::create_for_replies(config, &topic, reader.native()))?;
        reader.follow(&topic, 0)?;
        Ok(Self {
            config: config.clone(),
            topic,
            reader,
            received: Answers::default(),
            error: None,
        })
    }

    /// Returns the topic's name.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Takes the oldest answer with this correlation id, if one has come.
    pub(super) fn take(&mut self, correlation_id: &str) -> Result<Option<Reply>, KafkaError> {
        match (self.received.take(correlation_id), self.error.take()) {
            (None, Some(error)) => Err(error),
            (reply, _) => Ok(reply),
        }
    }

    /// Waits until an answer has arrived, or for `longest`.
    pub(super) fn wait(&mut self, longest: Duration) {
        match self.reader.next(longest) {
            Ok(Some(stored)) => self.received.push(reply(stored)),
            Ok(None) => {}
            Err(error) if error.is_transient() => tracing::debug!(%error, "replies can't be read"),
            Err(error) => self.error = Some(error),
        }
    }

    /// Deletes the topic.
    pub(super) fn remove(self, runtime: &Runtime) {
        let deleted = runtime.block_on(topics::delete(&self.config, &self.topic));
        if let Err(error) = deleted {
            tracing::warn!(topic = self.topic, %error, "topic for replies could not be deleted");
        }
    }
}

fn reply(stored: Stored) -> Reply {
    let raw = headers::not_ours(&stored.headers);
    Reply {
        correlation_id: headers::find(&raw, headers::CORRELATION_ID).unwrap_or_default(),
        content_type: headers::find(&raw, headers::CONTENT_TYPE),
        headers: headers::all_as_text(&raw),
        body: stored.value.unwrap_or_default(),
    }
}
