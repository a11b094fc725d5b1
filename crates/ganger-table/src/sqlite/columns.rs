//! The columns that a sender fills in, shared by all statements that insert or update a message.

use rusqlite::Statement;

use super::clock::WallClock;
use super::row;
use crate::table::headers;
use ganger_queue::delivery::Outgoing;

/// Names of the columns after that of the queue or topic, in the order of `bind`.
macro_rules! columns {
    () => {
        "body, headers, correlation_id, reply_to, message_id, content_type, key, priority, available_after"
    };
}
/// Parameters of these columns.
macro_rules! values {
    () => {
        "?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10"
    };
}
pub(super) use {columns, values};

/// First parameter that belongs to the statement itself.
pub(super) const OWN: usize = 11;

/// Binds the queue or topic as `?1`, and the columns after it.
pub(super) fn bind(
    statement: &mut Statement<'_>,
    message: &Outgoing,
    clock: &WallClock,
) -> rusqlite::Result<()> {
    let correlation_id = &message.correlation_id;
    statement.raw_bind_parameter(1, &message.queue)?;
    statement.raw_bind_parameter(2, row::body_value(&message.body))?;
    statement.raw_bind_parameter(3, headers::json(&message.headers))?;
    statement.raw_bind_parameter(4, (!correlation_id.is_empty()).then_some(correlation_id))?;
    statement.raw_bind_parameter(5, &message.reply_to)?;
    statement.raw_bind_parameter(6, &message.message_id)?;
    statement.raw_bind_parameter(7, message.content_type())?;
    statement.raw_bind_parameter(8, &message.key)?;
    statement.raw_bind_parameter(9, message.priority)?;
    statement.raw_bind_parameter(10, clock.available_after(message.delay))
}
