//! Metrics of the ledger of the daemon's schedules, if there is one.

use std::collections::BTreeMap;

use super::family::{Family, Sample, SampleValue};
use ganger_pool::overview::{LedgerStatus, Status};
use ganger_schedule::due::Reason;
use ganger_schedule::occurrence::OccurrenceState;

/// Returns the metrics of the ledger.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let ledger = status.ledger.as_ref();
    let mut families = of_schedules(ledger);
    families.extend(of_runs(ledger));
    families
}

fn one(ledger: Option<&LedgerStatus>, count: fn(&LedgerStatus) -> u64) -> Option<Sample> {
    ledger.map(|ledger| Sample::count(vec![], count(ledger)))
}

/// Returns the count of each of these words. Rates need the zeros as well: of a count that appears as 1 nobody sees that
/// it has grown.
fn of_words<'a>(
    label: &'static str,
    words: impl Iterator<Item = &'a str>,
    counts: &BTreeMap<String, u64>,
) -> Vec<Sample> {
    let of_word = |word: &str| {
        let count = counts.get(word).copied().unwrap_or_default();
        Sample::count(vec![(label, word.to_owned())], count)
    };
    words.map(of_word).collect()
}

fn of_schedules(ledger: Option<&LedgerStatus>) -> Vec<Family> {
    let states = ledger.into_iter().flat_map(|ledger| &ledger.schedules);
    let skipped = ledger.into_iter().flat_map(|ledger| {
        let reasons = Reason::WORDS.iter().copied();
        of_words("reason", reasons, &ledger.skipped)
    });
    let outgoing = ledger.into_iter().flat_map(|ledger| &ledger.outgoing);
    vec![
        Family::gauge(
            "ganger_ledger_connected",
            "1 while the ledger can be used, otherwise 0.",
        )
        .of(one(ledger, |ledger| u64::from(ledger.problem.is_none()))),
        Family::gauge(
            "ganger_schedules_held",
            "1 while an operator has paused all schedules, otherwise 0.",
        )
        .of(one(ledger, |ledger| u64::from(ledger.hold.is_some()))),
        Family::gauge("ganger_schedules", "Schedules of the ledger, by state.")
            .of(states.map(|(state, count)| Sample::count(vec![("state", state.clone())], *count))),
        Family::gauge(
            "ganger_schedules_overdue",
            "Schedules of which something expected did not happen in time.",
        )
        .of(one(ledger, |ledger| ledger.overdue_count)),
        Family::counter(
            "ganger_schedule_dispatched_total",
            "Messages that this daemon has sent for slots.",
        )
        .of(one(ledger, |ledger| ledger.dispatched)),
        Family::histogram(
            "ganger_schedule_lateness_seconds",
            "Time from the moment at which a slot was due until its message was sent.",
        )
        .of(ledger.map(|ledger| Sample {
            labels: vec![],
            value: SampleValue::Spread(ledger.lateness.clone()),
        })),
        Family::counter(
            "ganger_schedule_missed_total",
            "Missed slots for which the message of another slot was sent.",
        )
        .of(one(ledger, |ledger| ledger.missed)),
        Family::counter(
            "ganger_schedule_skipped_total",
            "Slots that this daemon has skipped, by reason.",
        )
        .of(skipped),
        Family::gauge(
            "ganger_schedule_outgoing",
            "Messages in the ledger that another source has not taken yet, by source.",
        )
        .of(outgoing.map(|one| Sample::count(vec![("source", one.source.clone())], one.messages))),
    ]
}

fn of_runs(ledger: Option<&LedgerStatus>) -> Vec<Family> {
    let ended = ledger.into_iter().flat_map(|ledger| {
        let ends = OccurrenceState::ENDS.iter();
        let of_runs = ends.filter(|state| **state != OccurrenceState::Skipped);
        of_words("state", of_runs.map(|state| state.as_str()), &ledger.ended)
    });
    vec![
        Family::counter(
            "ganger_occurrences_total",
            "Runs of schedules that have ended at pools of this daemon, by state.",
        )
        .of(ended),
        Family::gauge(
            "ganger_ledger_behind_seconds",
            "Time by which the ledger is behind what has become of messages of other sources.",
        )
        .of(ledger.map(|ledger| Sample {
            labels: vec![],
            value: SampleValue::Number(ledger.behind_seconds),
        })),
        Family::counter(
            "ganger_ledger_log_lines_dropped_total",
            "Lines of the logs of runs that this daemon has dropped.",
        )
        .of(one(ledger, |ledger| ledger.log_lines_dropped)),
    ]
}
