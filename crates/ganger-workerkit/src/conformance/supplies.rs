//! Messages for testing a worker: those that its author says it understands, or any text.

use std::sync::Arc;

use bytes::Bytes;

use ganger_queue::delivery::{Headers, Message, Property};

/// Body of a message if nothing is known of those that the worker understands.
const ANY_TEXT: &str = "ganger worker check";

/// Queue for replies that name none: a worker does not see it.
const REPLIES: &str = "check.replies";

/// Messages that the worker understands.
#[derive(Debug, Clone, Default)]
pub struct Supplies {
    /// Bodies, in turn; none for any text.
    pub bodies: Vec<Bytes>,
    /// A body that takes the worker a while.
    pub slow: Option<Bytes>,
    /// Headers of every message.
    pub headers: Headers,
    /// Name of the queue of the messages.
    pub queue: String,
}

impl Supplies {
    /// Returns whether all bodies are text, as a version 1 worker requires.
    pub fn are_text(&self) -> bool {
        let mut bodies = self.bodies.iter().chain(&self.slow);
        bodies.all(|body| std::str::from_utf8(body).is_ok())
    }

    /// Returns the message of that number.
    pub(super) fn message(&self, number: usize) -> Message {
        let body = match self.bodies.len() {
            0 => Bytes::from_static(ANY_TEXT.as_bytes()),
            bodies => self.bodies[number % bodies].clone(),
        };
        self.with(body)
    }

    /// Returns this number of messages.
    pub(super) fn messages(&self, count: usize) -> Vec<Message> {
        (0..count).map(|number| self.message(number)).collect()
    }

    /// Returns the message that takes a while, if there is one.
    pub(super) fn slow(&self) -> Message {
        match &self.slow {
            Some(body) => self.with(body.clone()),
            None => self.message(0),
        }
    }

    fn with(&self, body: Bytes) -> Message {
        Message {
            queue: Arc::from(self.queue.as_str()),
            body,
            headers: self.headers.clone(),
            correlation_id: String::new(),
            reply_to: Some(REPLIES.to_owned()),
            properties: vec![("message_id", Property::Text("check-1".into()))],
            occurrence: None,
        }
    }
}
