//! Decides what becomes of the slots of a schedule that have come: which are dispatched, which are
//! skipped and why, and when to look again. Every slot after the cursor gets exactly one decision;
//! what is skipped is told as ranges, so that a night of minutes costs no more than an hour.

use std::time::Duration;

use jiff::Timestamp;

use crate::problem::Broken;
use crate::spec::{Misfire, Overlap, Policy, Slot, Spec};
use crate::zone::{beyond, just_before};

/// Number of decisions of one call.
const DECISIONS_MAX: usize = 1000;
/// Number of slots that one call counts one by one.
const COUNTED_MAX: u64 = 10_000;

/// Reason for which a slot does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// An occurrence of the schedule is open.
    Overlap,
    /// It was missed, and is not made up for.
    Misfire,
    /// It is outside the calendar, or stands for one run with others that are.
    Calendar,
    /// The schedule was paused or disabled.
    Paused,
    /// The schedule was changed before the slot was decided.
    Changed,
}

/// Slots that are skipped for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them, which may be the first.
    pub last: Timestamp,
    /// Number of slots; others may lie between them.
    pub slots: u64,
    /// Reason.
    pub reason: Reason,
}

/// A slot that is dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// The slot.
    pub slot: Slot,
    /// Number of missed slots that it stands for besides its own.
    pub missed: u64,
    /// True if it was missed itself, and runs late.
    pub is_made_up: bool,
    /// True if it waits until the open occurrences have ended.
    pub waits: bool,
    /// True if the open occurrences are to be cancelled first.
    pub replaces: bool,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A slot is dispatched.
    Dispatch(Dispatch),
    /// Slots are skipped.
    Skip(Skip),
}

/// Next time to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// At once: there is more than one call decides.
    Again,
    /// When the next slot is due.
    At(Timestamp),
    /// Never: there is no further slot, or the limit is reached.
    Ended,
}

/// Progress of a schedule, as it is kept in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// All slots up to it are decided. Goes back by [`Cursor::corrected`] alone.
    pub at: Timestamp,
    /// Number of dispatches so far.
    pub runs: u64,
    /// Number of missed slots that the next dispatch stands for, by [`Policy::Once`].
    pub missed: u64,
}

impl Cursor {
    /// Creates the cursor of a schedule that is new: no slot up to now runs.
    pub fn new(now: Timestamp) -> Self {
        Self {
            at: now,
            runs: 0,
            missed: 0,
        }
    }

    /// Starts anew after the clock was corrected: nothing waits until a wrong clock's slots come.
    #[must_use]
    pub fn corrected(self, now: Timestamp) -> Self {
        let at = self.at.min(now);
        Self { at, ..self }
    }
}

/// Occurrences of a schedule that have not ended, waiting retries included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// All of them.
    pub occurrences: u32,
    /// Those among them that wait for others to end.
    pub waiting: u32,
}

/// Decisions, in the order of their slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Decisions on the slots up to the cursor.
    pub decisions: Vec<Decision>,
    /// The cursor afterwards.
    pub cursor: Cursor,
    /// Next time to ask.
    pub wake: Wake,
}

/// Decides about the slots that are due.
///
/// Slots that are due for longer than the grace are missed, and go by the policy. By
/// [`Policy::Once`] the newest of all that are due then stands for the others, also for those within
/// the grace.
///
/// # Errors
/// If the next slot can't be worked out: the schedule is broken.
pub fn due(spec: &Spec, cursor: Cursor, now: Timestamp, open: Open) -> Result<Due, Broken> {
    let mut call = Call::new(spec, cursor, open);
    if call.is_over() {
        return Ok(call.with(Wake::Ended));
    }
    let first = match spec.next(cursor.at)? {
        Some(first) if first.due <= now => first,
        next => return Ok(call.with(wake(next))),
    };
    let plan = plan(spec, cursor, now, first)?;
    if plan.first != Some(first) {
        let missed = call.skip(plan.until, Reason::Misfire)?;
        if spec.misfire.policy == Policy::Once {
            call.cursor.missed += missed;
        }
    }
    if call.is_cut {
        return Ok(call.with(Wake::Again));
    }
    match plan.first {
        Some(first) => call.dispatch(first, now),
        None => {
            call.cursor.missed = 0;
            call.waiting()
        }
    }
}

fn wake(next: Option<Slot>) -> Wake {
    next.map_or(Wake::Ended, |slot| Wake::At(slot.due))
}

