//! Between rows and messages. Rows are read leniently, since any program may have written them:
//! only headers that are no JSON object can't be made sense of. No statement is run here.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use rusqlite::types::{ToSqlOutput, ValueRef};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::dead_letter::header;
use crate::delivery::Headers;
use crate::names::OWN_HEADER_PREFIX;
use crate::trace_context::SpanContext;

/// A body as it is stored: as text where it is, so that people can read and edit it.
pub(crate) fn body_value(body: &[u8]) -> ToSqlOutput<'_> {
    // A NUL would end the text in many a client.
    let text = !body.contains(&0) && std::str::from_utf8(body).is_ok();
    ToSqlOutput::Borrowed(if text {
        ValueRef::Text(body)
    } else {
        ValueRef::Blob(body)
    })
}

/// A body as it is read, whatever its type.
pub(crate) fn body_bytes(value: ValueRef<'_>) -> Bytes {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        ValueRef::Integer(number) => number.to_string().into(),
        ValueRef::Real(number) => number.to_string().into(),
        ValueRef::Null => Bytes::new(),
    }
}

/// How many bytes a value takes in memory, without reading it.
pub(crate) fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Null => 8,
    }
}

/// A text column; none if it is NULL or empty.
pub(crate) fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            (!text.is_empty()).then(|| text.into_owned())
        }
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    }
}

/// A counter; what is out of its range becomes the nearest that is not.
pub(crate) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Headers as they are stored: a JSON object, in order.
pub(crate) fn headers_json(headers: &Headers) -> String {
    let mut json = Vec::with_capacity(2 + headers.len() * 32);
    let mut serializer = serde_json::Serializer::new(&mut json);
    let pairs = headers.iter().map(|(name, value)| (name, value));
    // Strings into a Vec: neither can fail.
    let written = serde::Serializer::collect_map(&mut serializer, pairs);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8(json).unwrap_or_else(|_| "{}".to_owned())
}

/// Headers as a worker gets them: every value in its text form, ganger's own left out; and of these
/// the span of the last attempt. An error says what is wrong with the text.
pub(crate) fn headers(value: ValueRef<'_>) -> Result<(Headers, Option<SpanContext>), String> {
    let mut headers = all_headers(value)?;
    let span = headers.iter().find(|(name, _)| name == header::SPAN);
    let span = span.and_then(|(_, value)| SpanContext::parse(value));
    headers.retain(|(name, _)| !name.starts_with(OWN_HEADER_PREFIX));
    Ok((headers, span))
}

/// Headers as they are stored, ganger's own included.
pub(crate) fn all_headers(value: ValueRef<'_>) -> Result<Headers, String> {
    let json = match value {
        ValueRef::Text(b"{}") | ValueRef::Null => return Ok(Headers::new()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes),
        ValueRef::Integer(_) | ValueRef::Real(_) => Cow::Borrowed("a number"),
    };
    parse(&json).map_err(|error| format!("the headers must be a JSON object: {error}"))
}

fn parse(json: &str) -> Result<Headers, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let headers = deserializer.deserialize_map(InOrder)?;
    deserializer.end()?;
    Ok(headers)
}

/// serde_json's own map would sort the names.
struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Headers::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            headers.push((name, as_text(value)));
        }
        Ok(headers)
    }
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<Headers, String> {
        headers(ValueRef::Text(json.as_bytes())).map(|(headers, _)| headers)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn every_value_has_a_text_form_and_ours_are_hidden() {
        let json =
            r#"{"z":1,"a":"x","b":true,"n":null,"f":1.5,"o":{"k":[1]},"x-ganger-attempt":"3"}"#;
        let expected = [
            pair("z", "1"),
            pair("a", "x"),
            pair("b", "true"),
            pair("n", ""),
            pair("f", "1.5"),
            pair("o", r#"{"k":[1]}"#),
        ];
        assert_eq!(read(json).unwrap(), expected);
    }

    #[test]
    fn what_is_no_object_is_told() {
        for json in ["", "[]", "7", "{", "{} {}", r#"{"a":}"#, "null"] {
            let error = read(json).unwrap_err();
            assert!(
                error.starts_with("the headers must be a JSON object: "),
                "{error}"
            );
        }
        headers(ValueRef::Integer(7)).unwrap_err();
        assert_eq!(headers(ValueRef::Null).unwrap(), (Vec::new(), None));
    }

    #[test]
    fn text_stays_text_and_bytes_stay_bytes() {
        let is_text = |body| matches!(body_value(body), ToSqlOutput::Borrowed(ValueRef::Text(_)));
        assert!(is_text("grüß".as_bytes()) && is_text(b""));
        assert!(!is_text(b"\xff") && !is_text(b"a\0b"));
        assert_eq!(body_bytes(ValueRef::Integer(42)), "42");
        assert_eq!(
            body_bytes(ValueRef::Text(b"\xff")),
            Bytes::from_static(b"\xff")
        );
    }

    #[test]
    fn counters_out_of_range_are_bounded() {
        assert_eq!((count(-5), count(7), count(1 << 40)), (0, 7, u32::MAX));
    }

    proptest! {
        #[test]
        fn headers_survive(pairs in proptest::collection::vec((".*", ".*"), 0..8)) {
            let json = headers_json(&pairs);
            prop_assert_eq!(all_headers(ValueRef::Text(json.as_bytes())).unwrap(), pairs);
        }
    }
}
