//! Rows that the database refuses to change, as a trigger of someone's may: they are passed over, so
//! that one of them does not stand in the way of its whole queue, and tried again after a while.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::error::fault;
use super::journal;
use crate::table::Fault;

/// More than so many, and it is not the rows: then the source is in trouble as a whole. Less than are
/// looked at in one transaction, so that there are always others among those.
const ROWS_MAX: usize = 256;

/// Whoever wrote the trigger may have thought better of it by then.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// Why nothing was written.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The row that could not be changed, if it is one row.
    row: Option<i64>,
    error: rusqlite::Error,
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self { row: None, error }
    }
}

impl Refused {
    /// There was no room for it.
    pub(crate) fn is_of_room(&self) -> bool {
        journal::is_of_room(&self.error)
    }
}

/// Says of an error which row it came with.
pub(crate) fn with(row: i64) -> impl FnOnce(rusqlite::Error) -> Refused {
    move |error| Refused {
        row: Some(row),
        error,
    }
}

/// The rows that are passed over.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    rows: HashSet<i64>,
    since: Option<Instant>,
}

impl PassedOver {
    pub(crate) fn has(&self, row: i64) -> bool {
        self.rows.contains(&row)
    }

    /// Passes over the row that is refused for good, so that the same can be tried without it. If it
    /// is not that, the fault remains.
    pub(crate) fn pass_over(&mut self, refused: &Refused, what: &str) -> Result<(), Fault> {
        let fault = fault(&refused.error);
        let Some(row) = refused.row.filter(|row| fault.for_good && self.add(*row)) else {
            return Err(fault);
        };
        let problem = fault.problem;
        tracing::error!(
            row,
            problem,
            "the database refuses to have this message {what}; it is passed over for a while"
        );
        Ok(())
    }

    /// Returns whether that helps: it does not if there are too many, or it is passed over already.
    fn add(&mut self, row: i64) -> bool {
        self.since.get_or_insert_with(Instant::now);
        self.rows.len() < ROWS_MAX && self.rows.insert(row)
    }

    /// Lets all of them be tried again once their time has come.
    pub(crate) fn expire(&mut self) {
        let due = |since: Instant| since.elapsed() >= TRIED_AGAIN_AFTER;
        if self.since.is_some_and(due) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_row_is_passed_over_once_and_for_a_while() {
        let mut rows = PassedOver::default();
        assert!(rows.add(7) && !rows.add(7));
        rows.expire();
        assert!(rows.has(7) && !rows.has(8));
        tokio::time::advance(TRIED_AGAIN_AFTER).await;
        rows.expire();
        assert!(!rows.has(7) && rows.add(7));
    }

    #[test]
    fn when_everything_is_refused_it_does_not_help() {
        let mut rows = PassedOver::default();
        let passed_over = (0..1000).filter(|row| rows.add(*row)).count();
        assert_eq!(passed_over, ROWS_MAX);
    }
}
