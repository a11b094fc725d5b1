//! What was found, for people and for programs.

use std::path::Path;

use serde::Serialize;

use crate::common::goal::Goal;
use crate::common::machine::Machine;
use crate::common::show::{self, line, table};
use crate::crowd::Crowd;
use crate::flow::Flow;
use crate::goals;
use crate::idempotency::Remembering;
use crate::inserts::Inserts;
use crate::latency::Latency;
use crate::load::{Loaded, Part};
use crate::peers::Peer;
use crate::plan::Plan;
use crate::scaling::Size;

/// Everything that was measured; what was not asked for is empty.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    server: String,
    plan: &'static str,
    rounds: usize,
    pub(crate) throughput: Vec<Flow>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) scaling: Vec<Size>,
    pub(crate) inserts: Vec<Inserts>,
    pub(crate) load: Option<Loaded>,
    pub(crate) crowd: Vec<Crowd>,
    pub(crate) idempotency: Vec<Remembering>,
    pub(crate) peers: Vec<Peer>,
    goals: Vec<Goal>,
}

impl Report {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan, server: String) -> Self {
        Self {
            machine: Machine::this(),
            server,
            plan: plan.name,
            rounds: plan.rounds,
            throughput: Vec::new(),
            latency: Vec::new(),
            scaling: Vec::new(),
            inserts: Vec::new(),
            load: None,
            crowd: Vec::new(),
            idempotency: Vec::new(),
            peers: Vec::new(),
            goals: Vec::new(),
        }
    }

    /// Sets the goals beside it.
    pub(crate) fn judge(&mut self) {
        self.goals = goals::compare(self);
    }

    /// Prints the tables and writes the JSON.
    pub(crate) fn publish(&self, json: &Path) -> miette::Result<()> {
        line(self.machine.describe());
        line(format_args!(
            "{}, {} plan, medians of {} rounds",
            self.server, self.plan, self.rounds
        ));
        let flows = self.throughput.iter().map(Flow::row);
        table("throughput", Flow::HEADER, flows);
        let latencies = self.latency.iter().map(Latency::row);
        table("idle queue to handler", Latency::HEADER, latencies);
        let sizes = self.scaling.iter().map(Size::row);
        table("more queues", Size::HEADER, sizes);
        let inserts = self.inserts.iter().map(Inserts::row);
        table("a producer's insert", Inserts::HEADER, inserts);
        let parts = self.load.iter().flat_map(Loaded::rows);
        table("load with a producer beside it", Part::HEADER, parts);
        let crowd = self.crowd.iter().map(Crowd::row);
        table("sources on one server", Crowd::HEADER, crowd);
        let ways = self.idempotency.iter().map(Remembering::row);
        table("idempotency", Remembering::HEADER, ways);
        let peers = self.peers.iter().map(Peer::row);
        table("peers", Peer::HEADER, peers);
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
        show::write(self, json)
    }
}
