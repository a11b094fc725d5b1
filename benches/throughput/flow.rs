//! Messages per second and processor time per message, compared with two raw loops.

use serde::Serialize;

use crate::common::figures::Series;
use crate::common::show::{note, number, percent, tenths};
use crate::plan::{Cell, Plan};
use crate::setup::{Setup, Window};
use crate::{bare_pipe, bare_table, daemon, memory_source};

/// Results of one combination.
#[derive(Debug, Serialize)]
pub(crate) struct Flow {
    pub(crate) workers: usize,
    pub(crate) window: Window,
    pub(crate) body_bytes: usize,
    daemon: Series,
    bare_table: Series,
    pool_from_memory: Series,
    bare_pipe: Series,
    pub(crate) daemon_to_bare_table: f64,
    pub(crate) daemon_to_bare_pipe: f64,
    pub(crate) pool_from_memory_to_bare_pipe: f64,
}

/// Measures every cell once in each round.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Flow>> {
    let mut flows: Vec<Flow> = plan.cells.iter().map(Flow::new).collect();
    for round in 1..=plan.rounds {
        note(format_args!("throughput, round {round} of {}", plan.rounds));
        for (flow, cell) in flows.iter_mut().zip(&plan.cells) {
            flow.round(cell)?;
        }
    }
    flows.iter_mut().for_each(Flow::compare);
    Ok(flows)
}

impl Flow {
    fn new(cell: &Cell) -> Self {
        Self {
            workers: cell.workers,
            window: cell.window,
            body_bytes: cell.load.body_bytes,
            daemon: Series::default(),
            bare_table: Series::default(),
            pool_from_memory: Series::default(),
            bare_pipe: Series::default(),
            daemon_to_bare_table: 0.0,
            daemon_to_bare_pipe: 0.0,
            pool_from_memory_to_bare_pipe: 0.0,
        }
    }

    /// Runs all one after the other, so that all meet the same load on the machine.
    fn round(&mut self, cell: &Cell) -> miette::Result<()> {
        let setup = Setup::one_pool(cell.workers, cell.window);
        let bare = bare_pipe::measure(cell.workers, cell.window.frames(), cell.pipe_load)?;
        self.bare_pipe.push(bare);
        self.pool_from_memory
            .push(memory_source::measure(&setup, cell.pipe_load)?);
        self.bare_table.push(bare_table::measure(cell.load)?);
        self.daemon.push(daemon::measure(&setup, cell.load)?);
        Ok(())
    }

    fn compare(&mut self) {
        self.daemon_to_bare_table = self.daemon.ratio_to(&self.bare_table);
        self.daemon_to_bare_pipe = self.daemon.ratio_to(&self.bare_pipe);
        self.pool_from_memory_to_bare_pipe = self.pool_from_memory.ratio_to(&self.bare_pipe);
    }

    pub(crate) const HEADER: &[&str] = &[
        "body",
        "workers",
        "window",
        "daemon/s",
        "CPU µs",
        "bare table/s",
        "CPU µs",
        "ratio",
        "pool/s",
        "CPU µs",
        "bare pipe/s",
        "CPU µs",
        "ratio",
        "daemon:pipe",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let mut row = vec![
            self.body_bytes.to_string(),
            self.workers.to_string(),
            self.window.describe(),
        ];
        let series = |series: &Series| [number(series.per_second()), tenths(series.cpu_micros())];
        row.extend(series(&self.daemon));
        row.extend(series(&self.bare_table));
        row.push(percent(self.daemon_to_bare_table));
        row.extend(series(&self.pool_from_memory));
        row.extend(series(&self.bare_pipe));
        row.push(percent(self.pool_from_memory_to_bare_pipe));
        row.push(percent(self.daemon_to_bare_pipe));
        row
    }
}
