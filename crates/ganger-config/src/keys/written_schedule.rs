//! A schedule that is written outside a configuration: in a request, in a file, on a command line.

use std::cell::LazyCell;

use serde_json::{Map, Value as Json};

use ganger_schedule::zone::Zones;

use super::schedules::{SOURCE, check_exchange, read, source, stored};
use crate::environment::Environment;
use crate::model::{Config, ScheduleConfig};
use crate::problem::{Origin, Problems, Report};
use crate::reader::Reader;
use crate::tree::{self, Entry, Node, Table, Value};
use crate::value_types::word;

/// Keys that give way to another one of a later place.
const REPLACED: [(&str, &[&str]); 5] = [
    ("cron", &["every", "offset", "at"]),
    ("every", &["cron", "dialect", "at"]),
    ("at", &["cron", "dialect", "every", "offset"]),
    ("queue", &["exchange", "routing_key"]),
    ("exchange", &["queue"]),
];

/// A key that is given by itself.
#[derive(Debug, Clone)]
pub struct GivenKey {
    /// Its place, for people, such as `--cron`.
    pub place: String,
    /// The key; that of a table within a table as in `misfire.policy`.
    pub key: String,
    /// Its value as it is written: TOML, or a text.
    pub value: String,
    /// The value is a text, even if it reads as TOML.
    pub is_text: bool,
}

/// A schedule as it is written. What comes later replaces what comes before.
#[derive(Debug, Default)]
pub struct WrittenSchedule<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its keys, as in `[[schedules]]`.
    pub keys: Map<String, Json>,
    /// The name and the text of a TOML file with its keys.
    pub file: Option<(&'a str, &'a str)>,
    /// Variables that the file may name.
    pub environment: Environment,
    /// Further keys. A text that is given several times is a list.
    pub given: Vec<GivenKey>,
    /// Configuration whose sources it may name; none if another daemon has them.
    pub config: Option<&'a Config>,
}

impl WrittenSchedule<'_> {
    /// Reads the schedule as that of a configuration is read.
    ///
    /// # Errors
    /// Every problem.
    pub fn read(self, zones: &Zones) -> Result<ScheduleConfig, Problems> {
        let mut report = Report::default();
        let place = format!("schedule {}", self.name);
        report.file(&place, &Json::from(self.keys.clone()).to_string());
        let mut table = Node::table_of(&self.keys);
        if let Some((name, text)) = self.file {
            let number = report.file(name, text);
            let Some(later) = tree::parse(text, number, &self.environment, &report) else {
                return Err(report.into_problems().of("definition"));
            };
            give_way(&mut table, &later);
            table.extend(later);
        }
        let later = given(self.given, &mut report);
        give_way(&mut table, &later);
        merge(&mut table, later);
        check_name(&mut table, self.name, &report);
        let zones = LazyCell::new(|| zones.clone());
        let mut t = Reader::of_values(&table, &report);
        let source = match self.config {
            Some(config) => source(&mut t, &config.sources, config.ledger.as_ref()),
            None => t.maybe("source", word(), SOURCE),
        };
        let schedule = read(&mut t, source, None, &zones);
        if let (Some(schedule), Some(config)) = (&schedule, self.config) {
            check_exchange(&mut t, schedule, &config.sources);
        }
        t.finish();
        match schedule.filter(|_| report.is_clean()) {
            // What is stored must read as the same.
            Some(schedule) => stored(self.name, &schedule.definition, &zones),
            None => Err(report.into_problems().of("definition")),
        }
    }
}

/// Changes keys as a JSON Merge Patch (RFC 7396) does: a null takes a key out, a table is merged, any other value
/// replaces the one before. A key also replaces others that it excludes.
pub fn patch(keys: &mut Map<String, Json>, change: Map<String, Json>) {
    for (key, others) in REPLACED {
        if change.get(key).is_some_and(|value| !value.is_null()) {
            others.iter().for_each(|other| drop(keys.remove(*other)));
        }
    }
    merge_json(keys, change);
}

fn merge_json(keys: &mut Map<String, Json>, change: Map<String, Json>) {
    for (key, value) in change {
        match value {
            Json::Null => drop(keys.remove(&key)),
            Json::Object(change) => {
                let mut inside = match keys.remove(&key) {
                    Some(Json::Object(inside)) => inside,
                    _ => Map::new(),
                };
                merge_json(&mut inside, change);
                keys.insert(key, Json::Object(inside));
            }
            value => drop(keys.insert(key, value)),
        }
    }
}

/// Sets the name, which may be written only as it is.
fn check_name(table: &mut Table, name: &str, report: &Report) {
    let own = Node::entry_of(&Json::from(name));
    let written = table.insert("name".to_owned(), own);
    let other = written.filter(|entry| entry.node.as_text() != Some(name));
    if let Some(entry) = other {
        let message = format!("name must be `{name}`, or be left out");
        report.add(&entry.node.origin, "name", message, "leave it out");
    }
}

/// Takes those keys out that give way to later ones.
fn give_way(table: &mut Table, later: &Table) {
    for (key, others) in REPLACED {
        if later.contains_key(key) {
            others.iter().for_each(|other| drop(table.remove(*other)));
        }
    }
}

/// Makes a table of keys that are given one by one.
fn given(keys: Vec<GivenKey>, report: &mut Report) -> Table {
    let mut table = Table::new();
    for given in keys {
        let origin = Origin {
            text: report.file(&given.place, &given.value),
            span: 0..given.value.len(),
        };
        let node = match given.is_text {
            true => Node {
                value: Value::Text(given.value),
                text: None,
                origin: origin.clone(),
            },
            false => Node::from_environment(given.value, origin.clone()),
        };
        insert(&mut table, &given.key, Entry { key: origin, node });
    }
    table
}

/// Adds a key, whose name may be that of a table and one in it.
fn insert(table: &mut Table, key: &str, entry: Entry) {
    if let Some((outer, inner)) = key.split_once('.') {
        let (key, origin) = (entry.key.clone(), entry.node.origin.clone());
        let inside = table.entry(outer.to_owned()).or_insert_with(|| Entry {
            key,
            node: Node {
                value: Value::Table(Table::new()),
                text: None,
                origin,
            },
        });
        match &mut inside.node.value {
            Value::Table(inside) => insert(inside, inner, entry),
            other => *other = Value::Table(Table::from([(inner.to_owned(), entry)])),
        }
        return;
    }
    let Some(before) = table.remove(key) else {
        table.insert(key.to_owned(), entry);
        return;
    };
    let list = match before.node.value {
        Value::List(mut list) => {
            list.push(entry.node);
            list
        }
        value => vec![
            Node {
                value,
                ..before.node
            },
            entry.node,
        ],
    };
    let node = Node {
        value: Value::List(list),
        text: None,
        origin: entry.key.clone(),
    };
    let key_origin = entry.key;
    table.insert(
        key.to_owned(),
        Entry {
            key: key_origin,
            node,
        },
    );
}

/// Merges later keys into a table, table by table.
fn merge(table: &mut Table, later: Table) {
    for (key, entry) in later {
        match (
            table.get_mut(&key).map(|entry| &mut entry.node.value),
            entry.node.value,
        ) {
            (Some(Value::Table(before)), Value::Table(later)) => merge(before, later),
            (_, value) => {
                let node = Node {
                    value,
                    ..entry.node
                };
                table.insert(
                    key,
                    Entry {
                        key: entry.key,
                        node,
                    },
                );
            }
        }
    }
}
