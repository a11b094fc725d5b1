//! `GANGER_*` variables that override keys: `GANGER_DAEMON__DRAIN_TIMEOUT`,
//! `GANGER_SOURCES__<NAME>__URL`, `GANGER_POOLS__<NAME>__RETRY__ATTEMPTS`, and the same for ADMIN and
//! TELEMETRY. Only these prefixes count; nothing here knows the meaning of a key.

use std::collections::BTreeSet;

use super::environment::Environment;
use super::problem::{Origin, Report};
use super::tree::{Entry, Node, Table, Value};

/// Replaces in `root` the keys that the environment overrides, or records why it can't.
pub(super) fn apply(root: &mut Table, environment: &Environment, report: &mut Report) {
    for (name, value) in environment {
        if let Some(target) = Target::of(name) {
            let text = report.variable(name, value);
            let span = 0..value.len();
            let origin = Origin { text, span };
            let node = Node::from_environment(value.clone(), origin.clone());
            if let Err(wrong) = target.apply(root, node) {
                let message = format!("{name} {}", wrong.message);
                report.add(&origin, "", message, &wrong.help);
            }
        }
    }
}

struct WrongOverride {
    message: String,
    help: String,
}

/// Target of a variable, by its name.
enum Target<'a> {
    Table(&'static str, &'a str),
    Source(&'a str),
    Pool(&'a str),
}

impl<'a> Target<'a> {
    fn of(variable: &'a str) -> Option<Self> {
        let rest = variable.strip_prefix("GANGER_")?;
        let (room, rest) = rest.split_once("__")?;
        match room {
            "ADMIN" => Some(Self::Table("admin", rest)),
            "ALERTS" => Some(Self::Table("alerts", rest)),
            "DAEMON" => Some(Self::Table("daemon", rest)),
            "TELEMETRY" => Some(Self::Table("telemetry", rest)),
            "SOURCES" => Some(Self::Source(rest)),
            "POOLS" => Some(Self::Pool(rest)),
            _ => None,
        }
    }

    fn apply(&self, root: &mut Table, node: Node) -> Result<(), WrongOverride> {
        match self {
            Self::Table(name, keys) => {
                let table = subtable(root, name, &node.origin)?;
                set(table, keys, node)
            }
            Self::Source(rest) => {
                let (table, keys) = find(sources(root), rest, "source")?;
                set(table, keys, node)
            }
            Self::Pool(rest) => {
                let (table, keys) = find(pools(root), rest, "pool")?;
                set(table, keys, node)
            }
        }
    }
}

fn sources(root: &mut Table) -> Vec<(String, &mut Table)> {
    let Some(Value::Table(sources)) = root.get_mut("sources").map(|e| &mut e.node.value) else {
        return Vec::new();
    };
    sources
        .iter_mut()
        .filter_map(|(name, entry)| Some((name.clone(), as_table(&mut entry.node)?)))
        .collect()
}

fn pools(root: &mut Table) -> Vec<(String, &mut Table)> {
    let Some(Value::List(pools)) = root.get_mut("pools").map(|e| &mut e.node.value) else {
        return Vec::new();
    };
    pools
        .iter_mut()
        .filter_map(|node| Some((node.name()?.to_owned(), as_table(node)?)))
        .collect()
}

fn as_table(node: &mut Node) -> Option<&mut Table> {
    match &mut node.value {
        Value::Table(table) => Some(table),
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::List(_)
        | Value::Date
        | Value::Broken(_) => None,
    }
}

/// Finds the table that the beginning of `rest` names, and the keys that follow. If one of two names
/// begins with the other, the longer is meant.
fn find<'t, 'r>(
    tables: Vec<(String, &'t mut Table)>,
    rest: &'r str,
    what: &str,
) -> Result<(&'t mut Table, &'r str), WrongOverride> {
    let names: BTreeSet<String> = tables.iter().map(|(name, _)| name.clone()).collect();
    let longest = names.iter().filter(|name| keys_of(rest, name).is_some());
    let longest = longest.map(String::len).max();
    let mut found = tables
        .into_iter()
        .filter_map(|(name, table)| Some((keys_of(rest, &name)?, name, table)))
        .filter(|(_, name, _)| Some(name.len()) == longest);
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let help = format!("there are: {}", known.join(", "));
    match (found.next(), found.next()) {
        (Some((keys, _, table)), None) => Ok((table, keys)),
        (Some((_, one, _)), Some((_, other, _))) => Err(WrongOverride {
            message: format!("can mean the {what} `{one}` and the {what} `{other}`"),
            help: "set the key in the file instead".into(),
        }),
        (None, _) => Err(WrongOverride {
            message: format!("names no {what} of the configuration"),
            help,
        }),
    }
}

/// Returns the text after `name` and two underscores in `rest`. Case does not matter, nor which character
/// stands for one that is neither letter nor digit: variables can't be spelt with it.
fn keys_of<'r>(rest: &'r str, name: &str) -> Option<&'r str> {
    let (start, end) = (rest.get(..name.len())?, rest.get(name.len()..)?);
    let same = start.bytes().zip(name.bytes()).all(|(a, b)| {
        let written = if b.is_ascii_alphanumeric() { b } else { b'_' };
        a.eq_ignore_ascii_case(&written)
    });
    same.then(|| end.strip_prefix("__")).flatten()
}

