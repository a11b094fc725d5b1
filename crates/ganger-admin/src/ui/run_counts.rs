//! Counts of runs by their ends.

use std::iter::Sum;
use std::ops::Add;

use ganger_queue::ledger::shown::ReportRowJson;

/// Counts of the runs of a day, of a month, or of all rows of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RunCounts {
    pub(super) runs: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) timed_out: u64,
    pub(super) cancelled: u64,
    pub(super) skipped: u64,
    pub(super) open: u64,
}

impl RunCounts {
    pub(super) fn failures(self) -> u64 {
        self.failed + self.timed_out
    }
}

impl From<&ReportRowJson> for RunCounts {
    fn from(row: &ReportRowJson) -> Self {
        Self {
            runs: row.runs,
            completed: row.completed,
            failed: row.failed,
            timed_out: row.timed_out,
            cancelled: row.cancelled,
            skipped: row.skipped,
            open: row.open,
        }
    }
}

impl Add for RunCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            cancelled: self.cancelled + other.cancelled,
            skipped: self.skipped + other.skipped,
            open: self.open + other.open,
        }
    }
}

impl Sum for RunCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}
