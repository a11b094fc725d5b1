//! The slots of a schedule: of cron expressions, of periods, or a single one. Jitter, calendars and
//! decisions on slots belong elsewhere.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::cron::{Cron, Dialect};
use crate::problem::{Broken, Problem, quoted};
use crate::wall::{Dst, Wall};
use crate::zone::{Zone, beyond};

/// Shortest period of `every`.
const EVERY_MIN: SignedDuration = SignedDuration::from_secs(1);
/// Longest period of `every`: 100 years of 365 days.
const EVERY_MAX: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// A period in absolute time. Its slots are counted from 1970-01-01T00:00:00Z on, so that they do not
/// depend on when a daemon was started or the schedule was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    seconds: i64,
    offset: i64,
}

impl Every {
    /// Creates a period of whole seconds, and an offset below it.
    ///
    /// # Errors
    /// If the period is not of whole seconds from 1 s to 100 years, or the offset is not below it.
    pub fn new(period: SignedDuration, offset: SignedDuration) -> Result<Self, Problem> {
        let is_whole = |time: SignedDuration| time.subsec_nanos() == 0;
        if !is_whole(period) || !(EVERY_MIN..=EVERY_MAX).contains(&period) {
            let wrong = format!("invalid period `{period:#}`");
            let problem = Problem::new(wrong, "write whole seconds, from `1s` to 100 years");
            return Err(problem.under("every"));
        }
        if !is_whole(offset) || offset.is_negative() || offset >= period {
            let wrong = format!("invalid offset `{offset:#}` of a period of {period:#}");
            let problem = Problem::new(wrong, "write whole seconds, less than the period");
            return Err(problem.under("offset"));
        }
        Ok(Self {
            seconds: period.as_secs(),
            offset: offset.as_secs(),
        })
    }

    /// Returns the period.
    pub fn period(self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds)
    }

    /// Returns the slot from which the others are counted: 1970-01-01T00:00:00Z plus the offset.
    pub fn origin(self) -> Timestamp {
        Timestamp::from_second(self.offset).unwrap_or_default()
    }

    /// Returns the number of slots after `after` and not after `until`.
    fn count(self, after: Timestamp, until: Timestamp) -> u64 {
        let number = |at: Timestamp| {
            let second = at.as_nanosecond().div_euclid(1_000_000_000) - i128::from(self.offset);
            second.div_euclid(i128::from(self.seconds))
        };
        u64::try_from(number(until) - number(after)).unwrap_or(0)
    }

    fn next(self, after: Timestamp) -> Option<Timestamp> {
        let second = after.as_nanosecond().div_euclid(1_000_000_000);
        self.slot(second, 1)
    }

    fn previous(self, before: Timestamp) -> Option<Timestamp> {
        // The last whole second before it.
        let second = (before.as_nanosecond() - 1).div_euclid(1_000_000_000);
        self.slot(second, 0)
    }

    /// Returns the slot that is so many after the last one that is not after a second.
    fn slot(self, second: i128, later: i128) -> Option<Timestamp> {
        let (seconds, offset) = (i128::from(self.seconds), i128::from(self.offset));
        let number = (second - offset).div_euclid(seconds) + later;
        let at = i64::try_from(number * seconds + offset).ok()?;
        Timestamp::from_second(at).ok()
    }
}

/// A rule for slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A cron expression, on the clocks of the schedule's zone.
    Cron(Cron),
    /// A period.
    Every(Every),
    /// One slot.
    At(Timestamp),
}

impl Rule {
    /// Reads a line of `cron`: an expression or `@every 5m`, for the schedule `name`.
    ///
    /// # Errors
    /// The first mistake with its place.
    pub fn parse(text: &str, dialect: Dialect, name: &str) -> Result<Self, Problem> {
        let words = text.trim_start();
        let at = text.len() - words.len();
        let period = words.split_at_checked("@every".len());
        let Some((_, period)) = period.filter(|(word, _)| word.eq_ignore_ascii_case("@every"))
        else {
            return Ok(Self::Cron(Cron::parse(text, dialect, name)?));
        };
        let place = at + "@every".len()..text.len();
        let duration = ganger_core::units::duration(period);
        let duration = duration.and_then(|period| SignedDuration::try_from(period).ok());
        let duration = duration.ok_or_else(|| {
            let wrong = format!("invalid duration {}", quoted(period.trim()));
            Problem::new(wrong, "write `@every 5m`").at(place.clone())
        })?;
        let every = Every::new(duration, SignedDuration::ZERO);
        let at_place = |problem: Problem| problem.under("").at(place);
        Ok(Self::Every(every.map_err(at_place)?))
    }
}

/// Slots of a schedule. Slots of several rules that fall on one instant are one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// At least one.
    pub rules: Vec<Rule>,
    /// Zone of the clocks that cron expressions mean.
    pub zone: Zone,
    /// Rule for changes of these clocks.
    pub dst: Dst,
}

