//! `ganger check` and `ganger config`: what the configuration says, and whether it can be right.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::common::{CommandResult, ConfigFile, Format, Output};
use super::output;
use crate::client::Client;
use crate::config;
use crate::config::model::Config;
use crate::worker::open_files;

#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Also open every source, and look whether what its pools need is there
    #[arg(long)]
    online: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// The effective configuration, defaults filled in, secrets hidden
    Print {
        #[command(flatten)]
        config: ConfigFile,
    },
    /// The JSON Schema of the configuration, for editors
    Schema,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Report<P> {
    valid: bool,
    problems: Vec<P>,
    /// What does not hinder the daemon, but should be mended.
    warnings: Vec<String>,
    /// How many workers all pools ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<u64>,
    /// How many the limit of open files lets run.
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
                workers: None,
                workers_max: None,
            })?;
            return Ok(ExitCode::from(2));
        }
        Err(problems) => return Err(problems.into()),
    };
    let mut problems = missing_programs(&config);
    problems.extend(too_many_workers(&config));
    if args.online {
        problems.extend(unfit_sources(&config));
    }
    let valid = problems.is_empty();
    let warnings = config::exposed(&args.config.path);
    if args.output.format == Format::Text {
        warnings
            .iter()
            .for_each(|warning| output::note(format!("warning: {warning}")));
    }
    let workers_max = open_files::workers_that_fit(config.pools.len());
    match args.output.format {
        Format::Json => output::json(&Report {
            valid,
            problems,
            warnings,
            workers: Some(workers(&config)),
            workers_max,
        })?,
        Format::Text if valid => output::line(summary(&config, workers_max))?,
        Format::Text => problems.iter().for_each(output::note),
    }
    Ok(if valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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

fn workers(config: &Config) -> u64 {
    config.pools.iter().map(|pool| pool.workers as u64).sum()
}

/// What is wrong if not all workers fit into the limit of open files that holds here.
pub(super) fn too_many_workers(config: &Config) -> Option<String> {
    let workers = workers(config);
    let most = open_files::workers_that_fit(config.pools.len())?;
    (workers > most).then(|| {
        format!(
            "the hard limit of open files lets {most} workers run, the pools ask for more; raise \
             it with LimitNOFILE= or ulimit -Hn: `{workers}`"
        )
    })
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

/// What is wrong with each source: it can't be opened, or lacks what its pools need.
fn unfit_sources(config: &Config) -> Vec<String> {
    let wrong = |(name, source): (&String, &config::model::SourceConfig)| {
        let checked = Client::open(name, source, &config.pools);
        match checked.and_then(|mut client| client.check()) {
            Ok(problems) => problems,
            Err(error) => vec![error.to_string()],
        }
        .into_iter()
        .map(move |problem| format!("sources.{name}: {problem}"))
        .collect::<Vec<String>>()
    };
    config.sources.iter().flat_map(wrong).collect()
}

pub(super) fn config(command: &ConfigCommand) -> CommandResult {
    match command {
        ConfigCommand::Print { config } => output::line(config.print()?)?,
        ConfigCommand::Schema => output::json(&config::schema())?,
    }
    Ok(ExitCode::SUCCESS)
}
