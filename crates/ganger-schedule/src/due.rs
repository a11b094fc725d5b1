//! Decides about the slots of a schedule that are due: which are dispatched, which are skipped and for
//! which reason, and when the next one is due. Every slot after the cursor gets exactly one decision;
//! skipped slots are joined to ranges, so that a night of minutes costs no more than an hour.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{BACK_MAX, Clock};
use crate::overlap::{Admission, Open, Overlap};
use crate::problem::Broken;
use crate::spec::{Misfire, Policy, Slot, Spec};
use crate::words::words;
use crate::zone::{beyond, just_before};

/// Number of decisions of one call that skips all.
const DECISIONS_MAX: usize = 1000;
/// Number of searches for a slot of one rule that one call makes, but for a few.
const SEARCHES_MAX: u64 = 10_000;

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
    /// An operator has taken it out.
    Operator,
}

words!(
    Reason, "reason":
    "overlap" => Overlap,
    "misfire" => Misfire,
    "calendar" => Calendar,
    "paused" => Paused,
    "changed" => Changed,
    "operator" => Operator,
);

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
    /// At once: more slots are due than one call decides.
    Again,
    /// Time on the wall clock at which the next slot is due.
    At(Timestamp),
    /// Never: there is no further slot, or the limit is reached.
    Ended,
}

/// Progress of a schedule, as it is kept in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// All slots up to it are decided. Goes back only if a wrong clock has set it.
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

    /// Starts anew if a clock that was wrong has set it: else nothing would run until that time has
    /// come. A cursor that is ahead by [`BACK_MAX`] or less stays: a clock may be set back by as much.
    fn corrected(self, now: Timestamp) -> Self {
        let at = match self.at.duration_since(now) > BACK_MAX {
            true => now,
            false => self.at,
        };
        Self { at, ..self }
    }
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
    /// True if the cursor was that of a wrong clock, and started anew: worth an alert. Slots of the
    /// past may come again, whose keys exist: one of these sends no message and counts for no limit.
    pub is_corrected: bool,
}

/// Decides about the slots that are due, with at most `max` decisions (at least one) in a call: so a
/// trial run, with 1, is a single one.
///
/// Slots that are due for longer than the grace are missed, and go by the policy. By
/// [`Policy::Once`] the newest of all that are due then stands for the others, also for those within
/// the grace.
///
/// # Errors
/// If the next slot can't be worked out: the schedule is broken.
pub fn due(
    spec: &Spec,
    cursor: Cursor,
    clock: Clock,
    open: Open,
    max: usize,
) -> Result<Due, Broken> {
    let mut call = Call::new(spec, cursor, clock, open, max);
    if spec.is_over(call.cursor.runs) {
        return call.end();
    }
    let first = match spec.next(call.cursor.at)? {
        Some(first) if first.due <= call.now => first,
        next => return Ok(call.until(next)),
    };
    let plan = call.plan(first)?;
    if plan.first != Some(first) {
        let missed = call.skip(plan.until, Reason::Misfire)?;
        if spec.misfire.policy == Policy::Once {
            call.cursor.missed += missed;
        }
    }
    match plan.first {
        Some(first) if !call.is_cut => call.dispatch(first),
        None if !call.is_cut => {
            call.cursor.missed = 0;
            call.end()
        }
        Some(_) | None => call.end(),
    }
}

/// Skips all slots up to now: on resuming what was paused or disabled, unless its slots are to be
/// made up for. A schedule that has ended has none.
///
/// # Errors
/// If the next slot can't be worked out: the schedule is broken.
pub fn skip_all(spec: &Spec, cursor: Cursor, clock: Clock, reason: Reason) -> Result<Due, Broken> {
    let mut call = Call::new(spec, cursor, clock, Open::default(), DECISIONS_MAX);
    if !spec.is_over(call.cursor.runs) {
        call.skip(call.now, reason)?;
    }
    if !call.is_cut {
        call.cursor.at = call.cursor.at.max(call.now);
    }
    call.end()
}

/// Replaces a schedule by another version: no slot up to now runs, unless both have the same slots.
/// `old` is `None` if it is broken, so that its slots are unknown. After [`Wake::Again`] the next call
/// is one with both versions, too.
///
/// # Errors
/// If the next slot of either can't be worked out.
pub fn change(old: Option<&Spec>, new: &Spec, cursor: Cursor, clock: Clock) -> Result<Due, Broken> {
    let mut call = Call::new(new, cursor, clock, Open::default(), DECISIONS_MAX);
    let Some(old) = old else {
        call.cursor.at = call.cursor.at.max(call.now);
        return call.end();
    };
    if new.has_slots_of(old) && !old.is_over(cursor.runs) {
        return call.end();
    }
    let skipped = skip_all(old, cursor, clock, Reason::Changed)?;
    if skipped.wake == Wake::Again {
        return Ok(skipped);
    }
    let is_same_clock = old.timing.is_by_elapsed_time() == new.timing.is_by_elapsed_time();
    call.cursor.at = match is_same_clock {
        true => skipped.cursor.at,
        false => call.now,
    };
    Ok(Due {
        decisions: skipped.decisions,
        is_corrected: skipped.is_corrected,
        ..call.end()?
    })
}

