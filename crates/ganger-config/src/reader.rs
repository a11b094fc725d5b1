//! Reads a table key by key. Every call that reads a key also describes it and records its value, so that
//! the reader, the reference, the schema and the printed configuration can't disagree: a key that is not
//! read here is unknown, and one that is read is documented and printed. Nothing here knows the meaning
//! of a key.

pub(super) mod either;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::description::{Key, Shape};
use super::print;
use super::print::{Page, Shown};
use super::problem::{Origin, Report};
use super::redact::is_secret;
use super::tree::{Node, Table, Value, join, json_of};
use super::value_types::{Kind, Wrong};
use ganger_core::suggest::nearest;

/// Word that turns off what is on by default.
const OFF: &str = "off";

/// Purpose for which keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Only their descriptions are wanted: maps and lists are entered once, problems are dropped.
    Describe,
    /// Their values are wanted, and how they are printed.
    Print,
    /// Only their values are wanted.
    Values,
}

/// Reads one table.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    table: Option<&'a Table>,
    path: String,
    /// Place of the table, for keys that are missing in it.
    origin: Origin,
    report: &'a Report,
    purpose: Purpose,
    /// Descriptions of the keys, if they are wanted.
    keys: Vec<Key>,
    /// Values of the keys, if they are printed.
    page: Page,
    /// Names of the keys that have been read, in their order.
    names: Vec<&'static str>,
    /// Keys of the table that are not unknown.
    known: BTreeSet<&'static str>,
    aliases: BTreeMap<&'static str, &'static str>,
    lenient: bool,
}

impl<'a> Reader<'a> {
    /// Makes a reader of the whole document.
    pub(super) fn new(table: &'a Table, origin: Origin, report: &'a Report) -> Self {
        Self {
            table: Some(table),
            path: String::new(),
            origin,
            report,
            purpose: Purpose::Print,
            keys: Vec::new(),
            page: Page::default(),
            names: Vec::new(),
            known: BTreeSet::new(),
            aliases: BTreeMap::new(),
            lenient: false,
        }
    }

    /// Makes a reader of a document that is not printed: that takes a fraction of the time.
    pub(super) fn of_values(table: &'a Table, report: &'a Report) -> Self {
        Self {
            purpose: Purpose::Values,
            ..Self::new(table, Origin::default(), report)
        }
    }

