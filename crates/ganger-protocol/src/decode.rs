//! Decoding of one frame: a map whose keys are the texts "0", "1" and so on. This file knows the
//! map's rules and their errors; the callers know the values.

use std::fmt;

use rmp_serde::decode::{Deserializer, Error as Malformation, ReadRefReader};
use serde::de::{DeserializeSeed, Deserializer as _, Error, IgnoredAny, MapAccess, Visitor};

use super::text::AnyAsText;
use super::value;

/// Maximum nesting of a frame, its own map included. Deep enough for any header, shallow enough for
/// any stack.
pub const DEPTH_MAX: usize = 64;

/// Reason for which a frame breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The frame does not hold a map.
    #[error("the frame must be a map: {why}")]
    NotAMap {
        /// The content found.
        why: String,
    },
    /// A key is not text.
    #[error("every key must be a string: {why}")]
    KeyNotText {
        /// The key found.
        why: String,
    },
    /// A value is not of its key's type, or not in its range.
    #[error("{place}: {why}")]
    WrongValue {
        /// The key.
        place: FramePlace,
        /// The value found, and what would be right.
        why: String,
    },
    /// A key of the protocol occurs twice.
    #[error("{place} must occur once: it is there twice")]
    RepeatedKey {
        /// The key.
        place: FramePlace,
    },
    /// A key that must be there is missing.
    #[error("{place} must be present: it is missing")]
    MissingKey {
        /// The key.
        place: FramePlace,
    },
    /// The frame ends before its map does.
    #[error("the map must be whole: the frame ends in the middle of {place}")]
    Truncated {
        /// Place of the end.
        place: FramePlace,
    },
    /// The frame goes on after its map.
    #[error("the frame must end with its map: more bytes follow")]
    TrailingBytes,
    /// Maps and arrays are nested beyond all reason.
    #[error("{place} must be nested at most {DEPTH_MAX} deep: it is deeper")]
    TooDeep {
        /// Place of the nesting.
        place: FramePlace,
    },
    /// A byte that MessagePack never uses.
    #[error("{place} must be MessagePack: it has the byte 0xc1")]
    NotMessagePack {
        /// Place of the byte.
        place: FramePlace,
    },
}

impl DecodeError {
    /// Returns the name that the test vectors have for this kind of error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotAMap { .. } => "not_a_map",
            Self::KeyNotText { .. } => "key_not_text",
            Self::WrongValue { .. } => "wrong_value",
            Self::RepeatedKey { .. } => "repeated_key",
            Self::MissingKey { .. } => "missing_key",
            Self::Truncated { .. } => "truncated",
            Self::TrailingBytes => "trailing_bytes",
            Self::TooDeep { .. } => "too_deep",
            Self::NotMessagePack { .. } => "not_messagepack",
        }
    }
}

/// A place in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePlace {
    /// The map itself, before its first key.
    Start,
    /// A key.
    Key,
    /// The value of a key of the protocol.
    Value {
        /// The key as a number.
        key: usize,
        /// Name of the key in the protocol.
        name: &'static str,
    },
    /// The value of a key that the protocol does not know.
    UnknownValue,
}

impl fmt::Display for FramePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => write!(f, "the frame"),
            Self::Key => write!(f, "a key"),
            Self::Value { key, name } => write!(f, "key \"{key}\" ({name})"),
            Self::UnknownValue => write!(f, "the value of an unknown key"),
        }
    }
}

type FrameReader<'a> = Deserializer<ReadRefReader<'a, [u8]>>;

/// The values of a frame, as one side's message defines them.
pub(super) trait Fields<'de>: Default {
    /// Names of the values; the key of each is its index.
    const NAMES: &'static [&'static str];
    /// Number of keys, from "0" on, that must be present.
    const REQUIRED: usize;

    /// Reads the value of `key`, which is the index of a name, and takes all of it from `map`.
    fn read<A: MapAccess<'de>>(&mut self, key: usize, map: &mut A) -> Result<(), A::Error>;
}

/// Decodes a frame that is one map and nothing more.
pub(super) fn decode<'de, F: Fields<'de>>(frame: &'de [u8]) -> Result<F, DecodeError> {
    let mut deserializer = reader(frame);
    let mut walk = Walk::<F>::new();
    if let Err(malformation) = deserializer.deserialize_any(&mut walk) {
        return Err(explain(malformation, walk.place, walk.repeated));
    }
    match is_at_end(&mut deserializer) {
        true => walk.finish(),
        false => Err(DecodeError::TrailingBytes),
    }
}

