//! Commands that inspect and steer a running daemon.

mod alerts;
mod figures;
mod notes;
mod open;
pub(super) mod remote;
#[cfg(test)]
mod samples;
mod steer;
pub(super) mod surface;
mod top;

use clap::Subcommand;

use super::common::CommandResult;

#[derive(Debug, Subcommand)]
pub(super) enum LiveCommand {
    /// Show the daemon's status
    Status(steer::StatusArgs),
    /// Live dashboard with keys to steer the pools
    Top(top::TopArgs),
    /// Open a browser that is logged in to a running daemon
    Open(open::OpenArgs),
    /// Exit 0 if healthy
    Health(steer::HealthArgs),
    /// Set the number of workers of a pool
    Scale(steer::ScaleArgs),
    /// Stop a pool's intake, across restarts too; its workers stay
    Pause(steer::ReachArgs),
    /// End a pause or a drain
    Resume(steer::ReachArgs),
    /// Replace a pool's workers one by one, new before old
    Restart(steer::WaitingPoolArgs),
    /// Stop intake and stop the workers once they are idle
    Drain(steer::WaitingPoolArgs),
    /// Kill a worker; its messages in flight are redelivered
    Kill(steer::KillArgs),
    /// Cancel a message in flight, or on a table a pending one
    Cancel(steer::CancelArgs),
    /// Show a worker's last output
    Output(steer::OutputArgs),
    /// Show or change a running daemon's log levels
    LogLevel(steer::LogLevelArgs),
    /// Reload the configuration
    Reload(steer::ReloadArgs),
    /// List active alerts, and silence them
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
}

pub(super) fn run(command: &LiveCommand) -> CommandResult {
    match command {
        LiveCommand::Status(args) => steer::status(args),
        LiveCommand::Top(args) => top::run(args),
        LiveCommand::Open(args) => open::run(args),
        LiveCommand::Health(args) => steer::health(args),
        LiveCommand::Scale(args) => steer::scale(args),
        LiveCommand::Pause(args) => steer::pause(args),
        LiveCommand::Resume(args) => steer::resume(args),
        LiveCommand::Restart(args) => steer::restart(args),
        LiveCommand::Drain(args) => steer::drain(args),
        LiveCommand::Kill(args) => steer::kill(args),
        LiveCommand::Reload(args) => steer::reload(args),
        LiveCommand::Alerts(command) => alerts::run(command),
        LiveCommand::Cancel(args) => steer::cancel(args),
        LiveCommand::Output(args) => steer::last_lines(args),
        LiveCommand::LogLevel(args) => steer::log_level(args),
    }
}
