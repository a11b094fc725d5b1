//! `ganger schedule skip` and `backfill`: slots that are not to run, and those of the past that are.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use clap::Subcommand;
use miette::IntoDiagnostic;

use super::backend::refusal;
use super::backend::{Address, ledger};
use super::common::{CommandResult, Format, Output};
use super::output;
use ganger_queue::ledger::shown::BackfillJson;
use ganger_queue::ledger::{BackfillRequest, SkipRequest};

#[derive(Debug, Subcommand)]
pub(super) enum ByHandCommand {
    /// Skip a slot that is yet to come: it is recorded as skipped when it would have been due
    Skip {
        /// The schedule
        name: String,
        /// The slot: 2027-01-31T08:00:00 in the zone of the schedule, or with Z, an offset or [Europe/Berlin] at its
        /// end; if omitted, the next one
        slot: Option<String>,
        /// Let the slot run after all; if omitted, the first of those that are skipped
        #[arg(long)]
        undo: bool,
        /// Reason, which `audit` shows
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
    /// Run the slots of a range of the past that have not run, at most 1000: their messages are sent at once, whatever
    /// the schedule's `overlap` is
    Backfill {
        /// The schedule
        name: String,
        /// First instant of the range, written as a slot of `skip`
        #[arg(long, value_name = "TIME")]
        from: String,
        /// Last instant of the range, which belongs to it
        #[arg(long, value_name = "TIME")]
        to: String,
        /// Only show the slots that would run
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        /// Reason, which `audit` shows
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        address: Address,
        #[command(flatten)]
        output: Output,
    },
}

pub(super) fn run(command: &ByHandCommand) -> CommandResult {
    match command {
        ByHandCommand::Skip {
            name,
            slot,
            undo,
            reason,
            address,
            output,
        } => {
            let request = SkipRequest {
                slot: slot.clone(),
                is_undone: *undo,
                reason: reason.clone(),
            };
            let skipped = ledger(address)?.skip(name, &request).map_err(refusal)?;
            let slot = &skipped.slot;
            match (output.format, undo) {
                (Format::Json, _) => output::json(&skipped)?,
                (Format::Text, false) => output::line(format!("{name} will not run at {slot}"))?,
                (Format::Text, true) => output::line(format!("{name} will run at {slot}"))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        ByHandCommand::Backfill {
            name,
            from,
            to,
            dry_run,
            yes,
            reason,
            address,
            output,
        } => {
            let request = BackfillRequest {
                from: from.clone(),
                to: to.clone(),
                is_dry_run: *dry_run,
                reason: reason.clone(),
            };
            backfill(name, request, *yes, (address, output.format))
        }
    }
}

fn backfill(
    name: &str,
    request: BackfillRequest,
    is_confirmed: bool,
    (address, format): (&Address, Format),
) -> CommandResult {
    let mut ledger = ledger(address)?;
    let is_asked = !is_confirmed && !request.is_dry_run;
    let is_asked = is_asked && io::stdin().is_terminal() && io::stderr().is_terminal();
    if is_asked {
        let first = BackfillRequest {
            is_dry_run: true,
            ..request.clone()
        };
        let first = ledger.backfill(name, &first).map_err(refusal)?;
        if !first.slots.is_empty() {
            output::note(first.slots.join("\n"));
            output::prompt(format!("Run these {} slot(s)? [y/N] ", first.slots.len()));
            let mut answer = String::new();
            io::stdin()
                .lock()
                .read_line(&mut answer)
                .into_diagnostic()?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    let filled = ledger.backfill(name, &request).map_err(refusal)?;
    match format {
        Format::Json => output::json(&filled)?,
        Format::Text => output::line(told(&filled, request.is_dry_run))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn told(filled: &BackfillJson, is_dry_run: bool) -> String {
    let BackfillJson {
        slots,
        done,
        occurrences,
    } = filled;
    let done = match done {
        0 => String::new(),
        done => format!("; {done} have run before"),
    };
    match (is_dry_run, slots.len()) {
        (_, 0) => format!("no slot to run{done}"),
        (true, count) => format!("{}\n{count} slot(s) would run{done}", slots.join("\n")),
        (false, _) => format!("sent {} run(s){done}", occurrences.len()),
    }
}
