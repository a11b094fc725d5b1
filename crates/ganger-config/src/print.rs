//! The effective configuration as TOML that loads again to the same model: the value of each key as the
//! reader records it. Nothing here knows a key.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::expand::escape;
use super::redact::{is_secret, redact};

const HEAD: &str = "\
# The effective configuration. Secrets are not shown: each is written as the environment variable
# of its name.
";

/// Values of a table's keys, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Page(Vec<(&'static str, Option<Shown>)>);

/// Value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// A value, as TOML writes it.
    Value(String),
    /// A table.
    Table(Page),
    /// Tables, by the names that the user gave.
    Tables(Vec<(String, Page)>),
    /// An array of tables.
    List(Vec<Page>),
}

impl Page {
    /// Sets the value of the key, replacing any earlier one. None if it is not to be shown, or was left
    /// out and has no default.
    pub(super) fn set(&mut self, key: &'static str, shown: Option<Shown>) {
        match self.0.iter_mut().find(|(other, _)| *other == key) {
            Some((_, known)) => *known = shown,
            None => self.0.push((key, shown)),
        }
    }

    fn given(&self) -> impl Iterator<Item = (&'static str, &Shown)> {
        let given = self.0.iter();
        given.filter_map(|(key, shown)| Some((*key, shown.as_ref()?)))
    }

    /// Returns the whole configuration as TOML; each key of this page is a section, or several.
    pub(super) fn whole(&self) -> String {
        let mut text = String::from(HEAD);
        for (name, shown) in self.given() {
            match shown {
                Shown::Value(value) => text.push_str(&format!("{name} = {value}\n")),
                Shown::Table(page) => page.section(&mut text, &format!("[{name}]")),
                Shown::Tables(pages) => {
                    for (own, page) in pages {
                        page.section(&mut text, &format!("[{name}.{}]", key(own)));
                    }
                }
                Shown::List(pages) => {
                    for page in pages {
                        page.section(&mut text, &format!("[[{name}]]"));
                    }
                }
            }
        }
        text
    }

    /// Returns every key by its dotted name, with its value.
    pub(super) fn flat(&self) -> BTreeMap<String, String> {
        let mut flat = BTreeMap::new();
        self.flatten("", &mut flat);
        flat
    }

    fn flatten(&self, path: &str, flat: &mut BTreeMap<String, String>) {
        for (name, shown) in self.given() {
            let path = join(path, name);
            match shown {
                Shown::Value(value) => drop(flat.insert(path, value.clone())),
                Shown::Table(page) => page.flatten(&path, flat),
                Shown::Tables(pages) => {
                    for (own, page) in pages {
                        page.flatten(&join(&path, &key(own)), flat);
                    }
                }
                Shown::List(pages) => {
                    for (index, page) in pages.iter().enumerate() {
                        let own = match page.name() {
                            Some(name) => join(&path, &key(&name)),
                            None => format!("{path}[{index}]"),
                        };
                        page.flatten(&own, flat);
                    }
                }
            }
        }
    }

    /// Returns the name of one of several tables, if it has one.
    fn name(&self) -> Option<String> {
        let (_, shown) = self.given().find(|(key, _)| *key == "name")?;
        let text = format!("name = {}", shown.inline());
        let table: toml::Table = text.parse().ok()?;
        Some(table.get("name")?.as_str()?.to_owned())
    }

    fn section(&self, text: &mut String, header: &str) {
        text.push_str(&format!("\n{header}\n"));
        for (key, shown) in self.given() {
            text.push_str(&format!("{key} = {}\n", shown.inline()));
        }
    }

    fn inline(&self) -> String {
        table(self.given().map(|(key, shown)| (key, shown.inline())))
    }
}

impl Shown {
    fn inline(&self) -> String {
        match self {
            Self::Value(value) => value.clone(),
            Self::Table(page) => page.inline(),
            Self::Tables(pages) => {
                table(pages.iter().map(|(name, page)| (key(name), page.inline())))
            }
            Self::List(pages) => list(pages.iter().map(Page::inline)),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    }
}

/// Returns a key as TOML. Keys are never expanded; between quotes, TOML writes them as JSON does.
pub(super) fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        name.into()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

/// Returns a text as TOML, with any secrets hidden.
pub(super) fn text(text: &str) -> String {
    toml::Value::String(escape(&redact(text))).to_string()
}

pub(super) fn float(number: f64) -> String {
    toml::Value::Float(number).to_string()
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

pub(super) fn table<K: Display>(pairs: impl IntoIterator<Item = (K, String)>) -> String {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}"));
    let pairs = pairs.collect::<Vec<_>>().join(", ");
    if pairs.is_empty() {
        "{}".into()
    } else {
        format!("{{ {pairs} }}")
    }
}

/// Returns a variable of the worker as TOML, hidden if it is a secret.
pub(super) fn variable(name: &str, value: &str) -> String {
    if is_secret(name) || redact(value) != value {
        format!("\"${{{name}}}\"")
    } else {
        text(value)
    }
}

/// Returns a secret of ours as a reference to the variable of its name.
pub(super) fn hidden(name: &str) -> String {
    let variable = name.to_ascii_uppercase().replace(['.', '-'], "_");
    format!("\"${{{variable}}}\"")
}
