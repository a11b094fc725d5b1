//! The command line: its commands and their implementation. Only this module and its children may
//! print.

mod backend;
mod by_hand;
mod check;
mod common;
mod control;
mod dead;
#[cfg(feature = "sqlite")]
mod demo;
mod editing;
mod editor;
mod exec;
mod history;
mod import;
mod init;
mod interfaces;
mod ledger;
#[cfg(feature = "admin")]
mod live;
mod man;
#[cfg(not(feature = "admin"))]
mod no_surface;
mod occurrence_log;
mod output;
mod report;
mod run;
mod schedule;
mod schema;
mod send;
mod signals;
mod subscriptions;
#[cfg(feature = "admin")]
mod token;
mod usage;
mod waiting;
mod warnings;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use nix::errno::Errno;

use ganger_config::Problems;
use usage::WrongUsage;

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
  1  failure; the error is on stderr
  2  the command line or the configuration is wrong
  3  with --wait: not done within --timeout; the daemon continues with it";

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "sqlite")]
    #[command(flatten)]
    Demo(demo::DemoCommand),
    /// Write a first worker, its pool and its test
    Init(init::InitArgs),
    /// Run the daemon
    Run(run::RunArgs),
    /// Validate the configuration
    Check(check::CheckArgs),
    /// Print the effective configuration or its schema
    #[command(subcommand)]
    Config(check::ConfigCommand),
    /// Print the SQL that creates a table queue's tables
    Schema(schema::SchemaArgs),
    #[cfg(feature = "admin")]
    #[command(flatten)]
    Live(live::LiveCommand),
    /// Make tokens for the admin API
    #[cfg(feature = "admin")]
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Put messages into a queue
    Send(send::SendArgs),
    /// List the messages that wait in a queue
    Waiting(waiting::WaitingArgs),
    /// List, retry or delete dead letters
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// List and remove topic subscriptions
    #[command(subcommand)]
    Subscriptions(subscriptions::SubscriptionsCommand),
    /// Show, change, pause and trigger schedules
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Show the occurrences of schedules
    #[command(subcommand)]
    Occurrence(ledger::OccurrenceCommand),
    /// Test a worker without a queue
    #[command(subcommand)]
    Worker(worker::WorkerCommands),
    /// Run a program for each message
    Exec(exec::ExecArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each command
    Man(man::ManArgs),
    /// Kill the programs of a `ganger exec` that was killed; started by that only
    #[command(hide = true)]
    ExecGuard(exec::GuardArgs),
}

/// Reads the command line, runs the command and prints errors.
pub fn main() -> ExitCode {
    if let Err(error) = close_to_others_of_our_user() {
        output::note(format!(
            "hiding environment and memory from other processes of this user failed: {error}"
        ));
        return ExitCode::FAILURE;
    }
    match Cli::try_parse() {
        Ok(cli) => execute(cli),
        Err(error) => output::refuse(&error),
    }
}

fn execute(cli: Cli) -> ExitCode {
    let result = match cli.command {
        #[cfg(feature = "sqlite")]
        Command::Demo(command) => demo::run(command),
        Command::Init(args) => init::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(command) => check::config(&command),
        Command::Schema(args) => schema::run(&args),
        #[cfg(feature = "admin")]
        Command::Live(command) => live::run(&command),
        #[cfg(feature = "admin")]
        Command::Token(command) => token::run(&command),
        Command::Send(args) => send::run(args),
        Command::Waiting(args) => waiting::run(&args),
        Command::Dead(command) => dead::run(command),
        Command::Subscriptions(command) => subscriptions::run(&command),
        Command::Schedule(command) => schedule::run(&command),
        Command::Occurrence(command) => ledger::occurrences(&command),
        Command::Worker(command) => worker::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ganger", &mut script);
            output::bytes(&script).map(|()| ExitCode::SUCCESS)
        }
        Command::Man(args) => man::run(&args, Cli::command(), EXIT_CODES),
        Command::Exec(args) => exec::run(args),
        Command::ExecGuard(args) => exec::guard(&args),
    };
    result.unwrap_or_else(|report| {
        output::complain(&report);
        let is_wrong_input = report.downcast_ref::<Problems>().is_some()
            || report.downcast_ref::<WrongUsage>().is_some();
        ExitCode::from(if is_wrong_input { 2 } else { 1 })
    })
}

/// Denies other processes of its user, which may be its workers, access to the environment, memory
/// and open files of this process. Disables core dumps too.
fn close_to_others_of_our_user() -> Result<(), Errno> {
    nix::sys::prctl::set_dumpable(false)
}

#[cfg(test)]
mod tests;
