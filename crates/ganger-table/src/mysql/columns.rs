//! Messages as rows.

use super::value::Value;
use crate::server::delays::delay_ms;
use crate::table::headers;
use ganger_queue::delivery::Outgoing;

/// The columns of a message that is sent, but for its queue or topic.
macro_rules! message {
    () => {
        "body, headers, correlation_id, reply_to, message_id, content_type, `key`, priority, \
         available_after"
    };
}
pub(crate) use message;

/// A place for each value of it.
macro_rules! message_values {
    () => {
        "?, ?, ?, ?, ?, ?, ?, ?, ?"
    };
}
pub(crate) use message_values;

/// A message that is to be a row.
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

    /// Its queue or topic, and what is to be in the columns of a message.
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
