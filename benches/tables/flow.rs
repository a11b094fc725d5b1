//! Messages per second and processor time per message, compared with raw loops.

use serde::Serialize;

use crate::common::figures::median;
use crate::common::show::{note, number, percent};
use crate::daemon::{self, Measured};
use crate::plan::Plan;
use crate::raw::{self, Table};
use crate::server::{Load, Server};
use crate::setup::{Setup, Window};
use crate::watch::Rounds;

/// Number of messages that a worker may have in flight by default, if none takes long.
const AUTO_EACH: usize = 256;

/// Batch size of the common raw loop.
const SMALL_BATCH: usize = 50;

/// One combination of settings.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cell {
    pub(crate) workers: usize,
    pub(crate) body_bytes: usize,
    /// Messages in flight for all workers together; ganger's own choice if none.
    pub(crate) prefetch: Option<usize>,
    pub(crate) messages: usize,
}

impl Cell {
    fn load(self) -> Load {
        Load {
            messages: self.messages,
            body_bytes: self.body_bytes,
        }
    }

    fn setup(self) -> Setup {
        let keys = self.prefetch.map(|prefetch| {
            let each = prefetch / self.workers;
            format!("prefetch = {each}\n")
        });
        let window = match self.prefetch {
            Some(prefetch) => Window::Fixed((prefetch / self.workers / 2).clamp(1, 64)),
            None => Window::Auto,
        };
        Setup {
            keys: keys.unwrap_or_default(),
            ..Setup::one_pool(self.workers, window)
        }
    }

    /// Returns the batch size of the raw loop.
    fn batch(self) -> usize {
        self.prefetch.unwrap_or(AUTO_EACH * self.workers)
    }
}

/// Results of one contender in all rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Contender {
    #[serde(flatten)]
    rounds: Rounds,
    messages_per_write: Vec<f64>,
}

impl Contender {
    fn push(&mut self, measured: Measured) {
        self.rounds.push(measured.watched);
        self.messages_per_write.push(measured.messages_per_write);
    }

    fn cells(&self) -> Vec<String> {
        let batch = median(self.messages_per_write.iter().copied());
        let mut cells = self.rounds.cells().to_vec();
        cells.push(number(batch));
        cells
    }
}

/// Results of a combination.
#[derive(Debug, Serialize)]
pub(crate) struct Flow {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    daemon: Contender,
    raw: Contender,
    raw_small: Contender,
    raw_plain: Contender,
    pub(crate) daemon_to_raw: f64,
    daemon_to_raw_small: f64,
    daemon_to_raw_plain: f64,
}

/// Measures every cell once in each round.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Flow>> {
    let mut flows: Vec<Flow> = plan.cells.iter().map(Flow::new).collect();
    for round in 1..=plan.rounds {
        note(format_args!("throughput, round {round} of {}", plan.rounds));
        for flow in &mut flows {
            flow.round(server)?;
        }
    }
    flows.iter_mut().for_each(Flow::compare);
    Ok(flows)
}

impl Flow {
    fn new(cell: &Cell) -> Self {
        Self {
            cell: *cell,
            daemon: Contender::default(),
            raw: Contender::default(),
            raw_small: Contender::default(),
            raw_plain: Contender::default(),
            daemon_to_raw: 0.0,
            daemon_to_raw_small: 0.0,
            daemon_to_raw_plain: 0.0,
        }
    }

    /// Runs all one after the other, so that all meet the same load on the machine.
    fn round(&mut self, server: &Server) -> miette::Result<()> {
        let (cell, load) = (self.cell, self.cell.load());
        let raw = |table, batch| raw::measure(server, table, batch, load);
        self.raw_small.push(raw(Table::Ganger, SMALL_BATCH)?);
        self.raw.push(raw(Table::Ganger, cell.batch())?);
        self.daemon
            .push(daemon::measure(server, &cell.setup(), load)?);
        self.raw_plain.push(raw(Table::Plain, cell.batch())?);
        Ok(())
    }

    fn compare(&mut self) {
        let to = |other: &Contender| self.daemon.rounds.ratio_to(&other.rounds);
        self.daemon_to_raw = to(&self.raw);
        self.daemon_to_raw_small = to(&self.raw_small);
        self.daemon_to_raw_plain = to(&self.raw_plain);
    }

    pub(crate) const HEADER: &[&str] = &[
        "body",
        "workers",
        "prefetch",
        "daemon/s",
        "CPU µs",
        "server µs",
        "a write",
        "raw/s",
        "CPU µs",
        "server µs",
        "a write",
        "ratio",
        "raw, 50s/s",
        "ratio",
        "plain table/s",
        "ratio",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let Cell {
            workers,
            body_bytes,
            prefetch,
            ..
        } = self.cell;
        let prefetch = prefetch.map_or("auto".to_owned(), |prefetch| prefetch.to_string());
        let mut row = vec![body_bytes.to_string(), workers.to_string(), prefetch];
        row.extend(self.daemon.cells());
        row.extend(self.raw.cells());
        row.push(percent(self.daemon_to_raw));
        row.push(number(self.raw_small.rounds.per_second()));
        row.push(percent(self.daemon_to_raw_small));
        row.push(number(self.raw_plain.rounds.per_second()));
        row.push(percent(self.daemon_to_raw_plain));
        row
    }
}
