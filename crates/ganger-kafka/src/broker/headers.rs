//! Conversion between Kafka's headers, whose values are bytes and whose names may repeat, and ganger's. Pure.
//!
//! A worker gets one value for each name: the last, as with most Kafka clients. Text is passed as it is,
//! other bytes in base64, and a null value as empty text. All values are preserved in copies, byte for byte,
//! and in replies if the worker has not replaced them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use ganger_core::names::{CONTENT_TYPE_HEADER, KEPT_HEADERS, OWN_HEADER_PREFIX};
use ganger_queue::delivery::{Headers, Outgoing};

/// Header names for message fields that other brokers have as properties. The first two are those of
/// MessageWorkerPool.
pub(crate) const CORRELATION_ID: &str = "CorrelationId";
pub(crate) const REPLY_TO: &str = "ReplyTo";
pub(crate) const MESSAGE_ID: &str = "MessageId";
pub(crate) const CONTENT_TYPE: &str = CONTENT_TYPE_HEADER;

/// On copies in tiers: due time, in milliseconds of Unix time.
pub(crate) const DUE: &str = "x-ganger-due-ms";
/// On copies in tiers and dead letters: the original partition, offset and timestamp in the topic.
pub(crate) const PARTITION: &str = "x-ganger-partition";
pub(crate) const OFFSET: &str = "x-ganger-offset";
pub(crate) const TIMESTAMP: &str = "x-ganger-timestamp-ms";
/// On dead letters: the original key, byte for byte; left out if there was none.
pub(crate) const KEY: &str = "x-ganger-key";
/// On dead letters: `true` if the message had no value. A compacted topic would take that for a
/// tombstone of the dead letter, so the dead letter's value is empty.
pub(crate) const TOMBSTONE: &str = "x-ganger-tombstone";

/// Headers as Kafka has them, in order.
pub(crate) type Raw = Vec<(String, Option<Bytes>)>;

/// Returns a header's value as text.
pub(crate) fn text(value: Option<&[u8]>) -> String {
    let value = value.unwrap_or_default();
    std::str::from_utf8(value).map_or_else(|_| BASE64.encode(value), ToOwned::to_owned)
}

/// Returns every header in its text form, including ganger's own, with the last value of each name. The
/// sender controls their number, so the time is linear in it, not quadratic.
pub(crate) fn all_as_text(raw: &Raw) -> Headers {
    let mut headers = Headers::with_capacity(raw.len());
    let mut places = HashMap::with_capacity(raw.len());
    for (name, value) in raw {
        let value = text(value.as_deref());
        match places.entry(name.as_str()) {
            Entry::Occupied(place) => {
                let (_, last): &mut (String, String) = &mut headers[*place.get()];
                *last = value;
            }
            Entry::Vacant(place) => {
                place.insert(headers.len());
                headers.push((name.clone(), value));
            }
        }
    }
    headers
}

/// Returns the values of each name, in order.
fn by_name(raw: &Raw) -> HashMap<&str, Vec<&Option<Bytes>>> {
    let mut values: HashMap<&str, Vec<&Option<Bytes>>> = HashMap::with_capacity(raw.len());
    for (name, value) in raw {
        values.entry(name).or_default().push(value);
    }
    values
}

/// Returns the last value of a header.
pub(crate) fn find(raw: &Raw, name: &str) -> Option<String> {
    let value = raw
        .iter()
        .rev()
        .find(|(other, _)| other == name)?
        .1
        .as_ref();
    Some(text(value.map(AsRef::as_ref)))
}

/// Returns a header as a number.
pub(crate) fn number<T: std::str::FromStr>(raw: &Raw, name: &str) -> Option<T> {
    find(raw, name)?.parse().ok()
}

/// Returns the headers without ganger's own, except those that belong to the message itself.
pub(crate) fn not_ours(raw: &Raw) -> Raw {
    let theirs = |(name, _): &&(String, Option<Bytes>)| {
        !name.starts_with(OWN_HEADER_PREFIX) || KEPT_HEADERS.contains(&name.as_str())
    };
    raw.iter().filter(theirs).cloned().collect()
}

