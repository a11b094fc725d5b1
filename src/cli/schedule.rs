//! `ganger schedule`: shows when a schedule is due, and why then; `ledger.rs` has the rest.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde::Serialize;

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::import::{self, ImportArgs};
use super::ledger::{self, KeptCommand};
use super::output;
use super::usage::wrong;
use ganger_core::units::duration;
use ganger_schedule::cron::Dialect;
use ganger_schedule::definition::{Definition, instant};
use ganger_schedule::problem::{Broken, Problem};
use ganger_schedule::spec::Spec;
use ganger_schedule::timing::Rule;
use ganger_schedule::zone::{Zone, Zones};

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    #[command(flatten)]
    Kept(KeptCommand),
    /// List the next slots of a schedule: in UTC, on the clocks of its zone, and what a change of these
    /// clocks does to them
    Next {
        /// A schedule of the ledger or the configuration, in place of an expression
        #[arg(value_name = "NAME", conflicts_with_all = ["cron", "every", "at", "offset", "zone", "dialect", "hash_name"], group = "when")]
        schedule: Option<String>,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        times: Times,
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        output: Output,
    },
    /// Turn a crontab into a configuration: a schedule for each job, and the pools that run them
    Import(ImportArgs),
    /// Say in words when a schedule is due, and list the next slots
    Explain {
        #[command(flatten)]
        times: Times,
        #[command(flatten)]
        range: Range,
    },
}

/// Times of a schedule.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("when").required(true).multiple(true))]
pub(super) struct Times {
    /// Cron expression of 5 fields (minute, hour, day of month, month, day of week), 6 (second first) or 7
    /// (year last), or @hourly to @yearly; may be repeated
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    cron: Vec<String>,
    /// A period in absolute time, such as 90s or 1h 30m; a day is 24 hours
    #[arg(long, value_name = "DURATION", value_parser = period, group = "when")]
    every: Option<Duration>,
    /// One time: 2027-01-31T08:00:00, with Z, an offset or [Europe/Berlin] at its end
    #[arg(long, value_name = "TIME", group = "when")]
    at: Option<String>,
    /// Offset of the period from 1970-01-01T00:00:00Z
    #[arg(long, value_name = "DURATION", value_parser = period, requires = "every")]
    offset: Option<Duration>,
    /// Time zone by its IANA name, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// Dialect of the expressions: in quartz Sunday is 1, and `?` stands for a day that is not given
    #[arg(long, value_name = "DIALECT", default_value = Dialect::default().as_str(), value_parser = dialect())]
    dialect: Dialect,
    /// Name of the schedule, of which `H` in an expression is a hash
    #[arg(
        long = "name",
        id = "hash_name",
        value_name = "NAME",
        default_value = "schedule"
    )]
    name: String,
}

/// Range of the slots.
#[derive(Debug, clap::Args)]
pub(super) struct Range {
    /// Only slots after this time; else after now
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Number of slots
    #[arg(short = 'n', default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
}

/// A slot as it is shown.
#[derive(Debug, Serialize)]
struct ShownSlot {
    /// RFC 3339, in UTC.
    slot: String,
    /// RFC 3339, with the offset of the zone.
    local: String,
    /// Empty if nothing is to be said of it.
    note: String,
}

fn dialect() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(Dialect::WORDS).try_map(|word| word.parse::<Dialect>())
}

fn period(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "write a number with its unit, such as `90s` or `5m`".to_owned())
}

