//! A short word for visitors that take whatever value is there.

/// Declares that a visitor is also the seed that asks for whatever value is there.
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
