//! A message of Kafka inside the daemon: as it was read, with its history; as a worker gets it; and its
//! copies for a tier and for the dead letters. Pure.

use std::sync::Arc;

use bytes::Bytes;

use super::commit_metadata::Tried;
use super::headers;
use super::headers::Raw;
use ganger_core::names::{ATTEMPTS_MAX_HEADER, KEPT_HEADERS, OCCURRENCE_HEADER, STEP_HEADER};
use ganger_queue::attempts;
use ganger_queue::dead_letter::{Counters, OwnHeaders, SeparateReply, header, reply_key};
use ganger_queue::delivery::{History, Message, Property, Reason, write_numbers};

/// A message that was read and is not done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Topic that the pool reads; not that of a tier.
    pub(crate) topic: Arc<str>,
    /// Original partition in that topic.
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<Bytes>,
    /// Value; none for a tombstone.
    pub(crate) value: Option<Bytes>,
    /// Headers without ganger's own, except the step.
    pub(crate) headers: Raw,
    pub(crate) counters: Counters,
    /// True if it runs alone in its worker.
    pub(crate) suspect: bool,
}

/// A record to publish.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Outbound {
    pub(crate) topic: String,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Raw,
    /// Timestamp; none for the current time.
    pub(crate) timestamp_ms: Option<i64>,
    /// True to compress it as much as possible: only ganger reads it, or it fits in no other way.
    pub(crate) compressed: bool,
}

impl Outbound {
    /// Size charged against the memory limits.
    pub(crate) fn bytes(&self) -> usize {
        bytes(self.key.as_ref(), self.value.as_ref(), &self.headers)
    }
}

fn bytes(key: Option<&Bytes>, value: Option<&Bytes>, headers: &Raw) -> usize {
    /// Overhead of a record beside its contents.
    const RECORD: usize = 256;
    const HEADER: usize = 64;
    let length = |bytes: Option<&Bytes>| bytes.map_or(0, Bytes::len);
    let header =
        |(name, value): &(String, Option<Bytes>)| HEADER + name.len() + length(value.as_ref());
    RECORD + length(key) + length(value) + headers.iter().map(header).sum::<usize>()
}

impl Record {
    /// Reads a record from the pool's own topic, where any producer may have written ganger's headers:
    /// they are ignored.
    pub(crate) fn read(
        topic: &Arc<str>,
        (partition, offset): (i32, i64),
        timestamp_ms: Option<i64>,
        (key, value): (Option<Bytes>, Option<Bytes>),
        raw: Raw,
    ) -> Self {
        Self {
            topic: Arc::clone(topic),
            partition,
            offset,
            timestamp_ms,
            key,
            value,
            headers: match raw.is_empty() {
                true => raw,
                false => headers::not_ours(&raw),
            },
            counters: Counters::default(),
            suspect: false,
        }
    }

    /// Restores the data that a copy in a tier carries in addition to the message: its origin and its
    /// history. Only its group writes to a tier.
    pub(crate) fn restore(mut self, raw: &Raw) -> Self {
        self.counters = Counters::read(&headers::all_as_text(raw));
        self.partition = headers::number(raw, headers::PARTITION).unwrap_or(self.partition);
        self.offset = headers::number(raw, headers::OFFSET).unwrap_or(self.offset);
        self.timestamp_ms = headers::number(raw, headers::TIMESTAMP);
        self
    }

    /// Size charged against the memory limits.
    pub(crate) fn bytes(&self) -> usize {
        bytes(self.key.as_ref(), self.value.as_ref(), &self.headers)
    }

    /// Returns its history, for the attempt that is about to begin.
    pub(crate) fn history(&self) -> History {
        History {
            step: headers::number(&self.headers, STEP_HEADER).unwrap_or(0),
            attempts_max: attempts::attempts_max(
                headers::find(&self.headers, ATTEMPTS_MAX_HEADER).as_deref(),
            ),
            ..attempts::history(self.counters, self.suspect)
        }
    }

    /// Charges a failed attempt, at a moment of Unix time.
    pub(crate) fn charge(&mut self, reason: Reason, now_ms: i64) {
        self.counters = attempts::charged(self.counters, reason, now_ms);
        self.suspect = false;
    }

    /// Counts a requeue requested by a worker.
    pub(crate) fn requeue(&mut self) {
        self.counters = attempts::requeued(self.counters);
        self.suspect = false;
    }

