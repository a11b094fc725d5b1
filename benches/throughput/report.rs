//! The results, for people and for programs.

use std::path::Path;

use serde::Serialize;

use crate::common::goal::Goal;
use crate::common::machine::Machine;
use crate::common::memory::Memory;
use crate::common::show::{self, line, table};
use crate::flow::Flow;
use crate::goals;
use crate::idle::Idle;
use crate::languages::Language;
use crate::latency::Latency;
use crate::looks::Looked;
use crate::plan::Plan;
use crate::scaling::{Scaling, Size};
use crate::start::Starts;

/// All results; parts that were not requested are empty.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    plan: &'static str,
    rounds: usize,
    pub(crate) throughput: Vec<Flow>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) start: Option<Starts>,
    pub(crate) scaling: Option<Scaling>,
    pub(crate) looks: Vec<Looked>,
    pub(crate) idle: Option<Idle>,
    pub(crate) languages: Vec<Language>,
    goals: Vec<Goal>,
}

impl Report {
    /// Makes an empty report.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            machine: Machine::this(),
            plan: plan.name,
            rounds: plan.rounds,
            throughput: Vec::new(),
            latency: Vec::new(),
            memory: Vec::new(),
            start: None,
            scaling: None,
            looks: Vec::new(),
            idle: None,
            languages: Vec::new(),
            goals: Vec::new(),
        }
    }

    /// Adds the comparison with the goals.
    pub(crate) fn judge(&mut self) {
        self.goals = goals::compare(self);
    }

    /// Prints the tables and writes the JSON.
    pub(crate) fn publish(&self, json: &Path) -> miette::Result<()> {
        self.print();
        show::write(self, json)
    }

    fn print(&self) {
        line(self.machine.describe());
        line(format_args!(
            "{} plan, medians of {} rounds",
            self.plan, self.rounds
        ));
        let flows = self.throughput.iter().map(Flow::row);
        table("throughput", Flow::HEADER, flows);
        let latencies = self.latency.iter().map(Latency::row);
        table("idle queue to handler", Latency::HEADER, latencies);
        let memory = self.memory.iter().map(Memory::row);
        table("memory of the daemon", Memory::HEADER, memory);
        let starts = self.start.iter().map(Starts::row);
        table("start to first message done", Starts::HEADER, starts);
        let workers = self.scaling.iter().flat_map(|scaling| &scaling.workers);
        table("more workers", Size::HEADER, workers.map(Size::row));
        let pools = self.scaling.iter().flat_map(|scaling| &scaling.pools);
        table("more pools", Size::HEADER, pools.map(Size::row));
        let looks = self.looks.iter().map(Looked::row);
        table("who looks", Looked::HEADER, looks);
        let idle = self.idle.iter().map(Idle::row);
        table("nothing to do, everything on", Idle::HEADER, idle);
        let languages = self.languages.iter().map(Language::row);
        table("a worker in each language", Language::HEADER, languages);
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
    }
}