/// Returns ganger's own headers for a copy.
pub(crate) fn own(own: Vec<(&'static str, String)>) -> Raw {
    own.into_iter()
        .map(|(name, value)| (name.to_owned(), Some(value.into())))
        .collect()
}

/// Returns the headers of a published message: its own, and the properties for which Kafka has no other
/// field. `origin` holds those of the message that it answers: headers that the worker left unchanged keep
/// all values and the exact bytes.
pub(crate) fn outgoing(message: &Outgoing, origin: &Raw) -> Raw {
    let mut raw = Raw::with_capacity(message.headers.len() + 2);
    let mut origin = by_name(origin);
    let is_property = |name: &str| name.eq_ignore_ascii_case(CONTENT_TYPE);
    let headers = message.headers.iter();
    for (name, value) in headers.filter(|(name, _)| !is_property(name)) {
        let left = |values: &Vec<&Option<Bytes>>| {
            let last = values.last().and_then(|last| last.as_deref());
            text(last) == *value
        };
        if origin.get(name.as_str()).is_some_and(left) {
            let values = origin.remove(name.as_str()).unwrap_or_default();
            let values = values.into_iter().cloned();
            raw.extend(values.map(|value| (name.clone(), value)));
        } else {
            raw.push((name.clone(), Some(value.clone().into())));
        }
    }
    let properties = [
        (CORRELATION_ID, Some(message.correlation_id.as_str())),
        (REPLY_TO, message.reply_to.as_deref()),
        (MESSAGE_ID, message.message_id.as_deref()),
        (CONTENT_TYPE, message.content_type()),
    ];
    for (name, value) in properties {
        let value = value.filter(|value| !value.is_empty());
        if let Some(value) = value
            && !raw.iter().any(|(other, _)| other == name)
        {
            raw.push((name.to_owned(), Some(value.to_owned().into())));
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::names::{OCCURRENCE_HEADER, STEP_HEADER};

    fn raw(pairs: &[(&str, Option<&'static [u8]>)]) -> Raw {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(Bytes::from_static)))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_last_value_counts_and_every_value_has_a_text_form() {
        let raw = raw(&[
            ("a", Some(b"1")),
            ("b", Some(b"\xff\x00")),
            ("a", Some(b"2")),
            ("n", None),
        ]);
        let expected = [pair("a", "2"), pair("b", "/wA="), pair("n", "")];
        assert_eq!(all_as_text(&raw), expected);
        assert_eq!(find(&raw, "a").as_deref(), Some("2"));
        assert_eq!(number::<u32>(&raw, "a"), Some(2));
        assert_eq!(number::<u32>(&raw, "b"), None);
        assert_eq!(find(&raw, "z"), None);
    }

    #[test]
    fn a_reply_has_what_the_worker_left_byte_for_byte() {
        let origin = raw(&[
            ("a", Some(b"1")),
            ("a", Some(b"2")),
            ("b", Some(b"\xff\x00")),
            ("c", Some(b"old")),
            ("CorrelationId", Some(b"77")),
        ]);
        let mut headers = all_as_text(&origin);
        headers[2].1 = "new".to_owned();
        let message = Outgoing {
            headers,
            correlation_id: "77".to_owned(),
            reply_to: Some("answers".to_owned()),
            ..Outgoing::default()
        };
        let expected = raw(&[
            ("a", Some(b"1")),
            ("a", Some(b"2")),
            ("b", Some(b"\xff\x00")),
            ("c", Some(b"new")),
            ("CorrelationId", Some(b"77")),
            ("ReplyTo", Some(b"answers")),
        ]);
        assert_eq!(outgoing(&message, &origin), expected);
    }

    /// A linear search for each name would take minutes.
    #[test]
    fn a_great_many_headers_take_no_long_time() {
        let raw: Raw = (0..300_000)
            .map(|n| (format!("header {n}"), Some("value".into())))
            .collect();
        let headers = all_as_text(&raw);
        assert_eq!(headers.len(), raw.len());
        let message = Outgoing {
            headers,
            ..Outgoing::default()
        };
        assert_eq!(outgoing(&message, &raw), raw);
    }

    #[test]
    fn an_answers_content_type_is_the_one_that_the_record_has() {
        let origin = raw(&[("content-type", Some(b"text/xml"))]);
        let message = Outgoing {
            headers: vec![pair("Content-Type", "text/json"), pair("a", "1")],
            content_type: Some("text/xml".to_owned()),
            ..Outgoing::default()
        };
        let expected = raw(&[("a", Some(b"1")), ("content-type", Some(b"text/json"))]);
        assert_eq!(outgoing(&message, &origin), expected);
    }

    #[test]
    fn ours_are_told_from_theirs() {
        let both = raw(&[
            ("a", Some(b"1")),
            (DUE, Some(b"7")),
            (STEP_HEADER, Some(b"2")),
            (OCCURRENCE_HEADER, Some(b"id")),
        ]);
        let theirs = raw(&[
            ("a", Some(b"1")),
            (STEP_HEADER, Some(b"2")),
            (OCCURRENCE_HEADER, Some(b"id")),
        ]);
        assert_eq!(not_ours(&both), theirs);
        assert_eq!(own(vec![(DUE, "7".to_owned())]), raw(&[(DUE, Some(b"7"))]));
    }
}
