//! A message with all that AMQP lets it have.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use ring::digest::{SHA256, digest};
use ring::{hmac, pbkdf2};

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

    /// Signed as a copy by a daemon with this password. Daemons of other releases know such copies: what
    /// is signed, and how, never changes.
    pub(crate) fn signed(self, password: &str) -> Self {
        let salt = b"ganger: copies of messages";
        let rounds = NonZeroU32::new(10_000).unwrap();
        let mut key = [0; 32];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut key);
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for (name, value) in &self.headers() {
            if name.as_str().starts_with("x-ganger-") {
                let AMQPValue::LongString(value) = value else {
                    panic!("{name} is no text: {value:?}");
                };
                parts.extend([name.as_str().into(), value.as_bytes().into()]);
            }
        }
        let of_the_message = [
            self.properties.correlation_id(),
            self.properties.reply_to(),
            self.properties.message_id(),
        ];
        let short = |part: &Option<ShortString>| part.clone().unwrap_or_default();
        parts.extend(of_the_message.map(|part| short(part).as_str().into()));
        parts.push(digest(&SHA256, &self.body).as_ref().into());
        let with_length = |part: &Vec<u8>| [&part.len().to_be_bytes(), &part[..]].concat();
        let signed: Vec<u8> = parts.iter().flat_map(with_length).collect();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed);
        self.header("x-ganger-signature", text(&BASE64.encode(tag)))
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
