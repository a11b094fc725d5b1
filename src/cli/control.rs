//! `ganger occurrence cancel`, `retry`, `resolve` and `delete`: operations on single runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::backend::{self, Address, ledger, refusal};
use super::common::{CommandResult, Format, Output, read_body};
use super::output;
use ganger_core::foreign;
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::Cancelled;

#[derive(Debug, Subcommand)]
pub(super) enum ControlCommand {
    /// Cancel a run: at once while it waits; if a worker has its message, the worker is asked to stop, and
    /// killed if it has not answered within `timeout_grace`
    Cancel {
        /// The id of the occurrence; also that of its message
        id: String,
        /// Reason, which the history of the occurrence shows
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Send the dead letter of a run back that failed, timed out or was cancelled: the run goes on
    Retry {
        /// The id of the occurrence
        id: String,
        /// Send this body instead: a file, or stdin with `-`
        #[arg(long, value_name = "FILE")]
        body: Option<PathBuf>,
        #[command(flatten)]
        address: Address,
    },
    /// Store a note on a run that failed or timed out: it is no longer listed with --unresolved
    Resolve {
        /// The id of the occurrence; also that of its message
        id: String,
        /// Note on the failure: the cause, or the remedy
        #[arg(long, value_name = "TEXT")]
        note: String,
        #[command(flatten)]
        address: Address,
    },
    /// Delete an occurrence that has ended, with its history and its log; its slot runs again only in a backfill
    Delete {
        /// The id of the occurrence; also that of its message
        id: String,
        #[command(flatten)]
        address: Address,
    },
}

pub(super) fn run(command: &ControlCommand) -> CommandResult {
    match command {
        ControlCommand::Cancel {
            id,
            reason,
            address,
            output,
        } => {
            let cancelled = ledger(address)?.cancel(id, reason.as_deref());
            let is_over = cancelled.map_err(refusal)? == Cancelled::Ended;
            let shown = foreign::line(id);
            match (output.format, is_over) {
                (Format::Json, _) => output::json(&json!({ "occurrence": id, "ended": is_over }))?,
                (Format::Text, true) => output::line(format!("cancelled {shown}"))?,
                (Format::Text, false) => output::line(format!(
                    "{shown} is being cancelled by the daemon that has its message"
                ))?,
            }
        }
        ControlCommand::Retry { id, body, address } => {
            let body = body.as_ref().map(read_body).transpose()?;
            let backend = backend::at(address)?;
            let known = backend.sources()?;
            let mut open = |name: &str| {
                if known.iter().all(|source| source.name != name) {
                    let why = format!("the configuration has no source `{name}`");
                    return Err(SourceFault::unusable(why));
                }
                backend.client(name)
            };
            let retried = ledger(address)?.retry(id, body.as_deref(), &mut open);
            retried.map_err(refusal)?;
            output::line(format!("sent back {}", foreign::line(id)))?;
        }
        ControlCommand::Resolve { id, note, address } => {
            ledger(address)?.resolve(id, note).map_err(refusal)?;
            output::line(format!("resolved {}", foreign::line(id)))?;
        }
        ControlCommand::Delete { id, address } => {
            ledger(address)?.delete(id).map_err(refusal)?;
            output::line(format!("deleted {}", foreign::line(id)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