pub(super) fn run(command: &ScheduleCommand) -> CommandResult {
    let zones = Zones::load();
    match command {
        ScheduleCommand::Kept(command) => return ledger::run(command),
        ScheduleCommand::Next {
            schedule,
            config,
            times,
            range,
            output,
        } => {
            let spec = match schedule {
                Some(name) => ledger::spec(config, name)?,
                None => times.spec(&zones)?,
            };
            let slots = shown(&spec, range, &zones)?;
            match output.format {
                Format::Json => output::json(&slots)?,
                Format::Text => output::line(table(&slots).trim_end())?,
            }
        }
        ScheduleCommand::Import(args) => return import::run(args),
        ScheduleCommand::Explain { times, range } => {
            let spec = times.spec(&zones)?;
            let slots = shown(&spec, range, &zones)?;
            for (label, text) in explained(&spec, &zones) {
                output::line(format!("{label:<12}  {text}"))?;
            }
            output::line(format!("\n{}", table(&slots).trim_end()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Times {
    fn spec(&self, zones: &Zones) -> miette::Result<Spec> {
        let definition = Definition {
            name: self.name.clone(),
            cron: self.cron.clone(),
            dialect: self.dialect,
            every: self.every,
            offset: self.offset,
            at: self.at.clone(),
            zone: Some(self.zone.clone()),
            ..Definition::default()
        };
        definition.spec(zones).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
            wrong(lines.join("\n"))
        })
    }
}

/// Returns the slots of a range, at least one.
fn shown(spec: &Spec, range: &Range, zones: &Zones) -> miette::Result<Vec<ShownSlot>> {
    let zone = &spec.timing.zone;
    let from = match &range.from {
        Some(text) => {
            instant(text, zone, zones, false).map_err(|problem| wrong(problem.under("from")))?
        }
        None => Timestamp::now(),
    };
    let broken = |error: Broken| miette::miette!("{error}");
    if let Some(problem) = spec.never_runs(from) {
        return Err(wrong(problem));
    }
    let mut slots = Vec::new();
    let mut before = from;
    for _ in 0..range.count {
        let Some(slot) = spec.next(before).map_err(broken)? else {
            break;
        };
        let remarks = spec.timing.remarks(before, slot.at).map_err(broken)?;
        let remarks: Vec<String> = remarks.iter().map(ToString::to_string).collect();
        slots.push(ShownSlot {
            slot: slot.at.to_string(),
            local: zone
                .zoned(slot.at)
                .strftime("%Y-%m-%dT%H:%M:%S%:z")
                .to_string(),
            note: remarks.join("; "),
        });
        before = slot.at;
    }
    Ok(slots)
}

fn table(slots: &[ShownSlot]) -> String {
    let day = |local: &str| -> Option<String> {
        let date: jiff::civil::Date = local.get(..10)?.parse().ok()?;
        Some(date.strftime("%a").to_string())
    };
    let rows = slots.iter().map(|slot| {
        let ShownSlot { slot, local, note } = slot;
        let day = day(local).unwrap_or_default();
        vec![slot.clone(), day, local.clone(), note.clone()]
    });
    output::table(&["SLOT", "DAY", "LOCAL", "NOTE"], rows)
}

/// Returns the lines that say when a schedule is due: labels and texts.
fn explained(spec: &Spec, zones: &Zones) -> Vec<(&'static str, String)> {
    let timing = &spec.timing;
    let mut lines = Vec::new();
    let mut has_clock = false;
    for rule in &timing.rules {
        match rule {
            Rule::Cron(cron) => {
                has_clock = true;
                lines.push(("cron", cron.text().trim().to_owned()));
                lines.extend(cron.meaning());
                let change = match cron.is_interval() {
                    true => {
                        "goes on in real time when the clock is changed: a repeated hour runs twice, a missing one not at all"
                    }
                    false => {
                        "goes by the clock: a repeated time runs at its first pass, a missing one when the clock has gone forward"
                    }
                };
                let changes = timing.zone != Zone::default();
                lines.extend(changes.then(|| ("summer time", change.to_owned())));
            }
            Rule::Every(every) => {
                let period = every.period();
                lines.push((
                    "every",
                    format!(
                        "{period:#}, counted from 1970-01-01T00:00:00Z, whatever the clocks show"
                    ),
                ));
            }
            Rule::At(at) => lines.push(("at", at.to_string())),
        }
    }
    let source = match has_clock {
        true => format!("{} (time zones: {})", timing.zone.name(), zones.source()),
        false => timing.zone.name().to_owned(),
    };
    lines.push(("zone", source));
    lines
}