/// Sets the key at the path `keys`, creating tables as needed.
fn set(table: &mut Table, keys: &str, node: Node) -> Result<(), WrongOverride> {
    let (first, rest) = match keys.split_once("__") {
        Some((first, rest)) => (first, Some(rest)),
        None => (keys, None),
    };
    let key = first.to_ascii_lowercase();
    match rest {
        None if key == "name" => Err(WrongOverride {
            message: "can't rename it: other variables refer to it by its name".into(),
            help: "change the name in the file".into(),
        }),
        None => {
            insert(table, key, node);
            Ok(())
        }
        // The worker's variables keep their case.
        Some(variable) if key == "env" => {
            insert(subtable(table, &key, &node.origin)?, variable.into(), node);
            Ok(())
        }
        Some(rest) => set(subtable(table, &key, &node.origin)?, rest, node),
    }
}

fn insert(table: &mut Table, key: String, node: Node) {
    let origin = node.origin.clone();
    table.insert(key, Entry { key: origin, node });
}

fn subtable<'t>(
    table: &'t mut Table,
    key: &str,
    origin: &Origin,
) -> Result<&'t mut Table, WrongOverride> {
    let entry = table.entry(key.into()).or_insert_with(|| Entry {
        key: origin.clone(),
        node: Node {
            value: Value::Table(Table::new()),
            text: None,
            origin: origin.clone(),
        },
    });
    as_table(&mut entry.node).ok_or_else(|| WrongOverride {
        message: format!("leads into `{key}`, which is not a table"),
        help: format!("override `{key}` itself, or write it as a table"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_however_it_can_be_spelt() {
        for (rest, name, keys) in [
            ("EMAIL__WORKERS", "email", Some("WORKERS")),
            ("email__WORKERS", "Email", Some("WORKERS")),
            ("MY_MAIL__RETRY__MAX", "my-mail", Some("RETRY__MAX")),
            ("MY_MAIL__WORKERS", "my.mail", Some("WORKERS")),
            ("A__B__WORKERS", "a__b", Some("WORKERS")),
            ("A__B__WORKERS", "a", Some("B__WORKERS")),
            ("EMAILS__WORKERS", "email", None),
            ("EMAIL", "email", None),
            ("É__WORKERS", "e", None),
        ] {
            assert_eq!(keys_of(rest, name), keys, "{rest} {name}");
        }
    }

    #[test]
    fn other_variables_are_left_alone() {
        for name in [
            "GANGER_POOL",
            "GANGER_WORKER",
            "GANGER_PIPE",
            "GANGER_PROTOCOL",
        ] {
            assert!(Target::of(name).is_none(), "{name}");
        }
        for name in [
            "GANGER_CONFIG",
            "GANGER_LOG",
            "GANGER_DAEMON_X",
            "GANGER_OTHER__X",
            "PATH",
        ] {
            assert!(Target::of(name).is_none(), "{name}");
        }
    }
}
