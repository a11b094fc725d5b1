//! A message as received, and as published.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::names::{CONTENT_ENCODING_HEADER, CONTENT_TYPE_HEADER};

/// Header names and values, in the order in which the source gave them.
pub type Headers = Vec<(String, String)>;

/// A message as its source delivered it. The source keeps whatever else it needs to copy or
/// acknowledge it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Queue or topic that it was read from.
    pub queue: Arc<str>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Every header in its text form, those of ganger itself left out.
    pub headers: Headers,
    /// Correlation id; empty where the message has none.
    pub correlation_id: String,
    /// Queue for the reply, unless the worker names another.
    pub reply_to: Option<String>,
    /// Properties passed to version 2 workers: message id, content type, row id and the like.
    pub properties: Vec<(&'static str, Property)>,
    /// Occurrence in a ledger that it belongs to, by a header of ganger's own. Workers don't see it.
    pub occurrence: Option<Arc<str>>,
}

impl Message {
    /// Returns a property that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.property(name)? {
            Property::Text(text) => Some(text),
            Property::Integer(_) | Property::Boolean(_) | Property::Bytes(_) => None,
        }
    }

    /// Returns a property that is a whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.property(name)? {
            Property::Integer(integer) => Some(*integer),
            Property::Text(_) | Property::Boolean(_) | Property::Bytes(_) => None,
        }
    }

    fn property(&self, name: &str) -> Option<&Property> {
        let mut properties = self.properties.iter();
        let found = properties.find(|(other, _)| *other == name);
        found.map(|(_, value)| value)
    }

    /// Returns a message that continues it, with nothing set yet: its correlation id, reply-to and
    /// other properties are kept, so that the last step of a long task still answers the first
    /// caller.
    pub fn continued(&self) -> Outgoing {
        let text = |name| self.text(name).map(ToOwned::to_owned);
        let priority = self.integer("priority").map(i32::try_from);
        Outgoing {
            correlation_id: self.correlation_id.clone(),
            reply_to: self.reply_to.clone(),
            message_id: text("message_id"),
            content_type: text("content_type"),
            key: text("key"),
            priority: priority.and_then(Result::ok).unwrap_or(0),
            ..Outgoing::default()
        }
    }
}

/// One value of [`Message::properties`].
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Yes or no.
    Boolean(bool),
    /// Bytes that need not be text, such as a Kafka key.
    Bytes(Bytes),
}

/// A message to be published: a reply, an emit, or one from `ganger send`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outgoing {
    /// Destination queue; the routing key if there is an exchange.
    pub queue: String,
    /// Exchange of RabbitMQ that routes it; none for the queue itself.
    pub exchange: Option<String>,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Its headers.
    pub headers: Headers,
    /// Correlation id; empty where it has none.
    pub correlation_id: String,
    /// Destination queue of a reply to it.
    pub reply_to: Option<String>,
    /// Id of the message, given by the producer.
    pub message_id: Option<String>,
    /// The MIME type of the body, unless a header says it.
    pub content_type: Option<String>,
    /// The ordering or partition key.
    pub key: Option<String>,
    /// Priority; higher goes first.
    pub priority: i32,
    /// Delay before consumers may see it; zero for none.
    pub delay: Duration,
}

impl Outgoing {
    /// Returns the MIME type of the body: that of its header, otherwise the property.
    pub fn content_type(&self) -> Option<&str> {
        let header = self.header(CONTENT_TYPE_HEADER);
        let said = header.or(self.content_type.as_deref());
        said.filter(|kind| !kind.is_empty())
    }

    /// Returns the encoding of the body, by its header.
    pub fn content_encoding(&self) -> Option<&str> {
        let said = self.header(CONTENT_ENCODING_HEADER);
        said.filter(|encoding| !encoding.is_empty())
    }

    /// Returns the last value of a header, whatever the case of its name.
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter().rev();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns its size when written, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = [
            &self.exchange,
            &self.reply_to,
            &self.message_id,
            &self.content_type,
            &self.key,
        ];
        let texts = texts.into_iter().flatten().map(String::len);
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len());
        let names = self.queue.len() + self.correlation_id.len();
        self.body.len() + names + texts.sum::<usize>() + headers.sum::<usize>()
    }
}
