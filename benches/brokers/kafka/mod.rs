//! All measurements on Kafka.

mod flow;
mod raw;
mod topic;
mod ways;

pub(crate) use flow::{Cell, Flow, Order};

use serde::Serialize;

use crate::common::show::note;
use crate::latency::{self, Latency};
use crate::plan::Plan;
use crate::pool::{Pool, Workers};
use crate::running;
use crate::servers::kafka::Broker;
use crate::start::{self, Starts};
use topic::Topic;

/// Results for Kafka.
#[derive(Debug, Serialize)]
pub(crate) struct Kafka {
    pub(crate) throughput: Vec<Flow>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) start: Starts,
}

/// Measures everything on a broker started for it.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Kafka> {
    note("starting Kafka");
    let broker = Broker::prepare();
    broker.start();
    broker.is_ready();
    Ok(Kafka {
        throughput: flow::measure(&broker, plan)?,
        latency: latencies(&broker, plan)?,
        start: starts(&broker, plan)?,
    })
}

fn latencies(broker: &Broker, plan: &Plan) -> miette::Result<Vec<Latency>> {
    note(format_args!(
        "Kafka, latency, {} messages",
        plan.latency_messages
    ));
    let (ours, theirs) = (Topic::make(broker)?, Topic::make(broker)?);
    let mut ways = [ways::daemon(&ours)?, ways::raw(&theirs)?];
    latency::measure(&mut ways, plan.latency_messages)
}

fn starts(broker: &Broker, plan: &Plan) -> miette::Result<Starts> {
    note(format_args!("Kafka, start, {} times", plan.starts));
    let topic = Topic::make(broker)?;
    let pool = Pool::of(Workers::rust(1));
    start::measure(plan.starts, || running::start_seconds(&topic, &pool))
}
