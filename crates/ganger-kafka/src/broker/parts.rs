//! A record for the dead letters that is too large for their topic, in numbered parts. Pure.
//!
//! Everything except ganger's own headers (the copy of the key, the message's headers, its value) is cut into
//! parts 1 to N, each a record of its own: `KEY/part/1` is the key of the first, since the topic is
//! compacted. Part 0 is the record itself, under its own key, with ganger's headers, no value, and the number
//! of parts. It is stored last, so that the parts left behind by a crash do not form a dead letter yet.

use bytes::{BufMut, Bytes, BytesMut};

use super::headers;
use super::headers::Raw;
use super::record::Outbound;
use ganger_core::names::OWN_HEADER_PREFIX;
use ganger_queue::dead_letter::header;

/// On part 0: number of the others.
const PARTS: &str = "x-ganger-parts";
/// On part 0: size of the others in bytes.
const PARTS_BYTES: &str = "x-ganger-parts-bytes";
/// On part 0: number of the leading bytes that are headers.
const PARTS_HEADERS_BYTES: &str = "x-ganger-parts-headers-bytes";
/// On the others: the key of part 0.
const PART_OF: &str = "x-ganger-part-of";
/// On the others: the part's number.
const PART: &str = "x-ganger-part";

/// Length that marks the value of a header as null.
const NULL: u32 = u32::MAX;

/// Reason why the parts do not form a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Torn {
    /// Numbers of the missing parts.
    #[error("parts of it are missing: {}", .0.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))]
    Missing(Vec<u32>),
    /// The parts are not the ones that were written.
    #[error("its parts do not fit together")]
    Misfit,
}

/// Description of the other parts in part 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) count: u32,
    bytes: usize,
    headers_bytes: usize,
}

impl Whole {
    /// Reads the description from headers; none if they are not those of a part 0.
    pub(crate) fn of(headers: &Raw) -> Option<Self> {
        Some(Self {
            count: headers::number(headers, PARTS)?,
            bytes: headers::number(headers, PARTS_BYTES)?,
            headers_bytes: headers::number(headers, PARTS_HEADERS_BYTES)?,
        })
    }
}

/// Returns the key of the part 0 that a part belongs to, and its number; none for a record that is no
/// part.
pub(crate) fn place(headers: &Raw) -> Option<(Bytes, u32)> {
    let of = headers.iter().find(|(name, _)| name == PART_OF)?;
    Some((of.1.clone()?, headers::number(headers, PART)?))
}

/// Returns the key of a part.
pub(crate) fn key(of: &[u8], number: u32) -> Bytes {
    [of, format!("/part/{number}").as_bytes()].concat().into()
}

/// Splits such a key into the key of part 0 and the number.
pub(crate) fn of_key(key: &str) -> Option<(&str, u32)> {
    let (of, number) = key.rsplit_once("/part/")?;
    Some((of, number.parse().ok()?))
}

/// Cuts a record into parts of limited size: the numbered ones first, part 0 last.
pub(crate) fn split(record: &Outbound, part_bytes_max: usize) -> Vec<Outbound> {
    let (riding, staying): (Raw, Raw) =
        record.headers.iter().cloned().partition(is_stored_in_parts);
    let mut all = BytesMut::new();
    write(&mut all, &riding);
    let headers_bytes = all.len();
    all.extend_from_slice(record.value.as_deref().unwrap_or_default());
    let (of, all) = (record.key.clone().unwrap_or_default(), all.freeze());
    let cuts = (0..all.len()).step_by(part_bytes_max.max(1));
    // Measured without its headers, of which there may be as many as parts.
    let empty = Outbound {
        topic: record.topic.clone(),
        timestamp_ms: record.timestamp_ms,
        compressed: record.compressed,
        ..Outbound::default()
    };
    let mut records: Vec<Outbound> = (1..)
        .zip(cuts)
        .map(|(number, from)| {
            let to = all.len().min(from + part_bytes_max);
            let mut headers = vec![(PART_OF.to_owned(), Some(of.clone()))];
            headers.extend(headers::own(vec![(PART, number.to_string())]));
            Outbound {
                key: Some(key(&of, number)),
                value: Some(all.slice(from..to)),
                headers,
                ..empty.clone()
            }
        })
        .collect();
    let mut headers = staying;
    headers.extend(headers::own(vec![
        (PARTS, records.len().to_string()),
        (PARTS_BYTES, all.len().to_string()),
        (PARTS_HEADERS_BYTES, headers_bytes.to_string()),
    ]));
    records.push(Outbound {
        key: record.key.clone(),
        value: Some(Bytes::new()),
        headers,
        ..empty
    });
    records
}

/// Joins the headers and the value of a record: those of its part 0, and the other parts as far as found, in
/// order.
pub(crate) fn join(
    whole: Whole,
    headers: &Raw,
    parts: Vec<Option<Bytes>>,
) -> Result<(Raw, Bytes), Torn> {
    let missing = (1..).zip(&parts).filter(|(_, part)| part.is_none());
    let missing: Vec<u32> = missing.map(|(number, _)| number).collect();
    if !missing.is_empty() {
        return Err(Torn::Missing(missing));
    }
    let all = Bytes::from(parts.into_iter().flatten().collect::<Vec<Bytes>>().concat());
    if all.len() != whole.bytes || all.len() < whole.headers_bytes {
        return Err(Torn::Misfit);
    }
    let mut joined = read(&all.slice(..whole.headers_bytes)).ok_or(Torn::Misfit)?;
    let of_parts = [PARTS, PARTS_BYTES, PARTS_HEADERS_BYTES];
    let ours = headers
        .iter()
        .filter(|(name, _)| !of_parts.contains(&name.as_str()));
    joined.extend(ours.cloned());
    Ok((joined, all.slice(whole.headers_bytes..)))
}

