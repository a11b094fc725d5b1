//! The pages, each asked for again and again.

use miette::IntoDiagnostic;
use serde::Serialize;
use tokio::time::Instant;

use crate::common::figures::percentile;
use crate::common::show::{milliseconds, number};
use crate::fill::Filled;
use crate::http;
use crate::site::{POOLS, Site};

/// The pages, each with its path.
const PAGES: &[(&str, &str)] = &[
    ("Now", "/ui"),
    ("Pool", "/ui/pools/p$POOL"),
    ("Queue", "/ui/queues/q$POOL"),
    ("Dead letters, groups", "/ui/dead"),
    ("Dead letters, list", "/ui/dead/main?after=$DEAD"),
    ("Dead letters, of a pool", "/ui/dead/main?pool=p$POOL"),
    ("Dead letters, by error", "/ui/dead/main?error=line+$ERROR"),
    (
        "Dead letters, by an error that none has",
        "/ui/dead/main?error=none+$TIME",
    ),
    (
        "Dead letters, a retry of all",
        "/ui/dead/main/retry?error=line+$ERROR",
    ),
    ("Dead letter", "/ui/dead/main/$DEAD"),
    ("Schedules", "/ui/schedules?after=s$SCHEDULE"),
    ("Schedules, by text", "/ui/schedules?text=team-$TEAM"),
    ("Schedule", "/ui/schedules/s$SCHEDULE"),
    ("Runs", "/ui/occurrences?cursor=$RUN"),
    ("Runs, in a state", "/ui/occurrences?state=$STATE"),
    ("Runs, of a schedule", "/ui/occurrences?schedule=s$SCHEDULE"),
    (
        "Runs, of a schedule in a state",
        "/ui/occurrences?schedule=s$SCHEDULE&state=$STATE",
    ),
    ("Runs, unresolved", "/ui/occurrences?unresolved=true"),
    (
        "Runs, with a fingerprint",
        "/ui/occurrences?fingerprint=$FINGERPRINT",
    ),
    (
        "Runs, with a correlation id",
        "/ui/occurrences?correlation_id=order-$ORDER",
    ),
    ("Run", "/ui/occurrences/$NEW_RUN"),
    ("Upcoming", "/ui/upcoming?zone=Europe%2FBerlin"),
    ("Reports, a day", "/ui/reports?range=24h"),
    ("Reports, a week", "/ui/reports?range=7d"),
    ("Reports, a month", "/ui/reports?range=30d"),
    (
        "Reports, a month of a tag",
        "/ui/reports?range=30d&tag=team-$TEAM",
    ),
    ("Events", "/ui/events"),
    ("Audit", "/ui/audit"),
    ("Audit, of a schedule", "/ui/audit?subject=s$SCHEDULE"),
    ("Config", "/ui/config"),
    ("Alerts", "/ui/alerts"),
    ("Daemons", "/ui/daemons"),
    ("Search, the id of a run", "/ui/search?q=$RUN"),
    ("Search, the id of a message", "/ui/search?q=dead-$DEAD"),
    ("Search, a name", "/ui/search?q=s$SCHEDULE"),
    ("Search, text", "/ui/search?q=line+$ERROR"),
    ("Search, text that is nowhere", "/ui/search?q=none+$TIME"),
];

const STATES: &[&str] = &[
    "failed",
    "timed_out",
    "cancelled",
    "skipped",
    "running",
    "completed",
];

/// Returns the paths of all pages by their names; each time for something else.
pub(crate) fn paths(filled: &Filled, time: u64) -> Vec<(&'static str, String)> {
    let amounts = filled.amounts;
    // Spread over all of them, in no order.
    let of = |count: u64| (time + 1) * 7_368_787 % count.max(1);
    let run = of(amounts.occurrences / 10) + amounts.occurrences * 9 / 10;
    let new_run = amounts.occurrences - 1 - of(amounts.occurrences / 10_000);
    let state = usize::try_from(time).unwrap_or(0) % STATES.len();
    let values = [
        ("$POOL", (time % POOLS as u64).to_string()),
        ("$DEAD", (of(amounts.dead_letters) + 1).to_string()),
        ("$SCHEDULE", of(amounts.schedules).to_string()),
        ("$ERROR", (4 * of(50) + 1).to_string()),
        ("$TIME", time.to_string()),
        ("$TEAM", (time % 20).to_string()),
        ("$STATE", STATES[state].to_owned()),
        ("$FINGERPRINT", format!("{:012x}ffff", of(200))),
        ("$ORDER", (run / 3).to_string()),
        ("$NEW_RUN", filled.occurrence(new_run)),
        ("$RUN", filled.occurrence(run)),
    ];
    let filled_in = |path: &str| {
        let mut path = path.to_owned();
        for (name, value) in &values {
            path = path.replace(name, value);
        }
        path
    };
    let pages = PAGES.iter().map(|(name, path)| (*name, filled_in(path)));
    pages.collect()
}

/// Times and sizes of a page.
#[derive(Debug, Serialize)]
pub(crate) struct Timed {
    pub(crate) name: &'static str,
    milliseconds: Vec<f64>,
    /// The daemon's processor time.
    cpu_milliseconds: Vec<f64>,
    /// Sizes of the largest one.
    sent_bytes: usize,
    plain_bytes: usize,
}

impl Timed {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "page",
        "p50",
        "p99",
        "CPU, p50",
        "p99",
        "bytes",
        "compressed",
    ];

    pub(crate) fn p99_ms(&self) -> f64 {
        percentile(self.milliseconds.iter().copied(), 99)
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            milliseconds(percentile(self.milliseconds.iter().copied(), 50)),
            milliseconds(self.p99_ms()),
            milliseconds(percentile(self.cpu_milliseconds.iter().copied(), 50)),
            milliseconds(percentile(self.cpu_milliseconds.iter().copied(), 99)),
            number(self.plain_bytes as f64),
            number(self.sent_bytes as f64),
        ]
    }
}

/// Asks for all pages in turn, so often.
pub(crate) fn measure(
    site: &Site<'_>,
    filled: &Filled,
    asked: u64,
    only: Option<&str>,
) -> miette::Result<Vec<Timed>> {
    let mut all: Vec<Timed> = Vec::new();
    // The first time is not counted: files are read, and statements prepared.
    for time in 0..=asked {
        let paths = paths(filled, time).into_iter();
        let paths = paths.filter(|(name, _)| only.is_none_or(|only| name.contains(only)));
        for (at, (name, path)) in paths.enumerate() {
            let (begun, cpu) = (Instant::now(), site.daemon.cpu_seconds()?);
            let (sent_bytes, plain_bytes) = http::get(&site.socket, &path)?;
            let took = begun.elapsed().as_secs_f64() * 1e3;
            let cpu = (site.daemon.cpu_seconds()? - cpu) * 1e3;
            if time == 0 {
                all.push(Timed {
                    name,
                    milliseconds: Vec::with_capacity(usize::try_from(asked).into_diagnostic()?),
                    cpu_milliseconds: Vec::new(),
                    sent_bytes,
                    plain_bytes,
                });
                continue;
            }
            let page = &mut all[at];
            page.milliseconds.push(took);
            page.cpu_milliseconds.push(cpu);
            page.sent_bytes = page.sent_bytes.max(sent_bytes);
            page.plain_bytes = page.plain_bytes.max(plain_bytes);
        }
    }
    Ok(all)
}
