//! Index of a topic of dead letters: the live ones, reading of one, and the message to send back. Pure.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::reader::Stored;
use crate::broker::command_error::CommandError;
use crate::broker::record::Outbound;
use crate::broker::{headers, parts};
use ganger_queue::client::{DeadFilter, RetryTarget};
use ganger_queue::dead_letter;
use ganger_queue::dead_letter::{DeadLetter, header};

/// Position of a record, in the order in which dead letters are listed: the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RecordPosition {
    pub(super) timestamp_ms: i64,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// Length of its value.
    pub(super) bytes: usize,
}

impl RecordPosition {
    /// Returns the position of a record.
    pub(super) fn of(stored: &Stored) -> Self {
        Self {
            timestamp_ms: stored.timestamp_ms,
            partition: stored.partition,
            offset: stored.offset,
            bytes: stored.value.as_ref().map_or(0, Bytes::len),
        }
    }
}

/// Dead letters that are live and selected. Bodies are not kept.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Dead letters by their keys.
    letters: HashMap<Bytes, RecordPosition>,
    /// Dead letters that this program did not write and that have no key.
    keyless: Vec<RecordPosition>,
    /// Replies that are records of their own, by the keys of their dead letters.
    replies: HashMap<Bytes, RecordPosition>,
    /// Parts of dead letters and replies that are too large for one record, by the keys of those.
    parts: HashMap<Bytes, BTreeMap<u32, RecordPosition>>,
}

/// A dead letter in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) at: RecordPosition,
    /// Key; none if it cannot be deleted.
    pub(super) key: Option<Bytes>,
    /// Record of its reply.
    pub(super) reply: Option<RecordPosition>,
    /// Parts of it and of its reply, with their keys.
    pub(super) parts: Vec<(Bytes, RecordPosition)>,
}

impl IndexEntry {
    /// Returns the positions of all its records.
    pub(super) fn places(&self) -> impl Iterator<Item = RecordPosition> {
        let own = [Some(self.at), self.reply];
        let parts = self.parts.iter().map(|(_, at)| *at);
        own.into_iter().flatten().chain(parts)
    }

    /// Returns the size of its records.
    pub(super) fn bytes(&self) -> usize {
        self.places().map(|at| at.bytes).sum()
    }

    /// Returns the keys of the records that belong to the dead letter, except its own.
    pub(super) fn belongings(&self) -> Vec<Bytes> {
        let reply = self.key.as_ref().filter(|_| self.reply.is_some());
        let parts = self.parts.iter().map(|(key, _)| key.clone());
        reply
            .map(|key| reply_key(key))
            .into_iter()
            .chain(parts)
            .collect()
    }
}

fn reply_key(of: &[u8]) -> Bytes {
    dead_letter::reply_key(&headers::text(Some(of))).into()
}

impl Index {
    /// Adds the next record of a partition. Of several records with the same key only the last counts.
    pub(super) fn take(&mut self, stored: &Stored, filter: &DeadFilter) {
        let at = RecordPosition::of(stored);
        if stored.value.is_none() {
            return self.ended(stored.key.as_deref().unwrap_or_default());
        }
        if let Some((of, number)) = parts::place(&stored.headers) {
            self.parts.entry(of).or_default().insert(number, at);
            return;
        }
        let reply_of = headers::find(&stored.headers, header::REPLY_OF);
        match (&stored.key, reply_of) {
            (_, Some(id)) => drop(self.replies.insert(id.into(), at)),
            (Some(key), None) if filter.fits(&dead_letter_of(stored)) => {
                self.letters.insert(key.clone(), at);
            }
            (Some(key), None) => drop(self.letters.remove(key)),
            (None, None) if filter.fits(&dead_letter_of(stored)) => self.keyless.push(at),
            (None, None) => {}
        }
    }

    /// Handles a tombstone of a key.
    fn ended(&mut self, key: &[u8]) {
        self.letters.remove(key);
        let text = headers::text(Some(key));
        if let Some(id) = dead_letter::id_of_reply_key(&text) {
            self.replies.remove(id.as_bytes());
        }
        if let Some((of, number)) = parts::of_key(&text)
            && let Some(parts) = self.parts.get_mut(of.as_bytes())
        {
            parts.remove(&number);
        }
    }

