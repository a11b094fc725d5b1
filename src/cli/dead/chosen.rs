//! Selection of dead letters by a command: which ones, their number, and the user's confirmation.

use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;

use jiff::Timestamp;
use miette::IntoDiagnostic;
use serde_json::json;

use super::sources::Sources;
use crate::cli::backend::{self, Address};
use crate::cli::common::{CommandResult, Format};
use crate::cli::output;
use ganger_queue::client::json::moment;
use ganger_queue::client::{Criteria, DeadFilter, Page};

/// Sources and pools to search.
#[derive(Debug, clap::Args)]
pub(crate) struct Scope {
    /// Only dead letters of this pool
    #[arg(long, value_name = "NAME")]
    pub(super) pool: Option<String>,
    /// Only dead letters of this source
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    #[command(flatten)]
    pub(super) address: Address,
}

impl Scope {
    pub(super) fn open(&self) -> miette::Result<Sources> {
        let (source, pool) = (self.source.as_deref(), self.pool.as_deref());
        Sources::open(&*backend::at(&self.address)?, source, pool)
    }

    pub(super) fn filter(&self) -> DeadFilter {
        DeadFilter {
            pool: self.pool.clone(),
            ..DeadFilter::default()
        }
    }
}

/// Narrowing by error, message, reason and time.
#[derive(Debug, clap::Args)]
pub(crate) struct DeadLetterFilter {
    /// Only dead letters whose error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only the dead letters of the message with this id; of one without an id, with this correlation id
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Only dead letters with this reason, such as failed, rejected or crashed
    #[arg(long, value_name = "NAME")]
    reason: Option<String>,
    /// Only dead letters that last failed at or after this time, such as 2027-01-31T08:00:00Z or 2h (ago)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only dead letters that last failed before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// Returns the filter for all selected dead letters.
    pub(super) fn filter(&self, scope: &Scope) -> DeadFilter {
        DeadFilter {
            criteria: Criteria {
                error: self.error.clone(),
                message_id: self.message_id.clone(),
                reason: self.reason.clone(),
                since: self.since,
                before: self.before,
            },
            ..scope.filter()
        }
    }
}

/// Selection of the dead letters to change.
#[derive(Debug, clap::Args)]
pub(crate) struct Chosen {
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Ids of dead letters, as `list` shows them
    #[arg(
        required_unless_present_any = NOT_BY_IDS,
        conflicts_with_all = NOT_BY_IDS
    )]
    pub(super) ids: Vec<String>,
    /// Select all dead letters
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    narrowing: DeadLetterFilter,
    /// Print the number of dead letters without changing anything
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// Arguments that select dead letters without naming each.
const NOT_BY_IDS: [&str; 6] = ["all", "error", "message_id", "reason", "since", "before"];

impl Chosen {
    pub(super) fn open(&self) -> miette::Result<Sources> {
        self.scope.open()
    }

    pub(super) fn filter(&self) -> DeadFilter {
        DeadFilter {
            ids: (!self.ids.is_empty()).then(|| self.ids.iter().cloned().collect()),
            ..self.narrowing.filter(&self.scope)
        }
    }

    /// Counts the selected dead letters.
    fn count(&self, sources: &mut Sources) -> miette::Result<usize> {
        let mut count = 0;
        sources.read(&Page::all(self.filter()), |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        sources.end()?;
        if count == 0 {
            sources.found_none()?;
        }
        Ok(count)
    }

    /// Prints the intended change.
    pub(super) fn would_be(
        &self,
        sources: &mut Sources,
        what: &str,
        format: Format,
    ) -> CommandResult {
        let count = self.count(sources)?;
        match format {
            Format::Json => output::json(&json!({ what: 0, "dry_run": true, "matched": count }))?,
            Format::Text => output::line(format!("{count} would be {what}"))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the user to confirm the selection. A user who names each dead letter, or a program, is not asked.
    pub(super) fn is_confirmed(&self, sources: &mut Sources) -> miette::Result<bool> {
        let is_asked = io::stdin().is_terminal() && io::stderr().is_terminal();
        if !self.ids.is_empty() || !is_asked {
            return Ok(true);
        }
        let count = self.count(sources)?;
        if count == 0 {
            return Ok(true);
        }
        output::prompt(format!("Permanently delete {count} dead letter(s)? [y/N] "));
        let mut answer = String::new();
        io::stdin()
            .lock()
            .read_line(&mut answer)
            .into_diagnostic()?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}
