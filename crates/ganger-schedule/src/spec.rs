//! A schedule as the decisions see it: its rules, and the slots that come of them with jitter and
//! calendar.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::auto_disable;
use crate::calendar::{Calendar, Outside, Span};
use crate::expect::Expect;
use crate::problem::{Broken, Problem};
use crate::spread::spread;
use crate::timing::Timing;
use crate::zone::{SECOND, beyond};

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

/// Rules for slots that were missed: nothing dispatched them until `grace` after they were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfire {
    /// Which of them run.
    pub policy: Policy,
    /// Lateness up to which a slot is not missed.
    pub grace: Duration,
    /// Lateness up to which a missed slot may still run.
    pub catch_up: Duration,
    /// Number of missed slots that run at once by [`Policy::All`], the newest of them; at most
    /// [`Misfire::MAX`].
    pub max: u32,
}

impl Misfire {
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

/// Rule for a slot while an occurrence of the schedule is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It runs beside the open ones.
    Allow,
    /// It is skipped.
    #[default]
    Skip,
    /// It waits until they have ended.
    Queue {
        /// Number of those that may wait; a further one is skipped.
        max: u32,
    },
    /// The open ones are cancelled, then it runs.
    Replace,
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
    pub only: Option<Calendar>,
    /// Rules for missed slots.
    pub misfire: Misfire,
    /// Rule for overlapping runs.
    pub overlap: Overlap,
    /// Rules for disabling.
    pub auto_disable: Option<auto_disable::Rules>,
    /// Expectations.
    pub expect: Expect,
}

impl Spec {
    /// Returns whether slots and due times are those of another version.
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

    /// Returns the mistake of a schedule that will never run from a moment on.
    ///
    /// # Errors
    /// If its slots can't be worked out.
    pub fn never_runs(&self, now: Timestamp) -> Result<Option<Problem>, Broken> {
        if self.limit == Some(0) || self.next(now)?.is_none() {
            let wrong = format!("schedule has no slot after {now}");
            let right = "choose a time, an end and a calendar that leave one";
            return Ok(Some(Problem::new(wrong, right)));
        }
        Ok(None)
    }

    /// Returns the first slot after another, or after an instant.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub fn next(&self, after: Timestamp) -> Result<Option<Slot>, Broken> {
        let before_start = |start: Timestamp| start.checked_sub(SECOND).unwrap_or(start);
        let mut after = self
            .start
            .map_or(after, |start| before_start(start).max(after));
        for _ in 0..SPANS_MAX {
            let in_time = |at: &Timestamp| self.end.is_none_or(|end| *at <= end);
            let Some(at) = self.timing.next(after)?.filter(in_time) else {
                return Ok(None);
            };
            let Some((span, outside)) = self.closed(at)? else {
                return Ok(Some(self.slot(at, at)?));
            };
            let Some(opens) = span.until else {
                return Ok(None);
            };
            let before = opens.checked_sub(SECOND).map_err(|_| beyond(opens))?;
            if outside == Outside::Next && self.timing.next(before)? != Some(opens) {
                let end = self.end.map(|end| end.checked_add(SECOND).unwrap_or(end));
                let last = end.map_or(opens, |end| end.min(opens));
                if let Some(newest) = self.timing.previous(last)?.filter(|newest| *newest > after) {
                    return Ok(Some(self.slot(newest, opens)?));
                }
            }
            after = before;
        }
        Ok(None)
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
        let just_after = |at: Timestamp| {
            at.checked_add(Duration::from_nanos(1))
                .map_err(|_| beyond(at))
        };
        let mut before = just_after(due_by)?;
        if let Some(end) = self.end {
            before = before.min(just_after(end)?);
        }
        let is_later = |at: &Timestamp| *at > after && self.start.is_none_or(|start| *at >= start);
        for _ in 0..SPANS_MAX {
            let Some(at) = self.timing.previous(before)?.filter(is_later) else {
                return Ok(None);
            };
            before = match self.closed(at)? {
                None => {
                    let slot = self.slot(at, at)?;
                    if slot.due <= due_by {
                        return Ok(Some(slot));
                    }
                    at
                }
                Some((span, outside)) => {
                    if let Some(opens) = span.until
                        && outside == Outside::Next
                    {
                        let slot = self.slot(at, opens)?;
                        if slot.due <= due_by {
                            return Ok(Some(slot));
                        }
                    }
                    let Some(from) = span.from else {
                        return Ok(None);
                    };
                    from
                }
            };
        }
        Ok(None)
    }

    /// Returns the closed span around a slot, with the rule for it; `None` if it may run.
    pub(crate) fn closed(&self, at: Timestamp) -> Result<Option<(Span, Outside)>, Broken> {
        let Some(calendar) = self.only.as_ref().filter(|only| !only.is_open(at)) else {
            return Ok(None);
        };
        Ok(Some((calendar.span(at)?, calendar.outside())))
    }

    /// Adds jitter to a slot that would be due at `base`: a hash of name and slot in milliseconds,
    /// less than both `jitter` and the time to the next slot, so that slots keep their order.
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
