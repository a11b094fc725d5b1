//! A schedule as the decisions see it: its rules, and the slots that come of them with jitter and
//! calendar.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::auto_disable;
use crate::calendar::{Calendar, Outside};
use crate::expect::Expect;
use crate::overlap::Overlap;
use crate::problem::{Broken, Problem};
use crate::spread::spread;
use crate::timing::Timing;
use crate::words::words;
use crate::zone::{beyond, just_before};

/// Number of spans of a calendar that a search for a slot goes through.
const SPANS_MAX: usize = 1000;

/// Policy for missed slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The newest runs and stands for the others, which are counted.
    #[default]
    Once,
    /// Each runs, as far as `catch_up` and `max` go.
    All,
    /// None runs.
    Skip,
}

words!(Policy, "policy": "once" => Once, "all" => All, "skip" => Skip);

/// Rules for slots that were missed: nothing dispatched them until `grace` after they were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfire {
    /// Policy.
    pub policy: Policy,
    /// Lateness up to which a slot is not missed; at most [`Misfire::GRACE_MAX`].
    pub grace: Duration,
    /// Lateness up to which a missed slot may still run.
    pub catch_up: Duration,
    /// Number of missed slots that run at once by [`Policy::All`], the newest of them; at most
    /// [`Misfire::MAX`].
    pub max: u32,
}

impl Misfire {
    /// Bound of `grace`.
    pub const GRACE_MAX: Duration = Duration::from_secs(7 * 86_400);
    /// Bound of `max`.
    pub const MAX: u32 = 1000;
}

impl Default for Misfire {
    fn default() -> Self {
        Self {
            policy: Policy::Once,
            grace: Duration::from_secs(60),
            catch_up: Duration::from_secs(86_400),
            max: 100,
        }
    }
}

/// A slot: an instant that a schedule names, and when its message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its name: with the schedule's, the key of an occurrence. In whole seconds.
    pub at: Timestamp,
    /// Time at which it is due: later by jitter, or when its calendar opens. Before the next slot
    /// is due.
    pub due: Timestamp,
}

/// A schedule, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Name, which jitter hashes.
    pub name: String,
    /// Slots.
    pub timing: Timing,
    /// Time over which slots are spread.
    pub jitter: Duration,
    /// No slot is before it.
    pub start: Option<Timestamp>,
    /// No slot is after it.
    pub end: Option<Timestamp>,
    /// Number of dispatches after which the schedule has ended.
    pub limit: Option<u64>,
    /// Calendar to which the slots are bound.
    pub only: Option<Arc<Calendar>>,
    /// Rules for missed slots.
    pub misfire: Misfire,
    /// Rule for overlapping runs.
    pub overlap: Overlap,
    /// Rules for disabling.
    pub auto_disable: Option<auto_disable::Rules>,
    /// Expectations.
    pub expect: Expect,
    /// Slots that an operator has taken out: they are decided like the others, and do not run.
    pub skips: BTreeSet<Timestamp>,
}

impl Spec {
    /// Returns true if it has run as often as it may.
    pub fn is_over(&self, runs: u64) -> bool {
        self.limit.is_some_and(|limit| runs >= limit)
    }

    /// Returns true if slots and due times are those of another version.
    pub fn has_slots_of(&self, other: &Self) -> bool {
        let slots = |spec: &Self| {
            let Self {
                name,
                jitter,
                start,
                end,
                ..
            } = spec;
            (name.clone(), *jitter, *start, *end)
        };
        slots(self) == slots(other) && self.timing == other.timing && self.only == other.only
    }

    /// Returns the mistake of a schedule that will never run from a moment on, as far as is searched.
    pub fn never_runs(&self, now: Timestamp) -> Option<Problem> {
        let runs = self.limit != Some(0) && matches!(self.next(now), Ok(Some(_)));
        let wrong = || format!("schedule has no slot after {now}");
        let right = "choose a time, an end and a calendar that leave one";
        (!runs).then(|| Problem::new(wrong(), right))
    }

