//! The cost of a message as the number of workers in a pool, or of pools, grows, with everything else equal.

use serde::Serialize;

use crate::common::figures::{Run, Series, median};
use crate::common::show::{note, number, percent, tenths};
use crate::daemon;
use crate::plan::Plan;
use crate::queue::Load;
use crate::setup::{Setup, Window};

/// A number of pools and workers.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) pools: usize,
    pub(crate) workers_per_pool: usize,
    daemon: Series,
    /// Processor time per message as a share of that at the first size.
    pub(crate) cost: f64,
}

/// Results with more workers, and with more pools.
#[derive(Debug, Serialize)]
pub(crate) struct Scaling {
    pub(crate) workers: Vec<Size>,
    pub(crate) pools: Vec<Size>,
}

/// Measures each size once in each round.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Scaling> {
    let mut scaling = Scaling {
        workers: sizes(&plan.more_workers),
        pools: sizes(&plan.more_pools),
    };
    for round in 1..=plan.rounds {
        note(format_args!("scaling, round {round} of {}", plan.rounds));
        for size in scaling.workers.iter_mut().chain(&mut scaling.pools) {
            size.round(plan.scaling_load)?;
        }
    }
    compare(&mut scaling.workers);
    compare(&mut scaling.pools);
    Ok(scaling)
}

fn sizes(all: &[(usize, usize)]) -> Vec<Size> {
    let size = |&(pools, workers_per_pool): &(usize, usize)| Size {
        pools,
        workers_per_pool,
        daemon: Series::default(),
        cost: 0.0,
    };
    all.iter().map(size).collect()
}

fn compare(sizes: &mut [Size]) {
    let first = sizes.first().map(|size| size.daemon.clone());
    let first = first.unwrap_or_default();
    for size in sizes {
        let pairs = size.daemon.0.iter().zip(&first.0);
        let costs = pairs.map(|(now, then)| now.cpu_micros() / then.cpu_micros());
        size.cost = median(costs);
    }
}

impl Size {
    fn round(&mut self, load: Load) -> miette::Result<()> {
        let setup = Setup {
            pools: self.pools,
            ..Setup::one_pool(self.workers_per_pool, Window::Auto)
        };
        let run: Run = daemon::measure(&setup, load)?;
        self.daemon.push(run);
        Ok(())
    }

    pub(crate) const HEADER: &[&str] = &["pools", "workers in each", "daemon/s", "CPU µs", "cost"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.pools.to_string(),
            self.workers_per_pool.to_string(),
            number(self.daemon.per_second()),
            tenths(self.daemon.cpu_micros()),
            percent(self.cost),
        ]
    }
}
