//! Calendars: on which days and at which hours a schedule may run.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{Timestamp, ToSpan};

use crate::problem::{Broken, Problem};
use crate::words::words;
use crate::zone::{SECOND, Zone, beyond};

/// Number of steps from one opening to the next that a search takes at most: days, stretches of a
/// zone, and ranges of days that are left out.
const STEPS_MAX: usize = 100_000;
/// Number of spans of a day at most.
const HOURS_MAX: usize = 100;
/// Number of ranges of days that are left out at most.
const EXCEPT_MAX: usize = 10_000;

/// A span of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hours {
    from: Time,
    /// Its end, which no longer belongs to it; `None` for midnight.
    until: Option<Time>,
}

impl Hours {
    /// A whole day.
    pub const ALL: Self = Self {
        from: Time::midnight(),
        until: None,
    };

    /// Creates a span of whole seconds: from its first instant to before `until`, `None` for the end
    /// of the day.
    ///
    /// # Errors
    /// If it ends before it begins.
    pub fn new(from: Time, until: Option<Time>) -> Result<Self, Problem> {
        if until.is_some_and(|until| until <= from) {
            let right = "write two spans for hours over midnight";
            return Err(Problem::new("hours end before they begin", right));
        }
        Ok(Self { from, until })
    }

    fn contains(self, time: Time) -> bool {
        time >= self.from && self.until.is_none_or(|until| time < until)
    }
}

/// A range of days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateRange {
    first: Date,
    last: Date,
}

impl DateRange {
    /// Creates a range from its first day to its last.
    ///
    /// # Errors
    /// If the last is before the first.
    pub fn new(first: Date, last: Date) -> Result<Self, Problem> {
        if last < first {
            let wrong = format!("{last} is before {first}");
            return Err(Problem::new(wrong, "write the first day, then the last"));
        }
        Ok(Self { first, last })
    }
}

/// Rule for a slot outside a calendar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outside {
    /// It is skipped.
    #[default]
    Skip,
    /// It runs when the calendar opens next. Several of one closed span are one run.
    Next,
}

words!(Outside, "outside": "skip" => Skip, "next" => Next);

/// Days and hours at which a schedule may run, on the clocks of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    zone: Zone,
    days: Vec<Weekday>,
    hours: Vec<Hours>,
    /// Ranges of days that are left out, in order and without overlap.
    except: Vec<DateRange>,
    outside: Outside,
}

