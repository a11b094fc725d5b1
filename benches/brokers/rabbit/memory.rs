//! The daemon's memory with pools of several sizes.

use super::place::{Kind, Place};
use crate::common::memory::Memory;
use crate::common::show::note;
use crate::plan::Plan;
use crate::pool::{Pool, Workers};
use crate::running::Running;
use crate::servers::rabbit::Node;

/// Measures each size of a pool.
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
