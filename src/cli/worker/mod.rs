//! `ganger worker`: a worker without a queue.

mod attempt;
mod check;
mod junit;
mod subject;
mod table;
#[cfg(test)]
mod tests;
mod told;

use clap::Subcommand;

use super::common::CommandResult;

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommands {
    /// Look whether a worker does all that the protocol asks of it
    Check(check::WorkerCheckArgs),
    /// Run one message through a worker, and show what it says and takes
    Try(attempt::WorkerTryArgs),
}

pub(super) fn run(command: WorkerCommands) -> CommandResult {
    match command {
        WorkerCommands::Check(args) => check::run(&args),
        WorkerCommands::Try(args) => attempt::run(&args),
    }
}