    /// Returns the descriptions of every key that `read` asks for.
    pub(super) fn describe<T>(read: impl FnOnce(&mut Reader<'_>) -> T) -> Vec<Key> {
        let (table, report) = (Table::new(), Report::default());
        let mut reader = Reader {
            purpose: Purpose::Describe,
            ..Reader::new(&table, Origin::default(), &report)
        };
        read(&mut reader);
        reader.keys
    }

    /// Reads a key with a default, written as in a variable: text needs no quotes.
    pub(super) fn or<K: Kind>(
        &mut self,
        name: &'static str,
        kind: K,
        default: &'static str,
        meaning: &'static str,
    ) -> K::Value {
        self.add_value(name, &kind, Some(default), false, meaning);
        let value = self.read(name, &kind).unwrap_or_else(|| {
            let node = Node::from_environment(default.into(), Origin::default());
            let default = kind.read(&node);
            default.unwrap_or_else(|wrong| panic!("the default of {name} {}", wrong.rule))
        });
        self.print_value(name, &kind, Some(&value));
        value
    }

    /// Reads an optional key.
    pub(super) fn maybe<K: Kind>(
        &mut self,
        name: &'static str,
        kind: K,
        meaning: &'static str,
    ) -> Option<K::Value> {
        self.add_value(name, &kind, None, false, meaning);
        let value = self.read(name, &kind);
        self.print_value(name, &kind, value.as_ref());
        value
    }

    /// Reads a required key. If it is missing or wrong the problem is recorded, and the value returned is
    /// never used.
    pub(super) fn must<K: Kind>(
        &mut self,
        name: &'static str,
        kind: K,
        meaning: &'static str,
    ) -> K::Value
    where
        K::Value: Default,
    {
        self.add_value(name, &kind, None, true, meaning);
        if !self.has(name) {
            self.missing(name, meaning);
        }
        let value = self.read(name, &kind);
        self.print_value(name, &kind, value.as_ref());
        value.unwrap_or_default()
    }

    /// Reads keys that the user names. `check` validates a name.
    pub(super) fn map<K: Kind, N: Ord>(
        &mut self,
        name: &'static str,
        keys: &'static str,
        check: impl Fn(&str) -> Result<N, Wrong>,
        kind: K,
        meaning: &'static str,
    ) -> BTreeMap<N, K::Value> {
        let shape = self.shape(|| Shape::Map {
            keys,
            kind: kind.describe(),
            schema: kind.schema(),
        });
        self.add(name, shape, false, meaning);
        let (mut values, mut shown) = (BTreeMap::new(), Vec::new());
        let path = join(&self.path, name);
        for (key, entry) in self.subtable(name).into_iter().flat_map(|(table, _)| table) {
            let path = join(&path, key);
            let checked = check(key).map_err(|wrong| self.wrong_at(&entry.key, &path, &wrong));
            let value = self.read_node(&entry.node, &path, &kind);
            if let (Ok(checked), Some(value)) = (checked, value) {
                let value_shown = match is_secret(key) {
                    true => print::hidden(key),
                    false => kind.show(&value),
                };
                shown.push((print::key(key), value_shown));
                values.insert(checked, value);
            }
        }
        self.print(name, Some(print::table(shown)));
        values
    }

    /// Reads a table; if it is left out, its keys have their defaults.
    pub(super) fn table<T>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> T,
    ) -> T {
        let (table, origin) = match self.subtable(name) {
            Some((table, origin)) => (Some(table), origin),
            None => (None, self.origin.clone()),
        };
        let mut reader = self.child(table, origin, join(&self.path, name));
        let value = read(&mut reader);
        let (keys, page) = reader.finish();
        self.page.set(name, Some(Shown::Table(page)));
        let shape = self.shape(|| Shape::Table(keys));
        self.add(name, shape, false, meaning);
        value
    }

    /// Reads a table, or `"off"` for none; if it is left out, its keys have their defaults.
    pub(super) fn switch<T>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        read: impl FnOnce(&mut Reader<'a>) -> T,
    ) -> Option<T> {
        let off = self
            .node(name)
            .is_some_and(|node| node.as_text() == Some(OFF));
        let found = if off { None } else { self.subtable(name) };
        let (table, origin) = found.map_or_else(
            || (None, self.origin.clone()),
            |(table, origin)| (Some(table), origin),
        );
        let mut reader = self.child(table, origin, join(&self.path, name));
        let value = read(&mut reader);
        let (keys, page) = reader.finish();
        let shown = match off {
            true => Shown::Value(print::text(OFF)),
            false => Shown::Table(page),
        };
        self.page.set(name, Some(shown));
        let shape = self.shape(|| Shape::Switch(keys));
        self.add(name, shape, false, meaning);
        (!off).then_some(value)
    }

    /// Reads tables that the user names. `check` validates a name.
    pub(super) fn tables<T>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        check: impl Fn(&str) -> Result<(), Wrong>,
        mut read: impl FnMut(&mut Reader<'a>) -> T,
    ) -> BTreeMap<String, T> {
        let path = join(&self.path, name);
        let keys = self.keys_of(&mut read);
        let (mut values, mut pages) = (BTreeMap::new(), Vec::new());
        for (key, entry) in self.subtable(name).into_iter().flat_map(|(table, _)| table) {
            let path = join(&path, key);
            if let Err(wrong) = check(key) {
                self.wrong_at(&entry.key, &path, &wrong);
            }
            if let Some(table) = self.as_table(&entry.node, &path) {
                let mut reader = self.child(Some(table), entry.key.clone(), path);
                values.insert(key.clone(), read(&mut reader));
                pages.push((key.clone(), reader.finish().1));
            }
        }
        self.page.set(name, Some(Shown::Tables(pages)));
        let shape = self.shape(|| Shape::Tables(keys));
        self.add(name, shape, true, meaning);
        values
    }

