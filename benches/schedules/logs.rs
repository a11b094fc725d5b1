//! The lines of the logs of runs, as the daemon's thread writes them to the ledger.

use std::sync::Arc;

use ganger_config::model::LogLimits;
use ganger_queue::delivery::{LogLine, LogStream, RunNote};
use ganger_queue::ledger::OccurrenceFilter;
use jiff::Timestamp;
use miette::{IntoDiagnostic, ensure};
use serde::Serialize;
use tokio::time::Instant;

use crate::Plan;
use crate::common::figures::{Run, Series};
use crate::common::machine::cpu_seconds;
use crate::common::show::{note, number, tenths};
use crate::place::{Kind, Place, Scheduled};

/// Number of runs whose workers write at once, and of lines of each that are written together.
const RUNS: usize = 10;
const LINES: usize = 200;

const TEXT: &str =
    "imported 17 of 4000 rows of invoices.csv; 0 were rejected, 3 had been there before";

/// Lines written to the ledger.
#[derive(Debug, Serialize)]
pub(crate) struct Logs {
    pub(crate) kind: Kind,
    lines: Series,
}

impl Logs {
    pub(crate) const HEADER: &'static [&'static str] = &["database", "lines/s", "cpu µs each"];

    pub(crate) fn per_second(&self) -> f64 {
        self.lines.per_second()
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.kind.name().to_owned(),
            number(self.per_second()),
            tenths(self.lines.cpu_micros()),
        ]
    }
}

pub(crate) fn measure(place: &Place, plan: Plan) -> miette::Result<Logs> {
    let mut lines = Series::default();
    for round in 1..=plan.rounds {
        note(format_args!(
            "{}: lines of logs, round {round} of {}",
            place.kind.name(),
            plan.rounds
        ));
        lines.push(write(place, plan.log_lines)?);
    }
    Ok(Logs {
        kind: place.kind,
        lines,
    })
}

fn write(place: &Place, lines: usize) -> miette::Result<Run> {
    let soon = Timestamp::from_second(Timestamp::now().as_second() + 2).into_diagnostic()?;
    let definition = format!("{{\"at\": \"{soon}\", \"queue\": \"q\"}}");
    let mut scheduled = place.ledger(std::iter::repeat_n(definition, RUNS))?;
    let runs = dispatched(&mut scheduled)?;
    let limits = LogLimits {
        lines: u32::try_from(lines).into_diagnostic()?,
        bytes: u64::MAX >> 1,
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds("self")?);
    let mut written = 0;
    while written < lines {
        let notes = runs.iter().map(lines_of).collect();
        let (left, done) = scheduled.ledger.note(notes, limits);
        done.into_diagnostic()?;
        ensure!(left.is_empty(), "some lines were not written");
        written += RUNS * LINES;
    }
    Ok(Run {
        messages: written,
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds("self")? - cpu,
    })
}

/// Returns the ids of the runs, once all are dispatched.
fn dispatched(scheduled: &mut Scheduled) -> miette::Result<Vec<Arc<str>>> {
    let filter = OccurrenceFilter {
        limit: u32::try_from(RUNS).into_diagnostic()?,
        ..OccurrenceFilter::default()
    };
    loop {
        let dispatched = scheduled.ledger.dispatch().into_diagnostic()?;
        std::thread::park_timeout(dispatched.wait.unwrap_or_default());
        let runs = scheduled.ledger.occurrences(&filter).into_diagnostic()?;
        if runs.len() == RUNS {
            return Ok(runs.into_iter().map(|run| Arc::from(run.id)).collect());
        }
    }
}

fn lines_of(run: &Arc<str>) -> RunNote {
    let line = LogLine {
        at: Instant::now(),
        attempt: 1,
        stream: LogStream::Stdout,
        level: "info",
        text: TEXT.to_owned(),
    };
    RunNote {
        occurrence: Arc::clone(run),
        lines: vec![line; LINES],
        dropped: 0,
        progress: None,
        heard: Instant::now(),
    }
}
