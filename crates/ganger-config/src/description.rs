//! What is known of each key: made by the reader, shown by the reference and the schema.

/// What is known of a key: for the reference and the schema.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    /// Its name.
    pub(super) name: &'static str,
    /// Its other name, that of the seed system.
    pub(super) alias: Option<&'static str>,
    /// What it means, in a sentence.
    pub(super) meaning: &'static str,
    /// Whether a value must be given.
    pub(super) required: bool,
    /// What it is for, where only some kinds of source, or pools on them, have it.
    pub(super) whose: Option<&'static str>,
    /// What it takes.
    pub(super) shape: Shape,
}

/// What a key takes.
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
        /// What its keys are.
        keys: &'static str,
        /// The kind of its values.
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
        default: String,
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
