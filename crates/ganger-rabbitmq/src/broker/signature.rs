//! The signature of a copy. Any producer can write the headers by which a copy records its message's origin
//! and history; only the owner of the source's secret can sign them.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};
use ring::{hmac, pbkdf2};

use super::field_table::{long, text};
use super::republish::kept;
use super::returned;
use ganger_config::model::RabbitMqSource;
use ganger_queue::dead_letter::header;

/// Header with the signature: HMAC-SHA256 in base64.
pub(crate) const HEADER: &str = "x-ganger-signature";

/// Ganger's own headers that are not signed: they are added to a copy that is signed already.
const UNSIGNED: [&str; 4] = [HEADER, returned::HEADER, kept::PASS, kept::PRIORITY];

/// Rounds of the key derivation, which make it slow to guess the password from signatures.
const ROUNDS: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");
const SALT: &[u8] = b"ganger: copies of messages";

/// Key by which the daemons of a source recognise each other's copies.
#[derive(Debug, Clone)]
pub(crate) struct CopyKey {
    key: hmac::Key,
    /// True if unsigned messages are accepted as copies, too.
    takes_unsigned: bool,
}

impl CopyKey {
    /// Derives the key of a source from its signing secret, or from its password.
    pub(crate) fn of(source: &RabbitMqSource) -> Self {
        let secret = source.signing_secret.as_ref().unwrap_or(&source.password);
        Self {
            takes_unsigned: source.unsigned_copies,
            ..Self::from_secret(secret.expose())
        }
    }

    /// Derives the key from this secret.
    pub(crate) fn from_secret(secret: &str) -> Self {
        let mut key = [0; 32];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, ROUNDS, SALT, secret.as_bytes(), &mut key);
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            takes_unsigned: false,
        }
    }

    /// Signs a copy with this body.
    pub(crate) fn sign(&self, copy: BasicProperties, body: &[u8]) -> BasicProperties {
        let tag = hmac::sign(&self.key, &signed(&copy, body));
        let mut headers = copy.headers().clone().unwrap_or_default();
        headers.insert(HEADER.into(), long(&BASE64.encode(tag)));
        copy.with_headers(headers)
    }

    /// Returns whether a message is a copy made by a daemon.
    pub(crate) fn knows(&self, message: &BasicProperties, body: &[u8]) -> bool {
        let Some(headers) = message.headers() else {
            return false;
        };
        let Some(tag) = headers.inner().get(HEADER) else {
            return self.takes_unsigned && headers.contains_key(header::QUEUE);
        };
        let tag = BASE64.decode(text(tag));
        tag.is_ok_and(|tag| hmac::verify(&self.key, &signed(message, body), &tag).is_ok())
    }
}

/// Signed data: ganger's headers, the data that identifies the message, and the body's hash. The broker
/// leaves these unchanged; other headers and properties may be its own, or a plugin's.
fn signed(message: &BasicProperties, body: &[u8]) -> Vec<u8> {
    let mut signed = Vec::with_capacity(512);
    let mut add = |part: &[u8]| {
        signed.extend_from_slice(&part.len().to_be_bytes());
        signed.extend_from_slice(part);
    };
    let is_signed = |(name, _): &(&ShortString, &AMQPValue)| {
        kept::is_own(name.as_str()) && !UNSIGNED.contains(&name.as_str())
    };
    for (name, value) in message.headers().iter().flatten().filter(is_signed) {
        add(name.as_str().as_bytes());
        add(text(value).as_bytes());
    }
    for property in [
        message.correlation_id(),
        message.reply_to(),
        message.message_id(),
    ] {
        add(property.as_ref().map_or("", ShortString::as_str).as_bytes());
    }
    add(ring::digest::digest(&ring::digest::SHA256, body).as_ref());
    signed
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;

    fn copy() -> BasicProperties {
        let mut headers = FieldTable::default();
        headers.insert(header::QUEUE.into(), long("work"));
        headers.insert(kept::USER_ID.into(), long("alice"));
        headers.insert("tenant".into(), long("blue"));
        BasicProperties::default()
            .with_headers(headers)
            .with_message_id("m".into())
    }

    fn with(copy: &BasicProperties, name: &str, value: &str) -> BasicProperties {
        let mut headers = copy.headers().clone().unwrap();
        headers.insert(name.into(), long(value));
        copy.clone().with_headers(headers)
    }

    #[test]
    fn a_copy_is_known_by_who_has_the_secret() {
        let key = CopyKey::from_secret("hunter2");
        let signed = key.sign(copy(), b"body");
        assert!(key.knows(&signed, b"body"));
        let again = CopyKey::from_secret("hunter2");
        assert!(again.knows(&signed, b"body"), "of another daemon");
        let others = CopyKey::from_secret("hunter3");
        assert!(!others.knows(&signed, b"body"));
        assert!(!key.knows(&copy(), b"body"), "it is not signed");
        assert!(!key.knows(&with(&copy(), HEADER, "\u{fc}"), b"body"));
    }

    #[test]
    fn copies_of_versions_that_did_not_sign_are_known_where_that_is_said() {
        let key = CopyKey {
            takes_unsigned: true,
            ..CopyKey::from_secret("hunter2")
        };
        assert!(key.knows(&copy(), b"body"));
        assert!(!key.knows(&BasicProperties::default(), b"body"));
        let others = CopyKey::from_secret("hunter3").sign(copy(), b"body");
        assert!(!key.knows(&others, b"body"));
    }

    #[test]
    fn a_signature_is_for_one_message_and_all_that_we_say_of_it() {
        let key = CopyKey::from_secret("hunter2");
        let signed = key.sign(copy(), b"body");
        assert!(!key.knows(&signed, b"another body"));
        for forged in [
            with(&signed, header::QUEUE, "play"),
            with(&signed, kept::USER_ID, "bob"),
            with(&signed, header::ATTEMPTS, "7"),
            signed.clone().with_message_id("n".into()),
            signed.clone().with_reply_to("mine".into()),
            signed.clone().with_correlation_id("m".into()),
        ] {
            assert!(!key.knows(&forged, b"body"), "{forged:?}");
        }
    }

    #[test]
    fn what_is_written_on_a_copy_on_its_way_leaves_its_signature() {
        let key = CopyKey::from_secret("hunter2");
        let signed = key.sign(copy(), b"body");
        for (name, value) in [
            ("x-delivery-count", "1"),
            ("x-routed-by", "rabbit@one"),
            (kept::PASS, "7"),
            (kept::PRIORITY, "3"),
            (returned::HEADER, "9"),
        ] {
            let later = with(&signed, name, value).with_timestamp(5);
            assert!(key.knows(&later, b"body"), "{name}");
        }
    }
}
