//! Refusals of the database, as a trigger of someone's may make them, with the row that each came with.

use super::error::fault;
use super::journal;
use crate::rejected_rows::RejectedRows;
use crate::table::Fault;

/// Error that prevented a transaction.
#[derive(Debug)]
pub(crate) struct RowError {
    /// The row that could not be changed, if a single one is to blame.
    row: Option<i64>,
    error: rusqlite::Error,
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self { row: None, error }
    }
}

impl RowError {
    /// Returns whether there was no space for the write.
    pub(crate) fn is_out_of_space(&self) -> bool {
        journal::is_out_of_space(&self.error)
    }
}

/// Converts an error and adds the row at which it occurred.
pub(crate) fn with(row: i64) -> impl FnOnce(rusqlite::Error) -> RowError {
    move |error| RowError {
        row: Some(row),
        error,
    }
}

/// Passes over the row that is refused for good, so that the same can be tried without it. If it
/// is not that, the fault remains.
pub(crate) fn exclude_rejected(
    rejected: &mut RejectedRows,
    refused: &RowError,
    operation: &str,
) -> Result<(), Fault> {
    let fault = fault(&refused.error);
    let Some(row) = refused
        .row
        .filter(|row| fault.is_permanent && rejected.add(vec![*row]))
    else {
        return Err(fault);
    };
    let problem = fault.problem;
    tracing::error!(
        row,
        problem,
        "this message can't be {operation}: rejected by the database; skipped for 5 minutes"
    );
    Ok(())
}
