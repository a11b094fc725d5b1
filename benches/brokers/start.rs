//! Time from the start of the daemon's process until a worker has the first message. It includes the worker's
//! own start.

use serde::Serialize;

use crate::common::figures::{median, percentile};
use crate::common::show::milliseconds;

/// Durations of starts.
#[derive(Debug, Serialize)]
pub(crate) struct Starts {
    starts: usize,
    pub(crate) p50_ms: f64,
    longest_ms: f64,
}

/// Measures the given number of starts. Each call of `start` returns the seconds of one. The first is left
/// out: it creates the queues or topics that later starts find.
pub(crate) fn measure(
    starts: usize,
    mut start: impl FnMut() -> miette::Result<f64>,
) -> miette::Result<Starts> {
    start()?;
    let mut millis = Vec::with_capacity(starts);
    for _ in 0..starts {
        millis.push(start()? * 1e3);
    }
    Ok(Starts {
        starts,
        p50_ms: median(millis.iter().copied()),
        longest_ms: percentile(millis, 100),
    })
}

impl Starts {
    pub(crate) const HEADER: &[&str] = &["starts", "p50", "longest"];

    pub(crate) fn row(&self) -> Vec<String> {
        let times = [self.p50_ms, self.longest_ms];
        let count = [self.starts.to_string()];
        count.into_iter().chain(times.map(milliseconds)).collect()
    }
}
