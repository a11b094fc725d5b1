//! Messages that wait in a queue, as commands and the admin API list them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::delivery::Headers;

/// Maximum number of messages in a list.
pub const WAITING_MAX: u32 = 500;
/// Default number of messages in a list.
pub const WAITING_DEFAULT: u32 = 50;
/// Maximum bytes of a body in a list.
pub const WAITING_BODY_BYTES: usize = 4 << 10;

/// The first messages that wait in a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitingList {
    /// The messages in the order in which they would be claimed: those that are ready, then those that are delayed,
    /// by the time at which they become ready. Messages in flight are not among them.
    pub messages: Vec<WaitingMessage>,
    /// True if more messages wait.
    pub more: bool,
}

impl WaitingList {
    /// Returns the list of these messages, of which one more than `limit` was read if there are more.
    pub fn of(mut messages: Vec<WaitingMessage>, limit: usize) -> Self {
        let more = messages.len() > limit;
        messages.truncate(limit);
        Self { messages, more }
    }
}

/// A message that waits in a queue, with `body` or `body_base64`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitingMessage {
    /// Name of the message in its source and in log records, by which it can be cancelled: `orders:17` for row 17 of a
    /// table's queue, `orders:3:170` for partition 3, offset 170 of a topic.
    pub id: String,
    /// Time since which it is in the queue, RFC 3339.
    pub created_at: Option<String>,
    /// Time at which it becomes ready if it is delayed, RFC 3339.
    pub available_at: Option<String>,
    /// Priority; higher goes first.
    pub priority: i64,
    /// Number of charged attempts.
    pub attempts: u32,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Message id set by the producer.
    pub message_id: Option<String>,
    /// Correlation id.
    pub correlation_id: Option<String>,
    /// Queue for the reply.
    pub reply_to: Option<String>,
    /// MIME type of the body.
    pub content_type: Option<String>,
    /// Ordering or partition key.
    pub key: Option<String>,
    /// Headers of the message.
    pub headers: BTreeMap<String, String>,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Length of the whole body in bytes, if only its beginning is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_cut: Option<usize>,
}

impl WaitingMessage {
    /// Sets the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers.into_iter().collect();
        self
    }

    /// Sets the body, of which `beginning` was read and which has `bytes` in all. Text is cut between characters.
    #[must_use]
    pub fn with_body(mut self, beginning: &[u8], bytes: usize) -> Self {
        let shown = &beginning[..beginning.len().min(WAITING_BODY_BYTES)];
        self.body_cut = (shown.len() < bytes).then_some(bytes);
        let text = match std::str::from_utf8(shown) {
            Ok(text) => Some(text),
            Err(error) if self.body_cut.is_some() && error.error_len().is_none() => {
                std::str::from_utf8(&shown[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        match text {
            Some(text) => self.body = Some(text.to_owned()),
            None => self.body_base64 = Some(BASE64.encode(shown)),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(beginning: &[u8], bytes: usize) -> WaitingMessage {
        WaitingMessage::default().with_body(beginning, bytes)
    }

    #[test]
    fn a_large_body_is_cut_between_characters() {
        let text = "€".repeat(WAITING_BODY_BYTES);
        let cut = body(text.as_bytes(), text.len());
        let shown = cut.body.unwrap();
        assert_eq!(shown.len(), WAITING_BODY_BYTES / 3 * 3);
        assert!(text.starts_with(&shown));
        assert_eq!(cut.body_cut, Some(text.len()));
        // The source may have cut it before.
        let cut = body(&text.as_bytes()[..10], 12);
        assert_eq!((cut.body.as_deref(), cut.body_cut), (Some("€€€"), Some(12)));
    }

    #[test]
    fn a_body_that_is_no_text_is_in_base64() {
        let whole = body(b"\xffa", 2);
        assert_eq!(whole.body_base64.as_deref(), Some("/2E="));
        assert_eq!((whole.body, whole.body_cut), (None, None));
        let ends_within_a_character = body("a€".as_bytes().get(..2).unwrap(), 2);
        assert_eq!(ends_within_a_character.body, None);
        let large = body(&[0xff; 2 * WAITING_BODY_BYTES], 2 * WAITING_BODY_BYTES);
        assert_eq!(large.body_cut, Some(2 * WAITING_BODY_BYTES));
        assert!(large.body_base64.unwrap().len() < 2 * WAITING_BODY_BYTES);
    }

    #[test]
    fn a_list_ends_at_its_limit() {
        let messages = vec![WaitingMessage::default(); 3];
        let list = WaitingList::of(messages.clone(), 2);
        assert_eq!((list.messages.len(), list.more), (2, true));
        assert!(!WaitingList::of(messages, 3).more);
    }
}