/// Number of slots, as far as one call counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Number of slots.
    pub slots: u64,
    /// The last of them; `None` if there are none.
    pub last: Option<Timestamp>,
    /// Number of them that were counted one by one.
    pub steps: u64,
    /// True if there may be more, after `last`.
    pub is_cut: bool,
}

impl Timing {
    /// Returns the first slot after an instant; `None` if there is none.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub fn next(&self, after: Timestamp) -> Result<Option<Timestamp>, Broken> {
        Merge::new(self, after)?.next()
    }

    /// Returns the first slot of one rule after an instant. One that is not later would come for ever.
    fn next_of(&self, rule: &Rule, after: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let slot = match rule {
            Rule::Cron(cron) => self.wall(cron).next(after)?,
            Rule::Every(every) => every.next(after),
            Rule::At(at) => Some(*at).filter(|at| *at > after),
        };
        match slot {
            Some(slot) if slot <= after => Err(Broken(format!("slot after {after} is {slot}"))),
            _ => Ok(slot),
        }
    }

    /// Returns the last slot before an instant; `None` if there is none.
    ///
    /// # Errors
    /// If it can't be worked out.
    pub fn previous(&self, before: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let mut last = None;
        for rule in &self.rules {
            let slot = match rule {
                Rule::Cron(cron) => self.wall(cron).previous(before)?,
                Rule::Every(every) => every.previous(before),
                Rule::At(at) => Some(*at).filter(|at| *at < before),
            };
            last = last.max(slot);
        }
        match last {
            Some(slot) if slot >= before => Err(Broken(format!("slot before {before} is {slot}"))),
            _ => Ok(last),
        }
    }

    /// Returns the slots after `after` and not after `until`, at most `max`.
    ///
    /// # Errors
    /// If they can't be worked out.
    pub fn between(
        &self,
        after: Timestamp,
        until: Timestamp,
        max: usize,
    ) -> Result<Vec<Timestamp>, Broken> {
        let mut merge = Merge::new(self, after)?;
        let mut slots = Vec::new();
        while slots.len() < max
            && let Some(slot) = merge.next()?.filter(|slot| *slot <= until)
        {
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Counts the slots after `after` and not after `until`. Those of one rule are counted whole, by
    /// days or by division; of several, which may have slots in common, at most `max`.
    ///
    /// # Errors
    /// If they can't be worked out.
    pub fn count(&self, after: Timestamp, until: Timestamp, max: u64) -> Result<Count, Broken> {
        if let [rule] = &self.rules[..] {
            let slots = match rule {
                Rule::Cron(cron) => self.wall(cron).count(after, until)?,
                Rule::Every(every) => every.count(after, until),
                Rule::At(at) => u64::from(after < *at && *at <= until),
            };
            let next = until
                .checked_add(Duration::from_nanos(1))
                .map_err(|_| beyond(until))?;
            return Ok(Count {
                slots,
                last: self.previous(next)?.filter(|last| *last > after),
                steps: 0,
                is_cut: false,
            });
        }
        let mut count = Count {
            slots: 0,
            last: None,
            steps: 0,
            is_cut: false,
        };
        let mut slots = Merge::new(self, after)?;
        while let Some(slot) = slots.next()?.filter(|slot| *slot <= until) {
            if count.steps == max {
                count.is_cut = true;
                break;
            }
            count.steps += 1;
            (count.slots, count.last) = (count.steps, Some(slot));
        }
        Ok(count)
    }

    /// Returns true if all slots are periods, which go on by elapsed time when a clock is set back.
    pub fn is_by_elapsed_time(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.all(|rule| matches!(rule, Rule::Every(_)))
    }

    pub(crate) fn wall<'a>(&'a self, cron: &'a Cron) -> Wall<'a> {
        Wall {
            cron,
            zone: &self.zone,
            dst: self.dst,
        }
    }
}

/// Slots of all rules in order, each once: the next one of each rule is kept.
#[derive(Debug)]
struct Merge<'a> {
    timing: &'a Timing,
    heads: Vec<(&'a Rule, Option<Timestamp>)>,
}

impl<'a> Merge<'a> {
    fn new(timing: &'a Timing, after: Timestamp) -> Result<Self, Broken> {
        let head = |rule| Ok((rule, timing.next_of(rule, after)?));
        let heads = timing.rules.iter().map(head).collect::<Result<_, _>>()?;
        Ok(Self { timing, heads })
    }

    fn next(&mut self) -> Result<Option<Timestamp>, Broken> {
        let Some(first) = self.heads.iter().filter_map(|(_, head)| *head).min() else {
            return Ok(None);
        };
        for (rule, head) in &mut self.heads {
            if *head == Some(first) {
                *head = self.timing.next_of(rule, first)?;
            }
        }
        Ok(Some(first))
    }
}

#[cfg(test)]
mod tests;
