//! The daemon's own resident memory, idle after some work. Its workers have theirs.

use serde::Serialize;

use super::place::{Kind, Place};
use crate::common::show::{megabytes, note};
use crate::plan::Plan;
use crate::pool::{Pool, Workers};
use crate::running::Running;
use crate::servers::rabbit::Node;

/// How much memory a daemon with so many workers takes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) workers: usize,
    pub(crate) resident_kib: u64,
}

/// Looks at each size of a pool.
pub(crate) fn measure(node: &Node, plan: &Plan) -> miette::Result<Vec<Memory>> {
    note("RabbitMQ, memory");
    let sizes = plan.memory_workers.iter();
    sizes.map(|size| look(node, *size)).collect()
}

fn look(node: &Node, workers: usize) -> miette::Result<Memory> {
    let place = Place::new(node);
    place.declare(Kind::Quorum)?;
    let running = Running::start(&place, &Pool::of(Workers::rust(workers)))?;
    let resident_kib = running.resident_kib()?;
    running.stop()?;
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
