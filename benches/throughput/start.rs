//! Time from the start of the daemon's process to its first message done, which is when the row of a waiting
//! message is removed. It includes the worker's own start, which is also shown separately.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::bare_pipe;
use crate::common::figures::{median, percentile};
use crate::common::show::{milliseconds, note};
use crate::daemon::Daemon;
use crate::plan::Plan;
use crate::queue::{Load, QueueFile};
use crate::setup::{Setup, Window};

const LOOK_EVERY: Duration = Duration::from_micros(200);

const ONE_MESSAGE: Load = Load {
    messages: 1,
    body_bytes: 100,
};

/// Durations of starts.
#[derive(Debug, Serialize)]
pub(crate) struct Starts {
    starts: usize,
    pub(crate) p50_ms: f64,
    longest_ms: f64,
    /// Time from a worker's own start until it has connected, without ganger.
    worker_p50_ms: f64,
}

/// Measures the given number of starts, each on a queue of its own.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Starts> {
    note(format_args!("start, {} times", plan.starts));
    let (mut daemons, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..plan.starts {
        workers.push(bare_pipe::start_seconds()? * 1e3);
        daemons.push(start()? * 1e3);
    }
    Ok(Starts {
        starts: plan.starts,
        p50_ms: median(daemons.iter().copied()),
        longest_ms: percentile(daemons, 100),
        worker_p50_ms: median(workers),
    })
}

fn start() -> miette::Result<f64> {
    let queue = QueueFile::create()?;
    let setup = Setup::one_pool(1, Window::Auto);
    queue.fill(&setup.queues(), ONE_MESSAGE)?;
    let begun = Instant::now();
    let daemon = Daemon::spawn(&queue, &setup)?;
    let done = queue.wait_until_done(LOOK_EVERY)?;
    daemon.stop()?;
    Ok((done - begun).as_secs_f64())
}

impl Starts {
    pub(crate) const HEADER: &[&str] = &["starts", "p50", "longest", "the worker's own p50"];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = [self.p50_ms, self.longest_ms, self.worker_p50_ms];
        let count = [self.starts.to_string()];
        count.into_iter().chain(times.map(milliseconds)).collect()
    }
}
