//! `ganger schedule history`, `diff`, `rollback` and `audit`: what has changed, and who has changed it.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::backend::refusal;
use super::backend::{Address, ledger};
use super::common::{CommandResult, Format, Output};
use super::output;
use super::usage::wrong;
use ganger_queue::ledger::difference::{Difference, differences};
use ganger_queue::ledger::shown::{AuditJson, VersionJson};
use ganger_queue::ledger::{AUDIT_MAX, AuditFilter, Entered};

#[derive(Debug, Subcommand)]
pub(super) enum HistoryCommand {
    /// List the versions of a schedule, the newest first: when, from where and by whom each was made
    History {
        /// The schedule; also one that was removed, while its occurrences are kept
        name: String,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Show the difference of two versions of a schedule, key by key
    Diff {
        /// The schedule
        name: String,
        /// The earlier version; if omitted, the last but one
        from: Option<i64>,
        /// The later version; if omitted, the newest
        to: Option<i64>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Enter an earlier version of a schedule again, as a new one
    Rollback {
        /// The schedule
        name: String,
        /// Number of the version, as `history` shows it
        version: i64,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// List what operators have changed, the newest first
    Audit {
        /// Only changes of this schedule or occurrence
        #[arg(value_name = "NAME")]
        subject: Option<String>,
        /// Only changes before the one with this number: the last one of the list before
        #[arg(long, value_name = "ID")]
        before: Option<i64>,
        /// Maximum number of changes
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_MAX)))]
        limit: u32,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

pub(super) fn run(command: &HistoryCommand) -> CommandResult {
    match command {
        HistoryCommand::History {
            name,
            address,
            output,
        } => {
            let versions = ledger(address)?.versions(name).map_err(refusal)?;
            match output.format {
                Format::Json => output::json(&versions)?,
                Format::Text if versions.is_empty() => output::line("no daemon has seen it yet")?,
                Format::Text => output::line(history(&versions).trim_end())?,
            }
        }
        HistoryCommand::Diff {
            name,
            from,
            to,
            address,
            output,
        } => {
            let versions = ledger(address)?.versions(name).map_err(refusal)?;
            let compared = Compared::of(name, &versions, *from, *to)?;
            match output.format {
                Format::Json => output::json(&compared)?,
                Format::Text => output::line(compared.in_words().trim_end())?,
            }
        }
        HistoryCommand::Rollback {
            name,
            version,
            address,
            output,
        } => {
            let entered = ledger(address)?.roll_back(name, *version);
            let entered = entered.map_err(refusal)?;
            let change = entered.as_str();
            match (output.format, entered) {
                (Format::Json, _) => output::json(&json!({ "schedule": name, "change": change }))?,
                (Format::Text, Entered::Unchanged) => {
                    output::line(format!(
                        "unchanged {name}: it has the definition of version {version}"
                    ))?;
                }
                (Format::Text, _) => {
                    output::line(format!("rolled back {name} to version {version}"))?
                }
            }
        }
        HistoryCommand::Audit {
            subject,
            before,
            limit,
            address,
            output,
        } => {
            let filter = AuditFilter {
                subject: subject.clone(),
                before: *before,
                limit: *limit,
            };
            let changes = ledger(address)?.audit(&filter).map_err(refusal)?;
            match output.format {
                Format::Json => output::json(&changes)?,
                Format::Text if changes.is_empty() => output::line("no changes")?,
                Format::Text => output::line(audit(&changes).trim_end())?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn history(versions: &[VersionJson]) -> String {
    let before = versions.iter().skip(1).map(Some).chain([None]);
    let rows = versions.iter().zip(before).map(|(version, before)| {
        let changed = before.map(|before| differences(&before.definition, &version.definition));
        let changed = changed.unwrap_or_default().into_iter();
        let changed: Vec<String> = changed.map(|difference| difference.key).collect();
        vec![
            version.version.to_string(),
            version.at.clone(),
            version.origin.clone(),
            version.actor.clone().unwrap_or_default(),
            changed.join(", "),
        ]
    });
    output::table(&["VERSION", "AT", "ORIGIN", "ACTOR", "CHANGED"], rows)
}

/// Two versions and their difference.
#[derive(Debug, Serialize)]
struct Compared {
    from: i64,
    to: i64,
    changes: Vec<Difference>,
}

impl Compared {
    fn of(
        name: &str,
        versions: &[VersionJson],
        from: Option<i64>,
        to: Option<i64>,
    ) -> miette::Result<Self> {
        let numbered = |number: i64| {
            let found = versions.iter().find(|one| one.version == number);
            found.ok_or_else(|| {
                let kept: Vec<String> =
                    versions.iter().map(|one| one.version.to_string()).collect();
                let kept = kept.join(", ");
                wrong(format!(
                    "schedule `{name}` has no version {number} (any more); these are kept: {kept}"
                ))
            })
        };
        let newest = |nth: usize| {
            let found = versions.get(nth);
            found.ok_or_else(|| wrong(format!("schedule `{name}` has no two versions to compare")))
        };
        let from = from.map_or_else(|| newest(1), numbered)?;
        let to = to.map_or_else(|| newest(0), numbered)?;
        Ok(Self {
            from: from.version,
            to: to.version,
            changes: differences(&from.definition, &to.definition),
        })
    }

    fn in_words(&self) -> String {
        let Self { from, to, changes } = self;
        if changes.is_empty() {
            return format!("versions {from} and {to} are the same");
        }
        let rows = changes
            .iter()
            .map(|change| vec![change.key.clone(), value(&change.old), value(&change.new)]);
        let (from, to) = (format!("VERSION {from}"), format!("VERSION {to}"));
        output::table(&["KEY", &from, &to], rows)
    }
}

/// Writes a value for people: a text as it is, and a dash for none.
fn value(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        Json::Array(values) => values
            .iter()
            .map(self::value)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

fn audit(changes: &[AuditJson]) -> String {
    let rows = changes.iter().map(|change| {
        let detail = match &change.detail {
            Json::Null => String::new(),
            Json::Object(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, given)| format!("{key}: {}", value(given)));
                pairs.collect::<Vec<_>>().join(", ")
            }
            other => value(other),
        };
        vec![
            change.id.to_string(),
            change.at.clone(),
            change.actor.clone().unwrap_or_default(),
            change.action.clone(),
            change.subject.clone(),
            detail,
        ]
    });
    output::table(&["ID", "AT", "ACTOR", "CHANGE", "SUBJECT", "DETAIL"], rows)
}
