//! Headers as a table stores them: a JSON object, in the original order.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use ganger_core::names::{ATTEMPTS_MAX_HEADER, OCCURRENCE_HEADER, OWN_HEADER_PREFIX, STEP_HEADER};
use ganger_queue::attempts;
use ganger_queue::delivery::Headers;

/// Returns the headers in their stored form.
pub(crate) fn json(headers: &Headers) -> String {
    let mut json = Vec::with_capacity(2 + headers.len() * 32);
    let mut serializer = serde_json::Serializer::new(&mut json);
    let pairs = headers.iter().map(|(name, value)| (name, value));
    // Strings written into a Vec: neither can fail.
    let written = serde::Serializer::collect_map(&mut serializer, pairs);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8(json).unwrap_or_else(|_| "{}".to_owned())
}

/// Parses stored headers, including ganger's own, each value in its text form.
///
/// # Errors
/// A description of the problem, if the text is no JSON object.
pub(crate) fn parse(json: &str) -> Result<Headers, String> {
    if json == "{}" {
        return Ok(Headers::new());
    }
    read(json).map_err(|error| format!("the headers must be a JSON object: {error}"))
}

/// Removes ganger's own headers, which a worker does not get.
pub(crate) fn not_ours(mut headers: Headers) -> Headers {
    headers.retain(|(name, _)| !name.starts_with(OWN_HEADER_PREFIX));
    headers
}

/// Returns the id of the occurrence that a message with these headers belongs to, ganger's own included.
pub(crate) fn occurrence(headers: &Headers) -> Option<Arc<str>> {
    let id = headers.iter().find(|(name, _)| name == OCCURRENCE_HEADER);
    id.map(|(_, id)| Arc::from(id.as_str()))
}

/// Returns the step of a long task that a message with these headers is, ganger's own included; 0 if none
/// is given.
pub(crate) fn step(headers: &Headers) -> u32 {
    let step = headers.iter().find(|(name, _)| name == STEP_HEADER);
    step.and_then(|(_, step)| step.parse().ok()).unwrap_or(0)
}

/// Returns the number of attempts that a message with these headers has, ganger's own included; none for that
/// of its pool.
pub(crate) fn attempts_max(headers: &Headers) -> Option<u32> {
    let most = headers.iter().find(|(name, _)| name == ATTEMPTS_MAX_HEADER);
    attempts::attempts_max(most.map(|(_, most)| most.as_str()))
}

fn read(json: &str) -> Result<Headers, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let headers = deserializer.deserialize_map(InOrder)?;
    deserializer.end()?;
    Ok(headers)
}

/// Visitor that keeps the order of the names, which serde_json's own map would sort.
struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Headers::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            headers.push((name, as_text(value).map_err(A::Error::custom)?));
        }
        Ok(headers)
    }
}

/// Returns a value as text: a string without its quotes, anything else as it is written, with every digit
/// of a number.
fn as_text(value: &RawValue) -> Result<String, serde_json::Error> {
    match value.get() {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => serde_json::from_str(text),
        other => Ok(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(parse(json).map(not_ours).unwrap(), expected);
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        for number in [
            "10.10",
            "18446744073709551616",
            "-0",
            "1e400",
            "1E+05",
            "0.1000000000000000055511151231257827",
            r#"{"b": 1.10, "a": [2.0], "b": 1e400}"#,
        ] {
            let json = format!("{{ \"n\" : {number}\n}}");
            assert_eq!(parse(&json).unwrap(), [pair("n", number)]);
        }
    }

    #[test]
    fn a_name_that_is_there_twice_stays_so() {
        let json = r#"{"a":1.0,"a":"\u0000\"x"}"#;
        assert_eq!(parse(json).unwrap(), [pair("a", "1.0"), pair("a", "\0\"x")]);
    }

    #[test]
    fn what_is_no_object_is_told() {
        for json in [
            "",
            "[]",
            "7",
            "{",
            "{} {}",
            r#"{"a":}"#,
            "null",
            r#"{"a":NaN}"#,
            r#"{"a":-Infinity}"#,
            r#"{"a":01}"#,
            r#"{"a":.5}"#,
            r#"{"a":"\ud800"}"#,
        ] {
            let error = parse(json).unwrap_err();
            assert!(
                error.starts_with("the headers must be a JSON object: "),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn headers_survive(pairs in proptest::collection::vec((".*", ".*"), 0..8)) {
            prop_assert_eq!(parse(&json(&pairs)).unwrap(), pairs);
        }
    }
}
