//! Metrics of the ledger of the daemon's schedules, if there is one.

use super::family::{Family, Sample};
use ganger_pool::overview::{LedgerStatus, Status};

/// Returns the metrics of the ledger.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let ledger = status.ledger.as_ref();
    let one =
        |count: fn(&LedgerStatus) -> u64| ledger.map(|ledger| Sample::count(vec![], count(ledger)));
    let states = ledger.into_iter().flat_map(|ledger| &ledger.schedules);
    let skipped = ledger.into_iter().flat_map(|ledger| &ledger.skipped);
    vec![
        Family::gauge(
            "ganger_ledger_connected",
            "1 while the ledger can be used, otherwise 0.",
        )
        .of(one(|ledger| u64::from(ledger.problem.is_none()))),
        Family::gauge(
            "ganger_schedules_held",
            "1 while an operator has paused all schedules, otherwise 0.",
        )
        .of(one(|ledger| u64::from(ledger.hold.is_some()))),
        Family::gauge("ganger_schedules", "Schedules of the ledger, by state.")
            .of(states.map(|(state, count)| Sample::count(vec![("state", state.clone())], *count))),
        Family::counter(
            "ganger_schedule_dispatched_total",
            "Messages that this daemon has sent for slots.",
        )
        .of(one(|ledger| ledger.dispatched)),
        Family::counter(
            "ganger_schedule_skipped_total",
            "Slots that this daemon has skipped, by reason.",
        )
        .of(skipped.map(|(reason, count)| Sample::count(vec![("reason", reason.clone())], *count))),
    ]
}
