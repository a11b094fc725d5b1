//! The results, for people and for programs.

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
use crate::server::Server;

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    plan: &'static str,
    rounds: usize,
    servers: Vec<Found>,
}

/// Results on one server; parts that were not requested are empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Found {
    server: String,
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

impl Found {
    /// Makes empty results.
    pub(crate) fn on(server: &Server) -> Self {
        Self {
            server: server.describe(),
            ..Self::default()
        }
    }

    /// Adds the comparison with the goals.
    pub(crate) fn judge(&mut self, server: &Server) {
        self.goals = goals::compare(self, server.words());
    }

    fn show(&self) {
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
    }
}

impl Report {
    /// Makes the report of the results on each server.
    pub(crate) fn of(servers: Vec<Found>, plan: &Plan) -> Self {
        Self {
            machine: Machine::this(),
            plan: plan.name,
            rounds: plan.rounds,
            servers,
        }
    }

    /// Prints the tables and writes the JSON.
    pub(crate) fn publish(&self, json: &Path) -> miette::Result<()> {
        line(self.machine.describe());
        let (plan, rounds) = (self.plan, self.rounds);
        for found in &self.servers {
            let server = &found.server;
            line(format_args!(
                "\n{server}, {plan} plan, medians of {rounds} rounds"
            ));
            found.show();
        }
        show::write(self, json)
    }
}