impl Calendar {
    /// Creates a calendar that is open on these days of the week at these hours, but for the ranges
    /// of days in `except`. No days are all days, and no hours all hours.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(
        zone: Zone,
        days: Vec<Weekday>,
        mut hours: Vec<Hours>,
        mut except: Vec<DateRange>,
        outside: Outside,
    ) -> Result<Self, Problem> {
        for (key, count, max) in [
            ("hours", hours.len(), HOURS_MAX),
            ("except", except.len(), EXCEPT_MAX),
        ] {
            if count > max {
                let wrong = format!("calendar has {count} spans");
                let problem = Problem::new(wrong, format!("write at most {max}"));
                return Err(problem.under(key));
            }
        }
        if hours.is_empty() {
            hours.push(Hours::ALL);
        }
        hours.sort_unstable();
        except.sort_unstable();
        Ok(Self {
            zone,
            days,
            hours: joined_hours(hours),
            except: joined_days(except),
            outside,
        })
    }

    /// Returns the rule for slots outside.
    pub fn outside(&self) -> Outside {
        self.outside
    }

    /// Returns true if a schedule may run at an instant.
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.is_open_at(self.zone.civil(at))
    }

    fn is_open_at(&self, civil: DateTime) -> bool {
        let mut hours = self.hours.iter();
        self.is_open_on(civil.date()) && hours.any(|hours| hours.contains(civil.time()))
    }

    fn is_open_on(&self, date: Date) -> bool {
        let is_a_day = self.days.is_empty() || self.days.contains(&date.weekday());
        is_a_day && self.exception(date).is_none()
    }

    /// Returns the range of days around this one that is left out.
    fn exception(&self, date: Date) -> Option<DateRange> {
        let after = self.except.partition_point(|range| range.first <= date);
        let range = *self.except.get(after.checked_sub(1)?)?;
        (date <= range.last).then_some(range)
    }

    /// Returns the first instant after one, in whole seconds, at which the calendar opens or closes.
    pub(crate) fn end(&self, mut at: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let is_open = self.is_open(at);
        for _ in 0..STEPS_MAX {
            let stretch = self.zone.stretch(at)?;
            let offset = stretch.offset;
            let Some(civil) = self.later(offset.to_datetime(at)) else {
                return Ok(None);
            };
            let next = offset.to_timestamp(civil).map_err(|_| beyond(at))?;
            at = match stretch.until {
                Some((until, _)) if until <= next => until,
                _ => next,
            };
            if self.is_open(at) != is_open {
                return Ok(Some(at));
            }
        }
        // Given up: thousands of days without a change.
        Ok(None)
    }

    /// Returns the last instant, not after one in whole seconds, at which the calendar opened or
    /// closed.
    pub(crate) fn begin(&self, mut at: Timestamp) -> Result<Option<Timestamp>, Broken> {
        let is_open = self.is_open(at);
        for _ in 0..STEPS_MAX {
            let stretch = self.zone.stretch(at)?;
            let offset = stretch.offset;
            let Some(civil) = self.earlier(offset.to_datetime(at)) else {
                return Ok(None);
            };
            let begin = offset.to_timestamp(civil).map_err(|_| beyond(at))?;
            let begin = match stretch.from {
                Some((from, _)) if from >= begin => from,
                _ => begin,
            };
            let Ok(before) = begin.checked_sub(SECOND) else {
                return Ok(None);
            };
            if self.is_open(before) != is_open {
                return Ok(Some(begin));
            }
            at = before;
        }
        Ok(None)
    }

    /// Returns true if it is open all the time, but for ranges of days.
    fn is_plain(&self) -> bool {
        let all = [0, 1, 2, 3, 4, 5, 6].map(|day| Weekday::from_sunday_zero_offset(day).ok());
        let has = |day: &Option<Weekday>| day.is_some_and(|day| self.days.contains(&day));
        self.hours == [Hours::ALL] && (self.days.is_empty() || all.iter().all(has))
    }

    /// Returns the first civil time after this one at which something may change: an hour that
    /// begins or ends, or midnight.
    fn later(&self, civil: DateTime) -> Option<DateTime> {
        let date = civil.date();
        if let Some(DateRange { last, .. }) = self.exception(date) {
            return Some(last.tomorrow().ok()?.to_datetime(Time::midnight()));
        }
        if self.is_plain() {
            let next = self.except.partition_point(|range| range.first <= date);
            return Some(self.except.get(next)?.first.to_datetime(Time::midnight()));
        }
        let edges = self
            .hours
            .iter()
            .flat_map(|hours| [Some(hours.from), hours.until]);
        let next = edges.flatten().filter(|edge| *edge > civil.time()).min();
        match next {
            Some(next) => Some(date.to_datetime(next)),
            None => Some(date.tomorrow().ok()?.to_datetime(Time::midnight())),
        }
    }

    /// Returns the last civil time that is not after this one at which something may have changed.
    fn earlier(&self, civil: DateTime) -> Option<DateTime> {
        let date = civil.date();
        let time = match self.exception(date) {
            Some(DateRange { first, .. }) if first > Date::MIN => {
                return Some(first.to_datetime(Time::midnight()));
            }
            Some(_) => return None,
            None => civil.time(),
        };
        if self.is_plain() {
            let before = self.except.partition_point(|range| range.first <= date);
            let DateRange { last, .. } = self.except.get(before.checked_sub(1)?)?;
            return Some(last.tomorrow().ok()?.to_datetime(Time::midnight()));
        }
        let edges = self
            .hours
            .iter()
            .flat_map(|hours| [Some(hours.from), hours.until]);
        let last = edges.flatten().filter(|edge| *edge <= time).max();
        Some(date.to_datetime(last.unwrap_or(Time::midnight())))
    }
}

/// Joins spans of a day that overlap or follow one another.
fn joined_hours(sorted: Vec<Hours>) -> Vec<Hours> {
    let mut all: Vec<Hours> = Vec::new();
    for hours in sorted {
        match all.last_mut() {
            Some(before) if before.until.is_none_or(|until| hours.from <= until) => {
                let ends = before.until.zip(hours.until);
                before.until = ends.map(|(one, other)| one.max(other));
            }
            _ => all.push(hours),
        }
    }
    all
}