    /// Returns the instant to which the calendar moves a slot; `None` if the calendar is open at the slot.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub(crate) fn moved_to(&self, slot: Slot) -> Result<Option<Timestamp>, Broken> {
        match self.closed(slot.at) {
            Some(calendar) => calendar.end(slot.at),
            None => Ok(None),
        }
    }

    /// Returns the first slot after another, or after an instant.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub fn next(&self, after: Timestamp) -> Result<Option<Slot>, Broken> {
        let mut after = self
            .start
            .map_or(after, |start| just_before(start).max(after));
        for _ in 0..SPANS_MAX {
            let in_time = |at: &Timestamp| self.end.is_none_or(|end| *at <= end);
            let Some(at) = self.timing.next(after)?.filter(in_time) else {
                return Ok(None);
            };
            let Some(calendar) = self.closed(at) else {
                return Ok(Some(self.slot(at, at)?));
            };
            let Some(opens) = calendar.end(at)? else {
                return Ok(None);
            };
            if let Some(slot) = self.moved(calendar, opens)? {
                return Ok(Some(slot));
            }
            after = just_before(opens);
        }
        Err(Broken(format!("no slot within the calendar after {after}")))
    }

    /// Returns the last slot before another, or before an instant.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub fn previous(&self, before: Timestamp) -> Result<Option<Slot>, Broken> {
        self.last(Timestamp::MIN, before, |slot| slot.at < before)
    }

    /// Returns the last slot that is due by an instant, if it is after another.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub(crate) fn newest(
        &self,
        due_by: Timestamp,
        after: Timestamp,
    ) -> Result<Option<Slot>, Broken> {
        self.last(after, due_by, |slot| slot.due <= due_by)
    }

    /// Returns the last slot that fits, of those after `after` and not after `until`.
    fn last(
        &self,
        after: Timestamp,
        until: Timestamp,
        fits: impl Fn(&Slot) -> bool,
    ) -> Result<Option<Slot>, Broken> {
        let first = self.start.unwrap_or(Timestamp::MIN);
        let mut before = self.after_last(until)?;
        for _ in 0..SPANS_MAX {
            let is_later = |at: &Timestamp| *at > after && *at >= first;
            let Some(at) = self.timing.previous(before)?.filter(is_later) else {
                return Ok(None);
            };
            let (slot, begin) = match self.closed(at) {
                None => (Some(self.slot(at, at)?), Some(at)),
                Some(calendar) => {
                    let opens = calendar.end(at)?;
                    let moved = opens.map(|opens| self.moved(calendar, opens));
                    (moved.transpose()?.flatten(), calendar.begin(at)?)
                }
            };
            match (slot.filter(&fits), begin) {
                (None, Some(begin)) => before = begin,
                (slot, _) => return Ok(slot),
            }
        }
        Err(Broken(format!(
            "no slot within the calendar before {before}"
        )))
    }

    /// Returns the slot of a closed span that runs when the calendar opens: the newest, unless there
    /// is one at the opening. The span must have one.
    fn moved(&self, calendar: &Calendar, opens: Timestamp) -> Result<Option<Slot>, Broken> {
        if calendar.outside() == Outside::Skip {
            return Ok(None);
        }
        let newest = self.timing.previous(self.after_last(opens)?)?;
        let newest = newest.filter(|newest| *newest < opens);
        newest.map(|at| self.slot(at, opens)).transpose()
    }

    /// Returns the instant after the last at which there may be a slot, up to `until`.
    fn after_last(&self, until: Timestamp) -> Result<Timestamp, Broken> {
        let last = self.end.map_or(until, |end| end.min(until));
        let next = last.checked_add(Duration::from_nanos(1));
        next.map_err(|_| beyond(last))
    }

    /// Returns the calendar if it is closed at an instant.
    fn closed(&self, at: Timestamp) -> Option<&Calendar> {
        self.only.as_deref().filter(|only| !only.is_open(at))
    }

    /// Adds jitter to a slot that would be due at `base`: a hash of name and slot in milliseconds,
    /// less than both `jitter` and the time to the next slot, so that slots keep their order. It may
    /// be due after its calendar has closed, or after the end.
    fn slot(&self, at: Timestamp, base: Timestamp) -> Result<Slot, Broken> {
        if self.jitter.is_zero() {
            return Ok(Slot { at, due: base });
        }
        let jitter = SignedDuration::try_from(self.jitter).unwrap_or(SignedDuration::MAX);
        let room = match self.timing.next(base)? {
            Some(next) => next.duration_since(base).min(jitter),
            None => jitter,
        };
        let bound = u64::try_from(room.as_millis()).unwrap_or(0);
        let late = Duration::from_millis(spread(&self.name, at.as_second(), bound));
        let due = base.checked_add(late).map_err(|_| beyond(base))?;
        Ok(Slot { at, due })
    }
}
