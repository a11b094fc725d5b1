//! Places in the files of the keys of a configuration, for messages about one that is valid. Nothing here
//! decides what the messages say.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::load::read_all;
use super::problem::{Problem, Report};
use super::tree::{Node, Table, Value};
use super::{overrides, tree};

/// Path of a key from the root. An entry of a list, such as a pool, is called by its name.
type KeyPath<'a> = [&'a str];

/// The keys that are set, each with its place.
#[derive(Debug)]
pub struct Places {
    root: Table,
    report: Report,
    /// Directory that relative paths start from.
    pub(super) directory: PathBuf,
    /// The files by name with their content, and their directory if that is the configuration.
    files: Vec<(String, String)>,
}

impl Places {
    /// Reads the places in a configuration that loads. For one that does not, nothing is known.
    pub fn read(path: &Path, environment: &Environment) -> Self {
        let (directory, mut files) = read_all(path).unwrap_or_default();
        let mut report = Report::default();
        let mut root = Table::new();
        for (name, text) in &files {
            let number = report.file(name, text);
            if let Some(table) = tree::parse(text, number, environment, &report) {
                tree::merge(&mut root, table, "", &report);
            }
        }
        overrides::apply(&mut root, environment, &mut report);
        if path.is_dir() {
            files.push((path.to_string_lossy().into_owned(), String::new()));
        }
        Self {
            root,
            report,
            directory,
            files,
        }
    }

    /// Returns the files with their content, and their directory if that is the configuration.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Makes a message about the first of these keys that is set. If none is, it is about the first key,
    /// and its table is the place.
    pub fn about(&self, keys: &[&KeyPath<'_>], message: String, help: &str) -> Problem {
        let is_set =
            |key: &&&KeyPath<'_>| self.find(key).is_some_and(|(depth, _)| depth == key.len());
        let key = keys.iter().find(is_set).or(keys.first());
        let key = key.copied().unwrap_or_default();
        let place = self.find(key).map(|(_, node)| &node.origin);
        self.report.problem(place, &key.join("."), message, help)
    }

    /// Returns the text of a key, if it is set.
    pub(super) fn text(&self, key: &KeyPath<'_>) -> Option<&str> {
        let (depth, node) = self.find(key)?;
        node.as_text().filter(|_| depth == key.len())
    }

    /// Returns the texts of a key in the tables of a list.
    pub(super) fn texts(&self, list: &KeyPath<'_>, key: &str) -> Vec<&str> {
        let node = self.find(list).map(|(_, node)| &node.value);
        let Some(Value::List(tables)) = node else {
            return Vec::new();
        };
        let tables = tables.iter().filter_map(as_table);
        let nodes = tables.filter_map(|table| child(table, key));
        nodes.filter_map(Node::as_text).collect()
    }

    /// Follows the path as far as it is set; returns the number of keys, and the node there.
    fn find(&self, path: &KeyPath<'_>) -> Option<(usize, &Node)> {
        let mut table = &self.root;
        let mut found = None;
        let mut depth = 0;
        while let Some(name) = path.get(depth) {
            let (keys, node) = match child(table, name) {
                Some(node) => match path.get(depth + 1).and_then(|name| entry(node, name)) {
                    Some(entry) => (2, entry),
                    None => (1, node),
                },
                None => break,
            };
            depth += keys;
            found = Some((depth, node));
            match as_table(node) {
                Some(inner) => table = inner,
                None => break,
            }
        }
        found
    }
}

fn child<'a>(table: &'a Table, name: &str) -> Option<&'a Node> {
    table.get(name).map(|entry| &entry.node)
}

fn as_table(node: &Node) -> Option<&Table> {
    match &node.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// Returns the entry of a list of tables that has that name.
fn entry<'a>(list: &'a Node, name: &str) -> Option<&'a Node> {
    match &list.value {
        Value::List(entries) => entries.iter().find(|entry| entry.name() == Some(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str = "[sources.main]\nkind = \"rabbitmq\"\nurl = \"amqp://h/\"\n\n\
                        [[pools]]\nname = \"a\"\n\n[[pools]]\nname = \"b\"\ntimeout = \"1h\"\n";

    #[test]
    fn a_key_is_found_and_what_is_not_set_by_its_table() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), TEXT).unwrap();
        let places = Places::read(file.path(), &Environment::new());
        let url: &[&str] = &["sources", "main", "url"];
        let url_file: &[&str] = &["sources", "main", "url_file"];
        let cases: [(&[&KeyPath<'_>], &str, Option<usize>); 6] = [
            (&[url], "sources.main.url", Some(3)),
            (&[url_file, url], "sources.main.url", Some(3)),
            (&[url_file], "sources.main.url_file", Some(1)),
            (&[&["pools", "b", "timeout"]], "pools.b.timeout", Some(10)),
            (&[&["pools", "a", "timeout"]], "pools.a.timeout", Some(5)),
            (&[&["daemon"]], "daemon", None),
        ];
        for (keys, path, line) in cases {
            let said = places.about(keys, "it".to_owned(), "");
            assert_eq!((said.path.as_str(), said.line), (path, line));
        }
    }

    #[test]
    fn a_variable_is_the_place_of_what_it_sets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), TEXT).unwrap();
        let variable = "GANGER_POOLS__A__TIMEOUT";
        let environment = Environment::from([(variable.to_owned(), "2h".to_owned())]);
        let places = Places::read(file.path(), &environment);
        let said = places.about(&[&["pools", "a", "timeout"]], "it".to_owned(), "");
        assert_eq!(said.file, variable);
    }
}
