//! `ganger check` and `ganger config`: validate and print the configuration.

mod subscriptions;

use crate::kinds;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::common::{CommandResult, ConfigFile, Format, Output, environment};
use super::output;
use super::warnings::{warnings, workers};
use ganger_config as config;
use ganger_config::model::Config;
use ganger_config::{Places, Problem};
use ganger_core::foreign;
use ganger_pool::worker::open_files;
use subscriptions::SubscriptionState;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Also open every source, and check that everything its pools need exists
    #[arg(long)]
    online: bool,
    /// Also send a test alert and its end to the webhook of `[alerts]`
    #[cfg(feature = "admin")]
    #[arg(long)]
    send_alert: bool,
    /// Treat warnings as errors, with exit code 2
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the effective configuration, with defaults filled in and secrets hidden
    Print {
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Print the JSON Schema of the configuration, for editors
    Schema,
}

/// Output of `--output json`.
#[derive(Debug, Serialize)]
struct Report<P> {
    valid: bool,
    problems: Vec<P>,
    /// Problems that do not hinder the daemon, but should be fixed.
    warnings: Vec<Problem>,
    /// State of the subscriptions that the configuration adds; none if it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<Vec<SubscriptionState>>,
    /// Number of workers that all pools ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<u64>,
    /// Number of workers that the limit of open files allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers_max: Option<u64>,
}

pub(super) fn run(args: &CheckArgs) -> CommandResult {
    let config = match args.config.load() {
        Ok(config) => config,
        Err(problems) if args.output.format == Format::Json => {
            output::json(&Report {
                valid: false,
                problems: problems.messages().to_vec(),
                warnings: Vec::new(),
                subscriptions: None,
                workers: None,
                workers_max: None,
            })?;
            return Ok(ExitCode::from(2));
        }
        Err(problems) => return Err(problems.into()),
    };
    let mut problems = missing_programs(&config);
    let mut warnings = warnings(&args.config.path, &config);
    if args.online {
        let seen = look_at_sources(&args.config.path, &config);
        problems.extend(seen.problems);
        warnings.extend(seen.warnings);
    }
    #[cfg(feature = "admin")]
    if args.send_alert {
        problems.extend(unfit_webhook(&config));
    }
    let standing = args.online.then(|| subscriptions::standing(&config));
    let unread = |all: &Vec<SubscriptionState>| subscriptions::unread(&args.config.path, all);
    warnings.extend(standing.as_ref().map(unread).unwrap_or_default());
    let verdict = Verdict::of(&problems, &warnings, args.strict);
    let workers_max = open_files::workers_that_fit(config.pools.len());
    match args.output.format {
        Format::Json => output::json(&Report {
            valid: verdict == Verdict::Good,
            problems,
            warnings,
            subscriptions: standing,
            workers: Some(workers(&config)),
            workers_max,
        })?,
        Format::Text => {
            warnings.iter().map(shown).for_each(output::note);
            let problems = problems.iter().map(|problem| foreign::line(problem));
            problems.for_each(output::note);
            let standing = standing.iter().flatten();
            standing
                .map(SubscriptionState::as_text)
                .try_for_each(output::line)?;
            if verdict == Verdict::Good {
                output::line(summary(&config, workers_max))?;
            }
        }
    }
    Ok(verdict.code())
}

/// Result for a configuration that loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It can't work in its present environment.
    Bad,
    /// It has warnings, with `--strict`.
    Refused,
}

impl Verdict {
    fn of(problems: &[String], warnings: &[Problem], strict: bool) -> Self {
        if strict && !warnings.is_empty() {
            Self::Refused
        } else if problems.is_empty() {
            Self::Good
        } else {
            Self::Bad
        }
    }

    fn code(self) -> ExitCode {
        match self {
            Self::Good => ExitCode::SUCCESS,
            Self::Bad => ExitCode::FAILURE,
            Self::Refused => ExitCode::from(2),
        }
    }
}

/// Returns a warning for people, with its place.
fn shown(warning: &Problem) -> String {
    let Problem {
        file,
        message,
        help,
        ..
    } = warning;
    let place = match warning.line {
        Some(line) => format!("{file}:{line}: "),
        None => String::new(),
    };
    let message = foreign::line(message);
    format!("warning: {place}{message}\n  help: {help}")
}

fn summary(config: &Config, workers_max: Option<u64>) -> String {
    let (pools, sources) = (config.pools.len(), config.sources.len());
    let workers = workers(config);
    let of = workers_max.map_or_else(String::new, |most| format!(" of at most {most}"));
    format!(
        "the configuration is valid: {pools} pool(s) on {sources} source(s), \
         {workers} worker(s){of}"
    )
}

fn missing_programs(config: &Config) -> Vec<String> {
    let missing = |pool: &config::model::PoolConfig| {
        let why = config::find_program(&pool.command).err()?;
        Some(format!("pools.{}.command: {why}", pool.name))
    };
    config
        .pools
        .iter()
        .filter_map(|pool| missing(pool))
        .collect()
}

/// Problems and warnings of the sources.
#[derive(Debug, Default)]
struct SourceReport {
    problems: Vec<String>,
    warnings: Vec<Problem>,
}

/// Reports the problems of each source: it can't be opened, lacks what its pools need, or is likely to lose
/// messages.
fn look_at_sources(path: &Path, config: &Config) -> SourceReport {
    let (mut seen, places) = (SourceReport::default(), Places::read(path, &environment()));
    for (name, source) in &config.sources {
        let looked = kinds::client(name, source, &config.pools)
            .and_then(|mut client| Ok((client.check()?, client.warnings()?)));
        let (problems, warnings) = match looked {
            Ok(found) => found,
            Err(error) => (vec![error.to_string()], Vec::new()),
        };
        let ledger = config.ledger.iter().find(|ledger| ledger.source == *name);
        if let Some(ledger) = ledger.filter(|_| problems.is_empty()) {
            let problem = kinds::ledger_problem(ledger);
            let problem = problem.unwrap_or_else(|error| Some(error.to_string()));
            seen.problems
                .extend(problem.map(|problem| format!("ledger: {problem}")));
        }
        let problems = problems.iter();
        let told = problems.map(|problem| format!("sources.{name}: {problem}"));
        seen.problems.extend(told);
        let told = warnings.into_iter().map(|warning| {
            let (pool, help) = (&warning.pool, warning.help);
            let message = format!("pools.{pool}: {}", warning.message);
            places.about(&[&["pools", pool, "queue"]], message, help)
        });
        seen.warnings.extend(told);
    }
    seen
}

/// Returns why the webhook did not take a test, if it did not.
#[cfg(feature = "admin")]
fn unfit_webhook(config: &Config) -> Option<String> {
    let Some(alerts) = &config.alerts else {
        return Some("alerts.webhook is missing: there is no webhook to send a test to".to_owned());
    };
    let sent = ganger_admin::alerts::send_test(alerts);
    sent.err().map(|why| format!("alerts.webhook: {why}"))
}

pub(super) fn config(command: &ConfigCommand) -> CommandResult {
    match command {
        ConfigCommand::Print { config } => output::line(config.print()?)?,
        ConfigCommand::Schema => output::json(&config::schema())?,
    }
    Ok(ExitCode::SUCCESS)
}
