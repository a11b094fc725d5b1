//! The cost of observing the daemon: no observation, metrics scraped and pushed each second, a hundredth or all of
//! the attempts traced, and the end of each message recorded in the ledger.

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

/// Interval of scrapes and pushes: much shorter than usual.
const EVERY: Duration = Duration::from_secs(1);

/// Kind of observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Look {
    /// None: the others are compared with this.
    Off,
    /// Metrics are scraped and pushed.
    Metrics,
    /// A hundredth of the attempts are recorded.
    TracesHundredth,
    /// All attempts are recorded.
    TracesAll,
    /// The ledger in the same file has a record of each message.
    Records,
}

impl Look {
    const ALL: [Self; 5] = [
        Self::Off,
        Self::Metrics,
        Self::TracesHundredth,
        Self::TracesAll,
        Self::Records,
    ];

    fn describe(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Metrics => "metrics scraped and pushed each second",
            Self::TracesHundredth => "traces of 1 %",
            Self::TracesAll => "traces of all",
            Self::Records => "a record of each message",
        }
    }

    fn variables(self, collector: SocketAddr) -> String {
        match self {
            Self::Off | Self::Records => "OTEL_SDK_DISABLED=true".to_owned(),
            Self::Metrics => metrics_pushed(collector, EVERY),
            Self::TracesHundredth => traces_sent(collector, "0.01"),
            Self::TracesAll => traces_sent(collector, "1"),
        }
    }
}

/// Cost of a message with that observation.
#[derive(Debug, Serialize)]
pub(crate) struct Looked {
    pub(crate) look: Look,
    daemon: Series,
    /// Processor time per message as a share of that without observation, in the same round.
    pub(crate) cost: f64,
    /// Messages per second likewise.
    pub(crate) speed: f64,
}

/// Measures each kind once in each round.
pub(crate) fn measure(plan: &Plan) -> miette::Result<Vec<Looked>> {
    let collector = collect()?;
    let looked = |look| Looked {
        look,
        daemon: Series::default(),
        cost: 0.0,
        speed: 0.0,
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
        one.speed = one.daemon.ratio_to(&first);
    }
    Ok(all)
}

impl Looked {
    fn round(&mut self, load: Load, collector: SocketAddr) -> miette::Result<()> {
        let record = match self.look {
            Look::Records => "record = \"all\"\n",
            _ => "",
        };
        let setup = Setup {
            keys: record.to_owned(),
            ..Setup::one_pool(2, Window::Auto)
        };
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

    pub(crate) const HEADER: &[&str] = &["who looks", "daemon/s", "CPU µs", "cost", "speed"];

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.look.describe().to_owned(),
            number(self.daemon.per_second()),
            tenths(self.daemon.cpu_micros()),
            percent(self.cost),
            percent(self.speed),
        ]
    }
}