    /// Returns the parts of the record with this key.
    fn parts_of(&self, key: &Bytes) -> impl Iterator<Item = (Bytes, RecordPosition)> {
        let parts = self.parts.get(key).into_iter().flatten();
        let of = key.clone();
        parts.map(move |(number, at)| (parts::key(&of, *number), *at))
    }

    /// Returns all dead letters, the oldest first.
    pub(super) fn entries(&self) -> Vec<IndexEntry> {
        let keyed = self.letters.iter().map(|(key, at)| IndexEntry {
            at: *at,
            key: Some(key.clone()),
            reply: self.replies.get(key).copied(),
            parts: [key.clone(), reply_key(key)]
                .iter()
                .flat_map(|key| self.parts_of(key))
                .collect(),
        });
        let keyless = self.keyless.iter().map(|at| IndexEntry {
            at: *at,
            key: None,
            reply: None,
            parts: Vec::new(),
        });
        let mut entries: Vec<IndexEntry> = keyed.chain(keyless).collect();
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}

/// Splits dead letters into chunks limited by count and size, of at least one each.
pub(super) fn chunks(
    entries: &[IndexEntry],
    count_max: usize,
    bytes_max: usize,
) -> Vec<&[IndexEntry]> {
    let mut chunks = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (index, entry) in entries.iter().enumerate() {
        let is_full = index - from >= count_max || bytes + entry.bytes() > bytes_max;
        if is_full && index > from {
            chunks.push(&entries[from..index]);
            (from, bytes) = (index, 0);
        }
        bytes += entry.bytes();
    }
    chunks.push(&entries[from..]);
    chunks.retain(|chunk| !chunk.is_empty());
    chunks
}

/// Converts a record to a dead letter, message included.
pub(super) fn dead_letter_of(stored: &Stored) -> DeadLetter {
    let own = headers::all_as_text(&stored.headers);
    let letter = dead_letter::read(&own).unwrap_or_else(|| foreign(stored));
    let find = |name| headers::find(&stored.headers, name).filter(|value| !value.is_empty());
    let key = stored.headers.iter().find(|(name, _)| name == headers::KEY);
    let key = key.map(|(_, value)| headers::text(value.as_deref()));
    DeadLetter {
        correlation_id: find(headers::CORRELATION_ID).unwrap_or_default(),
        reply_to: find(headers::REPLY_TO),
        message_id: find(headers::MESSAGE_ID),
        content_type: find(headers::CONTENT_TYPE),
        key,
        headers: dead_letter::not_ours(&own),
        body: stored.value.clone().unwrap_or_default(),
        ..letter
    }
}

/// Returns whether a record is the dead letter of this id. It may have been deleted since.
pub(super) fn is_dead_letter(stored: &Stored, id: &str) -> bool {
    let is_whole = parts::place(&stored.headers).is_none();
    let is_reply = || headers::find(&stored.headers, header::REPLY_OF).is_some();
    stored.value.is_some() && is_whole && !is_reply() && dead_letter_of(stored).id == id
}

/// Returns a dead letter that this program did not write, identified by its position.
fn foreign(stored: &Stored) -> DeadLetter {
    DeadLetter {
        id: format!("at-{}-{}", stored.partition, stored.offset),
        queue: headers::find(&stored.headers, header::QUEUE).unwrap_or_default(),
        reason: "unknown".to_owned(),
        error: "dead-lettered for an unknown reason".to_owned(),
        ..DeadLetter::default()
    }
}

/// Returns the message of a dead letter to send back, as its producer sent it: to its topic if one of its
/// pools reads that, otherwise to the one that the operator names.
pub(super) fn back(
    stored: &Stored,
    target: &RetryTarget,
    is_read: impl Fn(&str) -> bool,
) -> Result<Outbound, CommandError> {
    let letter = dead_letter_of(stored);
    let topic = match &target.to {
        Some(to) => to.clone(),
        None if is_read(&letter.queue) => letter.queue,
        None => {
            let why = match letter.queue.as_str() {
                "" => "it does not name the topic it came from".to_owned(),
                topic => format!(
                    "it came from `{topic}`, which no pool with this dead-letter topic reads"
                ),
            };
            return Err(CommandError::CannotSendBack { id: letter.id, why });
        }
    };
    let tombstone = headers::find(&stored.headers, headers::TOMBSTONE).is_some();
    let key = stored.headers.iter().find(|(name, _)| name == headers::KEY);
    let body = (!tombstone).then_some(&letter.body);
    Ok(Outbound {
        topic,
        key: key.and_then(|(_, value)| value.clone()),
        value: target.body.as_ref().or(body).cloned(),
        headers: headers::not_ours(&stored.headers),
        timestamp_ms: headers::number(&stored.headers, headers::TIMESTAMP),
        compressed: false,
    })
}

/// Returns whether a message that is sent back may keep its timestamp: a message near the end of its topic's
/// retention would be deleted before it is read. None for a retention that is unknown.
pub(super) fn keeps_its_time(age_ms: i64, retention_ms: Option<i64>) -> bool {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    match retention_ms {
        Some(..0) => true,
        Some(retention_ms) => age_ms < retention_ms / 2,
        None => age_ms < DAY_MS,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::broker::record::{Record, reply_of_dead_letter};
    use ganger_queue::dead_letter::{Counters, DeadLetterRecord};
    use ganger_queue::delivery::{Failure, Outgoing};

    fn record(value: Option<&'static str>) -> Record {
        let topic: Arc<str> = "orders".into();
        let contents = (Some("k\u{fc}".into()), value.map(Bytes::from));
        let headers = vec![
            ("CorrelationId".to_owned(), Some("77".into())),
            ("blob".to_owned(), Some(Bytes::from_static(b"\xff"))),
            ("blob".to_owned(), None),
        ];
        Record::read(&topic, (3, 42), Some(1000), contents, headers)
    }

    /// Returns a dead letter as a source stores it, and its reply.
    fn stored(id: &str, offset: i64, record: &Record, reply: usize) -> (Stored, Option<Stored>) {
        let reply = (reply > 0).then(|| {
            Box::new(Outgoing {
                body: vec![7; reply].into(),
                ..Outgoing::default()
            })
        });
        let failure = Failure {
            reply,
            ..Failure::default()
        };
        let written = DeadLetterRecord {
            id,
            pool: "billing",
            queue: "orders",
            message_name: Some(record.name()),
            counters: record.counters,
            now_ms: 1,
            failure: &failure,
        }
        .write();
        let at = |outbound: Outbound, offset| Stored {
            offset,
            timestamp_ms: offset,
            key: outbound.key,
            value: outbound.value,
            headers: outbound.headers,
            ..Stored::default()
        };
        let reply = written
            .reply
            .map(|apart| reply_of_dead_letter("dead", id, apart));
        let letter = record.as_dead_letter("dead", id, written.headers);
        (at(letter, offset), reply.map(|reply| at(reply, offset - 1)))
    }

    fn tombstone(key: &str) -> Stored {
        Stored {
            key: Some(key.to_owned().into()),
            ..Stored::default()
        }
    }

    fn alive(index: &Index) -> Vec<(i64, bool)> {
        let entries = index.entries();
        let told = |entry: &IndexEntry| (entry.at.offset, entry.reply.is_some());
        entries.iter().map(told).collect()
    }

    #[test]
    fn a_letter_is_read_and_goes_back_as_it_was_sent() {
        for value in [Some("body"), None] {
            let record = Record {
                counters: Counters {
                    attempts: 5,
                    ..Counters::default()
                },
                ..record(value)
            };
            let (stored, _) = stored("id-1", 9, &record, 0);
            let letter = dead_letter_of(&stored);
            assert_eq!((letter.id.as_str(), letter.attempts), ("id-1", 5));
            assert_eq!(letter.correlation_id, "77");
            assert_eq!(letter.key.as_deref(), Some("k\u{fc}"));
            assert_eq!(letter.body, value.unwrap_or_default());
            let back = back(&stored, &RetryTarget::default(), |topic| topic == "orders").unwrap();
            assert_eq!((&*back.topic, back.timestamp_ms), ("orders", Some(1000)));
            assert_eq!(
                (back.key, back.value),
                (record.key.clone(), record.value.clone())
            );
            assert_eq!(back.headers, record.headers);
            let target = RetryTarget {
                body: Some("edited".into()),
                to: Some("elsewhere".to_owned()),
            };
            let edited = super::back(&stored, &target, |_| false).unwrap();
            assert_eq!(edited.topic, "elsewhere");
            assert_eq!(edited.value.as_deref(), Some(&b"edited"[..]));
        }
    }

    #[test]
    fn only_what_was_not_ended_is_alive() {
        let all = DeadFilter::default();
        let mut index = Index::default();
        let (first, _) = stored("id-1", 5, &record(Some("a")), 0);
        let (second, reply) = stored("id-2", 2, &record(Some("b")), 100_000);
        for stored in [&first, &reply.unwrap(), &second] {
            index.take(stored, &all);
        }
        assert_eq!(alive(&index), [(2, true), (5, false)], "the oldest first");
        index.take(&tombstone("id-2"), &all);
        assert_eq!(alive(&index), [(5, false)], "its reply alone is none");
        index.take(&tombstone("id-2/reply"), &all);
        assert_eq!(index.replies.len(), 0);
    }

    #[test]
    fn only_what_is_meant_is_found() {
        let filter = DeadFilter {
            ids: Some(["id-2".to_owned()].into()),
            ..DeadFilter::default()
        };
        let mut index = Index::default();
        for id in ["id-1", "id-2", "id-3"] {
            index.take(&stored(id, 1, &record(None), 0).0, &filter);
        }
        assert_eq!(index.entries().len(), 1);
        assert_eq!(index.entries()[0].key.as_deref(), Some(&b"id-2"[..]));
    }

    #[test]
    fn a_letter_is_known_by_its_id_and_its_reply_is_not() {
        let (letter, reply) = stored("id-2", 2, &record(Some("b")), 100_000);
        assert!(is_dead_letter(&letter, "id-2") && !is_dead_letter(&letter, "id-1"));
        assert!(!is_dead_letter(&reply.unwrap(), "id-2"));
        assert!(!is_dead_letter(&tombstone("id-2"), "id-2"));
    }

    #[test]
    fn what_others_have_written_is_named_by_its_place() {
        let foreign = Stored {
            partition: 1,
            offset: 7,
            value: Some("x".into()),
            ..Stored::default()
        };
        assert_eq!(dead_letter_of(&foreign).id, "at-1-7");
        let back =
            |stored: &Stored| back(stored, &RetryTarget::default(), |topic| topic == "orders");
        let error = back(&foreign).unwrap_err().to_string();
        assert!(
            error.contains("at-1-7") && error.contains("does not name the topic"),
            "{error}"
        );
        let forged = Stored {
            headers: vec![(header::QUEUE.to_owned(), Some("payments".into()))],
            value: Some("x".into()),
            ..Stored::default()
        };
        let error = back(&forged).unwrap_err().to_string();
        assert!(
            error.contains("`payments`, which no pool with this dead-letter topic reads"),
            "{error}"
        );
        let mut index = Index::default();
        index.take(&foreign, &DeadFilter::default());
        assert_eq!(index.entries()[0].key, None);
    }

    #[test]
    fn a_message_has_a_new_time_where_its_own_would_be_its_end() {
        let hour = 3_600_000;
        let table = [
            (1000 * hour, Some(-1), true),
            (hour, Some(24 * hour), true),
            (13 * hour, Some(24 * hour), false),
            (hour, None, true),
            (25 * hour, None, false),
        ];
        for (age_ms, retention_ms, expected) in table {
            assert_eq!(keeps_its_time(age_ms, retention_ms), expected, "{age_ms}");
        }
    }
}