    /// Reads an array of tables, each shown under its name once it has one.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        meaning: &'static str,
        mut read: impl FnMut(&mut Reader<'a>) -> T,
    ) -> Vec<T> {
        let path = join(&self.path, name);
        let keys = self.keys_of(&mut read);
        let (mut values, mut pages) = (Vec::new(), Vec::new());
        for (index, node) in self.nodes(name).iter().enumerate() {
            let path = match node.name() {
                Some(name) => join(&path, name),
                None => format!("{path}[{index}]"),
            };
            if let Some(table) = self.as_table(node, &path) {
                let mut reader = self.child(Some(table), node.origin.clone(), path);
                values.push(read(&mut reader));
                pages.push(reader.finish().1);
            }
        }
        self.page.set(name, Some(Shown::List(pages)));
        let shape = self.shape(|| Shape::List(keys));
        self.add(name, shape, true, meaning);
        values
    }

    /// Reads keys that only some kinds of thing have. For other kinds they are refused with that word,
    /// and nothing is read.
    pub(super) fn only<T>(
        &mut self,
        whose: &'static str,
        is_one: bool,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        if is_one || self.is_describing() {
            let others = self.keys.len();
            let value = read(self);
            let own = self.keys.iter_mut().skip(others);
            own.for_each(|key| key.whose = Some(whose));
            return Some(value);
        }
        let mut foreign = self.child(None, self.origin.clone(), self.path.clone());
        foreign.purpose = Purpose::Describe;
        read(&mut foreign);
        for key in foreign.finish().0 {
            self.known.insert(key.name);
            if let Some(entry) = self.table.and_then(|table| table.get(key.name)) {
                let path = join(&self.path, key.name);
                let message = format!("{path} is a setting for {whose} only");
                self.report.add(&entry.key, &path, message, "leave it out");
            }
        }
        None
    }

    /// Accepts `alias` as another name of the key `name`, which is read after this.
    pub(super) fn alias(&mut self, name: &'static str, alias: &'static str) {
        self.known.insert(alias);
        self.aliases.insert(name, alias);
        let entry = |name: &str| self.table.and_then(|table| table.get(name));
        if let (Some(one), Some(other)) = (entry(name), entry(alias))
            && !self.is_variable(&one.node)
            && !self.is_variable(&other.node)
        {
            let path = join(&self.path, alias);
            let message = format!("{path} is another name of `{name}`, which is set too");
            self.report
                .add(&other.key, &path, message, "keep one of the two");
        }
    }

    /// Hides the value of a key in problems.
    pub(super) fn hide(&self, name: &str) {
        if let Some(node) = self.node(name) {
            node.hide_in(self.report);
        }
    }

    /// Reports nothing more of this table, since its subject is wrong.
    pub(super) fn give_up(&mut self) {
        self.lenient = true;
    }

    /// Sets the printed value of a key where it is not the value read: one combined with others, or
    /// nothing.
    pub(super) fn print(&mut self, name: &'static str, shown: Option<String>) {
        self.page.set(name, shown.map(Shown::Value));
    }

    /// Returns whether a value is given, right or wrong.
    pub(super) fn has(&self, name: &str) -> bool {
        self.node(name).is_some()
    }

    /// Records that a key breaks a rule that concerns more than itself.
    pub(super) fn wrong(&self, name: &str, wrong: &Wrong) {
        let path = join(&self.path, name);
        match self.node(name) {
            Some(node) => self.wrong_at(&node.origin, &path, wrong),
            None => self.add_problem(&self.origin, &path, format!("{path} {}", wrong.rule), wrong),
        }
    }

