//! Cron expressions: which civil times they mean. Zones and summer time are not known here.
//!
//! Of 5 fields (minute, hour, day of month, month, day of week), 6 (second first) or 7 (year last).
//! A field is `*`, a value, a range, a step, or a list of these; ranges wrap around (`22-4`,
//! `FRI-MON`). `L`, `L-3`, `LW`, `L-3W` and `15W` are days of a month, `5L` and `5#3` those of a week. `H`
//! is a hash of the schedule's name, `H(0-29)` one within a range, `H/15` a step from one on. A day
//! counts if day of month *or* day of week allows it; if one of the two begins with `*`, both must.
//!
//! A parser of our own: none that is published says where a mistake is, knows `H`, or separates
//! civil times from their instants; those are what can go wrong here.

mod fields;
mod meaning;
mod parse;

use jiff::civil::DateTime;

use fields::Fields;
pub use parse::Dialect;

use crate::problem::Problem;

/// A cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    fields: Fields,
}

impl Cron {
    /// Reads an expression of the schedule `name`, which is what `H` hashes.
    ///
    /// # Errors
    /// The first mistake with its place, or that there is no such day in any year.
    pub fn parse(text: &str, dialect: Dialect, name: &str) -> Result<Self, Problem> {
        let fields = parse::read(text, dialect, name)?;
        let text = text.to_owned();
        Ok(Self { text, fields })
    }

    /// Returns the expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if minute or hour begins with `*`: the expression is an interval, which goes on in
    /// real time when the clock is changed. Any other means times of the clock.
    pub fn is_interval(&self) -> bool {
        self.fields.is_interval
    }

    /// Returns the meaning in words, a line for each part: its label and its values.
    pub fn meaning(&self) -> Vec<(&'static str, String)> {
        meaning::meaning(&self.fields)
    }

    /// Returns the first civil time that is not before `from`, in whole seconds.
    pub fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let Fields { times, days, .. } = &self.fields;
        let date = from.date();
        if days.contains(date)
            && let Some(time) = times.at_least(from.time())
        {
            return Some(date.to_datetime(time));
        }
        Some(days.after(date)?.to_datetime(times.first()?))
    }

    /// Returns the last civil time that is not after `until`, in whole seconds.
    pub fn at_or_before(&self, until: DateTime) -> Option<DateTime> {
        let Fields { times, days, .. } = &self.fields;
        let date = until.date();
        if days.contains(date)
            && let Some(time) = times.at_most(until.time())
        {
            return Some(date.to_datetime(time));
        }
        Some(days.before(date)?.to_datetime(times.last()?))
    }

    /// Returns the number of civil times from `from` to before `end`.
    pub fn count(&self, from: DateTime, end: DateTime) -> u64 {
        if end <= from {
            return 0;
        }
        let Fields { times, days, .. } = &self.fields;
        let before = |civil: DateTime| match days.contains(civil.date()) {
            true => times.count_before(civil.time()),
            false => 0,
        };
        days.count(from.date(), end.date()) * times.count() + before(end) - before(from)
    }
}

#[cfg(test)]
mod tests;
