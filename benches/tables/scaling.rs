//! The cost of a message as the number of queues grows, with the same number of workers in total.

use serde::Serialize;

use crate::common::figures::median;
use crate::common::show::{note, number, percent};
use crate::daemon;
use crate::plan::Plan;
use crate::server::{Load, Server};
use crate::setup::{Setup, Window};
use crate::watch::Rounds;

/// A number of queues, each with a pool of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) queues: usize,
    workers_each: usize,
    rounds: Rounds,
    messages_per_write: Vec<f64>,
    /// Processor time per message as shares of that with the first number of queues: the daemon's, and that
    /// of the daemon and the server together.
    daemon_cost: f64,
    pub(crate) cost: f64,
}

/// Measures each size once in each round.
pub(crate) fn measure(server: &Server, plan: &Plan) -> miette::Result<Vec<Size>> {
    let size = |&(queues, workers_each): &(usize, usize)| Size {
        queues,
        workers_each,
        rounds: Rounds::default(),
        messages_per_write: Vec::new(),
        daemon_cost: 0.0,
        cost: 0.0,
    };
    let mut sizes: Vec<Size> = plan.queues.iter().map(size).collect();
    for round in 1..=plan.rounds {
        note(format_args!(
            "more queues, round {round} of {}",
            plan.rounds
        ));
        for size in &mut sizes {
            size.round(server, plan.queues_load)?;
        }
    }
    compare(&mut sizes);
    Ok(sizes)
}

fn compare(sizes: &mut [Size]) {
    let first = sizes.first().map(|size| size.rounds.clone());
    let first = first.unwrap_or_default();
    let share = |now: Vec<f64>, then: Vec<f64>| {
        median(now.into_iter().zip(then).map(|(now, then)| now / then))
    };
    for size in sizes {
        let (now, then) = (&size.rounds, &first);
        size.daemon_cost = share(now.each_cpu_micros(), then.each_cpu_micros());
        size.cost = share(now.each_whole_micros(), then.each_whole_micros());
    }
}

impl Size {
    fn round(&mut self, server: &Server, load: Load) -> miette::Result<()> {
        let setup = Setup {
            pools: self.queues,
            ..Setup::one_pool(self.workers_each, Window::Auto)
        };
        let measured = daemon::measure(server, &setup, load)?;
        self.rounds.push(measured.watched);
        self.messages_per_write.push(measured.messages_per_write);
        Ok(())
    }

    pub(crate) const HEADER: &[&str] = &[
        "queues",
        "workers each",
        "messages/s",
        "CPU µs",
        "server µs",
        "a write",
        "the daemon's cost",
        "both",
    ];

    pub(crate) fn row(&self) -> Vec<String> {
        let mut row = vec![self.queues.to_string(), self.workers_each.to_string()];
        row.extend(self.rounds.cells());
        row.push(number(median(self.messages_per_write.iter().copied())));
        row.extend([self.daemon_cost, self.cost].map(percent));
        row
    }
}