/// Split of the slots that are due.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// The first that runs, if any.
    first: Option<Slot>,
    /// Slots up to it are missed.
    until: Timestamp,
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
    clock: Clock,
    /// Time by which the slots are decided.
    now: Timestamp,
    cursor: Cursor,
    is_corrected: bool,
    open: Open,
    decisions: Vec<Decision>,
    /// Number of decisions at most.
    decidable: usize,
    /// Number of searches that may still be made.
    searches: u64,
    /// True if there was more to decide.
    is_cut: bool,
}

impl<'a> Call<'a> {
    fn new(spec: &'a Spec, cursor: Cursor, clock: Clock, open: Open, max: usize) -> Self {
        let now = clock.now(&spec.timing);
        let corrected = cursor.corrected(now);
        Self {
            spec,
            clock,
            now,
            is_corrected: corrected != cursor,
            cursor: corrected,
            open,
            decisions: Vec::new(),
            decidable: max.max(1),
            searches: SEARCHES_MAX,
            is_cut: false,
        }
    }

    /// Ends the call: no further slot is due, or there is more than it decides.
    fn end(self) -> Result<Due, Broken> {
        if self.is_cut {
            return Ok(self.with(Wake::Again));
        }
        if self.spec.is_over(self.cursor.runs) {
            return Ok(self.with(Wake::Ended));
        }
        let next = self.spec.next(self.cursor.at)?;
        Ok(self.until(next))
    }

    /// Ends the call until the next slot is due.
    fn until(self, next: Option<Slot>) -> Due {
        let at = next.map(|slot| self.clock.on_wall(&self.spec.timing, slot.due));
        self.with(at.map_or(Wake::Ended, Wake::At))
    }

    fn with(self, wake: Wake) -> Due {
        Due {
            decisions: self.decisions,
            cursor: self.cursor,
            wake,
            is_corrected: self.is_corrected,
        }
    }

    /// Decides which of the slots that are due run, of which `first` is the first.
    fn plan(&self, first: Slot) -> Result<Plan, Broken> {
        let (spec, now) = (self.spec, self.now);
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
        let newest = |due_by| spec.newest(due_by, self.cursor.at);
        if policy == Policy::Once {
            let mut newest_run = newest(now)?;
            while let Some(slot) = newest_run.filter(|slot| spec.skips.contains(&slot.at)) {
                newest_run = newest(just_before_due(slot))?;
            }
            let newest = newest_run.unwrap_or(first);
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

    /// Decides about each slot that is due, from the first that runs on, as far as one call goes.
    fn dispatch(mut self, first: Slot) -> Result<Due, Broken> {
        let now = self.now;
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
            match following {
                _ if self.spec.is_over(self.cursor.runs) => return Ok(self.with(Wake::Ended)),
                Some(following) => slot = following,
                None => return Ok(self.until(next)),
            }
        }
    }

    /// Returns true if this call may still decide about a slot.
    fn has_room(&self) -> bool {
        self.decisions.len() < self.decidable && self.searches > 0
    }

    /// Records a decision that took a search for each rule, and so many steps.
    fn spend(&mut self, steps: u64) {
        let rules = u64::try_from(self.spec.timing.rules.len()).unwrap_or(u64::MAX);
        self.searches = self.searches.saturating_sub(steps.saturating_add(rules));
    }

    /// Skips all slots after the cursor up to `until`: those that would have run for this reason, the
    /// others because of the calendar. Returns the number of the former. Stops where one call decides
    /// no more.
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
        let count = timing.count(self.cursor.at, last, self.searches)?;
        let last = count.last.ok_or_else(|| beyond(first))?;
        self.push(Skip {
            first,
            last,
            slots: count.slots,
            reason,
        });
        self.spend(count.steps);
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
        let is_taken_out = self.spec.skips.contains(&dispatch.slot.at);
        let admission = match self.spec.overlap {
            _ if is_taken_out => Admission::Skip,
            // Each would be cancelled by the next.
            Overlap::Replace if !is_newest => Admission::Skip,
            overlap => overlap.admit(self.open, false),
        };
        let slot = dispatch.slot.at;
        self.cursor.at = self.cursor.at.max(slot);
        self.spend(0);
        if admission == Admission::Skip {
            return self.push(Skip {
                first: slot,
                last: slot,
                slots: 1,
                reason: match is_taken_out {
                    true => Reason::Operator,
                    false => Reason::Overlap,
                },
            });
        }
        dispatch.waits = admission == Admission::Wait;
        dispatch.replaces = admission == Admission::Replace;
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
