//! `ganger token`: makes tokens for the admin API.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use jiff::Timestamp;
use miette::IntoDiagnostic;
use serde_json::json;

use super::common::{CommandResult, Format, Output};
use super::output;
use super::usage::wrong;
use ganger_admin::NewToken;
use ganger_core::names::{NAME_RULE, is_name};
use ganger_core::units;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token for the admin API, and print its section of the configuration
    New(NewArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewArgs {
    /// Name of the token, which the log and the record of changes show
    name: String,
    /// Permission of its holder
    #[arg(long, default_value = "viewer", value_parser = ["viewer", "operator", "admin"])]
    role: String,
    /// Time after which it is refused, such as 90d; never if omitted
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text).ok_or_else(|| "a duration such as 12h or 90d".to_owned())
}

pub(super) fn run(command: &TokenCommand) -> CommandResult {
    match command {
        TokenCommand::New(args) => new(args),
    }
}

fn new(args: &NewArgs) -> CommandResult {
    let NewArgs { name, role, .. } = args;
    if !is_name(name) {
        return Err(wrong(format!("the name {NAME_RULE}: `{name}`")));
    }
    let expires = args.expires.map(from_now).transpose()?;
    let NewToken { token, sha256 } = NewToken::generate().into_diagnostic()?;
    let token = token.expose();
    if args.output.format == Format::Json {
        output::json(&json!({
            "name": name,
            "role": role,
            "token": token,
            "sha256": sha256,
            "expires": expires.map(|at| at.to_string()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let expires = expires.map_or_else(String::new, |at| format!("\nexpires = \"{at}\""));
    output::line(format!(
        "The token, which is not shown again: {token}\n\nAdd this to the configuration and reload:\n\n\
         [[admin.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{sha256}\"{expires}"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the time so far from now, in whole seconds.
fn from_now(after: Duration) -> miette::Result<Timestamp> {
    let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
    let until = Timestamp::now().as_second().saturating_add(seconds);
    Timestamp::from_second(until).map_err(|_| wrong("--expires is too long"))
}
