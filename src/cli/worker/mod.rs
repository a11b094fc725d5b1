//! `ganger worker`: a worker without a queue.

mod attempt;
mod attempt_result;
mod check;
mod junit;
mod subject;
mod table;
#[cfg(test)]
mod tests;

use clap::Subcommand;

use super::common::CommandResult;

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommands {
    /// Test a worker's conformance to the protocol
    Check(check::WorkerCheckArgs),
    /// Run one message through a worker, and show its answer and its resource usage
    Try(attempt::WorkerTryArgs),
}

pub(super) fn run(command: WorkerCommands) -> CommandResult {
    match command {
        WorkerCommands::Check(args) => check::run(&args),
        WorkerCommands::Try(args) => attempt::run(&args),
    }
}
