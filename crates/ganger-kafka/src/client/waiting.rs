//! Messages that wait in a topic: those that the group has not committed. Reading them joins no group and commits
//! nothing. Messages that wait in a tier for their next attempt are not among them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::reader::{Reader, Span, Stored};
use crate::broker::error::KafkaError;
use crate::broker::headers::{self, CONTENT_TYPE, CORRELATION_ID, MESSAGE_ID, REPLY_TO};
use crate::broker::record::Record;
use ganger_queue::client::{WaitingList, WaitingMessage};
use ganger_queue::dead_letter::rfc_3339;

/// Maximum bytes that are read for a list: of large messages it has fewer.
const READ_BYTES_MAX: usize = 16 << 20;

/// Returns the first offsets of each range, at most so many.
fn first(spans: &BTreeMap<i32, Span>, most: usize) -> BTreeMap<i32, Span> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let first = spans.iter().map(|(partition, span)| {
        let end = span.end.min(span.from.saturating_add(most));
        (*partition, Span { end, ..*span })
    });
    first.collect()
}

/// Lists the first messages of these ranges of a topic, by their timestamps.
pub(super) fn list(
    reader: &Reader,
    topic: &str,
    open: &BTreeMap<i32, Span>,
    limit: usize,
) -> Result<WaitingList, KafkaError> {
    let asked = first(open, limit + 1);
    let (mut read, mut bytes) = (Vec::new(), 0);
    reader.read(topic, &asked, |stored| {
        let at = (stored.timestamp_ms, stored.partition, stored.offset);
        let record = record(topic, stored);
        bytes += record.bytes();
        read.push((at, waiting(&record)));
        match bytes < READ_BYTES_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    read.sort_by_key(|(at, _)| *at);
    let messages = read.into_iter().map(|(_, message)| message).collect();
    let mut list = WaitingList::of(messages, limit);
    // Offsets that were not asked for are left, although some of those before may have no record.
    list.more |= asked != *open || bytes >= READ_BYTES_MAX;
    Ok(list)
}

fn record(topic: &str, stored: Stored) -> Record {
    let place = (stored.partition, stored.offset);
    let contents = (stored.key, stored.value);
    Record::read(
        &topic.into(),
        place,
        Some(stored.timestamp_ms),
        contents,
        stored.headers,
    )
}

fn waiting(record: &Record) -> WaitingMessage {
    let message = record.message();
    let given = |name| headers::find(&record.headers, name).filter(|value| !value.is_empty());
    let shown = WaitingMessage {
        id: record.name(),
        created_at: record.timestamp_ms.filter(|ms| *ms > 0).map(rfc_3339),
        message_id: given(MESSAGE_ID),
        correlation_id: given(CORRELATION_ID),
        reply_to: given(REPLY_TO),
        content_type: given(CONTENT_TYPE),
        key: record.key.as_ref().map(|key| headers::text(Some(key))),
        ..WaitingMessage::default()
    };
    let shown = shown.with_headers(message.headers);
    shown.with_body(&message.body, message.body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_each_partition_are_read() {
        let spans = BTreeMap::from([
            (0, Span { from: 5, end: 7 }),
            (
                1,
                Span {
                    from: 5,
                    end: i64::MAX,
                },
            ),
        ]);
        let expected =
            BTreeMap::from([(0, Span { from: 5, end: 7 }), (1, Span { from: 5, end: 8 })]);
        assert_eq!(first(&spans, 3), expected);
    }

    #[test]
    fn a_record_is_shown_as_a_worker_gets_it() {
        let stored = Stored {
            partition: 3,
            offset: 170,
            timestamp_ms: 1000,
            key: Some(vec![0xff].into()),
            value: None,
            headers: vec![
                (CORRELATION_ID.to_owned(), Some("c".into())),
                ("x-ganger-span".to_owned(), Some("s".into())),
            ],
        };
        let shown = waiting(&record("orders", stored));
        assert_eq!(shown.id, "orders:3:170");
        assert_eq!(shown.created_at.as_deref(), Some("1970-01-01T00:00:01Z"));
        assert_eq!(shown.correlation_id.as_deref(), Some("c"));
        assert_eq!(shown.key.as_deref(), Some("/w=="));
        assert_eq!((shown.body.as_deref(), shown.headers.len()), (Some(""), 1));
    }
}
