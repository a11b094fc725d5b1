//! Records read from a topic of dead letters, and the dead letters and replies that they form: most are
//! one record, those too large for the topic are several. Pure.

use std::collections::HashMap;

use bytes::Bytes;

use super::dead_letter_index::RecordPosition;
use super::reader::Stored;
use crate::broker::parts;
use crate::broker::parts::{Torn, Whole};

/// Records as they were read.
#[derive(Debug, Default)]
pub(super) struct FetchedRecords {
    records: HashMap<RecordPosition, Stored>,
    /// Parts by the key that they belong to and their number.
    parts: HashMap<(Bytes, u32), Bytes>,
}

impl FetchedRecords {
    /// Adds a record.
    pub(super) fn put(&mut self, stored: Stored) {
        match parts::place(&stored.headers) {
            Some(place) => drop(self.parts.insert(place, stored.value.unwrap_or_default())),
            None => drop(self.records.insert(RecordPosition::of(&stored), stored)),
        }
    }

    /// Takes the record at a position, whole, or the available part of it with the reason why it is
    /// incomplete; none if it no longer exists.
    pub(super) fn take(&mut self, at: &RecordPosition) -> Option<(Stored, Option<Torn>)> {
        let mut stored = self.records.remove(at)?;
        let Some(whole) = Whole::of(&stored.headers) else {
            return Some((stored, None));
        };
        let of = stored.key.clone().unwrap_or_default();
        let numbers = 1..=whole.count;
        let parts = numbers.map(|number| self.parts.remove(&(of.clone(), number)));
        match parts::join(whole, &stored.headers, parts.collect()) {
            Ok((headers, value)) => {
                stored.headers = headers;
                stored.value = Some(value);
                Some((stored, None))
            }
            Err(torn) => Some((stored, Some(torn))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dead_letter_index::{Index, IndexEntry, chunks};
    use super::*;
    use crate::broker::headers;
    use crate::broker::headers::Raw;
    use crate::broker::record::Outbound;
    use ganger_queue::client::DeadFilter;
    use ganger_queue::dead_letter::header;

    /// Returns a dead letter of 10 000 bytes in its stored form, whole and in four parts.
    fn letter() -> (Outbound, Vec<Stored>) {
        let mut headers: Raw = vec![
            ("colour".to_owned(), Some("red".into())),
            ("binary".to_owned(), Some(Bytes::from_static(b"\xff"))),
            ("nothing".to_owned(), None),
        ];
        let own = vec![(header::DEAD_LETTER_ID, "id-1".to_owned())];
        headers.extend(headers::own(own));
        let letter = Outbound {
            key: Some("id-1".into()),
            value: Some(vec![7; 10_000].into()),
            headers,
            ..Outbound::default()
        };
        let stored = |(offset, record): (i64, Outbound)| Stored {
            offset,
            timestamp_ms: offset,
            key: record.key,
            value: record.value,
            headers: record.headers,
            ..Stored::default()
        };
        let parts = parts::split(&letter, 3_000).into_iter();
        let parts = (0..).zip(parts).map(stored).collect();
        (letter, parts)
    }

    fn indexed<'a>(records: impl IntoIterator<Item = &'a Stored>) -> Index {
        let mut index = Index::default();
        let all = DeadFilter::default();
        records
            .into_iter()
            .for_each(|stored| index.take(stored, &all));
        index
    }

    #[test]
    fn a_letter_in_parts_is_one_letter_and_whole() {
        let (whole, records) = letter();
        let entries = indexed(&records).entries();
        assert_eq!((entries.len(), entries[0].belongings().len()), (1, 4));
        assert!(entries[0].bytes() > 10_000);
        assert_eq!(entries[0].places().count(), records.len());
        let mut fetched = FetchedRecords::default();
        records
            .iter()
            .for_each(|stored| fetched.put(stored.clone()));
        let (stored, torn) = fetched.take(&entries[0].at).unwrap();
        assert_eq!((torn, &stored.value), (None, &whole.value));
        assert_eq!(
            headers::not_ours(&stored.headers),
            headers::not_ours(&whole.headers)
        );
        assert_eq!(fetched.take(&entries[0].at), None);
    }

    #[test]
    fn one_of_which_a_part_is_missing_says_so() {
        let (_, records) = letter();
        let entries = indexed(&records).entries();
        let mut fetched = FetchedRecords::default();
        let others = records.iter().filter(|stored| stored.offset != 1);
        others.for_each(|stored| fetched.put(stored.clone()));
        let (stored, torn) = fetched.take(&entries[0].at).unwrap();
        assert_eq!(torn, Some(Torn::Missing(vec![2])));
        let id = headers::find(&stored.headers, header::DEAD_LETTER_ID);
        assert_eq!(id.as_deref(), Some("id-1"), "it can be named, and dropped");
    }

    #[test]
    fn parts_without_their_letter_are_none() {
        let (_, records) = letter();
        let (head, parts) = records.split_last().unwrap();
        assert_eq!(indexed(parts).entries(), []);
        let dropped = Stored {
            value: None,
            headers: Raw::new(),
            ..head.clone()
        };
        let index = indexed(records.iter().chain([&dropped]));
        assert_eq!(index.entries(), []);
    }

    #[test]
    fn chunks_are_bounded_by_count_and_bytes_and_none_is_empty() {
        let entries: Vec<IndexEntry> = [5, 5, 50, 1, 1, 1]
            .iter()
            .map(|bytes| {
                let stored = Stored {
                    value: Some(vec![0; *bytes].into()),
                    ..Stored::default()
                };
                IndexEntry {
                    at: RecordPosition::of(&stored),
                    key: None,
                    reply: None,
                    parts: Vec::new(),
                }
            })
            .collect();
        let lengths: Vec<usize> = chunks(&entries, 2, 10)
            .iter()
            .map(|chunk| chunk.len())
            .collect();
        assert_eq!(lengths, [2, 1, 2, 1]);
        assert!(chunks(&[], 2, 10).is_empty());
    }
}