/// Skips all slots up to now: on resuming what was paused or disabled, unless its slots are to be
/// made up for.
///
/// # Errors
/// If the next slot can't be worked out: the schedule is broken.
pub fn skip_all(
    spec: &Spec,
    cursor: Cursor,
    now: Timestamp,
    reason: Reason,
) -> Result<Due, Broken> {
    let mut call = Call::new(spec, cursor, Open::default());
    call.skip(now, reason)?;
    if call.is_cut {
        return Ok(call.with(Wake::Again));
    }
    call.cursor.at = call.cursor.at.max(now);
    call.waiting()
}

/// Replaces a schedule by another version: no slot up to now runs, unless both have the same slots.
///
/// # Errors
/// If the next slot of either can't be worked out.
pub fn change(old: &Spec, new: &Spec, cursor: Cursor, now: Timestamp) -> Result<Due, Broken> {
    if new.has_slots_of(old) {
        return Call::new(new, cursor, Open::default()).waiting();
    }
    let due = skip_all(old, cursor, now, Reason::Changed)?;
    match due.wake {
        Wake::Again => Ok(due),
        Wake::At(_) | Wake::Ended => {
            let wake = Call::new(new, due.cursor, Open::default()).waiting()?.wake;
            Ok(Due { wake, ..due })
        }
    }
}

/// Split of the slots that are due.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// The first that runs, if any.
    first: Option<Slot>,
    /// Slots up to it are missed.
    until: Timestamp,
}

/// Decides which of the slots that are due run, of which `first` is the first.
fn plan(spec: &Spec, cursor: Cursor, now: Timestamp, first: Slot) -> Result<Plan, Broken> {
    let Misfire {
        policy,
        grace,
        catch_up,
        max,
    } = spec.misfire;
    let (missed_by, oldest) = (back(now, grace), back(now, catch_up));
    let runs = |first: Slot| Plan {
        first: Some(first),
        until: just_before(first.at),
    };
    // Most often none was missed.
    if first.due > missed_by {
        return Ok(runs(first));
    }
    let newest = |due_by| spec.newest(due_by, cursor.at);
    if policy == Policy::Once {
        let newest = newest(now)?.unwrap_or(first);
        return Ok(match newest.due > missed_by || newest.due >= oldest {
            true => runs(newest),
            false => Plan {
                first: None,
                until: newest.at,
            },
        });
    }
    let newest_missed = newest(missed_by)?.unwrap_or(first);
    let max = if policy == Policy::All { max } else { 0 };
    let mut missed = Some(newest_missed);
    let mut made_up = None;
    for _ in 0..max {
        let Some(slot) = missed.filter(|slot| slot.due >= oldest) else {
            break;
        };
        made_up = Some(slot);
        missed = newest(just_before_due(slot))?;
    }
    if let Some(first) = made_up {
        return Ok(runs(first));
    }
    let next = spec.next(newest_missed.at)?;
    Ok(Plan {
        first: next.filter(|next| next.due <= now),
        until: newest_missed.at,
    })
}

fn back(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn just_before_due(slot: Slot) -> Timestamp {
    back(slot.due, Duration::from_nanos(1))
}

/// One call: decisions so far.
#[derive(Debug)]
struct Call<'a> {
    spec: &'a Spec,
    cursor: Cursor,
    open: Open,
    decisions: Vec<Decision>,
    /// Number of slots that may still be counted.
    countable: u64,
    /// True if there was more to count.
    is_cut: bool,
}

impl<'a> Call<'a> {
    fn new(spec: &'a Spec, cursor: Cursor, open: Open) -> Self {
        Self {
            spec,
            cursor,
            open,
            decisions: Vec::new(),
            countable: COUNTED_MAX,
            is_cut: false,
        }
    }

    /// Returns whether the schedule has run as often as it should.
    fn is_over(&self) -> bool {
        self.spec
            .limit
            .is_some_and(|limit| self.cursor.runs >= limit)
    }

    /// Ends the call: the next slot is still to come.
    fn waiting(self) -> Result<Due, Broken> {
        if self.is_over() {
            return Ok(self.with(Wake::Ended));
        }
        let next = self.spec.next(self.cursor.at)?;
        Ok(self.with(wake(next)))
    }

