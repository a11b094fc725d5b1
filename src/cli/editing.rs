//! `ganger schedule add` and `edit`: enter the definition of a schedule into the ledger.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use miette::bail;
use serde_json::{Map, Value as Json, json};

use super::backend::refusal;
use super::backend::{Address, Site};
use super::common::{CommandResult, Format, Output, environment};
use super::editor::{self, Edited};
use super::output;
use super::usage::wrong;
use ganger_config::model::{Config, ScheduleConfig};
use ganger_config::{GivenKey, WrittenSchedule};
use ganger_core::foreign;
use ganger_queue::ledger::difference::differences;
use ganger_queue::ledger::{Entered, Expected};
use ganger_schedule::zone::Zones;

/// Longest file with a definition, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Subcommand)]
pub(super) enum EditCommand {
    /// Add a schedule to the ledger, beside those of the configuration
    Add {
        /// Name of the schedule
        name: String,
        #[command(flatten)]
        keys: Keys,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Change keys of a schedule that the API or `add` has made; nothing is changed if another change comes between.
    /// Without a key, open the definition in $VISUAL or $EDITOR
    Edit {
        /// The schedule
        name: String,
        #[command(flatten)]
        keys: Keys,
        /// Key to take out, such as zone or misfire.policy; may be repeated
        #[arg(long, value_name = "KEY")]
        unset: Vec<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

/// Keys of a schedule, as in `[[schedules]]`.
#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// Cron expression; may be repeated
    #[arg(long, value_name = "EXPRESSION")]
    cron: Vec<String>,
    /// A period in absolute time, such as 90s or 1h 30m
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    /// One time: 2027-01-31T08:00:00, with Z, an offset or [Europe/Berlin] at its end
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Time zone by its IANA name, such as Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Queue that gets the messages; on Kafka the topic
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Source of the queue; if omitted, that of the ledger
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Body of the message: a template, such as {{ slot | date }}
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Rule for a slot while a run is open, such as skip or queue
    #[arg(long, value_name = "RULE")]
    overlap: Option<String>,
    /// Word by which people find it; may be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Its purpose, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Any other key, with a value as in TOML, or a text: misfire.policy=all, headers.tenant=blue; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A TOML file with the keys of [[schedules]], or stdin with `-`; options replace its keys
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Keys {
    /// Returns the keys that are given one by one.
    fn given(&self) -> miette::Result<Vec<GivenKey>> {
        let text = |key: &str, value: &String| GivenKey {
            place: format!("--{key}"),
            key: key.to_owned(),
            value: value.clone(),
            is_text: true,
        };
        let single = [
            ("every", &self.every),
            ("at", &self.at),
            ("zone", &self.zone),
            ("queue", &self.queue),
            ("source", &self.source),
            ("body", &self.body),
            ("overlap", &self.overlap),
            ("description", &self.description),
        ];
        let single = single.into_iter();
        let single = single.filter_map(|(key, value)| Some(text(key, value.as_ref()?)));
        let cron = self.cron.iter().map(|cron| text("cron", cron));
        let mut given: Vec<GivenKey> = cron.chain(single).collect();
        if !self.tag.is_empty() {
            given.push(GivenKey {
                place: "--tag".to_owned(),
                key: "tags".to_owned(),
                value: Json::from(self.tag.clone()).to_string(),
                is_text: false,
            });
        }
        for set in &self.set {
            let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                let set = foreign::line(set);
                return Err(wrong(format!("--set must be KEY=VALUE: `{set}`")));
            };
            given.push(GivenKey {
                place: format!("--set {key}"),
                key: key.trim().to_owned(),
                value: value.to_owned(),
                is_text: false,
            });
        }
        Ok(given)
    }

    /// Reads the schedule: these keys replace those that it has.
    fn schedule(
        &self,
        name: &str,
        keys: Map<String, Json>,
        config: Option<&Config>,
    ) -> miette::Result<ScheduleConfig> {
        let file = self.file.as_ref().map(read).transpose()?;
        let written = WrittenSchedule {
            name,
            keys,
            file: file
                .as_ref()
                .map(|(name, text)| (name.as_str(), text.as_str())),
            environment: environment(),
            given: self.given()?,
            config,
        };
        Ok(written.read(&Zones::load())?)
    }

    fn is_empty(&self) -> miette::Result<bool> {
        Ok(self.file.is_none() && self.given()?.is_empty())
    }
}

/// Returns the name and the text of a file.
fn read(path: &PathBuf) -> miette::Result<(String, String)> {
    let (name, text) = match path.as_os_str() == "-" {
        true => (
            "stdin".to_owned(),
            foreign::text(std::io::stdin(), FILE_BYTES_MAX),
        ),
        false => {
            let file = File::open(path).and_then(|file| foreign::text(file, FILE_BYTES_MAX));
            (path.display().to_string(), file)
        }
    };
    let text = text.map_err(|error| miette::miette!("{name}: {error}"))?;
    Ok((name, text))
}

pub(super) fn run(command: &EditCommand) -> CommandResult {
    match command {
        EditCommand::Add {
            name,
            keys,
            address,
            output,
        } => {
            let site = Site::at(address)?;
            if site.configured(name).is_some() {
                bail!("schedule `{name}` is in the configuration: change it there");
            }
            let schedule = keys.schedule(name, Map::new(), site.config())?;
            let entered = site.ledger()?.enter(&schedule, Some(&Expected::Absent));
            told(name, entered.map_err(refusal)?, &[], output.format)
        }
        EditCommand::Edit {
            name,
            keys,
            unset,
            address,
            output,
        } => edit(name, keys, unset, (address, output.format)),
    }
}

fn edit(
    name: &str,
    keys: &Keys,
    unset: &[String],
    (address, format): (&Address, Format),
) -> CommandResult {
    let is_given = !(unset.is_empty() && keys.is_empty()?);
    if !is_given && !editor::has_terminal() {
        return Err(wrong(
            "there is nothing to change: give a key, such as --cron, or --unset KEY; on a terminal an editor opens",
        ));
    }
    let site = Site::at(address)?;
    let mut ledger = site.ledger()?;
    let shown = ledger.schedule(name).map_err(refusal)?;
    if shown.schedule.origin == "file" {
        bail!("schedule `{name}` is in a configuration: change it there");
    }
    let Json::Object(mut before) = shown.definition.clone() else {
        bail!("the definition of schedule `{name}` is no JSON object: replace it as a whole");
    };
    let mut enter = |schedule: &ScheduleConfig| {
        let expected = Expected::OneOf(vec![shown.etag.clone()]);
        let entered = ledger.enter(schedule, Some(&expected)).map_err(refusal)?;
        let after: Json = serde_json::from_str(&schedule.definition).unwrap_or_default();
        let changed = differences(&shown.definition, &after).into_iter();
        let changed = changed.map(|difference| difference.key).collect();
        Ok::<(Entered, Vec<String>), miette::Report>((entered, changed))
    };
    if !is_given {
        let text = text_of(&before)?;
        let edited = editor::edited((&format!("ganger-{name}-"), ".toml"), &text)?;
        if edited.text == text {
            return told(name, Entered::Unchanged, &[], format);
        }
        let entered = rewritten(name, &edited, site.config()).and_then(|one| enter(&one));
        return match entered {
            Ok((entered, changed)) => told(name, entered, &changed, format),
            Err(error) => {
                edited.keep();
                Err(error)
            }
        };
    }
    for key in unset {
        if take_out(&mut before, key).is_none() {
            let key = foreign::line(key);
            return Err(wrong(format!(
                "schedule `{name}` has no key `{key}` to take out"
            )));
        }
    }
    let (entered, changed) = enter(&keys.schedule(name, before, site.config())?)?;
    told(name, entered, &changed, format)
}

/// Writes keys as TOML, as in `[[schedules]]`.
fn text_of(keys: &Map<String, Json>) -> miette::Result<String> {
    let table = toml::Value::try_from(keys).map(escaped);
    let text = table.and_then(|table| toml::to_string(&table));
    text.map_err(|error| {
        miette::miette!("the definition can't be written as TOML: give the keys to change, such as --cron: {error}")
    })
}

/// Escapes `$` in all texts, so that none names a variable.
fn escaped(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) => text.replace('$', "$$").into(),
        toml::Value::Array(list) => toml::Value::Array(list.into_iter().map(escaped).collect()),
        toml::Value::Table(table) => {
            let pairs = table.into_iter().map(|(key, value)| (key, escaped(value)));
            toml::Value::Table(pairs.collect())
        }
        other => other,
    }
}

