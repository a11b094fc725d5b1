//! Schedules with a slot each second, spread over it by `jitter`: the time from when a slot is due to the end of
//! the transaction that dispatches it.

use miette::ensure;
use serde::Serialize;
use tokio::time::Instant;

use crate::Plan;
use crate::common::figures::percentile;
use crate::common::machine::cpu_seconds;
use crate::common::show::{milliseconds, note, percent};
use crate::place::{Kind, Place, Sent};

/// Times from slots to commits.
#[derive(Debug, Serialize)]
pub(crate) struct Lateness {
    pub(crate) kind: Kind,
    schedules: usize,
    /// Processor time of the loop as a share of one core.
    core: f64,
    #[serde(skip)]
    late_ms: Vec<f64>,
}

impl Lateness {
    pub(crate) const HEADER: &'static [&'static str] =
        &["database", "slots/s", "p50", "p99", "longest", "core"];

    pub(crate) fn p99_ms(&self) -> f64 {
        self.percentile(99)
    }

    fn percentile(&self, percent: usize) -> f64 {
        percentile(self.late_ms.iter().copied(), percent)
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.kind.name().to_owned(),
            self.schedules.to_string(),
            milliseconds(self.percentile(50)),
            milliseconds(self.p99_ms()),
            milliseconds(self.percentile(100)),
            percent(self.core),
        ]
    }
}

pub(crate) fn measure(place: &Place, plan: Plan) -> miette::Result<Lateness> {
    note(format_args!("{}: lateness", place.kind.name()));
    let count = plan.each_second;
    let keys = "\"queue\": \"q\", \"overlap\": \"allow\", \"body\": \"{{ slot }}\"";
    let definition = format!("{{\"every\": \"1s\", \"jitter\": \"1s\", {keys}}}");
    let mut scheduled = place.ledger(std::iter::repeat_n(definition, count))?;
    let (begun, cpu) = (Instant::now(), cpu_seconds("self")?);
    let queued = scheduled.dispatch_for(plan.watched_for)?;
    let cpu_seconds = cpu_seconds("self")? - cpu;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(!queued.is_empty(), "no slot was dispatched");
    let sent = scheduled.sent(&queued)?;
    Ok(Lateness {
        kind: place.kind,
        schedules: count,
        core: cpu_seconds / seconds,
        late_ms: sent.iter().map(Sent::late_ms).collect(),
    })
}
