//! What looking at the daemon costs it: nobody looks, its metrics are scraped and pushed each second, a
//! hundredth of the attempts is recorded, or all.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::common::figures::{Series, median};
use crate::common::show::{note, number, percent, tenths};
use crate::daemon::Daemon;
use crate::observed::{Scraper, collect, metrics_pushed, program, traces_sent};
use crate::plan::Plan;
use crate::queue::{Load, QueueFile};
use crate::setup::{Setup, Window};

/// How often metrics are scraped, and pushed: far more often than anybody does.
const EVERY: Duration = Duration::from_secs(1);

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Look {
    /// Nobody: what the others are compared with.
    Off,
    /// Metrics are scraped and pushed.
    Metrics,
    /// A hundredth of the attempts is recorded.
    TracesHundredth,
    /// All are.
    TracesAll,
}

impl Look {
    const ALL: [Self; 4] = [
        Self::Off,
        Self::Metrics,
        Self::TracesHundredth,
        Self::TracesAll,
    ];

    fn describe(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Metrics => "metrics scraped and pushed each second",
            Self::TracesHundredth => "traces of 1 %",
            Self::TracesAll => "traces of all",
        }
    }

    fn variables(self, collector: SocketAddr) -> String {
        match self {
            Self::Off => "OTEL_SDK_DISABLED=true".to_owned(),
            Self::Metrics => metrics_pushed(collector, EVERY),
            Self::TracesHundredth => traces_sent(collector, "0.01"),
            Self::TracesAll => traces_sent(collector, "1"),
        }
    }
}

/// What a message costs while somebody looks.
#[derive(Debug, Serialize)]
pub(crate) struct Looked {
    pub(crate) look: Look,
    daemon: Series,
    /// The processor time of a message as a share of that while nobody looks, in the same round.
    pub(crate) cost: f64,
}

/// Measures each way once in each round.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Looked>> {
    let collector = collect()?;
    let looked = |look| Looked {
        look,
        daemon: Series::default(),
        cost: 0.0,
    };
    let mut all: Vec<Looked> = Look::ALL.map(looked).into();
    for round in 1..=plan.rounds {
        note(format_args!("looks, round {round} of {}", plan.rounds));
        for one in &mut all {
            one.round(plan.scaling_load, collector)?;
        }
    }
    let first = all[0].daemon.clone();
    for one in &mut all {
        let pairs = one.daemon.0.iter().zip(&first.0);
        one.cost = median(pairs.map(|(now, then)| now.cpu_micros() / then.cpu_micros()));
    }
    Ok(all)
}

impl Looked {
    fn round(&mut self, load: Load, collector: SocketAddr) -> miette::Result<()> {
        let setup = Setup::one_pool(2, Window::Auto);
        let queue = QueueFile::create()?;
        let program = program(&queue, &self.look.variables(collector))?;
        let mut daemon = Daemon::start_by(Some(&program), &queue, &setup)?;
        daemon.warm_up(&queue, load.body_bytes)?;
        let scraper =
            (self.look == Look::Metrics).then(|| Scraper::start(queue.directory(), EVERY));
        let scraper = scraper.transpose()?;
        self.daemon.push(daemon.run(&queue, load)?);
        scraper.map_or(Ok(()), Scraper::stop)?;
        daemon.stop()
    }

    pub(crate) const HEADER: &[&str] = &["who looks", "daemon/s", "CPU µs", "cost"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.look.describe().to_owned(),
            number(self.daemon.per_second()),
            tenths(self.daemon.cpu_micros()),
            percent(self.cost),
        ]
    }
}
