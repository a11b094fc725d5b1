//! The commands that look at a running daemon and steer it.

use clap::Subcommand;

use super::common::CommandResult;
use super::{open, steer, top};

#[derive(Debug, Subcommand)]
pub(super) enum LiveCommand {
    /// Show how a running daemon and its pools stand
    Status(steer::StatusArgs),
    /// Watch a running daemon on the whole terminal, and steer its pools by keys
    Top(top::TopArgs),
    /// Open a browser that is logged in to a running daemon
    Open(open::OpenArgs),
    /// Say whether a running daemon is well; the exit code tells too
    Health(steer::HealthArgs),
    /// Give a pool another number of workers
    Scale(steer::ScaleArgs),
    /// Have a pool take nothing in, over restarts too; its workers stay
    Pause(steer::ReachArgs),
    /// End a pause or a drain
    Resume(steer::ReachArgs),
    /// Replace a pool's workers one by one, new before old
    Restart(steer::WaitingPoolArgs),
    /// Have a pool take nothing in and its workers leave when they are done
    Drain(steer::WaitingPoolArgs),
    /// Kill a worker; what it has in hand goes back
    Kill(steer::KillArgs),
    /// Cancel a message that runs, or on a table one that waits
    Cancel(steer::CancelArgs),
    /// Show what a worker has printed last
    Output(steer::OutputArgs),
    /// Show or change what a running daemon logs
    LogLevel(steer::LogLevelArgs),
    /// Have the daemon read its configuration anew
    Reload(steer::ReloadArgs),
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
        LiveCommand::Cancel(args) => steer::cancel(args),
        LiveCommand::Output(args) => steer::last_lines(args),
        LiveCommand::LogLevel(args) => steer::log_level(args),
    }
}
