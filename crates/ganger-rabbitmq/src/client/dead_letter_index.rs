//! A dead letter of ganger's own, the reply that belongs to one, and messages that others, or the broker
//! itself, have put among them: their content, and the message to send back. Pure.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use crate::broker::field_table::text;
use crate::broker::publisher::OutboundMessage;
use crate::broker::republish::{Marks, Original, PERSISTENT, check_size, fitting};
use crate::broker::signature::CopyKey;
use ganger_queue::client::RetryTarget;
use ganger_queue::dead_letter::{DeadLetter, DeadReply};

/// Remedy for a dead letter that can't be sent back without a queue.
const NAME_ONE: &str = "name the queue with `--to` (in the API `to`)";

/// Kind of a message in the queue.
#[derive(Debug)]
pub(super) enum Item {
    /// A dead letter.
    DeadLetter(Box<FoundDeadLetter>),
    /// The reply that belongs to the dead letter with this id, which follows it.
    Reply(String, DeadReply),
}

/// A dead letter, and its message.
#[derive(Debug)]
pub(super) struct FoundDeadLetter {
    /// Content of the dead letter.
    pub(super) letter: DeadLetter,
    /// True if its reply is a separate message.
    pub(super) has_reply_apart: bool,
    /// True if the queue that it names is read by a pool whose dead letters these are.
    pub(super) may_go_back: bool,
    pub(super) original: Original,
}

/// The broker's record of the way on which a message was dead-lettered.
#[derive(Debug, Default)]
pub(super) struct Death {
    pub(super) queue: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) time: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) routing_key: Option<String>,
}

impl Death {
    /// The last death, which the broker puts first.
    pub(super) fn of(message: &Original) -> Self {
        let headers = message.properties.headers().as_ref();
        let deaths = headers.and_then(|headers| headers.inner().get("x-death"));
        let Some(AMQPValue::FieldArray(deaths)) = deaths else {
            return Self::default();
        };
        let Some(AMQPValue::FieldTable(last)) = deaths.as_slice().first() else {
            return Self::default();
        };
        let get = |name: &str| last.inner().get(name).map(text);
        let routing_key = match last.inner().get("routing-keys") {
            Some(AMQPValue::FieldArray(keys)) => keys.as_slice().first().map(text),
            _ => None,
        };
        Self {
            queue: get("queue"),
            reason: get("reason"),
            time: get("time"),
            exchange: get("exchange"),
            routing_key,
        }
    }
}

impl FoundDeadLetter {
    /// Adds the message that it contains.
    pub(super) fn with_message(mut self, body: Bytes) -> Self {
        let properties = &self.original.properties;
        let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
        self.letter = DeadLetter {
            correlation_id: text(properties.correlation_id()).unwrap_or_default(),
            reply_to: text(properties.reply_to()),
            message_id: text(properties.message_id()),
            content_type: text(properties.content_type()),
            priority: properties.priority().map_or(0, i64::from),
            headers: self.original.text_headers(),
            body,
            ..self.letter
        };
        self
    }

    /// Message that is sent back, with a count of zero: as its producer sent it, or, if some of its data
    /// would take effect again, as a copy that keeps that data. Any producer may have written its origin: it
    /// is sent there only if one of its pools reads that queue, and otherwise to the queue that the operator
    /// names.
    pub(super) fn back(
        &self,
        target: &RetryTarget,
        frame_max: u32,
        key: &CopyKey,
    ) -> Result<OutboundMessage, String> {
        let queue = match &target.to {
            Some(to) => to,
            None if self.letter.queue.is_empty() => {
                return Err(format!(
                    "it does not name the queue it came from: {NAME_ONE}"
                ));
            }
            None if !self.may_go_back => {
                let from = &self.letter.queue;
                return Err(format!(
                    "it came from `{from}`, which no pool with this dead-letter queue reads: \
                     {NAME_ONE}"
                ));
            }
            None => &self.letter.queue,
        };
        let body = target.body.as_ref().unwrap_or(&self.letter.body).clone();
        let properties = self.properties(queue, &body, key);
        check_size(&properties, frame_max)?;
        Ok(OutboundMessage {
            exchange: ShortString::default(),
            to: fitting("queue's name", queue)?,
            mandatory: true,
            properties,
            body,
        })
    }

    fn properties(&self, queue: &str, body: &[u8], key: &CopyKey) -> BasicProperties {
        let original = &self.original;
        let direct = original.exchange.is_empty() && original.routing_key == *queue;
        let bare = original.bare();
        let all = original.properties.clone().with_delivery_mode(PERSISTENT);
        if direct && bare == all {
            return bare;
        }
        original.copied(&Marks::none(queue), body, key)
    }
}