    /// Records a problem of a schedule. Its key may lead into tables and lists, as `only.days[0]`.
    pub(super) fn problem(&self, problem: &ganger_schedule::problem::Problem) {
        let path = match problem.key.as_str() {
            "" => self.path.clone(),
            key => join(&self.path, key),
        };
        let node = self.deepest(&problem.key);
        let origin = node.map_or(&self.origin, |node| &node.origin);
        let at = problem.at.clone().zip(node);
        let origin = match at.and_then(|(at, node)| node.part(at)) {
            Some(part) => &part.clone(),
            None => origin,
        };
        let message = match path.as_str() {
            "" => problem.wrong.clone(),
            path => format!("{path}: {}", problem.wrong),
        };
        let wrong = Wrong::new("", problem.right.as_str());
        self.add_problem(origin, &path, message, &wrong);
    }

    /// Returns the value that a path of keys and indices leads to, as far as it is given.
    fn deepest(&self, path: &str) -> Option<&'a Node> {
        let mut steps = path.split(['.', '[']);
        let mut node = self.node(steps.next()?)?;
        for step in steps {
            let next = match &node.value {
                Value::Table(table) => table.get(step).map(|entry| &entry.node),
                Value::List(list) => {
                    let index = step.trim_end_matches(']').parse::<usize>();
                    index.ok().and_then(|index| list.get(index))
                }
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        Some(node)
    }

    /// Returns the keys of the table as they are given, as JSON.
    pub(super) fn given(&self) -> Map<String, Json> {
        self.table.map(json_of).unwrap_or_default()
    }

    /// Returns whether only the descriptions of keys are wanted.
    pub(super) fn is_describing(&self) -> bool {
        self.purpose == Purpose::Describe
    }

    /// Records that a key is missing.
    pub(super) fn missing(&self, name: &str, help: &str) {
        self.wrong(name, &Wrong::new("is missing", help));
    }

    /// Returns the place of a key's value, or of the table if it is not given.
    pub(super) fn place(&self, name: &str) -> String {
        let origin = self.node(name).map_or(&self.origin, |node| &node.origin);
        self.report.place(origin)
    }

    /// Returns the value of a key under either of its names; if both are set, the one from a variable.
    fn node(&self, name: &str) -> Option<&'a Node> {
        let table = self.table?;
        let alias = self.aliases.get(name).and_then(|alias| table.get(*alias));
        let entry = match (table.get(name), alias) {
            (Some(_), Some(alias)) if self.is_variable(&alias.node) => Some(alias),
            (own, alias) => own.or(alias),
        };
        entry.map(|entry| &entry.node)
    }

    fn is_variable(&self, node: &Node) -> bool {
        self.report.is_variable(&node.origin)
    }