/// Returns the text form of a frame that is one value, no map, and nothing more.
pub(super) fn bare_value(frame: &[u8]) -> Option<String> {
    let is_map = matches!(frame.first()?, 0x80..=0x8f | 0xde | 0xdf);
    let mut deserializer = reader(frame);
    let text = AnyAsText.deserialize(&mut deserializer).ok()?;
    (!is_map && is_at_end(&mut deserializer)).then_some(text)
}

fn reader(frame: &[u8]) -> FrameReader<'_> {
    let mut deserializer = Deserializer::from_read_ref(frame);
    // Its counter refuses the level at which it reaches 0.
    deserializer.set_max_depth(DEPTH_MAX + 1);
    deserializer
}

fn is_at_end(deserializer: &mut FrameReader<'_>) -> bool {
    let next = deserializer.deserialize_any(Nothing);
    matches!(next, Err(Malformation::InvalidMarkerRead(_)))
}

/// Walks through the map, and keeps its place for errors.
struct Walk<F> {
    fields: F,
    /// One bit for each key that was met.
    met: u32,
    place: FramePlace,
    repeated: bool,
}

impl<'de, F: Fields<'de>> Walk<F> {
    fn new() -> Self {
        Self {
            fields: F::default(),
            met: 0,
            place: FramePlace::Start,
            repeated: false,
        }
    }

    fn place_of(key: usize) -> FramePlace {
        let name = F::NAMES[key];
        FramePlace::Value { key, name }
    }

    fn read_known<A: MapAccess<'de>>(&mut self, key: usize, map: &mut A) -> Result<(), A::Error> {
        self.place = Self::place_of(key);
        self.repeated = self.met & (1 << key) != 0;
        if self.repeated {
            return Err(A::Error::custom("it is there twice"));
        }
        self.met |= 1 << key;
        self.fields.read(key, map)
    }

    fn finish(self) -> Result<F, DecodeError> {
        match (0..F::REQUIRED).find(|key| self.met & (1 << key) == 0) {
            Some(missing) => Err(DecodeError::MissingKey {
                place: Self::place_of(missing),
            }),
            None => Ok(self.fields),
        }
    }
}

impl<'de, F: Fields<'de>> Visitor<'de> for &mut Walk<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            self.place = FramePlace::Key;
            let Some(key) = map.next_key_seed(Key {
                known: F::NAMES.len(),
            })?
            else {
                return Ok(());
            };
            if let Some(key) = key {
                self.read_known(key, &mut map)?;
            } else {
                self.place = FramePlace::UnknownValue;
                map.next_value::<IgnoredAny>()?;
            }
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Err(value::unexpected_text(text, &self))
    }
}

/// A key: its number, if it is one of the `known` ones.
struct Key {
    known: usize,
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(match text.as_bytes() {
            [digit @ b'0'..=b'9'] => {
                Some(usize::from(digit - b'0')).filter(|key| *key < self.known)
            }
            _ => None,
        })
    }
}

/// Accepts no value at all, which distinguishes the end of the frame from anything else.
struct Nothing;

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing more")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Err(value::unexpected_text(text, &self))
    }
}

/// Turns the reader's error into one of the protocol.
fn explain(malformation: Malformation, place: FramePlace, repeated: bool) -> DecodeError {
    match malformation {
        Malformation::InvalidMarkerRead(_) | Malformation::InvalidDataRead(_) => {
            DecodeError::Truncated { place }
        }
        Malformation::DepthLimitExceeded => DecodeError::TooDeep { place },
        Malformation::TypeMismatch(_)
        | Malformation::OutOfRange
        | Malformation::LengthMismatch(_)
        | Malformation::Uncategorized(_) => DecodeError::NotMessagePack { place },
        Malformation::Utf8Error(error) => {
            misplaced(place, format!("a string that is not UTF-8, {error}"))
        }
        Malformation::Syntax(_) if repeated => DecodeError::RepeatedKey { place },
        Malformation::Syntax(why) => misplaced(place, why),
    }
}

