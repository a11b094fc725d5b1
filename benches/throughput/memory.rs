//! The daemon's memory with pools of several sizes.

use crate::common::memory::Memory;
use crate::common::show::note;
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::queue::QueueFile;
use crate::setup::{Setup, Window};

const BODY_BYTES: usize = 1024;

/// Measures each size of a pool.
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
