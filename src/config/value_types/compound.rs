//! The kinds of value that are made of others.

use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

use super::{Integer, Kind, Node, Value, Wrong, integer};

/// `"auto"` or a whole number.
#[derive(Debug, Clone)]
pub(crate) struct AutoOr<V> {
    auto: V,
    number: Integer<usize>,
    make: fn(usize) -> V,
}

pub(crate) fn auto_or<V>(auto: V, range: RangeInclusive<usize>, make: fn(usize) -> V) -> AutoOr<V> {
    let number = integer(range);
    AutoOr { auto, number, make }
}

impl<V: Copy> Kind for AutoOr<V> {
    type Value = V;

    fn read(&self, node: &Node) -> Result<V, Wrong> {
        if node.as_text() == Some("auto") {
            return Ok(self.auto);
        }
        let or_auto =
            |wrong: Wrong| Wrong::new(format!("{} or `\"auto\"`", wrong.rule), wrong.help);
        self.number.read(node).map(self.make).map_err(or_auto)
    }

    fn describe(&self) -> String {
        format!("`\"auto\"` or {}", self.number.describe())
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [{ "const": "auto" }, self.number.schema()] })
    }
}

/// A list of values of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListOf<K>(K);

pub(crate) fn list_of<K>(kind: K) -> ListOf<K> {
    ListOf(kind)
}

impl<K: Kind> Kind for ListOf<K> {
    type Value = Vec<K::Value>;

    fn read(&self, node: &Node) -> Result<Self::Value, Wrong> {
        let Value::List(list) = &node.value else {
            let help = "write it between brackets, as in [\"one\", \"two\"]";
            return Err(Wrong::new("must be a list", help));
        };
        let read = |(index, node): (usize, &Node)| {
            let element = Some((index, node.origin.clone()));
            let wrong = |wrong| Wrong { element, ..wrong };
            self.0.read(node).map_err(wrong)
        };
        list.iter().enumerate().map(read).collect()
    }

    fn describe(&self) -> String {
        format!("list of {}", self.0.describe())
    }

    fn schema(&self) -> Json {
        json!({ "type": "array", "items": self.0.schema() })
    }
}

/// A kind with a word of its own on what would be right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hinted<K> {
    kind: K,
    hint: &'static str,
}

pub(crate) fn hinted<K>(kind: K, hint: &'static str) -> Hinted<K> {
    Hinted { kind, hint }
}

impl<K: Kind> Kind for Hinted<K> {
    type Value = K::Value;

    fn read(&self, node: &Node) -> Result<K::Value, Wrong> {
        let hinted = |wrong| Wrong {
            help: self.hint.into(),
            ..wrong
        };
        self.kind.read(node).map_err(hinted)
    }

    fn describe(&self) -> String {
        self.kind.describe()
    }

    fn schema(&self) -> Json {
        self.kind.schema()
    }
}
