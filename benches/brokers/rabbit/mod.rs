//! All measurements on RabbitMQ.

mod against;
mod by_hand;
mod flow;
mod memory;
mod place;
mod raw;
mod ways;

pub(crate) use against::Against;
pub(crate) use flow::{Cell, Flow, daemon};
pub(crate) use place::{Kind, Letter, Place};

use std::path::Path;

use serde::Serialize;

use crate::common::memory::Memory;
use crate::common::show::note;
use crate::latency::{self, Latency};
use crate::peers::{self, Peer};
use crate::plan::Plan;
use crate::pool::{Pool, Workers};
use crate::running;
use crate::servers::rabbit::Node;
use crate::start::{self, Starts};

/// Results for RabbitMQ.
#[derive(Debug, Serialize)]
pub(crate) struct Rabbit {
    pub(crate) throughput: Vec<Flow>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) start: Starts,
    pub(crate) peers: Vec<Peer>,
}

/// Measures everything on a broker started for it.
pub(crate) fn measure(plan: &Plan, with_peers: bool) -> miette::Result<Rabbit> {
    note("starting RabbitMQ");
    let node = Node::start("");
    Ok(Rabbit {
        throughput: flow::measure(&node, plan)?,
        latency: latencies(&node, plan)?,
        memory: memory::measure(&node, plan)?,
        start: starts(&node, plan)?,
        peers: if with_peers {
            peers::measure(&node, plan)?
        } else {
            Vec::new()
        },
    })
}

/// Compares this build with another, and measures nothing else.
pub(crate) fn compare(other: &Path, rounds: usize) -> miette::Result<Vec<Against>> {
    note("starting RabbitMQ");
    let node = Node::start("");
    against::measure(&node, other, rounds)
}

fn latencies(node: &Node, plan: &Plan) -> miette::Result<Vec<Latency>> {
    note(format_args!(
        "RabbitMQ, latency, {} messages",
        plan.latency_messages
    ));
    let mut all = Vec::new();
    for kind in [Kind::Classic, Kind::Quorum] {
        let (ours, theirs) = (Place::new(node), Place::new(node));
        let mut ways = [ways::daemon(&ours, kind)?, ways::raw(&theirs, kind)?];
        all.extend(latency::measure(&mut ways, plan.latency_messages)?);
    }
    Ok(all)
}

fn starts(node: &Node, plan: &Plan) -> miette::Result<Starts> {
    note(format_args!("RabbitMQ, start, {} times", plan.starts));
    let place = Place::new(node);
    place.declare(Kind::Quorum)?;
    let pool = Pool::of(Workers::rust(1));
    start::measure(plan.starts, || running::start_seconds(&place, &pool))
}
