//! The daemon's own resident memory, idle after some work, without its workers.

use serde::Serialize;

use super::show::megabytes;

/// Memory of a daemon with that number of workers.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) workers: usize,
    pub(crate) resident_kib: u64,
}

impl Memory {
    pub(crate) const HEADER: &[&str] = &["workers", "resident"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![self.workers.to_string(), megabytes(self.resident_kib)]
    }
}
