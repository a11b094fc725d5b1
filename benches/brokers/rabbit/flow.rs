//! Messages per second and processor time per message, compared with two raw loops and one loop with workers.

use serde::Serialize;

use super::by_hand;
use super::place::{Kind, Place};
use super::raw::{self, Acks};
use crate::common::show::{note, percent};
use crate::plan::Plan;
use crate::pool::{Language, Pool, Workers};
use crate::running;
use crate::servers::rabbit::Node;
use crate::watch::{Rounds, Watched};

/// One combination of settings.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) workers: Workers,
    /// Prefetch of all workers together, and of the raw loops.
    pub(crate) prefetch: u16,
    pub(crate) messages: usize,
}

/// Results of a combination.
#[derive(Debug, Serialize)]
pub(crate) struct Flow {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) daemon: Rounds,
    raw_coalesced: Rounds,
    raw_each: Rounds,
    /// The loop with compiled workers.
    raw_with_workers: Rounds,
    pub(crate) daemon_to_raw_coalesced: f64,
    daemon_to_raw_each: f64,
    daemon_to_raw_with_workers: Option<f64>,
    raw_with_workers_to_raw_coalesced: Option<f64>,
}

/// Measures every cell once in each round.
pub(crate) fn measure(node: &Node, plan: &Plan) -> miette::Result<Vec<Flow>> {
    let mut flows: Vec<Flow> = plan.rabbit_cells.iter().map(Flow::new).collect();
    for round in 1..=plan.rounds {
        note(format_args!(
            "RabbitMQ, throughput, round {round} of {}",
            plan.rounds
        ));
        for flow in &mut flows {
            flow.round(node)?;
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
            raw_coalesced: Rounds::default(),
            raw_each: Rounds::default(),
            raw_with_workers: Rounds::default(),
            daemon_to_raw_coalesced: 0.0,
            daemon_to_raw_each: 0.0,
            daemon_to_raw_with_workers: None,
            raw_with_workers_to_raw_coalesced: None,
        }
    }

    /// Runs all one after the other, so that all meet the same load on the machine. The daemon comes in the
    /// middle.
    fn round(&mut self, node: &Node) -> miette::Result<()> {
        let Cell {
            kind,
            workers,
            prefetch,
            messages,
        } = self.cell;
        let raw = |acks| raw::measure(&Place::new(node), kind, prefetch, acks, messages);
        self.raw_each.push(raw(Acks::Each)?);
        self.daemon.push(daemon(node, &self.cell)?);
        self.raw_coalesced.push(raw(Acks::Coalesced)?);
        if workers.language == Language::Rust {
            let place = Place::new(node);
            let with = by_hand::measure(&place, kind, prefetch, workers.count, messages);
            self.raw_with_workers.push(with?);
        }
        Ok(())
    }

    fn compare(&mut self) {
        self.daemon_to_raw_coalesced = self.daemon.ratio_to(&self.raw_coalesced);
        self.daemon_to_raw_each = self.daemon.ratio_to(&self.raw_each);
        if self.cell.workers.language == Language::Rust {
            let with = &self.raw_with_workers;
            self.daemon_to_raw_with_workers = Some(self.daemon.ratio_to(with));
            self.raw_with_workers_to_raw_coalesced = Some(with.ratio_to(&self.raw_coalesced));
        }
    }

    pub(crate) const HEADER: &[&str] = &[
        "queue",
        "prefetch",
        "workers",
        "daemon/s",
        "CPU µs",
        "broker µs",
        "raw coalesced/s",
        "CPU µs",
        "broker µs",
        "ratio",
        "raw each/s",
        "CPU µs",
        "broker µs",
        "ratio",
        "raw with workers/s",
        "CPU µs",
        "broker µs",
        "ratio",
        "its own to raw coalesced",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let Cell {
            kind,
            workers,
            prefetch,
            ..
        } = self.cell;
        let mut row = vec![
            kind.describe().to_owned(),
            prefetch.to_string(),
            workers.describe(),
        ];
        row.extend(self.daemon.cells());
        row.extend(self.raw_coalesced.cells());
        row.push(percent(self.daemon_to_raw_coalesced));
        row.extend(self.raw_each.cells());
        row.push(percent(self.daemon_to_raw_each));
        if let (Some(ratio), Some(own)) = (
            self.daemon_to_raw_with_workers,
            self.raw_with_workers_to_raw_coalesced,
        ) {
            row.extend(self.raw_with_workers.cells());
            row.extend([percent(ratio), percent(own)]);
        }
        row
    }
}

/// Measures the product on a queue of its own.
pub(crate) fn daemon(node: &Node, cell: &Cell) -> miette::Result<Watched> {
    let place = Place::new(node);
    place.declare(cell.kind)?;
    let pool = Pool {
        prefetch: Some(cell.prefetch),
        ..Pool::of(cell.workers)
    };
    running::measure(&place, &pool, cell.messages)
}
