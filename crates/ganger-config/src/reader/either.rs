//! Keys that take one value or a table, and keys whose table has a meaning by being there.

use super::{Reader, shown_default};
use crate::description::Shape;
use crate::print::Shown;
use crate::tree::{Value, join};
use crate::value_types::Kind;

/// A value, or the result of reading a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Either<V, T> {
    /// The value.
    Value(V),
    /// The result of reading the table.
    Table(T),
}

impl<'a> Reader<'a> {
    /// Reads a value of some kind, or a table; if it is left out, the value's default.
    pub(crate) fn or_table<K: Kind, T>(
        &mut self,
        name: &'static str,
        kind: K,
        default: &'static str,
        meaning: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> T,
    ) -> Either<K::Value, T> {
        let keys = self.keys_of(&mut read);
        let shape = self.shape(|| Shape::Either {
            kind: kind.describe(),
            schema: kind.schema(),
            default: Some(shown_default(default)),
            keys,
        });
        let either = match self.table_of(name, read) {
            Some(value) => Either::Table(value),
            None => Either::Value(self.or(name, kind, default, meaning)),
        };
        self.keys.retain(|key| key.name != name);
        self.add(name, shape, false, meaning);
        either
    }

    /// Reads a value of some kind, or a table; none if it is left out.
    pub(crate) fn maybe_table<K: Kind, T>(
        &mut self,
        name: &'static str,
        kind: K,
        meaning: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> T,
    ) -> Option<Either<K::Value, T>> {
        let keys = self.keys_of(&mut read);
        let shape = self.shape(|| Shape::Either {
            kind: kind.describe(),
            schema: kind.schema(),
            default: None,
            keys,
        });
        let either = match self.table_of(name, read) {
            Some(value) => Some(Either::Table(value)),
            None => self.maybe(name, kind, meaning).map(Either::Value),
        };
        self.keys.retain(|key| key.name != name);
        self.add(name, shape, false, meaning);
        either
    }

    /// Reads the table of a key whose value is one.
    fn table_of<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> T,
    ) -> Option<T> {
        let node = self.node(name)?;
        let Value::Table(table) = &node.value else {
            return None;
        };
        let mut reader = self.child(Some(table), node.origin.clone(), join(&self.path, name));
        let value = read(&mut reader);
        self.page.set(name, Some(Shown::Table(reader.finish().1)));
        Some(value)
    }

    /// Reads an optional table; none if it is left out.
    pub(crate) fn table_if_given<T>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> T,
    ) -> Option<T> {
        let keys = self.keys_of(&mut read);
        let given = self.subtable(name).map(|(table, origin)| {
            let mut reader = self.child(Some(table), origin, join(&self.path, name));
            let value = read(&mut reader);
            (value, reader.finish().1)
        });
        let shape = self.shape(|| Shape::Table(keys));
        self.add(name, shape, false, meaning);
        let (value, page) = given.unzip();
        self.page.set(name, page.map(Shown::Table));
        value
    }
}