/// Returns whether a header is stored in the parts: all that are not ganger's own, and those of its own
/// that may be of any size.
fn is_stored_in_parts((name, _): &(String, Option<Bytes>)) -> bool {
    let is_ours = name.starts_with(OWN_HEADER_PREFIX);
    !is_ours || [headers::KEY, header::REPLY_HEADERS].contains(&name.as_str())
}

/// Writes headers as bytes: the name and the value of each, preceded by their lengths.
fn write(all: &mut BytesMut, headers: &Raw) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(NULL);
    for (name, value) in headers {
        all.put_u32(length(name.as_bytes()));
        all.put_slice(name.as_bytes());
        all.put_u32(value.as_deref().map_or(NULL, length));
        all.put_slice(value.as_deref().unwrap_or_default());
    }
}

fn read(all: &Bytes) -> Option<Raw> {
    let mut rest = all.clone();
    let mut headers = Raw::new();
    while !rest.is_empty() {
        let name = read_one(&mut rest)??;
        let name = String::from_utf8(name.into()).ok()?;
        headers.push((name, read_one(&mut rest)?));
    }
    Some(headers)
}

/// Reads the next header, which may be null; none at the end.
fn read_one(rest: &mut Bytes) -> Option<Option<Bytes>> {
    let length = rest.split_to_checked(size_of::<u32>())?;
    let length = u32::from_be_bytes(length.as_ref().try_into().ok()?);
    if length == NULL {
        return Some(None);
    }
    Some(Some(rest.split_to_checked(usize::try_from(length).ok()?)?))
}

/// `split_to` without its panic.
trait Checked: Sized {
    fn split_to_checked(&mut self, bytes: usize) -> Option<Self>;
}

impl Checked for Bytes {
    fn split_to_checked(&mut self, bytes: usize) -> Option<Self> {
        (bytes <= self.len()).then(|| self.split_to(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn outbound(headers: Raw, value: &[u8]) -> Outbound {
        Outbound {
            topic: "orders.g.dead".to_owned(),
            key: Some("id-1".into()),
            value: Some(Bytes::copy_from_slice(value)),
            headers,
            timestamp_ms: None,
            compressed: true,
        }
    }

    fn sorted(mut headers: Raw) -> Raw {
        headers.sort();
        headers
    }

    /// Joins the parts as a reader of the topic finds them.
    fn again(records: &[Outbound], lost: Option<u32>) -> Result<(Raw, Bytes), Torn> {
        let (head, parts) = records.split_last().unwrap();
        let whole = Whole::of(&head.headers).unwrap();
        let of = head.key.clone().unwrap();
        let find = |number: u32| {
            let found = parts.iter().find(|part| {
                part.key == Some(key(&of, number))
                    && place(&part.headers) == Some((of.clone(), number))
            });
            found.filter(|_| lost != Some(number))?.value.clone()
        };
        join(whole, &head.headers, (1..=whole.count).map(find).collect())
    }

    #[test]
    fn part_0_is_last_and_has_all_that_a_list_needs() {
        let theirs = ("colour".to_owned(), Some(Bytes::from_static(b"red")));
        let id = headers::own(vec![(header::DEAD_LETTER_ID, "id-1".to_owned())]);
        let record = outbound([vec![theirs], id].concat(), &[7; 10_000]);
        let records = split(&record, 4_000);
        assert_eq!(records.len(), 4);
        let head = &records[3];
        assert_eq!(
            (&head.key, head.value.as_deref()),
            (&record.key, Some(&b""[..]))
        );
        let find = |name| headers::find(&head.headers, name);
        assert_eq!(find(header::DEAD_LETTER_ID).as_deref(), Some("id-1"));
        assert_eq!(find("colour"), None, "that may be of any size");
        assert_eq!(Whole::of(&records[0].headers), None);
        let expected = Err(Torn::Missing(vec![2]));
        assert_eq!(again(&records, Some(2)), expected);
    }

    #[test]
    fn other_parts_than_those_are_noticed() {
        let records = split(&outbound(Raw::new(), &[7; 10_000]), 4_000);
        let others = split(&outbound(Raw::new(), &[7; 9_999]), 4_000);
        let mixed = [&others[..3], &records[3..]].concat();
        assert_eq!(again(&mixed, None), Err(Torn::Misfit));
        assert_eq!(read(&Bytes::from_static(b"\x00\x00\x00\x09ab")), None);
    }

    proptest! {
        #[test]
        fn what_was_split_comes_back_byte_for_byte(
            theirs in vec(("[a-z]{0,9}", option::of(vec(any::<u8>(), 0..50))), 0..9),
            message_key in option::of(vec(any::<u8>(), 0..50)),
            value in vec(any::<u8>(), 0..500),
            part_bytes in 1usize..200,
        ) {
            let mut headers: Raw = theirs
                .into_iter()
                .map(|(name, value)| (name, value.map(Bytes::from)))
                .collect();
            headers.push((headers::KEY.to_owned(), message_key.map(Bytes::from)));
            headers.extend(headers::own(vec![(header::DEAD_LETTER_ID, "id-1".to_owned())]));
            let record = outbound(headers, &value);
            let records = split(&record, part_bytes);
            for part in &records[..records.len() - 1] {
                prop_assert!(part.value.as_ref().unwrap().len() <= part_bytes);
            }
            let (headers, joined) = again(&records, None).unwrap();
            prop_assert_eq!(&joined[..], &value[..]);
            prop_assert_eq!(headers::not_ours(&headers), headers::not_ours(&record.headers));
            prop_assert_eq!(sorted(headers), sorted(record.headers));
        }
    }
}
