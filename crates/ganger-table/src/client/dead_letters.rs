//! Dead letters as commands page through them and select them, in any database.

use std::collections::BTreeSet;

use ganger_queue::client::{DeadFilter, Each, Listed, Page};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::fault::SourceFault;

/// Number of messages that are moved, or dead letters that are read, at once.
pub(super) const SOME: usize = 500;

/// Lists the dead letters of a page. `read` returns those behind a row, at most so many.
pub(super) fn list(
    page: &Page,
    each: &mut Each<'_>,
    mut read: impl FnMut(i64, usize) -> Result<Vec<(i64, DeadLetter)>, SourceFault>,
) -> Result<Listed, SourceFault> {
    let mut after = match page.after.as_deref().map(str::parse) {
        None => i64::MIN,
        Some(Ok(row)) => row,
        Some(Err(_)) => return Ok(Listed::Lost),
    };
    let mut left = page.limit;
    loop {
        let some = read(after, left.saturating_add(1).min(SOME))?;
        if some.is_empty() {
            return Ok(Listed::All);
        }
        for (row, dead_letter) in some {
            if left == 0 || each(dead_letter).is_break() {
                return Ok(Listed::More);
            }
            (left, after) = (left - 1, row);
        }
    }
}

/// The dead letters that a [`DeadFilter`] selects.
#[derive(Debug, Clone)]
pub(super) struct Selection<'a> {
    pub(super) ids: Option<Vec<i64>>,
    pub(super) pool: Option<&'a str>,
}

impl<'a> Selection<'a> {
    /// An id that is no number selects no row.
    pub(super) fn of(filter: &'a DeadFilter) -> Self {
        let rows = |ids: &BTreeSet<String>| ids.iter().filter_map(|id| id.parse().ok()).collect();
        Self {
            ids: filter.ids.as_ref().map(rows),
            pool: filter.pool.as_deref(),
        }
    }
}
