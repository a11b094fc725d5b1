//! `ganger exec`: any program as a worker, started anew for each message.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use miette::{IntoDiagnostic, miette};

use super::common::{CommandResult, environment};
use ganger_workerkit::exec;

#[derive(Debug, clap::Args)]
#[command(after_long_help = CONTRACT)]
pub(super) struct ExecArgs {
    /// Number of messages processed at once, each by a process of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Time from SIGTERM to SIGKILL for a program that is stopped
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = parse_duration)]
    kill_after: Duration,
    /// The program and its arguments. `{}` as an argument, or after `=` or `@` at its end, is replaced by the
    /// name of a file that holds the message's body
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

const CONTRACT: &str = "\
A pool's command: command = \"ganger\", args = [\"exec\", \"--\", \"./script.sh\"].

The message's body is on stdin, its headers and properties are in GANGER_* variables.
The program's output is the reply, if the message asks for one, and is logged otherwise.
Its exit code is the outcome of the message:
  0      done
  75     temporary failure: retried later
  100    permanent failure: a dead letter
  other  failure: retried as the pool is configured
Its stderr is logged; the last lines of it are the error of a failure.";

fn parse_duration(text: &str) -> Result<Duration, String> {
    ganger_core::units::duration(text).ok_or_else(|| "a duration such as 500ms or 3s".to_owned())
}

pub(super) fn run(args: ExecArgs) -> CommandResult {
    let mut command = args.command.into_iter();
    let program = command
        .next()
        .ok_or_else(|| miette!("there is no program"))?;
    let settings = exec::Settings {
        program,
        args: command.collect(),
        env: environment(),
        concurrency: args.concurrency.into(),
        grace: args.kill_after,
    };
    exec::run(settings).into_diagnostic()?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, clap::Args)]
pub(super) struct GuardArgs {
    /// Directory that is removed in the end.
    directory: PathBuf,
}

pub(super) fn guard(args: &GuardArgs) -> CommandResult {
    exec::watch(&args.directory).into_diagnostic()?;
    Ok(ExitCode::SUCCESS)
}
