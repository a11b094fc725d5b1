//! Shorthand for visitors that accept any value.

/// Declares that a visitor is also the seed that asks for any value.
macro_rules! seed {
    ($visitor:ty => $value:ty) => {
        impl<'de> DeserializeSeed<'de> for $visitor {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<$value, D::Error> {
                source.deserialize_any(self)
            }
        }
    };
}
pub(super) use seed;
