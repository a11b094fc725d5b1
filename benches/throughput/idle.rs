//! The cost of an idle daemon with everything enabled: metrics scraped and pushed, all attempts recorded, the
//! API open.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::common::show::{megabytes, note, tenths};
use crate::daemon::Daemon;
use crate::observed::{Scraper, collect, metrics_pushed, program, traces_sent};
use crate::plan::Plan;
use crate::queue::QueueFile;
use crate::setup::{Setup, Window};

const WORKERS: usize = 100;
/// Usual interval of Prometheus.
const SCRAPED_EVERY: Duration = Duration::from_secs(10);
/// Interval of pushes; the default of OpenTelemetry is a minute.
const PUSHED_EVERY: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 1024;

/// Results of an idle daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) workers: usize,
    pub(crate) resident_kib: u64,
    /// Share of one core.
    pub(crate) core_share: f64,
}

/// Measures after some work, for the plan's time.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Idle> {
    note("idle");
    let collector = collect()?;
    let queue = QueueFile::create()?;
    let setup = Setup::one_pool(WORKERS, Window::Auto);
    let variables = [
        metrics_pushed(collector, PUSHED_EVERY),
        traces_sent(collector, "1"),
    ]
    .join(" ");
    let program = program(&queue, &variables)?;
    let mut daemon = Daemon::start_by(Some(&program), &queue, &setup)?;
    daemon.warm_up(&queue, BODY_BYTES)?;
    let scraper = Scraper::start(queue.directory(), SCRAPED_EVERY)?;
    let (begun, before) = (Instant::now(), daemon.cpu_seconds()?);
    std::thread::park_timeout(Duration::from_secs(plan.idle_seconds));
    let spent = daemon.cpu_seconds()? - before;
    let core_share = spent / begun.elapsed().as_secs_f64();
    let resident_kib = daemon.resident_kib()?;
    scraper.stop()?;
    daemon.stop()?;
    Ok(Idle {
        workers: WORKERS,
        resident_kib,
        core_share,
    })
}

impl Idle {
    pub(crate) const HEADER: &[&str] = &["workers", "resident", "% of a core"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.workers.to_string(),
            megabytes(self.resident_kib),
            tenths(self.core_share * 100.0),
        ]
    }
}
