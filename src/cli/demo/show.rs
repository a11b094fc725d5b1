//! Progress display of the demo, on stderr: a line for each worker and a bar on a terminal, plain
//! lines elsewhere, nothing beside JSON.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::super::common::Format;
use super::super::output;
use ganger_pool::status::{PoolStatus, WorkerStatus};

/// Maximum number of workers that have a line of their own.
const LINES_MAX: usize = 12;
/// Time for which a killed worker's line says so: its successor is up too soon for it to be read
/// otherwise.
const KILLED_SHOWN: Duration = Duration::from_millis(700);

pub(super) enum Show {
    Live(Live),
    Plain,
    Nothing,
}

/// Progress of the demo.
pub(super) struct Figures {
    pub(super) messages: u64,
    pub(super) done: u64,
    pub(super) lost: u64,
    pub(super) duplicates: u64,
    pub(super) killed: u64,
    pub(super) elapsed: Duration,
}

/// A worker that the demo has killed.
#[derive(Clone)]
pub(super) struct Killed {
    pub(super) slot: usize,
    pub(super) pid: u32,
    pub(super) in_flight: usize,
    pub(super) at: Instant,
}

pub(super) struct Live {
    lines: Vec<ProgressBar>,
    bar: ProgressBar,
    all: MultiProgress,
    /// Last killed worker of each slot.
    killed: HashMap<usize, Killed>,
}

impl Show {
    pub(super) fn new(format: Format, messages: u64, workers: usize) -> Self {
        let show = match format {
            Format::Json => return Self::Nothing,
            Format::Text if is_screen() => Self::Live(Live::new(messages, workers)),
            Format::Text => Self::Plain,
        };
        show.say(&format!(
            "{messages} messages, {workers} worker processes, a queue in a temporary SQLite file"
        ));
        show
    }

    /// Returns the interval of updates.
    pub(super) fn every(&self) -> Duration {
        match self {
            Self::Live(_) => Duration::from_millis(100),
            Self::Plain | Self::Nothing => Duration::from_secs(1),
        }
    }

    pub(super) fn progress(&mut self, figures: &Figures, status: &PoolStatus) {
        match self {
            Self::Live(live) => live.progress(figures, status),
            Self::Plain => output::note(format!(
                "{} of {} done, {figures}",
                figures.done, figures.messages
            )),
            Self::Nothing => {}
        }
    }

    pub(super) fn killed(&mut self, killed: &Killed) {
        match self {
            Self::Live(live) => drop(live.killed.insert(killed.slot, killed.clone())),
            Self::Plain => output::note(killed),
            Self::Nothing => {}
        }
    }

    pub(super) fn say(&self, text: &str) {
        match self {
            Self::Live(live) => live.all.suspend(|| output::note(text)),
            Self::Plain => output::note(text),
            Self::Nothing => {}
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Live(live) = self {
            live.finish();
        }
    }
}

/// Returns whether stderr is a terminal on which the cursor can move.
fn is_screen() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

impl Live {
    fn new(messages: u64, workers: usize) -> Self {
        let all = MultiProgress::new();
        let line = || all.add(ProgressBar::no_length().with_style(style("{wide_msg}")));
        let lines: Vec<_> = (0..workers.min(LINES_MAX)).map(|_| line()).collect();
        if let more @ 1.. = workers - lines.len() {
            line().set_message(format!("and {more} more"));
        }
        let bar = ProgressBar::new(messages).with_style(style("{bar:20} {pos}/{len} done, {msg}"));
        Self {
            lines,
            bar: all.add(bar),
            all,
            killed: HashMap::new(),
        }
    }

    fn progress(&mut self, figures: &Figures, status: &PoolStatus) {
        let now = Instant::now();
        self.killed
            .retain(|_, killed| now - killed.at < KILLED_SHOWN);
        for worker in &status.workers {
            let Some(line) = self.lines.get(worker.slot) else {
                continue;
            };
            match self.killed.get(&worker.slot) {
                Some(killed) => {
                    line.set_style(style("{wide_msg:.red}"));
                    line.set_message(killed.to_string());
                }
                None => {
                    line.set_style(style("{wide_msg}"));
                    line.set_message(worker_line(worker));
                }
            }
        }
        self.bar.set_position(figures.done);
        self.bar.set_message(figures.to_string());
    }

    fn finish(&self) {
        // What can't be written to a terminal need not be.
        drop(self.all.clear());
        self.all.set_draw_target(ProgressDrawTarget::hidden());
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Formats a worker's line.
fn worker_line(worker: &WorkerStatus) -> String {
    let pid = worker.pid.map_or("-".to_owned(), |pid| pid.to_string());
    format!(
        "worker {:<4} pid {pid:<8} {:<10} {} answered",
        worker.slot, worker.state, worker.answered
    )
}

impl std::fmt::Display for Killed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            slot,
            pid,
            in_flight,
            ..
        } = self;
        write!(
            out,
            "worker {slot:<4} pid {pid:<8} killed with SIGKILL, messages in hand: {in_flight}"
        )
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            done,
            lost,
            duplicates,
            killed,
            elapsed,
            ..
        } = self;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = *done as f64 / elapsed.as_secs_f64();
        write!(
            out,
            "{rate:.0}/s, {killed} workers killed, {lost} lost, {duplicates} duplicates"
        )
    }
}