    /// Decides about each slot that is due, from the first that runs on, as far as one call goes.
    fn dispatch(mut self, first: Slot, now: Timestamp) -> Result<Due, Broken> {
        let missed_by = back(now, self.spec.misfire.grace);
        let mut slot = first;
        loop {
            // Those between that are outside the calendar.
            if self.spec.only.is_some() {
                self.skip_range(just_before(slot.at), Reason::Calendar)?;
            }
            if self.is_cut || !self.has_room() {
                return Ok(self.with(Wake::Again));
            }
            let next = self.spec.next(slot.at)?;
            let following = next.filter(|next| next.due <= now);
            let dispatch = Dispatch {
                slot,
                missed: 0,
                is_made_up: slot.due <= missed_by,
                waits: false,
                replaces: false,
            };
            self.decide(dispatch, following.is_none());
            if self.is_over() {
                return Ok(self.with(Wake::Ended));
            }
            match following {
                Some(following) => slot = following,
                None => return Ok(self.with(wake(next))),
            }
        }
    }

    fn with(self, wake: Wake) -> Due {
        Due {
            decisions: self.decisions,
            cursor: self.cursor,
            wake,
        }
    }

    /// Returns true if this call may still decide about a slot.
    fn has_room(&self) -> bool {
        self.decisions.len() < DECISIONS_MAX && self.countable > 0
    }

    /// Skips all slots after the cursor up to `until`: those that would have run for this reason, the
    /// others because of the calendar. Returns the number of the former. Stops where one call can
    /// count no more.
    fn skip(&mut self, until: Timestamp, reason: Reason) -> Result<u64, Broken> {
        let spec = self.spec;
        let mut skipped = 0;
        while !self.is_cut {
            let Some(run) = spec.next(self.cursor.at)?.filter(|run| run.at <= until) else {
                self.skip_range(until, Reason::Calendar)?;
                break;
            };
            self.skip_range(just_before(run.at), Reason::Calendar)?;
            let last = match &spec.only {
                None => until,
                Some(only) if only.is_open(run.at) => {
                    let end = only.end(run.at)?;
                    end.map_or(until, |end| just_before(end).min(until))
                }
                Some(_) => run.at,
            };
            skipped += self.skip_range(last, reason)?;
        }
        Ok(skipped)
    }

    /// Skips the slots after the cursor up to `until`, and returns their number.
    fn skip_range(&mut self, until: Timestamp, reason: Reason) -> Result<u64, Broken> {
        let Spec {
            timing, start, end, ..
        } = self.spec;
        if self.is_cut {
            return Ok(0);
        }
        if let Some(start) = start {
            self.cursor.at = self.cursor.at.max(just_before(*start).min(until));
        }
        let last = end.map_or(until, |end| end.min(until));
        let first = timing.next(self.cursor.at)?.filter(|first| *first <= last);
        let Some(first) = first else {
            self.cursor.at = self.cursor.at.max(until);
            return Ok(0);
        };
        if !self.has_room() {
            self.is_cut = true;
            return Ok(0);
        }
        let count = timing.count(self.cursor.at, last, self.countable)?;
        let last = count.last.ok_or_else(|| beyond(first))?;
        self.push(Skip {
            first,
            last,
            slots: count.slots,
            reason,
        });
        self.countable = self.countable.saturating_sub(count.steps);
        self.is_cut = count.is_cut;
        self.cursor.at = if count.is_cut { last } else { until };
        Ok(count.slots)
    }

    /// Adds skipped slots, to those before them if the reason is the same.
    fn push(&mut self, skip: Skip) {
        match self.decisions.last_mut() {
            Some(Decision::Skip(before)) if before.reason == skip.reason => {
                before.last = skip.last;
                before.slots += skip.slots;
            }
            _ => self.decisions.push(Decision::Skip(skip)),
        }
    }

    /// Dispatches a slot, unless open occurrences stand against it.
    fn decide(&mut self, mut dispatch: Dispatch, is_newest: bool) {
        let is_open = self.open.occurrences > 0;
        let runs = match self.spec.overlap {
            Overlap::Allow => true,
            Overlap::Skip => !is_open,
            Overlap::Queue { max } => {
                dispatch.waits = is_open;
                !is_open || self.open.waiting < max
            }
            // Each would be cancelled by the next.
            Overlap::Replace => {
                dispatch.replaces = is_open;
                is_newest
            }
        };
        let slot = dispatch.slot.at;
        self.cursor.at = self.cursor.at.max(slot);
        self.countable = self.countable.saturating_sub(1);
        if !runs {
            return self.push(Skip {
                first: slot,
                last: slot,
                slots: 1,
                reason: Reason::Overlap,
            });
        }
        dispatch.missed = std::mem::take(&mut self.cursor.missed);
        self.cursor.runs += 1;
        self.open.waiting += u32::from(dispatch.waits);
        self.open.occurrences = match dispatch.replaces {
            true => 1,
            false => self.open.occurrences.saturating_add(1),
        };
        self.decisions.push(Decision::Dispatch(dispatch));
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
