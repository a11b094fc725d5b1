//! JSON text of a nested header value, written while it is read, so that no tree of it is ever
//! built. Values that JSON has no form for become strings.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::scalar::ScalarAsText;
use super::seed::seed;

/// Appends one value to the text.
pub(super) struct Json<'a>(pub(super) &'a mut String);

seed!(Json<'_> => ());

impl Json<'_> {
    fn append<E>(self, text: &str) -> Result<(), E> {
        self.0.push_str(text);
        Ok(())
    }

    fn append_string<E: Error>(self, text: &str) -> Result<(), E> {
        let quoted = serde_json::to_string(text).map_err(E::custom)?;
        self.append(&quoted)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<(), E> {
        self.append(if yes { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.append(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.append(&number.to_string())
    }

    fn visit_f32<E: Error>(self, number: f32) -> Result<(), E> {
        self.append(&serde_json::to_string(&number).map_err(E::custom)?)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.append(&serde_json::to_string(&number).map_err(E::custom)?)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.append_string(text)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<(), E> {
        self.append_string(&ScalarAsText.visit_bytes::<E>(bytes)?)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.append("null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.push('[');
        let mut first = true;
        while seq
            .next_element_seed(Element {
                text: self.0,
                first,
            })?
            .is_some()
        {
            first = false;
        }
        self.append("]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push('{');
        let mut first = true;
        while let Some(name) = map.next_key_seed(ScalarAsText)? {
            if !first {
                self.0.push(',');
            }
            first = false;
            Json(self.0).append_string(&name)?;
            self.0.push(':');
            map.next_value_seed(Json(self.0))?;
        }
        self.append("}")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, ext: D) -> Result<(), D::Error> {
        self.append_string(&ScalarAsText.visit_newtype_struct(ext)?)
    }
}

/// A value of a list, with the comma before it.
struct Element<'a> {
    text: &'a mut String,
    first: bool,
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        if !self.first {
            self.text.push(',');
        }
        Json(self.text).deserialize(source)
    }
}
