//! The content of the files and the environment, before any key is understood: values with their places,
//! variables expanded, files merged. Nothing here knows the meaning of a key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ops::Range;

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::environment::Environment;
use super::expand::expand;
use super::problem::{Origin, Report};

/// A table's keys.
pub(super) type Table = BTreeMap<String, Entry>;

/// One key of a table.
#[derive(Debug)]
pub(super) struct Entry {
    /// Place of the key.
    pub(super) key: Origin,
    /// Its value.
    pub(super) node: Node,
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    /// The value.
    pub(super) value: Value,
    /// The text, if it came from the environment: a text that looks like a number may be meant as text,
    /// and only the key's kind decides.
    pub(super) text: Option<String>,
    /// Place of the value.
    pub(super) origin: Origin,
}

impl Node {
    /// Returns the `name` that a table of an array gives itself.
    pub(super) fn name(&self) -> Option<&str> {
        let Value::Table(table) = &self.value else {
            return None;
        };
        let name = table.get("name")?.node.as_text()?;
        (!name.is_empty()).then_some(name)
    }

    /// Returns the place of a part of a text: of so many of its bytes. None if the text is not written
    /// as it is, between two quotes.
    pub(super) fn part(&self, bytes: Range<usize>) -> Option<Origin> {
        let Value::Text(text) = &self.value else {
            return None;
        };
        let Origin { text: file, span } = &self.origin;
        let first = span.start + 1;
        (span.len() == text.len() + 2 && bytes.end <= text.len()).then(|| Origin {
            text: *file,
            span: first + bytes.start..first + bytes.end,
        })
    }

    /// Hides all its texts in the report's output.
    pub(super) fn hide_in(&self, report: &Report) {
        match &self.value {
            Value::Text(_) => report.hide(&self.origin),
            Value::List(list) => list.iter().for_each(|node| node.hide_in(report)),
            Value::Table(table) => table.values().for_each(|entry| entry.node.hide_in(report)),
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Date
            | Value::Broken(_) => {}
        }
    }
}

/// A value.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    /// A date or a time: no key takes one.
    Date,
    /// A value that can't be used. Reading the key reports the reason.
    Broken(Broken),
}

/// Reason that a value can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// The rule that it breaks.
    pub(super) rule: String,
    /// Remedy.
    pub(super) help: &'static str,
}

/// Returns the keys of a table as JSON.
pub(super) fn json_of(table: &Table) -> Map<String, Json> {
    let keys = table.iter();
    keys.map(|(key, entry)| (key.clone(), entry.node.json()))
        .collect()
}

/// Remedy for a wrong variable.
const VARIABLE_HELP: &str =
    "set it, give it a default as in `${NAME:-default}`, or write `$$` for a dollar sign";

impl Node {
    /// Returns the text, if it is one or came from the environment.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => self.text.as_deref(),
        }
    }

    /// Returns the value as JSON, as [`Node::table_of`] reads it; what no key takes is null.
    pub(super) fn json(&self) -> Json {
        match &self.value {
            Value::Text(text) => Json::from(text.as_str()),
            Value::Integer(integer) => Json::from(*integer),
            Value::Float(float) => Json::from(*float),
            Value::Boolean(boolean) => Json::from(*boolean),
            Value::List(list) => list.iter().map(Self::json).collect(),
            Value::Table(table) => Json::Object(json_of(table)),
            Value::Date | Value::Broken(_) => Json::Null,
        }
    }

    /// Makes a table of a JSON object. Nothing in it has a place, and variables are not expanded. A key
    /// that is null is not given.
    pub(super) fn table_of(object: &Map<String, Json>) -> Table {
        let given = object.iter().filter(|(_, json)| !json.is_null());
        given
            .map(|(key, json)| (key.clone(), Self::entry_of(json)))
            .collect()
    }

    /// Makes an entry of a JSON value.
    pub(super) fn entry_of(json: &Json) -> Entry {
        let node = Self::of_json(json);
        let key = Origin::default();
        Entry { key, node }
    }

    fn of_json(json: &Json) -> Self {
        let value = match json {
            Json::String(text) => Value::Text(text.clone()),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Value::Integer(integer),
                (None, Some(float)) => Value::Float(float),
                (None, None) => broken("is too large a number", ""),
            },
            Json::Bool(boolean) => Value::Boolean(*boolean),
            Json::Array(list) => Value::List(list.iter().map(Self::of_json).collect()),
            Json::Object(object) => Value::Table(Self::table_of(object)),
            Json::Null => broken("is null", "leave it out"),
        };
        // What was written as a number of a variable may be meant as text.
        let text = json.is_number().then(|| json.to_string());
        Self {
            value,
            text,
            origin: Origin::default(),
        }
    }

    /// Makes a value of the environment: a number, a boolean, an array or a table if it reads as one in
    /// TOML, otherwise text.
    pub(super) fn from_environment(text: String, origin: Origin) -> Self {
        let parsed = DeValue::parse(&text).ok();
        let value = parsed
            .and_then(|value| plain(value.get_ref(), &origin))
            .unwrap_or_else(|| Value::Text(text.clone()));
        Self {
            value,
            text: Some(text),
            origin,
        }
    }
}