/// Joins ranges of days that overlap or follow one another.
fn joined_days(sorted: Vec<DateRange>) -> Vec<DateRange> {
    let mut all: Vec<DateRange> = Vec::new();
    for range in sorted {
        match all.last_mut() {
            Some(before) if range.first <= before.last.saturating_add(1.day()) => {
                before.last = before.last.max(range.last);
            }
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};
    use proptest::prelude::*;

    use super::*;
    use crate::zone::Zones;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hours(from: i8, until: i8) -> Hours {
        Hours::new(time(from, 0, 0, 0), Some(time(until, 0, 0, 0))).unwrap()
    }

    const WORKDAYS: [Weekday; 5] = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
    ];

    fn office(hours: Vec<Hours>) -> Calendar {
        let zone = Zones::bundled().get("Europe/Berlin").unwrap();
        let except = [
            (date(2026, 12, 24), date(2026, 12, 26)),
            (date(2027, 1, 1), date(2027, 1, 1)),
            (date(2026, 12, 26), date(2026, 12, 31)),
        ];
        let except = except.map(|(first, last)| DateRange::new(first, last).unwrap());
        Calendar::new(
            zone,
            WORKDAYS.to_vec(),
            hours,
            except.to_vec(),
            Outside::Skip,
        )
        .unwrap()
    }

    /// Returns the longest span around an instant in which a calendar does not change.
    fn span(calendar: &Calendar, at: Timestamp) -> (bool, Option<Timestamp>, Option<Timestamp>) {
        let (begin, end) = (calendar.begin(at).unwrap(), calendar.end(at).unwrap());
        (calendar.is_open(at), begin, end)
    }

    #[test]
    fn a_span_reaches_as_far_as_nothing_changes() {
        let daily = office(vec![hours(9, 12), hours(13, 17)]);
        let days = office(vec![]);
        let table = [
            // A Friday, its break, and the weekend.
            (
                &daily,
                "2026-06-05T08:00Z",
                true,
                "2026-06-05T07:00Z",
                "2026-06-05T10:00Z",
            ),
            (
                &daily,
                "2026-06-05T10:00Z",
                false,
                "2026-06-05T10:00Z",
                "2026-06-05T11:00Z",
            ),
            (
                &daily,
                "2026-06-05T15:00Z",
                false,
                "2026-06-05T15:00Z",
                "2026-06-08T07:00Z",
            ),
            (
                &daily,
                "2026-06-06T12:00Z",
                false,
                "2026-06-05T15:00Z",
                "2026-06-08T07:00Z",
            ),
            (
                &days,
                "2026-06-03T12:00Z",
                true,
                "2026-05-31T22:00Z",
                "2026-06-05T22:00Z",
            ),
            // Over a change of the clock.
            (
                &days,
                "2026-03-28T12:00Z",
                false,
                "2026-03-27T23:00Z",
                "2026-03-29T22:00Z",
            ),
            // Holidays that follow one another, up to the weekend.
            (
                &days,
                "2026-12-28T12:00Z",
                false,
                "2026-12-23T23:00Z",
                "2027-01-03T23:00Z",
            ),
        ];
        for (calendar, instant, is_open, from, until) in table {
            let expected = (is_open, Some(at(from)), Some(at(until)));
            assert_eq!(span(calendar, at(instant)), expected, "{instant}");
        }
    }

    #[test]
    fn a_calendar_may_be_open_or_closed_for_ever() {
        let always = Calendar::new(Zone::default(), vec![], vec![], vec![], Outside::Skip).unwrap();
        let (is_open, _, until) = span(&always, at("2026-01-01T00:00Z"));
        assert_eq!((is_open, until), (true, None));
        let except = vec![DateRange::new(Date::MIN, Date::MAX).unwrap()];
        let never = Calendar::new(Zone::default(), vec![], vec![], except, Outside::Next).unwrap();
        assert_eq!(span(&never, at("2026-01-01T00:00Z")), (false, None, None));
    }

    #[test]
    fn what_ends_before_it_begins_is_refused() {
        let hours = Hours::new(time(22, 0, 0, 0), Some(time(4, 0, 0, 0)));
        assert_eq!(
            hours.unwrap_err().to_string(),
            "hours end before they begin: write two spans for hours over midnight"
        );
        let days = DateRange::new(date(2026, 2, 2), date(2026, 2, 1));
        assert_eq!(
            days.unwrap_err().to_string(),
            "2026-02-01 is before 2026-02-02: write the first day, then the last"
        );
    }

    #[test]
    fn a_calendar_has_a_bound() {
        let many = vec![hours(9, 17); HOURS_MAX + 1];
        let calendar = Calendar::new(Zone::default(), vec![], many, vec![], Outside::Skip);
        assert_eq!(
            calendar.unwrap_err().to_string(),
            "hours: calendar has 101 spans: write at most 100"
        );
    }

    proptest! {
        #[test]
        fn a_span_is_whole(second in 1_764_547_200i64..1_830_000_000, edge in 0..6i8) {
            let calendar = office(vec![hours(0, 2 + edge), hours(9, 17)]);
            let at = Timestamp::from_second(second).unwrap();
            let whole = span(&calendar, at);
            let (is_open, Some(from), Some(until)) = whole else {
                panic!("{whole:?}")
            };
            prop_assert!(from <= at && at < until);
            prop_assert_ne!(calendar.is_open(until), is_open);
            prop_assert_ne!(calendar.is_open(from - SECOND), is_open);
            let step = (until - from).get_seconds() / 7 + 1;
            let mut within = from;
            while within < until {
                prop_assert_eq!(span(&calendar, within), whole);
                within += jiff::SignedDuration::from_secs(step);
            }
        }
    }
}
