//! Pages of occurrences among many of them, at any depth: all of them, and the failures.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ganger_config::model::Record;
use ganger_queue::delivery::{
    Begun, MessageEnd, MessageRecord, Reason, RecordedEnd, RecordedEnds, Reports,
};
use ganger_queue::ledger::OccurrenceFilter;
use ganger_queue::ledger::shown::RunWorkerJson;
use ganger_schedule::occurrence::OccurrenceState;
use ganger_table::ledger::{Ledger, PendingReports};
use jiff::Timestamp;
use miette::{IntoDiagnostic, ensure};
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

use crate::Plan;
use crate::common::figures::percentile;
use crate::common::show::{milliseconds, note, number};
use crate::place::{Kind, Place};

/// Number of records that one transaction writes.
const TOGETHER: usize = 5000;
/// Share of the records that are failures: one of so many.
const FAILED: usize = 100;
/// Number of occurrences on a page, and of pages of each kind that are read.
const PAGE: u32 = 50;
const PAGES: usize = 200;

/// Times in which pages were read.
#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    pub(crate) kind: Kind,
    pub(crate) occurrences: usize,
    recorded_per_second: f64,
    #[serde(skip)]
    page_ms: Vec<f64>,
}

impl Lists {
    pub(crate) const HEADER: &'static [&'static str] = &[
        "database",
        "occurrences",
        "recorded/s",
        "page, p50",
        "p99",
        "longest",
    ];

    pub(crate) fn p99_ms(&self) -> f64 {
        self.percentile(99)
    }

    fn percentile(&self, percent: usize) -> f64 {
        percentile(self.page_ms.iter().copied(), percent)
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.kind.name().to_owned(),
            self.occurrences.to_string(),
            number(self.recorded_per_second),
            milliseconds(self.percentile(50)),
            milliseconds(self.p99_ms()),
            milliseconds(self.percentile(100)),
        ]
    }
}

pub(crate) fn measure(place: &Place, plan: Plan) -> miette::Result<Lists> {
    let occurrences = plan.listed;
    note(format_args!(
        "{}: pages among {occurrences}",
        place.kind.name()
    ));
    let mut ledger = place.ledger(std::iter::empty())?.ledger;
    let (from, begun) = (Timestamp::now().as_millisecond(), Instant::now());
    for first in (0..occurrences).step_by(TOGETHER) {
        record(&mut ledger, first..occurrences.min(first + TOGETHER))?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let until = Timestamp::now().as_millisecond();
    let (mut page_ms, mut found) = (Vec::new(), 0);
    for state in [None, Some(OccurrenceState::Failed)] {
        for number in 0..PAGES {
            let back = (until - from) * i64::try_from(number).into_diagnostic()?
                / i64::try_from(PAGES).into_diagnostic()?;
            let filter = OccurrenceFilter {
                state,
                before: Some(id_at(until + 1 - back)),
                limit: PAGE,
                ..OccurrenceFilter::default()
            };
            let begun = Instant::now();
            let page = ledger.occurrences(&filter).into_diagnostic()?;
            page_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            found += page.len();
        }
    }
    ensure!(found > PAGES, "the pages are empty");
    Ok(Lists {
        kind: place.kind,
        occurrences,
        recorded_per_second: number_of(occurrences) / seconds,
        page_ms,
    })
}

/// Records the ends of messages, as the daemon's thread does.
fn record(ledger: &mut Ledger, numbers: std::ops::Range<usize>) -> miette::Result<()> {
    let mut ends = RecordedEnds::default();
    let queue: Arc<str> = Arc::from("q");
    let worker = RunWorkerJson::of("pool", 0, 1).text().into();
    for number in numbers {
        let end = match number % FAILED {
            0 => MessageEnd::Failed {
                reason: Reason::Failed,
                error: "division by zero in line 17".to_owned(),
                exit: None,
            },
            _ => MessageEnd::Done(Bytes::from_static(b"{\"rows\": 4000}")),
        };
        ends.push(RecordedEnd {
            message: MessageRecord {
                message_id: Some(format!("message-{number}")),
                correlation_id: None,
                source: None,
                queue: Arc::clone(&queue),
                attempt: 1,
                arrived: Instant::now(),
                begun: Some(Begun {
                    at: Instant::now(),
                    worker: Arc::clone(&worker),
                    trace: None,
                }),
                record: Record::All,
            },
            made: Instant::now(),
            end,
            id: OnceLock::new(),
        });
    }
    let mut pending = PendingReports::default();
    pending.add(Reports {
        of_occurrences: Vec::new(),
        ends,
    });
    ledger.report(&mut pending.take(None)).into_diagnostic()
}

/// Returns the first id of that time: ids are ordered in time.
fn id_at(millis: i64) -> String {
    Uuid::from_u128(u128::from(millis.unsigned_abs()) << 80).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number_of(count: usize) -> f64 {
    count as f64
}