    /// Returns the attempts to store in a commit, if it has been tried.
    pub(crate) fn tried(&self) -> Option<Tried> {
        let tried = Tried {
            attempts: self.counters.attempts,
            crashes: self.counters.crashes,
        };
        (tried != Tried::default()).then_some(tried)
    }

    /// Returns its name in log records: its topic, partition and offset, as it was produced.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        write_numbers(&mut name, &self.topic, |property| match property {
            "partition" => Some(self.partition.into()),
            "offset" => Some(self.offset),
            _ => None,
        });
        name
    }

    /// Returns the message as a worker gets it.
    pub(crate) fn message(&self) -> Message {
        let mut headers = headers::all_as_text(&self.headers);
        headers.retain(|(name, _)| !KEPT_HEADERS.contains(&name.as_str()));
        let find = |name| headers.iter().find(|(other, _)| other == name);
        let given = |name| {
            find(name)
                .map(|(_, value)| value.clone())
                .filter(|v| !v.is_empty())
        };
        let (correlation_id, reply_to) = (given(headers::CORRELATION_ID), given(headers::REPLY_TO));
        let properties = self.properties(given(headers::MESSAGE_ID), given(headers::CONTENT_TYPE));
        Message {
            queue: Arc::clone(&self.topic),
            body: self.value.clone().unwrap_or_default(),
            correlation_id: correlation_id.unwrap_or_default(),
            reply_to,
            properties,
            headers,
            occurrence: headers::find(&self.headers, OCCURRENCE_HEADER).map(Arc::from),
        }
    }

    fn properties(
        &self,
        message_id: Option<String>,
        content_type: Option<String>,
    ) -> Vec<(&'static str, Property)> {
        let mut properties = Vec::with_capacity(5);
        properties.push(("topic", Property::Text(self.topic.to_string())));
        properties.push(("partition", Property::Integer(self.partition.into())));
        properties.push(("offset", Property::Integer(self.offset)));
        let key = self.key.as_ref().map(|key| match std::str::from_utf8(key) {
            Ok(text) => Property::Text(text.to_owned()),
            Err(_) => Property::Bytes(key.clone()),
        });
        let more = [
            ("timestamp", self.timestamp_ms.map(Property::Integer)),
            ("key", key),
            (
                "tombstone",
                self.value.is_none().then_some(Property::Boolean(true)),
            ),
            ("message_id", message_id.map(Property::Text)),
            ("content_type", content_type.map(Property::Text)),
        ];
        let more = more
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        properties.extend(more);
        properties
    }

    /// Returns a copy for a tier, due at a moment of Unix time. It has a timestamp of its own: with that of
    /// an old message, the tier's retention would delete it at once.
    pub(crate) fn in_tier(&self, topic: String, due_ms: i64) -> Outbound {
        let mut headers = self.headers.clone();
        headers.extend(headers::own(vec![
            (header::QUEUE, self.topic.to_string()),
            (headers::DUE, due_ms.to_string()),
        ]));
        headers.extend(headers::own(self.origin()));
        headers.extend(headers::own(self.counters.write()));
        Outbound {
            topic,
            key: self.key.clone(),
            value: self.value.clone(),
            headers,
            timestamp_ms: None,
            compressed: true,
        }
    }

    /// Returns a copy for the dead letters, with the headers of a dead letter.
    pub(crate) fn as_dead_letter(&self, topic: &str, id: &str, letter: OwnHeaders) -> Outbound {
        let mut headers = self.headers.clone();
        headers.extend(headers::own(letter));
        headers.extend(headers::own(self.origin()));
        if let Some(key) = &self.key {
            headers.push((headers::KEY.to_owned(), Some(key.clone())));
        }
        if self.value.is_none() {
            headers.extend(headers::own(vec![(headers::TOMBSTONE, "true".to_owned())]));
        }
        Outbound {
            topic: topic.to_owned(),
            key: Some(id.to_owned().into()),
            value: Some(self.value.clone().unwrap_or_default()),
            headers,
            timestamp_ms: None,
            compressed: true,
        }
    }

    fn origin(&self) -> OwnHeaders {
        let mut own = vec![
            (headers::PARTITION, self.partition.to_string()),
            (headers::OFFSET, self.offset.to_string()),
        ];
        own.extend(
            self.timestamp_ms
                .map(|ms| (headers::TIMESTAMP, ms.to_string())),
        );
        own
    }
}

