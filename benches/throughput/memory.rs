//! The daemon's own resident memory, idle after some work. Its workers have theirs.

use serde::Serialize;

use crate::common::show::{megabytes, note};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::queue::QueueFile;
use crate::setup::{Setup, Window};

const BODY_BYTES: usize = 1024;

/// How much memory a daemon with so many workers takes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) workers: usize,
    pub(crate) resident_kib: u64,
}

/// Looks at each size of a pool.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Memory>> {
    note("memory");
    plan.memory_workers.iter().map(|size| look(*size)).collect()
}

fn look(workers: usize) -> miette::Result<Memory> {
    let queue = QueueFile::create()?;
    let setup = Setup::one_pool(workers, Window::Auto);
    let mut daemon = Daemon::start(&queue, &setup)?;
    daemon.warm_up(&queue, BODY_BYTES)?;
    let resident_kib = daemon.resident_kib()?;
    daemon.stop()?;
    Ok(Memory {
        workers,
        resident_kib,
    })
}

impl Memory {
    pub(crate) const HEADER: &[&str] = &["workers", "resident"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![self.workers.to_string(), megabytes(self.resident_kib)]
    }
}
