//! Decides about one schedule that is to be looked at: what becomes of its slots, and of the schedule.

use jiff::{SignedDuration, Timestamp};

use super::row::ScheduleRow;
use ganger_config::model::ScheduleConfig;
use ganger_schedule::auto_disable::{Change, End, Rules};
use ganger_schedule::clock::Clock;
use ganger_schedule::due::{Cursor, Decision, Due, Reason, Wake, change, due, skip_all};
use ganger_schedule::occurrence::{OccurrenceState, ScheduleState};
use ganger_schedule::overlap::Open;
use ganger_schedule::problem::Broken;
use ganger_schedule::spec::Spec;

/// Number of decisions about one schedule in one transaction.
const DECISIONS_MAX: usize = 100;

/// Time after which a trial is looked at whose end was not told.
const TRIAL_LOOK: SignedDuration = SignedDuration::from_mins(1);

/// The definition of a schedule, and the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions<'a> {
    /// The definition.
    pub(crate) config: &'a ScheduleConfig,
    /// Spec of the version to which the cursor belongs, if that is another one and is not broken.
    pub(crate) old: Option<&'a Spec>,
}

/// Decides about the slots that are due.
///
/// # Errors
/// If a slot can't be worked out.
pub(crate) fn decide(
    row: &mut ScheduleRow,
    versions: Versions<'_>,
    clock: Clock,
) -> Result<Vec<Decision>, Broken> {
    let spec = &versions.config.spec;
    if row.state == ScheduleState::Paused {
        // Another program has asked for a look.
        row.wake = None;
        return Ok(Vec::new());
    }
    if spec.auto_disable.is_none() {
        row.failing.enable();
    }
    let Some(cursor) = row.cursor else {
        // Slots since it was made are none of the past, unless it is corrected only now.
        let is_new = row.state != ScheduleState::Broken;
        let made = row.created.filter(|_| is_new).unwrap_or(clock.wall);
        let begin = Clock {
            wall: made.min(clock.wall),
            ..clock
        };
        let cursor = Cursor::new(begin.now(&spec.timing));
        let first = due(spec, cursor, clock, open(row), DECISIONS_MAX)?;
        apply_version(row);
        return Ok(take(row, first, clock, spec));
    };
    if row.applied.as_ref() != Some(&row.definition) {
        let changed = change(versions.old, spec, cursor, clock)?;
        if changed.wake != Wake::Again {
            apply_version(row);
        }
        return Ok(take(row, changed, clock, spec));
    }
    match spec.auto_disable.filter(|_| row.failing.disabled.is_some()) {
        Some(rules) => try_again(row, spec, &rules, (cursor, clock)),
        None => {
            row.is_now(ScheduleState::Active, None);
            let due = due(spec, cursor, clock, open(row), DECISIONS_MAX)?;
            Ok(take(row, due, clock, spec))
        }
    }
}

/// Decides about a schedule that goes on after a pause: slots of the pause are skipped, unless they are to
/// be made up for. Returns whether it goes on; else it stays as it was, and there is more to skip.
///
/// # Errors
/// If a slot can't be worked out.
pub(crate) fn resume(
    row: &mut ScheduleRow,
    versions: Versions<'_>,
    clock: Clock,
    make_up: bool,
) -> Result<(Vec<Decision>, bool), Broken> {
    let is_applied = row.applied.as_ref() == Some(&row.definition);
    let spec = match is_applied {
        true => Some(&versions.config.spec),
        // Those of a version that is broken are skipped when the new one is applied.
        false => versions.old,
    };
    let mut decisions = Vec::new();
    let mut is_over = false;
    if let (Some(cursor), Some(spec), false) = (row.cursor, spec, make_up) {
        let skipped = skip_all(spec, cursor, clock, Reason::Paused)?;
        if skipped.wake == Wake::Again {
            row.cursor = Some(skipped.cursor);
            return Ok((skipped.decisions, false));
        }
        is_over = skipped.wake == Wake::Ended && is_applied;
        decisions = take(row, skipped, clock, spec);
    }
    row.failing.enable();
    if !is_over {
        row.is_now(ScheduleState::Active, None);
    }
    // One that has had its last slot may have runs that wait.
    if !is_over || row.open > 0 {
        row.wake = Some(Timestamp::UNIX_EPOCH);
    }
    Ok((decisions, true))
}