fn misplaced(place: FramePlace, why: String) -> DecodeError {
    let why = in_terms_of_messagepack(why);
    match place {
        FramePlace::Start => DecodeError::NotAMap { why },
        FramePlace::Key => DecodeError::KeyNotText { why },
        FramePlace::Value { .. } | FramePlace::UnknownValue => {
            DecodeError::WrongValue { place, why }
        }
    }
}

/// Replaces serde's own words for two of MessagePack's types.
fn in_terms_of_messagepack(why: String) -> String {
    for (serdes, ours) in [("unit value", "nil"), ("newtype struct", "extension")] {
        let rest = why.strip_prefix("invalid type: ");
        if let Some(expected) = rest.and_then(|rest| rest.strip_prefix(serdes)) {
            return format!("invalid type: {ours}{expected}");
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use super::super::Output;
    use super::*;

    fn error(frame: &[u8]) -> String {
        Output::decode(frame).unwrap_err().to_string()
    }

    #[test]
    fn errors_say_what_and_where_and_what_would_be_right() {
        let cases: [(&[u8], &str); 10] = [
            (
                b"\xc0",
                "the frame must be a map: invalid type: nil, expected a map",
            ),
            (
                b"\x82\xa10\xd4\x01\x02",
                "key \"0\" (message): invalid type: extension, expected a string, binary or nil",
            ),
            (
                b"\x05",
                "the frame must be a map: invalid type: integer `5`, expected a map",
            ),
            (
                b"\x81\x00\x00",
                "every key must be a string: invalid type: integer `0`, expected a string",
            ),
            (
                b"\x82\xa10\xa0\xa11\xa3abc",
                "key \"1\" (status): invalid type: string \"abc\", expected an integer",
            ),
            (
                b"\x81\xa10\xa0",
                "key \"1\" (status) must be present: it is missing",
            ),
            (
                b"\x82\xa10\xa0\xa10\xa0",
                "key \"0\" (message) must occur once: it is there twice",
            ),
            (
                b"\x82\xa10\xa5ab",
                "the map must be whole: the frame ends in the middle of key \"0\" (message)",
            ),
            (
                b"\x82\xa10\xa0\xa11\x00\xc0",
                "the frame must end with its map: more bytes follow",
            ),
            (
                b"\x81\xa14\xff",
                "key \"4\" (id): invalid value: integer `-1`, expected an integer from 0 to 2^64-1, or nil",
            ),
        ];
        for (frame, expected) in cases {
            assert_eq!(error(frame), expected);
        }
    }

    #[test]
    fn errors_quote_little_of_a_long_text() {
        let mut frame = b"\x81\xa11\xdb\x00\x10\x00\x00".to_vec();
        frame.resize(frame.len() + 0x10_0000, b'x');
        assert!(error(&frame).len() < 200);
    }

    #[test]
    fn a_value_that_is_no_map_has_a_text_form_if_it_is_whole_and_alone() {
        let cases: [(&[u8], Option<&str>); 12] = [
            (b"\xa4oops", Some("oops")),
            (b"\xd9\x04oops", Some("oops")),
            (b"\xc4\x04oops", Some("oops")),
            (b"\xc0", Some("")),
            (b"\xcd\x01\xf4", Some("500")),
            (b"\x92\xa1m\xcc\xc8", Some("[\"m\",200]")),
            (b"\xa4oop", None),
            (b"\xa4oops\xc0", None),
            (b"{\"0\":\"m\",\"1\":200}", None),
            (b"\x80", None),
            (b"\xde\x00\x00", None),
            (b"", None),
        ];
        for (frame, text) in cases {
            assert_eq!(bare_value(frame).as_deref(), text, "{frame:?}");
        }
    }

    #[test]
    fn nesting_is_allowed_up_to_the_limit() {
        let nested = |levels: usize| {
            let mut frame = b"\x83\xa10\xa0\xa11\x00\xa1z".to_vec();
            frame.resize(frame.len() + levels - 1, 0x91);
            frame.push(0xc0);
            Output::decode(&frame).map(|output| output.status.0)
        };
        assert_eq!(nested(DEPTH_MAX), Ok(0));
        let place = FramePlace::UnknownValue;
        assert_eq!(nested(DEPTH_MAX + 1), Err(DecodeError::TooDeep { place }));
        assert_eq!(nested(1_000_000), Err(DecodeError::TooDeep { place }));
    }
}
