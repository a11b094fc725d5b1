//! The command line: what can be asked for, and who does it. Only here and below may anything be
//! printed.

mod check;
mod common;
mod dead;
#[cfg(feature = "sqlite")]
mod demo;
mod output;
mod run;
mod send;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::Problems;

/// Turns any program into a reliable consumer of a message queue.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed; what went wrong is on stderr
  2  the command line or the configuration is wrong";

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "sqlite")]
    /// Show the whole thing at work: workers that are killed, messages that are not lost
    Demo(demo::DemoArgs),
    /// Run the daemon
    Run(run::RunArgs),
    /// Say whether the configuration is right
    Check(check::CheckArgs),
    /// Print the effective configuration or its schema
    #[command(subcommand)]
    Config(check::ConfigCommand),
    /// Put messages into a queue
    Send(send::SendArgs),
    /// Look at dead letters, send them back or drop them
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    #[cfg(feature = "sqlite")]
    /// A worker of `ganger demo`; it is started by the demo only
    #[command(hide = true)]
    DemoWorker,
}

/// Runs the command and prints what went wrong.
pub fn main(cli: Cli) -> ExitCode {
    let result = match cli.command {
        #[cfg(feature = "sqlite")]
        Command::Demo(args) => demo::run(args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(command) => check::config(&command),
        Command::Send(args) => send::run(args),
        Command::Dead(command) => dead::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ganger", &mut script);
            output::bytes(&script).map(|()| ExitCode::SUCCESS)
        }
        #[cfg(feature = "sqlite")]
        Command::DemoWorker => demo::work(),
    };
    result.unwrap_or_else(|report| {
        let wrong_input = report.downcast_ref::<Problems>().is_some();
        output::complain(&report);
        ExitCode::from(if wrong_input { 2 } else { 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