/// Returns the reply of a dead letter that is too large for its headers.
pub(crate) fn reply_of_dead_letter(topic: &str, id: &str, apart: SeparateReply) -> Outbound {
    Outbound {
        topic: topic.to_owned(),
        key: Some(reply_key(id).into()),
        value: Some(apart.body),
        headers: headers::own(apart.headers),
        timestamp_ms: None,
        compressed: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::trace_context::SpanContext;

    fn record() -> Record {
        let raw = vec![
            ("CorrelationId".to_owned(), Some("77".into())),
            ("ReplyTo".to_owned(), Some("answers".into())),
            ("blob".to_owned(), Some(Bytes::from_static(b"\xff"))),
        ];
        let contents = (Some("k".into()), Some("body".into()));
        Record::read(&"orders".into(), (3, 42), Some(1000), contents, raw)
    }

    #[test]
    fn a_worker_gets_all_of_it() {
        let message = record().message();
        assert_eq!(
            (&*message.queue, &message.body[..]),
            ("orders", &b"body"[..])
        );
        assert_eq!(message.correlation_id, "77");
        assert_eq!(message.reply_to.as_deref(), Some("answers"));
        assert_eq!(message.headers[2], ("blob".to_owned(), "/w==".to_owned()));
        let expected = [
            ("topic", Property::Text("orders".to_owned())),
            ("partition", Property::Integer(3)),
            ("offset", Property::Integer(42)),
            ("timestamp", Property::Integer(1000)),
            ("key", Property::Text("k".to_owned())),
        ];
        assert_eq!(message.properties, expected);
    }

    #[test]
    fn the_occurrence_of_a_message_is_not_shown_to_a_worker() {
        let mut of_occurrence = record();
        let header = (OCCURRENCE_HEADER.to_owned(), Some("o".into()));
        of_occurrence.headers.push(header);
        let message = of_occurrence.message();
        assert_eq!(message.occurrence.as_deref(), Some("o"));
        assert_eq!(message.headers, record().message().headers);
        assert_eq!(record().message().occurrence, None);
    }

    #[test]
    fn a_tombstone_is_empty_and_says_so() {
        let tombstone = Record {
            value: None,
            key: Some(Bytes::from_static(b"\xff")),
            ..record()
        };
        let message = tombstone.message();
        assert!(message.body.is_empty());
        let has = |property| message.properties.contains(&property);
        assert!(has(("tombstone", Property::Boolean(true))));
        assert!(has(("key", Property::Bytes(Bytes::from_static(b"\xff")))));
        let letter = tombstone.as_dead_letter("orders.g.dead", "id-1", Vec::new());
        assert_eq!(letter.value, Some(Bytes::new()));
        assert_eq!(
            headers::find(&letter.headers, headers::TOMBSTONE).as_deref(),
            Some("true")
        );
        let key = letter
            .headers
            .iter()
            .find(|(name, _)| name == headers::KEY)
            .unwrap();
        assert_eq!(key.1.as_deref(), Some(&b"\xff"[..]));
    }

    #[test]
    fn what_went_to_a_tier_comes_back_as_it_was() {
        let counters = Counters {
            attempts: 2,
            crashes: 1,
            requeues: 0,
            first_failed_ms: Some(5),
            span: Some(SpanContext::in_trace(7)),
        };
        for value in [Some(Bytes::from_static(b"body")), None] {
            let sent = Record {
                counters,
                value,
                ..record()
            };
            let copy = sent.in_tier("orders.g.retry.1s".to_owned(), 99);
            assert_eq!(headers::number(&copy.headers, headers::DUE), Some(99));
            let read = Record::read(
                &"orders".into(),
                (0, 0),
                Some(7),
                (copy.key, copy.value),
                copy.headers.clone(),
            );
            assert_eq!(
                read.counters,
                Counters::default(),
                "in a topic of producers"
            );
            assert_eq!(read.restore(&copy.headers), sent);
        }
    }

    #[test]
    fn counts_are_those_before_the_attempt() {
        let mut record = record();
        assert_eq!((record.history().attempt, record.tried()), (1, None));
        record.counters.attempts = 2;
        record.suspect = true;
        let history = record.history();
        assert_eq!((history.attempt, history.alone), (3, true));
        assert_eq!(
            record.tried(),
            Some(Tried {
                attempts: 2,
                crashes: 0
            })
        );
    }
}
