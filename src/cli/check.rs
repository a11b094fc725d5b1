//! `ganger check` and `ganger config`: what the configuration says, and whether it can be right.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::{CommandResult, ConfigFile, Format, Output, output};
use crate::config::{self, model::Config};
use crate::source::client::Client;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
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
}

pub(super) fn run(args: &Args) -> CommandResult {
    let config = match args.config.load() {
        Ok(config) => config,
        Err(problems) if args.output.format == Format::Json => {
            output::json(&Report {
                valid: false,
                problems: problems.messages().to_vec(),
            })?;
            return Ok(ExitCode::from(2));
        }
        Err(problems) => return Err(problems.into()),
    };
    let mut problems = missing_programs(&config);
    if args.online {
        problems.extend(unfit_sources(&config));
    }
    let valid = problems.is_empty();
    match args.output.format {
        Format::Json => output::json(&Report { valid, problems })?,
        Format::Text if valid => {
            let (pools, sources) = (config.pools.len(), config.sources.len());
            output::line(format!(
                "the configuration is valid: {pools} pool(s) on {sources} source(s)"
            ));
        }
        Format::Text => problems.iter().for_each(output::note),
    }
    Ok(if valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn missing_programs(config: &Config) -> Vec<String> {
    let missing = |pool: &config::model::Pool| {
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
    let wrong = |(name, source): (&String, &config::model::Source)| {
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
        ConfigCommand::Print { config } => output::line(config::print(&config.load()?)),
        ConfigCommand::Schema => output::json(&config::schema())?,
    }
    Ok(ExitCode::SUCCESS)
}
