//! Messages as rows, and times as the server tells them.

use std::time::Duration;

use super::value::Value;
use crate::broker::table::headers;
use crate::delivery::Outgoing;

/// Further off than anybody waits, and far from the end of the numbers.
const DELAY_MS_MAX: i64 = 1 << 52;

/// Now by the server's clock, whatever its time zone, rounded down, which never makes anything due too
/// early.
macro_rules! now_ms {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000"
    };
}
pub(crate) use now_ms;

/// When a message falls due that stays away for so many milliseconds, which are two values of the
/// statement: 0 for not at all, so that a clock that is set back hides no message that was never delayed.
/// Rounded up: never early.
macro_rules! available_after {
    () => {
        concat!("IF(? = 0, 0, ", now_ms!(), " + 1 + ?)")
    };
}
pub(crate) use available_after;

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
        concat!("?, ?, ?, ?, ?, ?, ?, ?, ", available_after!())
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

    /// How much it adds to a statement, about.
    pub(crate) fn bytes(&self) -> usize {
        self.message.bytes() + self.headers.len()
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
            message.content_type.as_deref().into(),
            message.key.as_deref().into(),
            message.priority.into(),
            self.delay.into(),
            self.delay.into(),
        ]
    }
}

/// In milliseconds.
pub(crate) fn delay_ms(delay: Duration) -> i64 {
    // Rounded up: never early.
    let delay = delay.saturating_add(Duration::from_nanos(999_999));
    i64::try_from(delay.as_millis()).map_or(DELAY_MS_MAX, |delay| delay.min(DELAY_MS_MAX))
}