/// Reads the schedule that an edited text defines as a whole.
fn rewritten(
    name: &str,
    edited: &Edited,
    config: Option<&Config>,
) -> miette::Result<ScheduleConfig> {
    let written = WrittenSchedule {
        name,
        file: Some((&edited.path(), &edited.text)),
        environment: environment(),
        config,
        ..WrittenSchedule::default()
    };
    Ok(written.read(&Zones::load())?)
}

/// Takes a key out; that of a table within a table as in `misfire.policy`. A table that is empty then is taken out, too.
fn take_out(keys: &mut Map<String, Json>, key: &str) -> Option<Json> {
    let Some((outer, inner)) = key.split_once('.') else {
        return keys.remove(key);
    };
    let table = keys.get_mut(outer)?.as_object_mut()?;
    let taken = take_out(table, inner)?;
    if table.is_empty() {
        keys.remove(outer);
    }
    Some(taken)
}

fn told(name: &str, entered: Entered, changed: &[String], format: Format) -> CommandResult {
    match format {
        Format::Json => output::json(&json!({ "schedule": name, "change": entered.as_str() }))?,
        Format::Text if changed.is_empty() => output::line(format!("{} {name}", entered.as_str()))?,
        Format::Text => {
            let changed = changed.join(", ");
            let changed = foreign::line(&changed);
            output::line(format!("{} {name}: {changed}", entered.as_str()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_reads_as_it_was_written() {
        let keys = json!({
            "cron": ["0 1 * * *", "H H * * *"], "queue": "q", "body": "{{ slot }} $HOME\n'''", "priority": 3,
            "headers": { "$a": "${b}" }, "misfire": { "policy": "once", "max": 3 }, "tags": ["$$"],
        });
        let text = text_of(keys.as_object().unwrap()).unwrap();
        let written = WrittenSchedule {
            name: "s",
            file: Some(("f", &text)),
            ..WrittenSchedule::default()
        };
        let schedule = written.read(&Zones::bundled()).unwrap();
        let read: Json = serde_json::from_str(&schedule.definition).unwrap();
        assert_eq!(read, keys);
    }

    #[test]
    fn a_key_is_taken_out_of_its_table() {
        let keys = json!({ "zone": "UTC", "misfire": { "policy": "all", "max": 3 }, "dst": { "gap": "skip" } });
        let mut keys = keys.as_object().unwrap().clone();
        for key in ["zone", "misfire.max", "dst.gap"] {
            assert!(take_out(&mut keys, key).is_some(), "{key}");
        }
        for key in ["zone", "misfire.grace", "queue.x"] {
            assert!(take_out(&mut keys, key).is_none(), "{key}");
        }
        assert_eq!(
            Json::Object(keys),
            json!({ "misfire": { "policy": "all" } })
        );
    }
}
