//! A message with all that AMQP lets it have.

use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};

use super::client::text;

/// Stored on disk.
const PERSISTENT: u8 = 2;

/// The message, to be published or taken from a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Letter {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
    /// Whether the broker had handed it to somebody before.
    pub(crate) redelivered: bool,
}

impl Letter {
    /// A persistent one for a queue.
    pub(crate) fn new(queue: &str, body: impl AsRef<[u8]>) -> Self {
        Self {
            exchange: String::new(),
            routing_key: queue.into(),
            body: body.as_ref().into(),
            properties: BasicProperties::default().with_delivery_mode(PERSISTENT),
            redelivered: false,
        }
    }

    /// For an exchange.
    pub(crate) fn through(mut self, exchange: &str, key: &str) -> Self {
        self.exchange = exchange.into();
        self.routing_key = key.into();
        self
    }

    /// With other properties.
    pub(crate) fn with(mut self, set: impl FnOnce(BasicProperties) -> BasicProperties) -> Self {
        self.properties = set(self.properties);
        self
    }

    pub(crate) fn header(self, name: &str, value: AMQPValue) -> Self {
        let mut headers = self.headers();
        headers.insert(name.into(), value);
        self.with(|properties| properties.with_headers(headers))
    }

    pub(crate) fn reply_to(self, queue: &str) -> Self {
        self.with(|properties| properties.with_reply_to(queue.into()))
    }

    pub(crate) fn correlation_id(self, id: &str) -> Self {
        self.with(|properties| properties.with_correlation_id(id.into()))
    }

    /// Its headers; empty where it has none.
    pub(crate) fn headers(&self) -> FieldTable {
        self.properties.headers().clone().unwrap_or_default()
    }

    /// One of them.
    pub(crate) fn value(&self, name: &str) -> Option<AMQPValue> {
        self.headers().inner().get(name).cloned()
    }

    /// Whether it has a header that is this text.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.value(name) == Some(text(value))
    }

    /// A header that must be a text; empty where there is none.
    pub(crate) fn word(&self, name: &str) -> String {
        match self.value(name) {
            None => String::new(),
            Some(AMQPValue::LongString(text)) => text.to_string(),
            Some(other) => panic!("{name} is no text: {other:?}"),
        }
    }

    /// Its correlation id; empty where it has none.
    pub(crate) fn id(&self) -> &str {
        let id = self.properties.correlation_id();
        id.as_ref().map_or("", |id| id.as_str())
    }

    /// Its body, which must be text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl From<Delivery> for Letter {
    fn from(delivery: Delivery) -> Self {
        Self {
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            body: delivery.data,
            properties: delivery.properties,
            redelivered: delivery.redelivered,
        }
    }
}
