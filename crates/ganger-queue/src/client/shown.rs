//! Replies, dead letters and subscriptions in JSON, on the command line and over HTTP.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::contract::{Reply, Subscribed};
use crate::dead_letter::{DeadLetter, DeadReply, rfc_3339};

/// Returns a body for JSON with its field's name: text if it is text, base64 otherwise.
pub fn body(bytes: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_base64", BASE64.encode(bytes)),
    }
}

/// Reads a body that is given as text or in base64, or not at all.
///
/// # Errors
/// If both are given, or `body_base64` is not base64.
pub fn bytes(body: Option<String>, body_base64: Option<String>) -> Result<Option<Bytes>, String> {
    match (body, body_base64) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => {
            let bytes = BASE64.decode(base64);
            let bytes = bytes.map_err(|error| format!("body_base64: {error}"))?;
            Ok(Some(bytes.into()))
        }
        (Some(_), Some(_)) => Err("either body or body_base64, not both".into()),
    }
}

/// A reply in JSON, with `body` or `body_base64`.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Reply)]
pub struct ReplyJson {
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// Correlation id of the request that it answers.
    correlation_id: String,
    /// Headers of the reply.
    headers: BTreeMap<String, String>,
}

impl From<&Reply> for ReplyJson {
    fn from(reply: &Reply) -> Self {
        let (body, body_base64) = text_or_base64(&reply.body);
        Self {
            body,
            body_base64,
            correlation_id: reply.correlation_id.clone(),
            headers: by_name(&reply.headers),
        }
    }
}

impl TryFrom<ReplyJson> for Reply {
    type Error = String;

    fn try_from(shown: ReplyJson) -> Result<Self, String> {
        Ok(Self {
            body: bytes(shown.body, shown.body_base64)?.unwrap_or_default(),
            headers: shown.headers.into_iter().collect(),
            correlation_id: shown.correlation_id,
            content_type: None,
        })
    }
}

/// A dead letter in JSON, a stable form for scripts, with `body` or `body_base64`.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetterJson {
    /// Identifier for retrying or dropping it.
    id: String,
    /// Source that holds it.
    source: String,
    /// Pool that gave up the message.
    pool: String,
    /// Queue that the message came from.
    queue: String,
    /// Kind of failure.
    reason: String,
    /// Description of the failure, in a sentence.
    error: String,
    /// Number of charged attempts.
    attempts: u32,
    /// Number of workers or daemons that the message took down.
    crashes: u32,
    /// Exit code of the worker that died, if it exited by itself.
    exit_code: Option<i32>,
    /// Signal that ended the worker, if one did.
    signal: Option<i32>,
    /// The kernel killed the worker for lack of memory.
    oom: bool,
    /// Last lines that the worker wrote to stderr.
    stderr: Vec<String>,
    /// Time of the first failed attempt, RFC 3339.
    first_failed_at: String,
    /// Time of the last failed attempt, RFC 3339.
    last_failed_at: String,
    /// Correlation id; empty if it has none.
    correlation_id: String,
    /// Queue for the reply.
    reply_to: Option<String>,
    /// Message id set by the producer.
    message_id: Option<String>,
    /// Name of the message in its source and in log records, such as `orders:17`.
    message_name: Option<String>,
    /// MIME type of the body.
    content_type: Option<String>,
    /// Ordering or partition key.
    key: Option<String>,
    /// Priority; higher goes first.
    priority: i64,
    /// Headers of the message.
    headers: BTreeMap<String, String>,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// Length of the whole body in bytes, if only its beginning is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_cut: Option<usize>,
    /// Reply of finished work that could not be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<DeadLetterReplyJson>,
}

/// A reply that could not be delivered, with `body` or `body_base64`.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = UndeliveredReply)]
struct DeadLetterReplyJson {
    /// Queue that the reply was for.
    queue: String,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// Headers of the reply.
    headers: BTreeMap<String, String>,
}

