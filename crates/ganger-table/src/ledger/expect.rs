//! Expectations of a schedule: which of them are overdue.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::row::{Expectation, OpenRun, ScheduleRow};
use ganger_core::units::show_duration;
use ganger_schedule::expect::{Expect, Facts, Overdue, Run, review};
use ganger_schedule::occurrence::ScheduleState;
use ganger_schedule::spec::Spec;

/// Interval at which a schedule is reviewed while something is overdue: nobody tells the start of a run.
const REVIEW_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// Number of overdue expectations that are told.
const TOLD_MAX: usize = 3;

/// Has the schedule reviewed at once, if anything is expected of it.
pub(super) fn ask(row: &mut ScheduleRow, expect: &Expect, now: Timestamp) {
    if *expect == Expect::default() {
        row.expected = Expectation::default();
    } else if row.goes_on() {
        row.expected.since.get_or_insert(now);
        row.expected.review = Some(now);
    }
}

/// Reviews a schedule with these open runs.
pub(super) fn look(row: &mut ScheduleRow, spec: &Spec, open: &[OpenRun], now: Timestamp) {
    let since = row.expected.since.filter(|_| row.goes_on());
    let Some(since) = since.filter(|_| spec.expect != Expect::default()) else {
        row.expected = Expectation::default();
        return;
    };
    let run = |slot: Timestamp, started: Option<Timestamp>| Run {
        due: due(spec, slot),
        started,
        ended: None,
    };
    let open = open.iter().map(|open| run(open.slot, open.started_at));
    // That of a slot which no daemon has dispatched is expected as well.
    let next = row.next_slot.map(|slot| run(slot, None));
    let runs: Vec<Run> = open.chain(next).collect();
    // One that has ended is expected to finish what it has begun, and no more.
    let every = spec
        .expect
        .every
        .filter(|_| row.state == ScheduleState::Active);
    let expect = Expect {
        every,
        ..spec.expect
    };
    let facts = Facts {
        runs: &runs,
        succeeded: None,
        since,
    };
    let reviewed = review(&expect, &facts, now);
    row.expected.review = reviewed.next;
    row.expected.overdue = None;
    if !reviewed.overdue.is_empty() {
        let soon = now.checked_add(REVIEW_EVERY).unwrap_or(Timestamp::MAX);
        row.expected.review = Some(reviewed.next.map_or(soon, |next| next.min(soon)));
        row.expected.overdue = Some(told(&expect, &reviewed.overdue));
    }
}

/// Returns the time at which a slot was due. A run that was triggered has no slot: it was due then.
fn due(spec: &Spec, slot: Timestamp) -> Timestamp {
    let before = slot.checked_sub(SignedDuration::from_nanos(1));
    let found = before.ok().and_then(|before| spec.next(before).ok()?);
    let found = found.filter(|found| found.at == slot);
    found.map_or(slot, |found| found.due)
}

fn told(expect: &Expect, overdue: &[Overdue]) -> String {
    let within = |limit: Option<Duration>| show_duration(limit.unwrap_or_default());
    let told = overdue.iter().take(TOLD_MAX).map(|overdue| match overdue {
        Overdue::Start { due } => {
            let within = within(expect.within);
            format!("the run of {due} has not started within {within}")
        }
        Overdue::End { due } => {
            let within = within(expect.finish);
            format!("the run of {due} has not ended within {within}")
        }
        Overdue::Success { since } => {
            let within = within(expect.every);
            format!("no run has completed within {within} since {since}")
        }
    });
    let mut told: Vec<String> = told.collect();
    if overdue.len() > TOLD_MAX {
        told.push(format!("and {} more", overdue.len() - TOLD_MAX));
    }
    told.join("; ")
}
