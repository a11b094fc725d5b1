//! Descriptions of the keys: made by the reader, shown by the reference and the schema.

/// Description of a key, for the reference and the schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    /// Its name.
    pub(super) name: &'static str,
    /// Its alias, the name in the seed system.
    pub(super) alias: Option<&'static str>,
    /// Its meaning, in a sentence.
    pub(super) meaning: &'static str,
    /// A value must be given.
    pub(super) required: bool,
    /// Kinds of source, or of pools on them, that the key is limited to, if it is.
    pub(super) whose: Option<&'static str>,
    /// Its type.
    pub(super) shape: Shape,
}

/// Type of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// One value.
    Value {
        /// The kind and its bounds.
        kind: String,
        /// The kind's JSON Schema.
        schema: serde_json::Value,
        /// The default, as it would be written.
        default: Option<String>,
    },
    /// Keys that the user names, with values of one kind.
    Map {
        /// Description of the map's keys.
        keys: &'static str,
        /// Kind of the map's values.
        kind: String,
        /// The kind's JSON Schema.
        schema: serde_json::Value,
    },
    /// One value, or a table.
    Either {
        /// The value's kind and its bounds.
        kind: String,
        /// The kind's JSON Schema.
        schema: serde_json::Value,
        /// The default, as it would be written.
        default: Option<String>,
        /// The table's keys.
        keys: Vec<Key>,
    },
    /// A table.
    Table(Vec<Key>),
    /// A table, or `"off"`.
    Switch(Vec<Key>),
    /// Tables that the user names.
    Tables(Vec<Key>),
    /// An array of tables.
    List(Vec<Key>),
}

impl Shape {
    /// Returns the keys of a table of this shape; none if it is a value alone.
    pub(super) fn keys(&self) -> Option<&[Key]> {
        match self {
            Self::Value { .. } | Self::Map { .. } => None,
            Self::Either { keys, .. }
            | Self::Table(keys)
            | Self::Switch(keys)
            | Self::Tables(keys)
            | Self::List(keys) => Some(keys),
        }
    }
}
