//! Text form of a MessagePack value that holds no others.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::seed::seed;

/// Such a value as text: a string as it is, nil as nothing, a number in decimal, a timestamp by
/// RFC 3339, bytes as text if they are UTF-8 and else in base64.
///
/// As the name of an entry a list or a map is refused: its text would be quoted, and with it the
/// quotes of the names inside, so that a kilobyte of maps within names would make gigabytes of text.
pub(super) struct ScalarAsText;

seed!(ScalarAsText => String);

impl<'de> Visitor<'de> for ScalarAsText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name that is no list and no map")
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<String, E> {
        Ok(yes.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f32<E: Error>(self, number: f32) -> Result<String, E> {
        Ok(float_as_text(format!("{number:?}")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(float_as_text(format!("{number:?}")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(bytes_as_text(bytes))
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, ext: D) -> Result<String, D::Error> {
        let (kind, data) = serde::Deserialize::deserialize(ext)?;
        Ok(ext_as_text(kind, data))
    }
}

/// Returns the debug form, which is never long, unlike the display form of 1e300; but an integer
/// for a whole number, for languages that have no other numbers.
fn float_as_text(mut debug: String) -> String {
    if debug.ends_with(".0") {
        debug.truncate(debug.len() - ".0".len());
    }
    debug
}

fn bytes_as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => STANDARD.encode(bytes),
    }
}

/// MessagePack's type number for timestamps.
const TIMESTAMP: i8 = -1;

fn ext_as_text(kind: i8, data: &[u8]) -> String {
    let timestamp = (kind == TIMESTAMP).then(|| timestamp(data)).flatten();
    timestamp.map_or_else(|| STANDARD.encode(data), |moment| moment.to_string())
}

/// Decodes the three forms of a timestamp: 32 bits of seconds; 30 bits of nanoseconds and 34 of
/// seconds; 32 bits of nanoseconds and 64 of seconds.
fn timestamp(data: &[u8]) -> Option<jiff::Timestamp> {
    let (seconds, nanoseconds) = match data.len() {
        4 => (i64::from(u32::from_be_bytes(data.try_into().ok()?)), 0),
        8 => {
            let both = u64::from_be_bytes(data.try_into().ok()?);
            (
                i64::try_from(both & 0x3_ffff_ffff).ok()?,
                u32::try_from(both >> 34).ok()?,
            )
        }
        12 => {
            let (nanoseconds, seconds) = data.split_at(4);
            (
                i64::from_be_bytes(seconds.try_into().ok()?),
                u32::from_be_bytes(nanoseconds.try_into().ok()?),
            )
        }
        _ => return None,
    };
    jiff::Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()
}
