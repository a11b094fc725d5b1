//! Guard against records that librdkafka has emptied. Versions 2.5 to 2.15 read the keys and values of
//! the legacy formats (before Kafka 0.11) as null; the bundled one is corrected (`legacy_records.c`),
//! but with another one linked such a record must not pass for an empty message and be completed and
//! committed.

use rdkafka::bindings::rd_kafka_message_leader_epoch;
use rdkafka::message::{BorrowedMessage, Message as _};

/// Problem reported for such a record.
pub(crate) const PROBLEM: &str = "a record of the legacy format (before Kafka 0.11) without key and \
    value: librdkafka 2.5 to 2.15 hand out any such record so, unless they are corrected as in a ganger \
    that is built with its own. If this one is really empty, set the group's offset past it while the \
    daemon is stopped";

/// Returns whether a record may have been emptied: it holds nothing at all, and its format is one
/// without the leader epoch, which brokers write into every batch of the format that came next.
pub(crate) fn is_emptied(message: &BorrowedMessage<'_>) -> bool {
    let is_empty = message.key().is_none() && message.payload().is_none();
    is_empty && message.headers().is_none() && leader_epoch(message) < 0
}

#[expect(
    unsafe_code,
    reason = "rdkafka does not hand this number on; librdkafka reads it out of a message that is borrowed here"
)]
fn leader_epoch(message: &BorrowedMessage<'_>) -> i32 {
    // SAFETY: the pointer is that of a message that lives as long as the borrow.
    unsafe { rd_kafka_message_leader_epoch(message.ptr()) }
}