/// Notes the end of a run. Returns the change of the schedule, if there is one.
pub(crate) fn ended(
    row: &mut ScheduleRow,
    rules: &Rules,
    slot: Timestamp,
    state: OccurrenceState,
    at: Timestamp,
) -> Option<Change> {
    let end = match state {
        OccurrenceState::Completed => End::Completed,
        OccurrenceState::Failed | OccurrenceState::TimedOut => End::Failed,
        OccurrenceState::Cancelled
        | OccurrenceState::Skipped
        | OccurrenceState::Queued
        | OccurrenceState::Running
        | OccurrenceState::Unknown
        | OccurrenceState::Waiting => End::Cancelled,
    };
    let change = row.failing.ended(rules, slot, end, at);
    match change {
        Some(Change::Disabled { failures }) => {
            let reason = format!("{failures} runs in a row have failed");
            row.is_now(ScheduleState::Disabled, Some(&reason));
            row.wake = row.failing.trial_at(rules);
        }
        Some(Change::Enabled) => {
            row.is_now(ScheduleState::Active, None);
            row.wake = Some(Timestamp::UNIX_EPOCH);
        }
        // The trial has failed.
        None if row.state == ScheduleState::Disabled => row.wake = row.failing.trial_at(rules),
        None => {}
    }
    change
}

/// Decides about a schedule that is disabled: the first slot after the time for a trial is one.
fn try_again(
    row: &mut ScheduleRow,
    spec: &Spec,
    rules: &Rules,
    (cursor, clock): (Cursor, Clock),
) -> Result<Vec<Decision>, Broken> {
    if row.state != ScheduleState::Disabled {
        row.is_now(ScheduleState::Disabled, Some("its last runs have failed"));
    }
    // One that has ended, and whose end nobody has told, is followed by another.
    row.failing.trial = row.failing.trial.filter(|_| row.open > row.waiting);
    if row.failing.trial.is_some() {
        row.wake = clock.wall.checked_add(TRIAL_LOOK).ok();
        return Ok(Vec::new());
    }
    row.wake = row.failing.trial_at(rules);
    let Some(trial_at) = row.wake.filter(|at| *at <= clock.wall) else {
        return Ok(Vec::new());
    };
    // A trial waits for no run, and for none of those that wait until the schedule goes on.
    let queues = spec.overlap.queues();
    if queues && row.open > row.waiting {
        row.wake = clock.wall.checked_add(TRIAL_LOOK).ok();
        return Ok(Vec::new());
    }
    let open = match queues {
        true => Open::default(),
        false => open(row),
    };
    let then = Clock {
        wall: trial_at,
        ..clock
    };
    let mut skipped = skip_all(spec, cursor, then, Reason::Paused)?;
    let mut decisions = std::mem::take(&mut skipped.decisions);
    let is_rest = skipped.wake == Wake::Again;
    let cursor = skipped.cursor;
    let (state, reason) = (row.state, row.state_reason.clone());
    take(row, skipped, clock, spec);
    if !is_rest {
        let trial = due(spec, cursor, clock, open, 1)?;
        let slot = trial.decisions.iter().find_map(|decision| match decision {
            Decision::Dispatch(dispatch) => Some(dispatch.slot.at),
            Decision::Skip(_) => None,
        });
        decisions.extend(take(row, trial, clock, spec));
        if let Some(slot) = slot {
            row.failing.dispatched(slot);
            row.wake = clock.wall.checked_add(TRIAL_LOOK).ok();
        }
    }
    if row.state != ScheduleState::Ended {
        row.is_now(state, reason.as_deref());
    }
    Ok(decisions)
}

fn open(row: &ScheduleRow) -> Open {
    Open {
        occurrences: row.open,
        waiting: row.waiting,
    }
}

/// Takes a version as the one of the cursor: all slots of the one before are decided.
fn apply_version(row: &mut ScheduleRow) {
    row.applied = Some(row.definition.clone());
    // One that is disabled stays so: it is enabled by an operator, or by a trial.
    if row.failing.disabled.is_none() {
        row.is_now(ScheduleState::Active, None);
    }
}

/// Takes the cursor and the time of the next look, and returns the decisions.
fn take(row: &mut ScheduleRow, due: Due, clock: Clock, spec: &Spec) -> Vec<Decision> {
    if due.is_corrected {
        let schedule = &row.name;
        tracing::warn!(
            schedule,
            "a wrong clock had set the schedule: it begins anew"
        );
    }
    row.cursor = Some(due.cursor);
    row.skips.retain(|slot| *slot > due.cursor.at);
    let next = spec.next(due.cursor.at).ok().flatten();
    row.next_slot = next.map(|next| next.at);
    row.wake = match due.wake {
        Wake::Again => Some(clock.wall),
        Wake::At(at) => Some(at),
        Wake::Ended => None,
    };
    if due.wake == Wake::Ended {
        row.next_slot = None;
        row.is_now(ScheduleState::Ended, None);
    }
    due.decisions
}
