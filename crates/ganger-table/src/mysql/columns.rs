//! Conversion of messages to rows.

use super::value::Value;
use crate::server::delays::delay_ms;
use crate::table::headers;
use ganger_queue::delivery::Outgoing;

/// Columns of a message that is sent, except for its queue or topic.
macro_rules! message {
    () => {
        "body, headers, correlation_id, reply_to, message_id, content_type, `key`, priority, \
         available_after"
    };
}
pub(crate) use message;

/// Placeholders for their values.
macro_rules! message_values {
    () => {
        "?, ?, ?, ?, ?, ?, ?, ?, ?"
    };
}
pub(crate) use message_values;

/// A message that is to be inserted.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) message: &'a Outgoing,
    headers: String,
    delay: i64,
}

impl<'a> Sent<'a> {
    pub(crate) fn of(message: &'a Outgoing) -> Self {
        Self {
            message,
            headers: headers::json(&message.headers),
            delay: delay_ms(message.delay),
        }
    }

    /// Returns the queue or topic, and the values of the other columns.
    pub(crate) fn values(&self) -> Vec<Value<'_>> {
        let message = self.message;
        let id = Some(message.correlation_id.as_str()).filter(|id| !id.is_empty());
        vec![
            Value::from(&message.queue),
            Value::Bytes(&message.body),
            Value::from(&self.headers),
            id.into(),
            message.reply_to.as_deref().into(),
            message.message_id.as_deref().into(),
            message.content_type().into(),
            message.key.as_deref().into(),
            message.priority.into(),
            Value::Later(self.delay),
        ]
    }
}
