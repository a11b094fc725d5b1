//! The results, for people and for programs.

use std::path::Path;

use serde::Serialize;

use crate::common::goal::Goal;
use crate::common::machine::Machine;
use crate::common::memory::Memory;
use crate::common::show::{self, line, table};
use crate::goals;
use crate::kafka::{self, Kafka};
use crate::latency::Latency;
use crate::peers::Peer;
use crate::plan::Plan;
use crate::rabbit::{self, Rabbit};
use crate::start::Starts;

/// All results; parts that were not requested are empty.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    plan: &'static str,
    rounds: usize,
    pub(crate) rabbitmq: Option<Rabbit>,
    pub(crate) kafka: Option<Kafka>,
    goals: Vec<Goal>,
}

impl Report {
    /// Makes an empty report.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            machine: Machine::this(),
            plan: plan.name,
            rounds: plan.rounds,
            rabbitmq: None,
            kafka: None,
            goals: Vec::new(),
        }
    }

    /// Adds the comparison with the goals.
    pub(crate) fn judge(&mut self) {
        self.goals = goals::compare(self);
    }

    /// Prints the tables and writes the JSON.
    pub(crate) fn publish(&self, json: &Path) -> miette::Result<()> {
        line(self.machine.describe());
        line(format_args!(
            "{} plan, medians of {} rounds",
            self.plan, self.rounds
        ));
        if let Some(rabbitmq) = &self.rabbitmq {
            print_rabbitmq(rabbitmq);
        }
        if let Some(kafka) = &self.kafka {
            print_kafka(kafka);
        }
        table("goals", Goal::HEADER, self.goals.iter().map(Goal::row));
        show::write(self, json)
    }
}

fn print_rabbitmq(found: &Rabbit) {
    let flows = found.throughput.iter().map(rabbit::Flow::row);
    table("RabbitMQ, throughput", rabbit::Flow::HEADER, flows);
    let peers = found.peers.iter().map(Peer::row);
    table("RabbitMQ, peers", Peer::HEADER, peers);
    let latencies = found.latency.iter().map(Latency::row);
    table(
        "RabbitMQ, idle queue to handler",
        Latency::HEADER,
        latencies,
    );
    let memory = found.memory.iter().map(Memory::row);
    table("RabbitMQ, memory of the daemon", Memory::HEADER, memory);
    let starts = [found.start.row()].into_iter();
    table("RabbitMQ, start to first message", Starts::HEADER, starts);
}

fn print_kafka(found: &Kafka) {
    let flows = found.throughput.iter().map(kafka::Flow::row);
    table("Kafka, throughput", kafka::Flow::HEADER, flows);
    let latencies = found.latency.iter().map(Latency::row);
    table("Kafka, idle topic to handler", Latency::HEADER, latencies);
    let starts = [found.start.row()].into_iter();
    table("Kafka, start to first message", Starts::HEADER, starts);
}
