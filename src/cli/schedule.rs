//! `ganger schedule`: shows when a schedule is due, and why then; `ledger.rs` has the rest.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;

use super::backend::Address;
use super::by_hand::{self, ByHandCommand};
use super::common::{CommandResult, Format, Output};
use super::editing::{self, EditCommand};
use super::history::{self, HistoryCommand};
use super::import::{self, ImportArgs};
use super::ledger::{self, KeptCommand};
use super::output;
use super::report::{ReportArgs, report};
use super::usage::wrong;
use ganger_core::units::duration;
use ganger_queue::ledger::explain::ENDED;
use ganger_queue::ledger::shown::SlotJson;
use ganger_schedule::cron::Dialect;
use ganger_schedule::definition::Definition;
use ganger_schedule::explain;
use ganger_schedule::problem::Problem;
use ganger_schedule::spec::Spec;
use ganger_schedule::zone::Zones;

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    #[command(flatten)]
    Kept(KeptCommand),
    #[command(flatten)]
    Edit(EditCommand),
    #[command(flatten)]
    History(HistoryCommand),
    #[command(flatten)]
    ByHand(ByHandCommand),
    /// Report on the runs of a time, by schedule and queue: how many failed, how late they started, how long they took
    Report(ReportArgs),
    /// List the next slots of a schedule: in UTC, on the clocks of its zone, and what a change of these
    /// clocks does to them
    Next {
        /// A schedule of the ledger or the configuration, in place of an expression
        #[arg(value_name = "NAME", conflicts_with_all = ["cron", "every", "at", "offset", "zone", "dialect", "hash_name"], group = "when")]
        schedule: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        times: Times,
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        output: Output,
    },
    /// Turn a crontab, or the jobs of Milvaion, into a configuration: a schedule for each job, and the pools
    /// that run them
    Import(ImportArgs),
    /// Explain a schedule in words: its state, times and rules, why its last slots did not run, and the next slots; or
    /// an expression
    Explain {
        /// A schedule of the ledger, in place of an expression
        #[arg(value_name = "NAME", conflicts_with_all = ["cron", "every", "at", "offset", "zone", "dialect", "hash_name"], group = "when")]
        schedule: Option<String>,
        #[command(flatten)]
        address: Address,
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
        ScheduleCommand::Edit(command) => return editing::run(command),
        ScheduleCommand::History(command) => return history::run(command),
        ScheduleCommand::ByHand(command) => return by_hand::run(command),
        ScheduleCommand::Report(args) => return report(args),
        ScheduleCommand::Next {
            schedule,
            address,
            times,
            range,
            output,
        } => {
            let spec = match schedule {
                Some(name) => ledger::spec(address, name, &zones)?,
                None => times.spec(&zones)?,
            };
            let slots = shown(&spec, range, &zones)?;
            match output.format {
                Format::Json => output::json(&slots)?,
                Format::Text if slots.is_empty() => output::line(ENDED)?,
                Format::Text => output::line(table(&slots).trim_end())?,
            }
        }
        ScheduleCommand::Import(args) => return import::run(args),
        ScheduleCommand::Explain {
            schedule,
            address,
            times,
            range,
        } => match schedule {
            Some(name) => {
                let told = ledger::explained(address, name, (range.from.as_deref(), range.count))?;
                print_words(&told.words, &told.slots)?;
            }
            None => {
                let spec = times.spec(&zones)?;
                let slots = shown(&spec, range, &zones)?;
                print_words(&explain::in_words(&spec, &zones), &slots)?;
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn print_words<L: AsRef<str>>(words: &[(L, String)], slots: &[SlotJson]) -> miette::Result<()> {
    for (label, text) in words {
        output::line(output::labelled(label.as_ref(), text))?;
    }
    match slots {
        [] => Ok(()),
        slots => output::line(format!("\n{}", table(slots).trim_end())),
    }
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

/// Returns the slots of a range: at least one, unless the schedule has no further one.
fn shown(spec: &Spec, range: &Range, zones: &Zones) -> miette::Result<Vec<SlotJson>> {
    let from = explain::begin(range.from.as_deref(), spec, zones, Timestamp::now());
    let from = from.map_err(wrong)?;
    if spec.is_over(0) {
        return Ok(Vec::new());
    }
    if let Some(problem) = spec.never_runs(from) {
        return Err(wrong(problem));
    }
    let slots = explain::slots(spec, from, range.count);
    let slots = slots.map_err(|error| miette::miette!("{error}"))?;
    Ok(slots.into_iter().map(SlotJson::from).collect())
}

fn table(slots: &[SlotJson]) -> String {
    let day = |local: &str| -> Option<String> {
        let date: jiff::civil::Date = local.get(..10)?.parse().ok()?;
        Some(date.strftime("%a").to_string())
    };
    let rows = slots.iter().map(|slot| {
        let SlotJson { slot, local, note } = slot;
        let day = day(local).unwrap_or_default();
        vec![slot.clone(), day, local.clone(), note.clone()]
    });
    output::table(&["SLOT", "DAY", "LOCAL", "NOTE"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_has_ended_has_no_slots() {
        let zones = Zones::bundled();
        let definition = Definition {
            name: "s".to_owned(),
            cron: vec!["0 0 * * *".to_owned()],
            ..Definition::default()
        };
        let mut spec = definition.spec(&zones).unwrap();
        let range = |from: Option<&str>| Range {
            from: from.map(str::to_owned),
            count: 3,
        };
        let count = |spec: &Spec| shown(spec, &range(None), &zones).unwrap().len();
        assert_eq!(count(&spec), 3);
        spec.limit = Some(0);
        assert_eq!(count(&spec), 0);
        assert!(shown(&spec, &range(Some("noon")), &zones).is_err());
    }
}
