//! Replaces `ledger.rs` in a build without tables: there is no ledger.

use clap::Subcommand;

use super::common::{CommandResult, ConfigFile};
use super::usage::wrong;
use ganger_schedule::spec::Spec;

/// Commands on a ledger: none.
#[derive(Debug, Subcommand)]
pub(super) enum NoCommand {}

pub(super) use NoCommand as KeptCommand;
pub(super) use NoCommand as OccurrenceCommand;

pub(super) fn run(command: &KeptCommand) -> CommandResult {
    match *command {}
}

pub(super) fn occurrences(command: &OccurrenceCommand) -> CommandResult {
    match *command {}
}

pub(super) fn spec(_: &ConfigFile, name: &str) -> miette::Result<Spec> {
    Err(wrong(format!(
        "schedule `{name}` is in no ledger: this ganger was built without sqlite"
    )))
}
