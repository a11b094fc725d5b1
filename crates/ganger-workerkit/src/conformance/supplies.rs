//! The messages that a worker is tried with: what its author says that it understands, or any text.

use std::sync::Arc;

use bytes::Bytes;

use ganger_queue::delivery::{Headers, Message, Property};

/// What a worker is sent that says nothing of what it understands.
const ANY_TEXT: &str = "ganger worker check";

/// Where replies would go that name no queue: a worker does not see it.
const REPLIES: &str = "check.replies";

/// What the worker understands.
#[derive(Debug, Clone, Default)]
pub struct Supplies {
    /// Bodies, in turn; none for any text.
    pub bodies: Vec<Bytes>,
    /// A body that takes the worker a while.
    pub slow: Option<Bytes>,
    /// Headers of every message.
    pub headers: Headers,
    /// The queue that they come from.
    pub queue: String,
}

impl Supplies {
    /// Whether a version 1 worker may have them.
    pub fn are_text(&self) -> bool {
        let mut bodies = self.bodies.iter().chain(&self.slow);
        bodies.all(|body| std::str::from_utf8(body).is_ok())
    }

    /// The message of that number.
    pub(super) fn message(&self, number: usize) -> Message {
        let body = match self.bodies.len() {
            0 => Bytes::from_static(ANY_TEXT.as_bytes()),
            bodies => self.bodies[number % bodies].clone(),
        };
        self.with(body)
    }

    /// So many of them.
    pub(super) fn messages(&self, count: usize) -> Vec<Message> {
        (0..count).map(|number| self.message(number)).collect()
    }

    /// One that takes a while, if there is such.
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
        }
    }
}
