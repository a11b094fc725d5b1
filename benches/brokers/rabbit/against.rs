//! Another build of the daemon compared with this one: each on a queue of its own, one after the other in
//! every round. The two take turns in being first.

use std::path::Path;

use serde::Serialize;

use super::place::{Kind, Place};
use crate::common::figures::median;
use crate::common::show::{note, number, percent};
use crate::pool::{Pool, Workers};
use crate::running;
use crate::servers::rabbit::Node;
use crate::watch::{Rounds, Watched};

/// Prefetches per worker: the automatic one, and its maximum.
const PREFETCHES: [Option<u16>; 2] = [None, Some(256)];

/// One combination of settings, and its results.
#[derive(Debug, Serialize)]
pub(crate) struct Against {
    kind: Kind,
    workers: Workers,
    /// Prefetch of all workers together; automatic if none.
    prefetch: Option<u16>,
    messages: usize,
    ours: Rounds,
    theirs: Rounds,
    /// Median over the rounds of this build's processor time per message as a share of the other's.
    cpu_ratio: f64,
}

/// Measures every combination once in each round.
pub(crate) fn measure(node: &Node, other: &Path, rounds: usize) -> miette::Result<Vec<Against>> {
    let mut all = Vec::new();
    for (kind, messages) in [(Kind::Classic, 20_000), (Kind::Quorum, 40_000)] {
        for workers in [2_u16, 4] {
            for each in PREFETCHES {
                all.push(Against {
                    kind,
                    workers: Workers::rust(workers.into()),
                    prefetch: each.map(|each| each * workers),
                    messages,
                    ours: Rounds::default(),
                    theirs: Rounds::default(),
                    cpu_ratio: 0.0,
                });
            }
        }
    }
    let mut ratios = vec![Vec::new(); all.len()];
    for round in 1..=rounds {
        note(format_args!(
            "RabbitMQ, two builds, round {round} of {rounds}"
        ));
        for (against, ratios) in all.iter_mut().zip(&mut ratios) {
            ratios.push(against.round(node, other, round % 2 == 0)?);
        }
    }
    for (against, ratios) in all.iter_mut().zip(ratios) {
        against.cpu_ratio = median(ratios);
    }
    Ok(all)
}

impl Against {
    /// Runs both. Returns this build's processor time as a share of the other's.
    fn round(&mut self, node: &Node, other: &Path, ours_first: bool) -> miette::Result<f64> {
        let run = |program: Option<&Path>| self.run(node, program);
        let (ours, theirs) = if ours_first {
            let ours = run(None)?;
            (ours, run(Some(other))?)
        } else {
            let theirs = run(Some(other))?;
            (run(None)?, theirs)
        };
        self.ours.push(ours);
        self.theirs.push(theirs);
        Ok(ours.cpu_micros() / theirs.cpu_micros())
    }

    fn run(&self, node: &Node, program: Option<&Path>) -> miette::Result<Watched> {
        let place = Place::new(node);
        place.declare(self.kind)?;
        let pool = Pool {
            prefetch: self.prefetch,
            program: program.map(Path::to_owned),
            ..Pool::of(self.workers)
        };
        running::measure(&place, &pool, self.messages)
    }

    pub(crate) const HEADER: &[&str] = &[
        "queue",
        "workers",
        "prefetch",
        "ours/s",
        "CPU µs",
        "broker µs",
        "theirs/s",
        "CPU µs",
        "broker µs",
        "CPU ratio",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let prefetch = self
            .prefetch
            .map_or("auto".into(), |all| number(f64::from(all)));
        let mut row = vec![
            self.kind.describe().into(),
            self.workers.describe(),
            prefetch,
        ];
        row.extend(self.ours.cells());
        row.extend(self.theirs.cells());
        row.push(percent(self.cpu_ratio));
        row
    }
}
