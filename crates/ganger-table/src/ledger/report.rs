//! Report on the runs of a time: how many of each schedule and queue ended how, how late they started, and how long
//! they took, each day by itself if that is asked for. It is counted from the occurrences that the ledger still has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::row::CountedRun;
use super::sql::first_id;
use super::store::LedgerStore;
use crate::table::Fault;
use ganger_queue::ledger::shown::{ReportJson, ReportRowJson, SpreadJson};
use ganger_queue::ledger::{REPORT_RUNS_MAX, ReportRange};
use ganger_schedule::occurrence::OccurrenceState;

/// Number of occurrences that are read at once: few at first, and never so many that a disk which takes a moment for each
/// makes a report overshoot its time by far.
const READ_FIRST: u32 = 100;
const READ_MAX: u32 = 2000;
/// Time, unless another is given, after which no more occurrences are read.
const READS_FOR: Duration = Duration::from_secs(10);
/// Length of a range without a beginning.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Counts the runs that were entered within a range, the newest first: if there are too many, the earlier ones are
/// left out. Of those with a tag the schedules are named.
pub(super) fn report(
    store: &mut dyn LedgerStore,
    range: &ReportRange,
    tagged: Option<&BTreeSet<String>>,
) -> Result<ReportJson, Fault> {
    let (begun, within) = (Instant::now(), range.within.unwrap_or(READS_FOR));
    let mut now = Timestamp::UNIX_EPOCH;
    store.read(&mut |tx| {
        now = tx.clock()?.wall;
        Ok(())
    })?;
    let to = range.to.unwrap_or(now);
    let day_before = to.checked_sub(DAY).unwrap_or(Timestamp::MIN);
    let mut from = range.from.unwrap_or(day_before);
    let (first, mut before) = (first_id(from), first_id(to));
    let mut counts: BTreeMap<_, RunTotals> = BTreeMap::new();
    let most = range.runs.unwrap_or(REPORT_RUNS_MAX);
    let (mut seen, mut is_complete) = (0, true);
    let mut next = READ_FIRST;
    loop {
        let mut runs = Vec::new();
        let read = next.min(most - seen);
        store.read(&mut |tx| {
            let schedule = range.schedule.as_deref();
            runs = tx.counted(schedule, (&first, &before), read)?;
            Ok(())
        })?;
        seen += u32::try_from(runs.len()).unwrap_or(read);
        let last = runs.last().map(|run| (run.id.clone(), run.queued_at));
        let is_last = runs.len() < read as usize;
        for run in runs {
            let is_tagged = tagged.is_none_or(|tagged| tagged.contains(&run.schedule));
            if is_tagged && range.queue.as_ref().is_none_or(|queue| *queue == run.queue) {
                let day = range
                    .by_day
                    .as_ref()
                    .map(|zone| zone.civil(run.slot).date());
                let subject = (run.schedule.clone(), run.source.clone(), run.queue.clone());
                let key = (subject, day);
                counts.entry(key).or_default().add(run);
            }
        }
        let Some((id, queued_at)) = last.filter(|_| !is_last) else {
            break;
        };
        before = id;
        let took = begun.elapsed();
        if seen >= most || took >= within {
            (from, is_complete) = (queued_at, false);
            break;
        }
        next = next_read(next, seen, took, within);
    }
    let rows = counts
        .into_iter()
        .map(|(((schedule, source, queue), day), counts)| ReportRowJson {
            schedule: Some(schedule).filter(|name| !name.is_empty()),
            source,
            queue,
            day: day.map(|day| day.to_string()),
            ..counts.row()
        });
    let mut report = ReportJson {
        from: from.to_string(),
        to: to.to_string(),
        is_complete,
        rows: rows.collect(),
    };
    report.sort(range.order);
    report.rows.truncate(range.limit as usize);
    Ok(report)
}

/// Returns the number of occurrences to read after `seen` were read in that time: twice as many as before, or as many as
/// the time left has room for at this pace.
fn next_read(before: u32, seen: u32, took: Duration, within: Duration) -> u32 {
    let left = within.saturating_sub(took);
    let fit = u128::from(seen) * left.as_micros() / took.as_micros().max(1);
    let fit = u32::try_from(fit).unwrap_or(u32::MAX);
    (before * 2).min(READ_MAX).min(fit).max(READ_FIRST)
}

/// Counts of one schedule and queue.
#[derive(Debug, Default)]
struct RunTotals {
    states: BTreeMap<OccurrenceState, u64>,
    reasons: BTreeMap<String, u64>,
    late: Vec<u64>,
    took: Vec<u64>,
    slowest: Option<(u64, String)>,
}

impl RunTotals {
    fn add(&mut self, run: CountedRun) {
        let slots = match run.state {
            OccurrenceState::Skipped => run.missed.saturating_add(1),
            _ => 1,
        };
        *self.states.entry(run.state).or_default() += slots;
        if let Some(reason) = run.reason.filter(|_| run.state.is_end()) {
            *self.reasons.entry(reason).or_default() += slots;
        }
        let Some(started) = run.started_at else {
            return;
        };
        // The ledger knows only the start of the last attempt.
        if run.attempt <= 1 {
            let due = run.backfilled_at;
            let due = due.unwrap_or_else(|| run.slot.min(run.queued_at));
            self.late.push(millis(due, started));
        }
        if let Some(ended) = run.ended_at {
            let took = millis(started, ended);
            self.took.push(took);
            if self.slowest.as_ref().is_none_or(|(most, _)| took > *most) {
                self.slowest = Some((took, run.id));
            }
        }
    }

    /// Returns the counts, without the subject.
    fn row(self) -> ReportRowJson {
        let of = |state| self.states.get(&state).copied().unwrap_or(0);
        let open = self.states.iter().filter(|(state, _)| !state.is_end());
        ReportRowJson {
            schedule: None,
            source: None,
            queue: String::new(),
            day: None,
            runs: self.states.values().sum(),
            open: open.map(|(_, runs)| runs).sum(),
            completed: of(OccurrenceState::Completed),
            failed: of(OccurrenceState::Failed),
            timed_out: of(OccurrenceState::TimedOut),
            cancelled: of(OccurrenceState::Cancelled),
            skipped: of(OccurrenceState::Skipped),
            reasons: self.reasons,
            late: spread(self.late),
            took: spread(self.took),
            slowest: self.slowest.map(|(_, id)| id),
        }
    }
}

/// Returns the time between two instants; none if a clock was set back between them.
fn millis(from: Timestamp, to: Timestamp) -> u64 {
    let passed = to.as_millisecond() - from.as_millisecond();
    u64::try_from(passed).unwrap_or(0)
}

fn spread(mut millis: Vec<u64>) -> Option<SpreadJson> {
    millis.sort_unstable();
    let of = |percent: usize| {
        let rank = (millis.len() * percent).div_ceil(100).max(1);
        millis.get(rank - 1).copied()
    };
    Some(SpreadJson {
        p50_ms: of(50)?,
        p95_ms: of(95)?,
        max_ms: of(100)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_there_is_time_for() {
        let ms = Duration::from_millis;
        for (before, seen, took, within, expected) in [
            (100, 100, 1, 1000, 200),
            (8000, 15_500, 100, 10_000, READ_MAX),
            // 150 a millisecond: there is time for 1500 more.
            (4000, 7500, 50, 60, 1500),
            (4000, 3000, 59, 60, READ_FIRST),
            (100, 100, 0, 100, 200),
        ] {
            assert_eq!(next_read(before, seen, ms(took), ms(within)), expected);
        }
    }
}
