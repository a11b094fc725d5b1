//! Tests of waits, on a ledger whose occurrences end when the test says so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::at_ledger::AtLedger;
use super::*;
use ganger_config as config;
use ganger_config::model::ScheduleConfig;
use ganger_core::budget::Budget;
use ganger_pool::overview::Overview;
use ganger_queue::fault::SourceFault;
use ganger_queue::ledger::LedgerClient;
use ganger_queue::ledger::shown::{
    AuditJson, BackfillJson, OccurrenceJson, OccurrenceLogJson, ReportJson, ScheduleDetailsJson,
    ScheduleJson, SkippedJson, UpcomingJson, VersionJson,
};
use ganger_queue::ledger::{
    AuditFilter, BackfillRequest, Cancelled, Entered, Expected, OccurrenceFilter, OpenSource,
    ReportRange, ScheduleFilter, SkipRequest, Triggered, UpcomingRange,
};

/// How often it was opened.
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// Ids of the occurrences that have ended, and of those that are not there.
static ENDED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
static MISSING: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct FakeLedger;

fn unasked<T>() -> Result<T, LedgerError> {
    Err(SourceFault::unusable("nobody asks for it here").into())
}

impl LedgerClient for FakeLedger {
    fn occurrence(&mut self, id: &str) -> Result<Option<OccurrenceDetailsJson>, LedgerError> {
        if MISSING.lock().unwrap().contains(id) {
            return Ok(None);
        }
        let has_ended = ENDED.lock().unwrap().contains(id);
        Ok(Some(OccurrenceDetailsJson {
            occurrence: OccurrenceJson {
                id: id.to_owned(),
                schedule: Some("s".to_owned()),
                version: 1,
                slot: None,
                last_slot: None,
                source: None,
                queue: "q".to_owned(),
                state: "running".to_owned(),
                state_code: 1,
                reason: None,
                attempt: 1,
                queued_at: "2026-12-01T00:00:00Z".to_owned(),
                started_at: None,
                ended_at: has_ended.then(|| "2026-12-01T00:00:01Z".to_owned()),
                duration_ms: None,
                result: None,
                error: None,
                message_id: Some(id.to_owned()),
                missed: 0,
                cancel_request: None,
                resolved: None,
                progress: None,
                heard_at: None,
                log_lines: 0,
                log_dropped: 0,
                worker: None,
                trace_id: None,
                fingerprint: None,
                exit_code: None,
                signal: None,
                dead_letter: None,
                correlation_id: None,
            },
            events: Vec::new(),
        }))
    }

    fn cancel(&mut self, _: &str, _: Option<&str>) -> Result<Cancelled, LedgerError> {
        unasked()
    }

    fn retry(
        &mut self,
        _: &str,
        _: Option<&str>,
        _: &mut OpenSource<'_>,
    ) -> Result<(), LedgerError> {
        unasked()
    }

    fn resolve(&mut self, _: &str, _: &str) -> Result<(), LedgerError> {
        unasked()
    }

    fn delete(&mut self, _: &str) -> Result<(), LedgerError> {
        unasked()
    }

    fn log(
        &mut self,
        _: &str,
        _: Option<i64>,
        _: u32,
    ) -> Result<Option<OccurrenceLogJson>, LedgerError> {
        unasked()
    }

    fn hold(&mut self) -> Result<Option<String>, LedgerError> {
        unasked()
    }

    fn set_hold(&mut self, _: Option<&str>) -> Result<(), LedgerError> {
        unasked()
    }

    fn schedules(&mut self, _: &ScheduleFilter) -> Result<Vec<ScheduleJson>, LedgerError> {
        unasked()
    }

    fn schedule(&mut self, _: &str) -> Result<ScheduleDetailsJson, LedgerError> {
        unasked()
    }

    fn set_actor(&mut self, _: &str) {}

    fn upcoming(&mut self, _: &UpcomingRange) -> Result<Vec<UpcomingJson>, LedgerError> {
        unasked()
    }

    fn report(&mut self, _: &ReportRange) -> Result<ReportJson, LedgerError> {
        unasked()
    }

    fn enter(&mut self, _: &ScheduleConfig, _: Option<&Expected>) -> Result<Entered, LedgerError> {
        unasked()
    }

    fn remove(&mut self, _: &str, _: bool, _: Option<&Expected>) -> Result<(), LedgerError> {
        unasked()
    }

    fn versions(&mut self, _: &str) -> Result<Vec<VersionJson>, LedgerError> {
        unasked()
    }

