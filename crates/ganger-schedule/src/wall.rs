//! Instants at which the clock on a wall shows what an expression means, through changes of that
//! clock. Time is cut into stretches of one offset; within one a civil time has exactly one instant.
//! The effect of a change is decided where two stretches meet; so the slots are the same forwards and
//! backwards, and each is later than the one before.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

use crate::cron::Cron;
use crate::problem::Broken;
use crate::words::words;
use crate::zone::{SECOND, Stretch, Zone, beyond};

/// Number of changes of a clock that a search goes through. Those between here and a slot are leapt
/// over, so that a handful is enough.
const STRETCHES_MAX: usize = 100;
/// Time that is looked through around a civil time that was found: more than any zone's change.
const MARGIN: SignedDuration = SignedDuration::from_hours(48);

/// Rule for civil times that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// They are the first instant after the gap.
    After,
    /// They are left out.
    Skip,
}

words!(Gap, "gap": "after" => After, "skip" => Skip);

/// Rule for civil times that exist twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The first one counts.
    First,
    /// The second one counts.
    Last,
    /// Both count.
    Both,
}

words!(Fold, "fold": "first" => First, "last" => Last, "both" => Both);

/// Rule for changes of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dst {
    /// As in Debian's cron: an interval goes on in real time, so that the repeated hour runs twice
    /// and the missing one not at all; a time of the clock runs once in the repeated hour, and after
    /// the gap if it is missing.
    #[default]
    Standard,
    /// The same for all expressions.
    Explicit {
        /// Rule for missing times.
        gap: Gap,
        /// Rule for repeated times.
        fold: Fold,
    },
}

/// An expression on the clocks of a zone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wall<'a> {
    pub(crate) cron: &'a Cron,
    pub(crate) zone: &'a Zone,
    pub(crate) dst: Dst,
}

