//! The dead letters that a command is about.

use std::collections::BTreeSet;

use ganger_queue::client::DeadFilter;

/// The dead letters that a [`DeadFilter`] selects.
#[derive(Debug, Clone)]
pub(crate) struct Selection<'a> {
    pub(crate) ids: Option<Vec<i64>>,
    pub(crate) pool: Option<&'a str>,
}

impl<'a> Selection<'a> {
    /// Makes the selection of a filter. An id that is not a number selects no row.
    pub(crate) fn of(filter: &'a DeadFilter) -> Self {
        let rows = |ids: &BTreeSet<String>| ids.iter().filter_map(|id| id.parse().ok()).collect();
        Self {
            ids: filter.ids.as_ref().map(rows),
            pool: filter.pool.as_deref(),
        }
    }
}
