//! The kinds of value that are built from others.

use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

use super::{Integer, Kind, Node, Value, Wrong, integer, print};

/// `"auto"`, read as none, or a whole number.
#[derive(Debug, Clone)]
pub(crate) struct AutoOr(Integer<usize>);

pub(crate) fn auto_or(range: RangeInclusive<usize>) -> AutoOr {
    AutoOr(integer(range))
}

impl Kind for AutoOr {
    type Value = Option<usize>;

    fn read(&self, node: &Node) -> Result<Option<usize>, Wrong> {
        if node.as_text() == Some("auto") {
            return Ok(None);
        }
        let or_auto =
            |wrong: Wrong| Wrong::new(format!("{} or `\"auto\"`", wrong.rule), wrong.help);
        self.0.read(node).map(Some).map_err(or_auto)
    }

    fn show(&self, value: &Option<usize>) -> String {
        value.map_or_else(|| print::text("auto"), |number| self.0.show(&number))
    }

    fn describe(&self) -> String {
        format!("`\"auto\"` or {}", self.0.describe())
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [{ "const": "auto" }, self.0.schema()] })
    }
}

/// `"off"`, read as none, or a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffOr<K>(K);

pub(crate) fn off_or<K>(kind: K) -> OffOr<K> {
    OffOr(kind)
}

impl<K: Kind> Kind for OffOr<K> {
    type Value = Option<K::Value>;

    fn read(&self, node: &Node) -> Result<Self::Value, Wrong> {
        if node.as_text() == Some("off") {
            return Ok(None);
        }
        let or_off = |wrong: Wrong| Wrong::new(format!("{} or `\"off\"`", wrong.rule), wrong.help);
        self.0.read(node).map(Some).map_err(or_off)
    }

    fn show(&self, value: &Self::Value) -> String {
        let value = value.as_ref();
        value.map_or_else(|| print::text("off"), |value| self.0.show(value))
    }

    fn describe(&self) -> String {
        format!("`\"off\"` or {}", self.0.describe())
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [{ "const": "off" }, self.0.schema()] })
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

    fn show(&self, value: &Self::Value) -> String {
        print::list(value.iter().map(|value| self.0.show(value)))
    }

    fn describe(&self) -> String {
        format!("list of {}", self.0.describe())
    }

    fn schema(&self) -> Json {
        json!({ "type": "array", "items": self.0.schema() })
    }
}

/// One value of a kind, or a list of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneOrMore<K>(K);

pub(crate) fn one_or_more<K>(kind: K) -> OneOrMore<K> {
    OneOrMore(kind)
}

impl<K: Kind + Copy> Kind for OneOrMore<K> {
    type Value = Vec<K::Value>;

    fn read(&self, node: &Node) -> Result<Self::Value, Wrong> {
        match &node.value {
            Value::List(list) if list.is_empty() => {
                Err(Wrong::new("must have at least one value", ""))
            }
            Value::List(_) => list_of(self.0).read(node),
            _ => Ok(vec![self.0.read(node)?]),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        match value.as_slice() {
            [one] => self.0.show(one),
            _ => list_of(self.0).show(value),
        }
    }

    fn describe(&self) -> String {
        format!("{0} or list of {0}", self.0.describe())
    }

    fn schema(&self) -> Json {
        let several = json!({ "type": "array", "items": self.0.schema(), "minItems": 1 });
        json!({ "anyOf": [self.0.schema(), several] })
    }
}

/// A kind with a remedy of its own.
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

    fn show(&self, value: &K::Value) -> String {
        self.kind.show(value)
    }

    fn describe(&self) -> String {
        self.kind.describe()
    }

    fn schema(&self) -> Json {
        self.kind.schema()
    }
}