    fn nodes(&self, name: &str) -> &'a [Node] {
        match self.node(name).map(|node| (&node.value, node)) {
            None => &[],
            Some((Value::List(list), _)) => list,
            Some((_, node)) => {
                let path = join(&self.path, name);
                let help = format!("write [[{name}]] above each");
                let wrong = Wrong::new("must be an array of tables", help);
                self.wrong_at(&node.origin, &path, &wrong);
                &[]
            }
        }
    }

    fn subtable(&self, name: &str) -> Option<(&'a Table, Origin)> {
        let entry = self.table?.get(name)?;
        let table = self.as_table(&entry.node, &join(&self.path, name))?;
        Some((table, entry.key.clone()))
    }

    fn as_table(&self, node: &'a Node, path: &str) -> Option<&'a Table> {
        if let Value::Table(table) = &node.value {
            return Some(table);
        }
        let no_table = || Wrong::new("must be a table", "write it as { key = value }");
        self.wrong_at(
            &node.origin,
            path,
            &Wrong::of(node).unwrap_or_else(no_table),
        );
        None
    }

    fn read<K: Kind>(&self, name: &str, kind: &K) -> Option<K::Value> {
        self.read_node(self.node(name)?, &join(&self.path, name), kind)
    }

    fn read_node<K: Kind>(&self, node: &Node, path: &str, kind: &K) -> Option<K::Value> {
        let wrong = |wrong| self.wrong_at(&node.origin, path, &wrong);
        let value = Wrong::of(node).map_or_else(|| kind.read(node), Err);
        value.map_err(wrong).ok()
    }

    fn wrong_at(&self, origin: &Origin, path: &str, wrong: &Wrong) {
        let (origin, path) = match &wrong.element {
            Some((index, origin)) => (origin, &*format!("{path}[{index}]")),
            None => (origin, path),
        };
        let shown = self.report.shown(origin);
        // What is read from JSON has no text of its own.
        let message = match shown.is_empty() {
            true => format!("{path} {}", wrong.rule),
            false => format!("{path} {}: `{shown}`", wrong.rule),
        };
        self.add_problem(origin, path, message, wrong);
    }

    fn add_problem(&self, origin: &Origin, path: &str, message: String, wrong: &Wrong) {
        if !self.is_describing() && !self.lenient {
            self.report.add(origin, path, message, &wrong.help);
        }
    }

    fn child(&self, table: Option<&'a Table>, origin: Origin, path: String) -> Reader<'a> {
        Reader {
            table,
            path,
            origin,
            report: self.report,
            purpose: self.purpose,
            keys: Vec::new(),
            page: Page::default(),
            names: Vec::new(),
            known: BTreeSet::new(),
            aliases: BTreeMap::new(),
            lenient: false,
        }
    }

    /// Describes the keys of a table that may occur any number of times.
    fn keys_of<T>(&self, read: &mut impl FnMut(&mut Reader<'a>) -> T) -> Vec<Key> {
        if !self.is_describing() {
            return Vec::new();
        }
        let mut reader = self.child(None, self.origin.clone(), String::new());
        read(&mut reader);
        reader.finish().0
    }

    fn add_value<K: Kind>(
        &mut self,
        name: &'static str,
        kind: &K,
        default: Option<&str>,
        required: bool,
        meaning: &'static str,
    ) {
        let shape = self.shape(|| Shape::Value {
            kind: kind.describe(),
            schema: kind.schema(),
            default: default.map(shown_default),
        });
        self.add(name, shape, required, meaning);
    }

    /// Makes the shape of a key, if it is wanted.
    fn shape(&self, make: impl FnOnce() -> Shape) -> Option<Shape> {
        self.is_describing().then(make)
    }

    fn add(
        &mut self,
        name: &'static str,
        shape: Option<Shape>,
        required: bool,
        meaning: &'static str,
    ) {
        if self.known.insert(name) {
            self.names.push(name);
        }
        self.keys.extend(shape.map(|shape| Key {
            name,
            alias: self.aliases.get(name).copied(),
            meaning,
            required,
            whose: None,
            shape,
        }));
    }

    fn print_value<K: Kind>(&mut self, name: &'static str, kind: &K, value: Option<&K::Value>) {
        if self.purpose == Purpose::Print {
            self.print(name, value.map(|value| kind.show(value)));
        }
    }

    /// Reports the keys that nothing asked for, and returns the descriptions and values of the others.
    pub(super) fn finish(self) -> (Vec<Key>, Page) {
        let unknown = self
            .table
            .into_iter()
            .flatten()
            .filter(|(name, _)| !self.lenient && !self.known.contains(name.as_str()));
        for (name, entry) in unknown {
            let path = join(&self.path, name);
            let message = format!("{path} is not a known key");
            let help = self.suggestion(name);
            self.report.add(&entry.key, &path, message, &help);
            entry.node.hide_in(self.report);
        }
        (self.keys, self.page)
    }

    fn suggestion(&self, name: &str) -> String {
        let names = self.names.iter().copied();
        match nearest(name, names.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", names.collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Returns a default as it is written in a file.
fn shown_default(default: &str) -> String {
    match Node::from_environment(default.into(), Origin::default()).value {
        Value::Text(_) => format!("{default:?}"),
        _ => default.into(),
    }
}
