//! The values of the protocol's maps: their encoding, and how liberally they are decoded. The
//! assignment of keys to values is made elsewhere.

use std::fmt;

use bytes::Bytes;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::seed::seed;
use super::text::AnyAsText;
use ganger_core::message::{Headers, Property};
use ganger_core::names;

/// Maximum number of bytes that an error quotes of a text in the wrong place.
const QUOTE_BYTES_MAX: usize = 40;

/// Maximum number of headers or properties in one frame: far beyond use, near enough that a frame
/// full of tiny ones does not take many times its size in memory.
pub(super) const ENTRIES_MAX: usize = 10_000;

/// Maximum number of entries reserved because a map announces them.
const ENTRIES_RESERVED_MAX: usize = 16;

/// Returns whether a header of that name is ganger's own, hidden from workers and not taken from
/// them.
pub(super) fn is_own_header(name: &str) -> bool {
    let prefix = names::OWN_HEADER_PREFIX.as_bytes();
    let start = name.as_bytes().get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns the error for a text where something else belongs, quoting only the start of a long
/// text.
pub(super) fn unexpected_text<E: Error>(text: &str, expected: &dyn serde::de::Expected) -> E {
    E::invalid_type(Unexpected::Str(quote(text)), expected)
}

/// Returns as much of `text` as an error may quote.
pub(super) fn quote(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUOTE_BYTES_MAX)]
}

/// A body to encode: as text where possible, so that every worker can read it.
pub(super) enum Body<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

impl<'a> Body<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Binary(bytes), Self::Text)
    }
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Binary(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}

/// A map of texts to encode, from a function that iterates over the pairs: once to count them, once
/// to write them.
pub(super) struct HeaderMap<F>(pub(super) F);

impl<'a, F, I> Serialize for HeaderMap<F>
where
    F: Fn() -> I,
    I: Iterator<Item = (&'a str, &'a str)>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some((self.0)().count()))?;
        for (name, value) in (self.0)() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A decoded body.
#[derive(Debug)]
pub(super) enum OwnedBody {
    Text(Bytes),
    Binary(Bytes),
}

impl Default for OwnedBody {
    fn default() -> Self {
        Self::Text(Bytes::new())
    }
}

impl OwnedBody {
    pub(super) fn bytes(self) -> Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

/// A body: text, bytes, or nil for an empty one. Text that is not UTF-8 counts as bytes.
pub(super) struct BodyValue;

seed!(BodyValue => OwnedBody);

impl Visitor<'_> for BodyValue {
    type Value = OwnedBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, binary or nil")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OwnedBody, E> {
        Ok(OwnedBody::Text(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<OwnedBody, E> {
        Ok(OwnedBody::Binary(Bytes::copy_from_slice(bytes)))
    }

    fn visit_unit<E: Error>(self) -> Result<OwnedBody, E> {
        Ok(OwnedBody::default())
    }
}

/// A whole number that fits 64 bits with a sign.
pub(super) struct IntegerValue;

seed!(IntegerValue => i64);

impl Visitor<'_> for IntegerValue {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        let expected = &"an integer below 2^63";
        i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), expected))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        Err(unexpected_text(text, &self))
    }
}

/// A whole number that is not negative; none for nil.
pub(super) struct NonNegativeValue;

seed!(NonNegativeValue => Option<u64>);

impl Visitor<'_> for NonNegativeValue {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer from 0 to 2^64-1, or nil")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<u64>, E> {
        Ok(Some(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<u64>, E> {
        u64::try_from(number)
            .map(Some)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
        Err(unexpected_text(text, &self))
    }
}

/// Text; none for nil.
pub(super) struct TextValue;

seed!(TextValue => Option<String>);

impl Visitor<'_> for TextValue {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or nil")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }
}

/// Headers: a map of anything to anything, each in its text form; none for nil.
pub(super) struct HeadersValue;

seed!(HeadersValue => Option<Headers>);

impl<'de> Visitor<'de> for HeadersValue {
    type Value = Option<Headers>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {ENTRIES_MAX} headers, or nil")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Headers>, A::Error> {
        let mut headers = Vec::with_capacity(capacity(&map, &self)?);
        while let Some(name) = map.next_key_seed(AnyAsText)? {
            if is_own_header(&name) {
                map.next_value::<IgnoredAny>()?;
            } else {
                headers.push((name, map.next_value_seed(AnyAsText)?));
            }
        }
        Ok(Some(headers))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Headers>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Headers>, E> {
        Err(unexpected_text(text, &self))
    }
}

/// Refuses a map of too many entries before the first is read; otherwise returns the number to
/// reserve.
fn capacity<'de, A: MapAccess<'de>>(
    map: &A,
    expected: &dyn serde::de::Expected,
) -> Result<usize, A::Error> {
    let entries = map.size_hint().unwrap_or(0);
    if entries > ENTRIES_MAX {
        return Err(A::Error::invalid_length(entries, expected));
    }
    Ok(entries.min(ENTRIES_RESERVED_MAX))
}

/// Properties: a map of names to anything; none for nil.
pub(super) struct PropertiesValue;

seed!(PropertiesValue => Vec<(String, Property)>);

impl<'de> Visitor<'de> for PropertiesValue {
    type Value = Vec<(String, Property)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {ENTRIES_MAX} properties, or nil")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut properties = Vec::with_capacity(capacity(&map, &self)?);
        while let Some(name) = map.next_key_seed(AnyAsText)? {
            properties.push((name, map.next_value_seed(PropertyValue)?));
        }
        Ok(properties)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Err(unexpected_text(text, &self))
    }
}

/// One property; a value of another kind becomes text.
struct PropertyValue;

seed!(PropertyValue => Property);

impl<'de> Visitor<'de> for PropertyValue {
    type Value = Property;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Property, E> {
        Ok(Property::Boolean(yes))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Property, E> {
        Ok(Property::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Property, E> {
        Ok(i64::try_from(number)
            .map_or_else(|_| Property::Text(number.to_string()), Property::Integer))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Property, E> {
        AnyAsText.visit_f64(number).map(Property::Text)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Property, E> {
        AnyAsText.visit_str(text).map(Property::Text)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Property, E> {
        Ok(Property::Bytes(Bytes::copy_from_slice(bytes)))
    }

    fn visit_unit<E: Error>(self) -> Result<Property, E> {
        AnyAsText.visit_unit().map(Property::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Property, A::Error> {
        AnyAsText.visit_seq(seq).map(Property::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Property, A::Error> {
        AnyAsText.visit_map(map).map(Property::Text)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, ext: D) -> Result<Property, D::Error> {
        AnyAsText.visit_newtype_struct(ext).map(Property::Text)
    }
}
