//! Text form of any MessagePack value, for headers and properties, which queues keep as text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::json::Json;
use super::scalar::ScalarAsText;
use super::seed::seed;

/// Decodes any value into its text form: a list or a map as JSON.
pub(super) struct AnyAsText;

seed!(AnyAsText => String);

impl<'de> Visitor<'de> for AnyAsText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<String, E> {
        ScalarAsText.visit_bool(yes)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        ScalarAsText.visit_i64(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        ScalarAsText.visit_u64(number)
    }

    fn visit_f32<E: Error>(self, number: f32) -> Result<String, E> {
        ScalarAsText.visit_f32(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        ScalarAsText.visit_f64(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        ScalarAsText.visit_str(text)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
        ScalarAsText.visit_bytes(bytes)
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        ScalarAsText.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<String, A::Error> {
        let mut text = String::new();
        Json(&mut text).visit_seq(seq)?;
        Ok(text)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<String, A::Error> {
        let mut text = String::new();
        Json(&mut text).visit_map(map)?;
        Ok(text)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, ext: D) -> Result<String, D::Error> {
        ScalarAsText.visit_newtype_struct(ext)
    }
}