impl Wall<'_> {
    /// Returns the rules for times that do not exist and for those that exist twice.
    pub(crate) fn rules(self) -> (Gap, Fold) {
        match self.dst {
            Dst::Explicit { gap, fold } => (gap, fold),
            Dst::Standard if self.cron.is_interval() => (Gap::Skip, Fold::Both),
            Dst::Standard => (Gap::After, Fold::First),
        }
    }

    /// Returns the first slot after an instant.
    pub(crate) fn next(self, after: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let mut at = following(after)?;
        let mut is_exhausted = false;
        for round in 0..STRETCHES_MAX {
            let stretch = self.zone.stretch(at)?;
            if let Some(slot) = self.first_in(&stretch, at) {
                return Ok(Some(slot));
            }
            let civil = self.cron.at_or_after(stretch.offset.to_datetime(at));
            let Some((until, _)) = stretch.until else {
                return Ok(None);
            };
            // After the last civil time there may be its repetition.
            if civil.is_none() && is_exhausted {
                return Ok(None);
            }
            is_exhausted = civil.is_none();
            at = until;
            // Only the first stretch may begin in the middle of a time that is repeated.
            if round > 0
                && let Some(near) = civil.and_then(|civil| instant(&stretch, civil))
                && let Ok(near) = near.checked_sub(MARGIN)
            {
                at = at.max(near);
            }
        }
        Err(Broken(format!("no slot found after {after}")))
    }

    /// Returns the last slot before an instant.
    pub(crate) fn previous(self, before: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let floor = whole_second(before)?;
        let mut at = match floor < before {
            true => floor,
            false => floor.checked_sub(SECOND).map_err(|_| beyond(before))?,
        };
        let mut is_exhausted = false;
        for round in 0..STRETCHES_MAX {
            let stretch = self.zone.stretch(at)?;
            if let Some(slot) = self.last_in(&stretch, at) {
                return Ok(Some(slot));
            }
            let civil = self.cron.at_or_before(stretch.offset.to_datetime(at));
            let Some((from, _)) = stretch.from else {
                return Ok(None);
            };
            if civil.is_none() && is_exhausted {
                return Ok(None);
            }
            is_exhausted = civil.is_none();
            at = from.checked_sub(SECOND).map_err(|_| beyond(from))?;
            if round > 0
                && let Some(near) = civil.and_then(|civil| instant(&stretch, civil))
                && let Ok(near) = near.checked_add(MARGIN)
            {
                at = at.min(near);
            }
        }
        Err(Broken(format!("no slot found before {before}")))
    }

    /// Returns the number of slots after an instant and not after another, in the time of a few
    /// hundred steps for each year.
    pub(crate) fn count(self, after: Timestamp, until: Timestamp) -> Result<u64, Broken> {
        let mut at = following(after)?;
        let end = following(until)?;
        let mut count = 0;
        while at < end {
            let stretch = self.zone.stretch(at)?;
            let from = self.start(&stretch).map_or(at, |start| start.max(at));
            let until = self.end(&stretch).map_or(end, |until| until.min(end));
            if from < until {
                let civil = |at| stretch.offset.to_datetime(at);
                count += self.cron.count(civil(from), civil(until));
            }
            // One that is moved to a slot is one with it.
            if let Some(slot) = self.first_in(&stretch, at)
                && stretch
                    .from
                    .is_some_and(|(from, _)| from == at && from == slot)
                && self.cron.at_or_after(stretch.offset.to_datetime(at))
                    != Some(stretch.offset.to_datetime(at))
            {
                count += 1;
            }
            let Some((until, _)) = stretch.until else {
                break;
            };
            at = until;
        }
        Ok(count)
    }

    /// Returns the first slot of a stretch that is not before `at`.
    fn first_in(self, stretch: &Stretch, at: Timestamp) -> Option<Timestamp> {
        if let Some((from, _)) = stretch.from
            && from == at
            && self.is_moved_to(stretch)
        {
            return Some(from);
        }
        let start = self.start(stretch).map_or(at, |start| start.max(at));
        let civil = self.cron.at_or_after(stretch.offset.to_datetime(start))?;
        let slot = instant(stretch, civil)?;
        self.end(stretch)
            .is_none_or(|end| slot < end)
            .then_some(slot)
    }

    /// Returns the last slot of a stretch that is not after `at`.
    fn last_in(self, stretch: &Stretch, at: Timestamp) -> Option<Timestamp> {
        let last = match self.end(stretch) {
            Some(end) => at.min(end.checked_sub(SECOND).ok()?),
            None => at,
        };
        let civil = self.cron.at_or_before(stretch.offset.to_datetime(last));
        let slot = civil.and_then(|civil| instant(stretch, civil));
        let start = self.start(stretch);
        let slot = slot.filter(|slot| start.is_none_or(|start| *slot >= start));
        let moved = || stretch.from.filter(|_| self.is_moved_to(stretch));
        slot.or_else(|| Some(moved()?.0))
    }

    /// Returns true if a civil time falls into the gap before a stretch and counts at its end.
    fn is_moved_to(self, stretch: &Stretch) -> bool {
        let Some((from, before)) = stretch.from else {
            return false;
        };
        let (gap, _) = self.rules();
        let (first, end) = (before.to_datetime(from), stretch.offset.to_datetime(from));
        gap == Gap::After && first < end && {
            let found = self.cron.at_or_after(first);
            found.is_some_and(|civil| civil < end)
        }
    }

    /// Returns the first instant of a stretch whose civil time counts; `None` if it has no beginning.
    fn start(self, stretch: &Stretch) -> Option<Timestamp> {
        let (from, before) = stretch.from?;
        match self.rules().1 {
            Fold::First => repeated_until(from, before, stretch.offset),
            Fold::Last | Fold::Both => Some(from),
        }
    }

    /// Returns the instant from which civil times of a stretch do not count; `None` if there is none.
    fn end(self, stretch: &Stretch) -> Option<Timestamp> {
        let (until, after) = stretch.until?;
        match self.rules().1 {
            Fold::Last => {
                let repeated =
                    (repeated_until(until, stretch.offset, after)? - until).get_seconds();
                until.checked_sub(SignedDuration::from_secs(repeated)).ok()
            }
            Fold::First | Fold::Both => Some(until),
        }
    }
}

/// Returns the end of the time that a change repeats; the change itself if it repeats none.
fn repeated_until(
    change: Timestamp,
    before: jiff::tz::Offset,
    after: jiff::tz::Offset,
) -> Option<Timestamp> {
    let seconds = (before.seconds() - after.seconds()).max(0);
    change
        .checked_add(SignedDuration::from_secs(i64::from(seconds)))
        .ok()
}

fn instant(stretch: &Stretch, civil: DateTime) -> Option<Timestamp> {
    stretch.offset.to_timestamp(civil).ok()
}

/// Returns the first whole second after an instant.
fn following(at: Timestamp) -> Result<Timestamp, Broken> {
    let next = whole_second(at)?.checked_add(SECOND);
    next.map_err(|_| beyond(at))
}

/// Returns the last whole second that is not after an instant.
fn whole_second(at: Timestamp) -> Result<Timestamp, Broken> {
    let floor = at.as_nanosecond().div_euclid(1_000_000_000);
    let floor = i64::try_from(floor).ok().map(Timestamp::from_second);
    floor.and_then(Result::ok).ok_or_else(|| beyond(at))
}

#[cfg(test)]
mod tests;
