//! A dead letter of ours, the reply that belongs to one, and what others, or the broker itself, have
//! put among them: what each says, and how it goes back. Pure.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use crate::broker::rabbitmq::field_table::text;
use crate::broker::rabbitmq::publisher::OutboundMessage;
use crate::broker::rabbitmq::republish::{Marks, Original, check_size, fitting};
use crate::dead_letter::{DeadLetter, DeadReply};

/// The persistent delivery mode.
const PERSISTENT: u8 = 2;

/// What a message of the queue is.
#[derive(Debug)]
pub(super) enum Item {
    /// A dead letter.
    Letter(Box<Found>),
    /// The reply that belongs to the letter with this id, which comes after it.
    Reply(String, DeadReply),
}

/// A dead letter, and the message in it.
#[derive(Debug)]
pub(super) struct Found {
    /// What it says.
    pub(super) letter: DeadLetter,
    /// Its reply is a message of its own.
    pub(super) has_reply_apart: bool,
    pub(super) original: Original,
}

/// What the broker says of how a message came here.
#[derive(Debug, Default)]
pub(super) struct Death {
    pub(super) queue: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) time: Option<String>,
    pub(super) exchange: Option<String>,
    pub(super) routing_key: Option<String>,
}

impl Death {
    /// The last one, which the broker puts first.
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

impl Found {
    /// With the message that it holds.
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

    /// The message on its way back to its queue, with a clean count: as its producer sent it, or,
    /// if something of that would act again, as a copy that keeps it.
    pub(super) fn back(
        &self,
        edit: Option<&Bytes>,
        frame_max: u32,
    ) -> Result<OutboundMessage, String> {
        let queue = &self.letter.queue;
        if queue.is_empty() {
            return Err("it does not say which queue it is from".to_owned());
        }
        let properties = self.properties(queue);
        check_size(&properties, frame_max)?;
        Ok(OutboundMessage {
            to: fitting("queue's name", queue)?,
            mandatory: true,
            properties,
            body: edit.unwrap_or(&self.letter.body).clone(),
        })
    }

    fn properties(&self, queue: &str) -> BasicProperties {
        let original = &self.original;
        let direct = original.exchange.is_empty() && original.routing_key == *queue;
        let bare = original.bare();
        let all = original.properties.clone().with_delivery_mode(PERSISTENT);
        if direct && bare == all {
            return bare;
        }
        original.copied(&Marks::none(queue))
    }
}
