//! Messages per second and processor time per message, compared with a raw loop.

use serde::Serialize;

use super::raw;
use super::topic::Topic;
use crate::common::show::{note, percent};
use crate::plan::Plan;
use crate::pool::{Pool, Workers};
use crate::running;
use crate::servers::kafka::Broker;
use crate::watch::Rounds;

/// Order in which messages are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    None,
    Key,
    Partition,
}

impl Order {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
            Self::Partition => "partition",
        }
    }

    fn pool(self, workers: Workers) -> Pool {
        Pool {
            keys: format!("order = \"{}\"\n", self.describe()),
            ..Pool::of(workers)
        }
    }
}

/// One combination of settings.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cell {
    pub(crate) order: Order,
    pub(crate) workers: Workers,
    pub(crate) messages: usize,
}

/// Results of a combination.
#[derive(Debug, Serialize)]
pub(crate) struct Flow {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) daemon: Rounds,
    raw: Rounds,
    pub(crate) daemon_to_raw: f64,
}

/// Measures every cell once in each round.
pub(crate) fn measure(broker: &Broker, plan: &Plan) -> miette::Result<Vec<Flow>> {
    let mut flows: Vec<Flow> = plan.kafka_cells.iter().map(Flow::new).collect();
    for round in 1..=plan.rounds {
        note(format_args!(
            "Kafka, throughput, round {round} of {}",
            plan.rounds
        ));
        for flow in &mut flows {
            flow.round(broker)?;
        }
    }
    flows.iter_mut().for_each(Flow::compare);
    Ok(flows)
}

impl Flow {
    fn new(cell: &Cell) -> Self {
        Self {
            cell: *cell,
            daemon: Rounds::default(),
            raw: Rounds::default(),
            daemon_to_raw: 0.0,
        }
    }

    /// Runs both one after the other, so that both meet the same load on the machine.
    fn round(&mut self, broker: &Broker) -> miette::Result<()> {
        let Cell {
            order,
            workers,
            messages,
        } = self.cell;
        self.raw
            .push(raw::measure(&Topic::make(broker)?, messages)?);
        let pool = order.pool(workers);
        let daemon = running::measure(&Topic::make(broker)?, &pool, messages)?;
        self.daemon.push(daemon);
        Ok(())
    }

    fn compare(&mut self) {
        self.daemon_to_raw = self.daemon.ratio_to(&self.raw);
    }

    pub(crate) const HEADER: &[&str] = &[
        "order",
        "workers",
        "daemon/s",
        "CPU µs",
        "broker µs",
        "raw/s",
        "CPU µs",
        "broker µs",
        "ratio",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let Cell { order, workers, .. } = self.cell;
        let mut row = vec![order.describe().to_owned(), workers.describe()];
        row.extend(self.daemon.cells());
        row.extend(self.raw.cells());
        row.push(percent(self.daemon_to_raw));
        row
    }
}