impl DeadLetterJson {
    /// Describes a dead letter in that source.
    pub fn new(source: &str, letter: &DeadLetter) -> Self {
        let (body, body_base64) = text_or_base64(&letter.body);
        let reply = letter.reply.as_ref().map(|reply| {
            let (body, body_base64) = text_or_base64(&reply.body);
            DeadLetterReplyJson {
                queue: reply.queue.clone(),
                body,
                body_base64,
                headers: by_name(&reply.headers),
            }
        });
        Self {
            id: letter.id.clone(),
            source: source.to_owned(),
            pool: letter.pool.clone(),
            queue: letter.queue.clone(),
            reason: letter.reason.clone(),
            error: letter.error.clone(),
            attempts: letter.attempts,
            crashes: letter.crashes,
            exit_code: letter.exit_code,
            signal: letter.signal,
            oom: letter.oom,
            stderr: letter.stderr.clone(),
            first_failed_at: letter.first_failed_at.clone(),
            last_failed_at: letter.last_failed_at.clone(),
            correlation_id: letter.correlation_id.clone(),
            reply_to: letter.reply_to.clone(),
            message_id: letter.message_id.clone(),
            message_name: letter.message_name.clone(),
            content_type: letter.content_type.clone(),
            key: letter.key.clone(),
            priority: letter.priority,
            headers: by_name(&letter.headers),
            body,
            body_base64,
            body_cut: None,
            reply,
        }
    }
}

impl TryFrom<DeadLetterJson> for DeadLetter {
    type Error = String;

    fn try_from(shown: DeadLetterJson) -> Result<Self, String> {
        let reply = shown.reply.map(|reply| {
            Ok::<_, String>(DeadReply {
                queue: reply.queue,
                body: bytes(reply.body, reply.body_base64)?.unwrap_or_default(),
                headers: reply.headers.into_iter().collect(),
            })
        });
        Ok(Self {
            id: shown.id,
            pool: shown.pool,
            queue: shown.queue,
            message_name: shown.message_name,
            reason: shown.reason,
            error: shown.error,
            attempts: shown.attempts,
            crashes: shown.crashes,
            exit_code: shown.exit_code,
            signal: shown.signal,
            oom: shown.oom,
            stderr: shown.stderr,
            first_failed_at: shown.first_failed_at,
            last_failed_at: shown.last_failed_at,
            correlation_id: shown.correlation_id,
            reply_to: shown.reply_to,
            message_id: shown.message_id,
            content_type: shown.content_type,
            key: shown.key,
            priority: shown.priority,
            headers: shown.headers.into_iter().collect(),
            body: bytes(shown.body, shown.body_base64)?.unwrap_or_default(),
            reply: reply.transpose()?,
        })
    }
}

/// A subscription of a queue to a topic.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Subscription)]
pub struct SubscriptionJson {
    /// Source that holds it.
    pub source: String,
    /// Topic.
    pub topic: String,
    /// Queue that gets each message of the topic.
    pub queue: String,
    /// Time of its creation, RFC 3339.
    pub since: String,
    /// The configuration contains it.
    pub configured: bool,
}

impl SubscriptionJson {
    /// Describes a subscription in that source.
    pub fn new(source: &str, subscribed: Subscribed, configured: bool) -> Self {
        Self {
            source: source.to_owned(),
            since: rfc_3339(subscribed.since_ms),
            topic: subscribed.topic,
            queue: subscribed.queue,
            configured,
        }
    }
}

/// Returns a body as text if it is text, otherwise in base64.
pub(super) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match body(bytes) {
        ("body", text) => (Some(text), None),
        (_, base64) => (None, Some(base64)),
    }
}

fn by_name(headers: &[(String, String)]) -> BTreeMap<String, String> {
    headers.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_is_read_as_it_is_shown() {
        let letter = DeadLetter {
            id: "7".to_owned(),
            error: "it failed".to_owned(),
            exit_code: Some(3),
            headers: vec![("tenant".to_owned(), "blue".to_owned())],
            body: Bytes::from_static(&[0xff, 0]),
            reply: Some(DeadReply {
                queue: "answers".to_owned(),
                body: Bytes::from_static(b"text"),
                headers: Vec::new(),
            }),
            ..DeadLetter::default()
        };
        let shown = serde_json::to_string(&DeadLetterJson::new("main", &letter)).unwrap();
        let read: DeadLetterJson = serde_json::from_str(&shown).unwrap();
        assert_eq!(DeadLetter::try_from(read).unwrap(), letter);
    }
}