/// Converts a value without places of its own: everything in it is at `origin`. None for a text, and for
/// a type that no key takes.
fn plain(value: &DeValue<'_>, origin: &Origin) -> Option<Value> {
    let node = |value: &Spanned<DeValue<'_>>| {
        let value = match value.get_ref() {
            DeValue::String(text) => Some(Value::Text(text.to_string())),
            other => plain(other, origin),
        };
        value.map(|value| Node {
            value,
            text: None,
            origin: origin.clone(),
        })
    };
    match value {
        DeValue::Integer(integer) => as_i64(integer).map(Value::Integer),
        DeValue::Float(float) => float.as_str().parse().ok().map(Value::Float),
        DeValue::Boolean(boolean) => Some(Value::Boolean(*boolean)),
        DeValue::Array(list) => list
            .iter()
            .map(node)
            .collect::<Option<_>>()
            .map(Value::List),
        DeValue::Table(table) => table
            .iter()
            .map(|(key, value)| {
                let key_origin = origin.clone();
                node(value).map(|node| {
                    let entry = Entry {
                        key: key_origin,
                        node,
                    };
                    (key.get_ref().to_string(), entry)
                })
            })
            .collect::<Option<_>>()
            .map(Value::Table),
        DeValue::String(_) | DeValue::Datetime(_) => None,
    }
}

fn as_i64(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Parses one file's text. None if it is not TOML; the mistakes are recorded.
pub(super) fn parse(
    text: &str,
    number: usize,
    environment: &Environment,
    report: &Report,
) -> Option<Table> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let origin = Origin { text: number, span };
        let message = format!("this is not TOML: {}", error.message());
        report.add(
            &origin,
            "",
            message,
            "see https://toml.io for how TOML is written",
        );
    }
    if !errors.is_empty() {
        return None;
    }
    let builder = Builder {
        number,
        environment,
    };
    Some(builder.table(root.get_ref()))
}

struct Builder<'a> {
    number: usize,
    environment: &'a Environment,
}

impl Builder<'_> {
    fn table(&self, table: &DeTable<'_>) -> Table {
        table
            .iter()
            .map(|(key, value)| {
                let entry = Entry {
                    key: self.origin(key),
                    node: self.node(value),
                };
                (key.get_ref().to_string(), entry)
            })
            .collect()
    }

    fn node(&self, spanned: &Spanned<DeValue<'_>>) -> Node {
        let origin = self.origin(spanned);
        let value = match spanned.get_ref() {
            DeValue::String(text) => return self.string(text, origin),
            DeValue::Integer(integer) => {
                as_i64(integer).map_or_else(|| broken("is too large a number", ""), Value::Integer)
            }
            DeValue::Float(float) => {
                let float = float.as_str().parse();
                float.map_or_else(|_| broken("is not a number", ""), Value::Float)
            }
            DeValue::Boolean(boolean) => Value::Boolean(*boolean),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(list) => Value::List(list.iter().map(|node| self.node(node)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node {
            value,
            text: None,
            origin,
        }
    }

    fn string(&self, text: &str, origin: Origin) -> Node {
        let value = match expand(text, self.environment) {
            Ok(Some(expanded)) if text.contains("${") => {
                return Node::from_environment(expanded, origin);
            }
            Ok(expanded) => Value::Text(expanded.unwrap_or_else(|| text.into())),
            Err(error) => broken(error.to_string(), VARIABLE_HELP),
        };
        Node {
            value,
            text: None,
            origin,
        }
    }

    fn origin<T>(&self, spanned: &Spanned<T>) -> Origin {
        Origin {
            text: self.number,
            span: spanned.span(),
        }
    }
}

fn broken(rule: impl Into<String>, help: &'static str) -> Value {
    let rule = rule.into();
    Value::Broken(Broken { rule, help })
}

/// Arrays of tables to which each file may add.
const APPENDED: [&str; 3] = ["pools", "schedules", "subscriptions"];

/// Merges another file's content: tables merge, arrays of tables are appended, any other key may be set
/// once.
pub(super) fn merge(into: &mut Table, from: Table, path: &str, report: &Report) {
    for (name, entry) in from {
        let path = join(path, &name);
        match into.entry(name) {
            Slot::Vacant(slot) => {
                slot.insert(entry);
            }
            Slot::Occupied(slot) => merge_entry(slot.into_mut(), entry, &path, report),
        }
    }
}

fn merge_entry(old: &mut Entry, new: Entry, path: &str, report: &Report) {
    match (&mut old.node.value, new.node.value) {
        (Value::Table(old), Value::Table(new)) => merge(old, new, path, report),
        (Value::List(old), Value::List(new)) if APPENDED.contains(&path) => {
            old.extend(new);
        }
        _ => {
            let message = format!("{path} is set twice, first {}", report.place(&old.key));
            report.add(&new.key, path, message, "keep one of the two");
        }
    }
}

/// Returns the path of a key in a table.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.into()
    } else {
        format!("{path}.{name}")
    }
}
