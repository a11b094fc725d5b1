//! Identity of a message for the recognition of repetitions. Pure.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use ganger_config::model::MessageKey;
use ganger_core::names::EMIT_ID_HEADER;
use ganger_queue::delivery::{Delivery, Identity, Message};

/// Maximum bytes of a text that is stored as it is: a database can index it, and no broker has longer
/// ids.
const BYTES_MAX: usize = 255;

/// Returns a message's identity; none if it lacks the configured key.
pub(super) fn identity(delivery: &Delivery, key: &MessageKey) -> Option<Identity> {
    let message = &delivery.message;
    let text = match key {
        MessageKey::MessageId => message.text("message_id"),
        MessageKey::CorrelationId => Some(message.correlation_id.as_str()),
        MessageKey::Header(name) => header(message, name),
    };
    let text = text.filter(|text| !text.is_empty())?;
    Some(Identity {
        queue: Arc::clone(&message.queue),
        key: bounded(text),
        emit: header(message, EMIT_ID_HEADER).map_or_else(String::new, bounded),
        step: delivery.history.step,
    })
}

/// Returns the identity of a message whose key belongs to another one, by the hash of its body.
pub(super) fn with_body(identity: &Identity, body: &str) -> Identity {
    Identity {
        key: bounded(&format!("{} sha256:{body}", identity.key)),
        ..identity.clone()
    }
}

/// Returns the hash of a message's body.
pub(super) fn body_hash(message: &Message) -> String {
    hex(&message.body)
}

fn hex(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let mut headers = message.headers.iter();
    let found = headers.find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
}

/// Returns the text, or its hash if a database could not index or store it.
fn bounded(text: &str) -> String {
    if text.len() <= BYTES_MAX && !text.contains('\0') {
        return text.to_owned();
    }
    format!("sha256:{}", hex(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_queue::delivery::{History, Property, link};

    /// Returns the identity of a message with that id, correlation id and headers.
    fn known(
        id: &str,
        correlation_id: &str,
        headers: &[(&str, &str)],
        key: &str,
    ) -> Option<Identity> {
        let (end, mut pool) = link();
        let pairs = headers.iter();
        let message = Message {
            queue: "q".into(),
            body: bytes::Bytes::new(),
            headers: pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            correlation_id: correlation_id.to_owned(),
            reply_to: None,
            properties: vec![("message_id", Property::Text(id.to_owned()))],
            occurrence: None,
        };
        let history = History {
            step: 3,
            ..History::default()
        };
        end.deliver(1, message, history);
        let key = match key {
            "message_id" => MessageKey::MessageId,
            "correlation_id" => MessageKey::CorrelationId,
            name => MessageKey::Header(name.to_owned()),
        };
        identity(&pool.deliveries.try_recv().unwrap(), &key)
    }

    #[test]
    fn each_kind_of_key() {
        let of = |key: &str| Identity {
            queue: "q".into(),
            key: key.to_owned(),
            emit: String::new(),
            step: 3,
        };
        let headers = [("order", "7"), ("none", "")];
        for (key, expected) in [
            ("message_id", Some(of("m"))),
            ("correlation_id", Some(of("c"))),
            ("order", Some(of("7"))),
            ("none", None),
            ("Order", None),
            ("other", None),
        ] {
            assert_eq!(known("m", "c", &headers, key), expected, "{key}");
        }
        assert_eq!(known("", "", &headers, "message_id"), None);
        assert_eq!(known("", "", &headers, "correlation_id"), None);
    }

    #[test]
    fn the_emits_of_a_task_are_told_apart() {
        let emit = |name| {
            let headers = [("order", "7"), (EMIT_ID_HEADER, name)];
            known("", "", &headers, "order").unwrap()
        };
        assert_ne!(emit("q:1:1"), emit("q:1:2"));
        assert_eq!(emit("q:1:1"), emit("q:1:1"));
    }

    #[test]
    fn what_no_database_could_index_is_known_by_its_hash() {
        assert_eq!(bounded("ä"), "ä");
        assert_eq!(bounded(&"x".repeat(255)), "x".repeat(255));
        let hashed = [bounded(&"x".repeat(256)), bounded("a\0b"), bounded("a\0c")];
        assert!(
            hashed
                .iter()
                .all(|key| key.starts_with("sha256:") && key.len() == 71)
        );
        assert!(hashed[0] != hashed[1] && hashed[1] != hashed[2]);
    }
}