    fn roll_back(&mut self, _: &str, _: i64) -> Result<Entered, LedgerError> {
        unasked()
    }

    fn skip(&mut self, _: &str, _: &SkipRequest) -> Result<SkippedJson, LedgerError> {
        unasked()
    }

    fn backfill(&mut self, _: &str, _: &BackfillRequest) -> Result<BackfillJson, LedgerError> {
        unasked()
    }

    fn note(&mut self, _: &str, _: &str, _: &serde_json::Value) -> Result<(), LedgerError> {
        unasked()
    }

    fn audit(&mut self, _: &AuditFilter) -> Result<Vec<AuditJson>, LedgerError> {
        unasked()
    }

    fn pause(&mut self, _: &str, _: Option<&str>) -> Result<(), LedgerError> {
        unasked()
    }

    fn resume(&mut self, _: &str, _: bool) -> Result<(), LedgerError> {
        unasked()
    }

    fn trigger(
        &mut self,
        _: &str,
        _: Option<&str>,
        _: Option<&str>,
        _: bool,
    ) -> Result<Triggered, LedgerError> {
        unasked()
    }

    fn occurrences(&mut self, _: &OccurrenceFilter) -> Result<Vec<OccurrenceJson>, LedgerError> {
        unasked()
    }
}

fn at(open: OpenLedger) -> AtLedger {
    let text = "[sources.main]\nkind = \"table\"\nurl = \"sqlite:a.db\"\n[ledger]\nsource = \"main\"\n\
                [[pools]]\nname = \"p\"\nqueue = \"q\"\ncommand = \"true\"";
    let config = config::parse(text, "test.toml", &config::Environment::new()).unwrap();
    AtLedger::new(Overview::new(Budget::new(Some(1 << 20)), &config), open)
}

fn begin(
    waits: &Waits,
    at_ledger: &AtLedger,
    id: &'static str,
    wait: Duration,
) -> tokio::task::JoinHandle<Result<Option<OccurrenceDetailsJson>, Problem>> {
    let (waits, at_ledger) = (waits.clone(), at_ledger.clone());
    tokio::spawn(async move { waits.end_of(&at_ledger, id, wait).await })
}

fn status(problem: Problem) -> u64 {
    let problem = serde_json::to_value(problem).unwrap();
    problem["status"].as_u64().unwrap()
}

#[tokio::test]
async fn one_connection_serves_all_that_wait() {
    let waits = Waits::default();
    let at_ledger = at(|_| {
        OPENED.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeLedger))
    });
    let many: Vec<_> = (0..20)
        .map(|_| begin(&waits, &at_ledger, "a", LONG))
        .collect();
    let other = begin(&waits, &at_ledger, "b", LONG);
    MISSING.lock().unwrap().insert("c");
    let missing = begin(&waits, &at_ledger, "c", LONG);
    let left = begin(&waits, &at_ledger, "d", LONG);
    let short = begin(&waits, &at_ledger, "b", LOOK_EVERY);
    assert_eq!(short.await.unwrap().unwrap(), None);
    left.abort();
    ENDED.lock().unwrap().insert("a");
    for one in many {
        let ended = one.await.unwrap().unwrap().unwrap();
        assert_eq!(ended.occurrence.id, "a");
    }
    MISSING.lock().unwrap().remove("c");
    ENDED.lock().unwrap().insert("c");
    assert!(missing.await.unwrap().unwrap().is_some());
    assert!(!other.is_finished());
    ENDED.lock().unwrap().insert("b");
    assert!(other.await.unwrap().unwrap().is_some());
    assert_eq!(OPENED.load(Ordering::SeqCst), 1);
    // Nobody waits, not even the one who has gone: the watch ends.
    while waits.waiting().is_watched {
        tokio::task::yield_now().await;
    }
    assert!(waits.waiting().waiters.is_empty());
}

#[tokio::test]
async fn a_ledger_that_is_away_ends_the_wait() {
    let waits = Waits::default();
    let away = at(|ledger| Err(SourceFault::unusable("it is away").of(&ledger.source)));
    for one in [
        begin(&waits, &away, "x", LONG),
        begin(&waits, &away, "y", LONG),
    ] {
        assert_eq!(status(one.await.unwrap().unwrap_err()), 503);
    }
    // A later wait looks again.
    let later = begin(&waits, &away, "x", LONG).await.unwrap();
    assert_eq!(status(later.unwrap_err()), 503);
}
