//! Sets of bits that an expression is read into, and the days of a month that they allow. No text
//! and no zone.

use std::collections::BTreeSet;

use jiff::civil::{Date, Time};

/// A set of small numbers: the values of one field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bits(u64);

impl Bits {
    /// Returns the numbers from `first` to `last`, both within 0 and 62.
    fn range(first: i8, last: i8) -> Self {
        Self((u64::MAX << first) & ((2_u64 << last) - 1))
    }

    pub(super) fn insert(&mut self, number: i16) {
        self.0 |= 1_u64 << number;
    }

    pub(super) fn contains(self, number: i8) -> bool {
        self.at_least(number) == Some(number)
    }

    fn count(self) -> u64 {
        u64::from(self.0.count_ones())
    }

    /// Returns the numbers below this one.
    fn below(self, number: i8) -> Self {
        Self(self.0 & ((1_u64 << number) - 1))
    }

    /// Returns the smallest number that is not below this one.
    fn at_least(self, number: i8) -> Option<i8> {
        let rest = self.0 & (u64::MAX << number);
        let found = (rest != 0).then(|| rest.trailing_zeros())?;
        i8::try_from(found).ok()
    }

    /// Returns the largest number that is not above this one.
    fn at_most(self, number: i8) -> Option<i8> {
        let rest = self.0 & ((2_u64 << number) - 1);
        let found = rest.checked_ilog2()?;
        i8::try_from(found).ok()
    }
}

impl FromIterator<i16> for Bits {
    fn from_iter<I: IntoIterator<Item = i16>>(numbers: I) -> Self {
        let mut bits = Self::default();
        numbers.into_iter().for_each(|number| bits.insert(number));
        bits
    }
}

/// Times of day that an expression allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) hours: Bits,
    pub(super) minutes: Bits,
    pub(super) seconds: Bits,
}

impl Times {
    pub(super) fn first(self) -> Option<Time> {
        self.at_least(Time::midnight())
    }

    pub(super) fn last(self) -> Option<Time> {
        self.at_most(Time::MAX)
    }

    /// Returns the number of times of a day.
    pub(super) fn count(self) -> u64 {
        self.hours.count() * self.minutes.count() * self.seconds.count()
    }

    /// Returns the number of times that are before this one.
    pub(super) fn count_before(self, time: Time) -> u64 {
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let (of_minute, of_hour) = (
            self.seconds.count(),
            self.minutes.count() * self.seconds.count(),
        );
        let mut count = self.hours.below(hour).count() * of_hour;
        if self.hours.contains(hour) {
            count += self.minutes.below(minute).count() * of_minute;
            if self.minutes.contains(minute) {
                count += self.seconds.below(second).count();
            }
        }
        count
    }

    /// Returns the first time that is not before this one.
    pub(super) fn at_least(self, time: Time) -> Option<Time> {
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_least(second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = self.minutes.at_least(minute + 1) {
                return Time::new(hour, minute, self.seconds.at_least(0)?, 0).ok();
            }
        }
        let hour = self.hours.at_least(hour + 1)?;
        let (minute, second) = (self.minutes.at_least(0)?, self.seconds.at_least(0)?);
        Time::new(hour, minute, second, 0).ok()
    }

    /// Returns the last time that is not after this one.
    pub(super) fn at_most(self, time: Time) -> Option<Time> {
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        if self.hours.contains(hour) {
            if self.minutes.contains(minute)
                && let Some(second) = self.seconds.at_most(second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if minute > 0
                && let Some(minute) = self.minutes.at_most(minute - 1)
            {
                return Time::new(hour, minute, self.seconds.at_most(59)?, 0).ok();
            }
        }
        let hour = self
            .hours
            .at_most(hour.checked_sub(1).filter(|hour| *hour >= 0)?)?;
        let (minute, second) = (self.minutes.at_most(59)?, self.seconds.at_most(59)?);
        Time::new(hour, minute, second, 0).ok()
    }
}

/// Days that an expression allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// 1 to 31.
    pub(super) of_month: Bits,
    /// Days before the last one: `L` is 0, `L-3` is 3.
    pub(super) before_last: Bits,
    /// Days of which the nearest from Monday to Friday is meant: `15W`.
    pub(super) nearest_workday: Bits,
    /// Days before the last one, of which the nearest from Monday to Friday is meant: `LW` is 0, `L-3W` is 3.
    pub(super) nearest_before_last: Bits,
    /// 0 to 6, Sunday is 0.
    pub(super) of_week: Bits,
    /// `5#3`: day of the week, and its number within the month from 1 on.
    pub(super) nth: Vec<(i8, i8)>,
    /// `5L`.
    pub(super) last_of_week: Bits,
    /// True if a day must be allowed by day of month *and* day of week, false if one is enough.
    pub(super) by_both: bool,
    /// 1 to 12.
    pub(super) months: Bits,
    /// `None` for all.
    pub(super) years: Option<BTreeSet<i16>>,
}

/// Number of months after which the calendar repeats itself.
const MONTHS_OF_A_CYCLE: usize = 400 * 12;
/// Years among which there is one for each first day of the week, with and without a leap day.
const YEARS_OF_EACH_KIND: std::ops::RangeInclusive<i16> = 2001..=2028;

impl Days {
    pub(super) fn contains(&self, date: Date) -> bool {
        self.in_month(date.year(), date.month())
            .contains(date.day())
    }

    /// Returns the first day after this one.
    pub(super) fn after(&self, date: Date) -> Option<Date> {
        let (mut year, mut month, mut from) = (date.year(), date.month(), date.day() + 1);
        for _ in 0..MONTHS_OF_A_CYCLE {
            let allowed = match &self.years {
                Some(years) => *years.range(year..).next()?,
                None => year,
            };
            if allowed > year {
                (year, month, from) = (allowed, 1, 1);
            }
            if let Some(day) = self.in_month(year, month).at_least(from) {
                return Date::new(year, month, day).ok();
            }
            (year, month) = if month == 12 {
                (year + 1, 1)
            } else {
                (year, month + 1)
            };
            from = 1;
        }
        None
    }

    /// Returns the last day before this one.
    pub(super) fn before(&self, date: Date) -> Option<Date> {
        let (mut year, mut month, mut until) = (date.year(), date.month(), date.day() - 1);
        for _ in 0..MONTHS_OF_A_CYCLE {
            let allowed = match &self.years {
                Some(years) => *years.range(..=year).next_back()?,
                None => year,
            };
            if allowed < year {
                (year, month, until) = (allowed, 12, 31);
            }
            if let Some(day) = self.in_month(year, month).at_most(until) {
                return Date::new(year, month, day).ok();
            }
            (year, month) = if month == 1 {
                (year - 1, 12)
            } else {
                (year, month - 1)
            };
            until = 31;
        }
        None
    }

    /// Returns the number of days from `first` to before `end`.
    pub(super) fn count(&self, first: Date, end: Date) -> u64 {
        let (mut year, mut month, mut from) = (first.year(), first.month(), first.day());
        let mut count = 0;
        while (year, month) <= (end.year(), end.month()) {
            let is_last = (year, month) == (end.year(), end.month());
            let days = self.in_month(year, month);
            let days = match is_last {
                true => days.below(end.day()),
                false => days,
            };
            count += days.count() - days.below(from).count();
            (year, month) = if month == 12 {
                (year + 1, 1)
            } else {
                (year, month + 1)
            };
            from = 1;
        }
        count
    }

    /// Returns true if there is such a day in any year.
    pub(super) fn is_possible(&self) -> bool {
        let in_year = |year| (1..=12).any(|month| self.in_month(year, month) != Bits::default());
        match &self.years {
            Some(years) => years.iter().copied().any(in_year),
            None => YEARS_OF_EACH_KIND.into_iter().any(in_year),
        }
    }

    /// Returns the days of a month that are allowed; none outside the years of the calendar.
    fn in_month(&self, year: i16, month: i8) -> Bits {
        let is_allowed = |year| {
            self.years
                .as_ref()
                .is_none_or(|years| years.contains(&year))
        };
        let first = Date::new(year, month, 1).ok();
        let Some(first) = first.filter(|_| self.months.contains(month) && is_allowed(year)) else {
            return Bits::default();
        };
        let month = Month {
            length: first.days_in_month(),
            lead: first.weekday().to_sunday_zero_offset(),
        };
        let (of_month, of_week) = (self.by_day_of_month(month), self.by_day_of_week(month));
        Bits(match self.by_both {
            true => of_month.0 & of_week.0,
            false => of_month.0 | of_week.0,
        })
    }

    fn by_day_of_month(&self, month: Month) -> Bits {
        let mut days = Bits(self.of_month.0 & Bits::range(1, month.length).0);
        let from_end = |before: Bits| (0..month.length).filter(move |days| before.contains(*days));
        for before in from_end(self.before_last) {
            days.insert(i16::from(month.length - before));
        }
        let nearest = (1..=month.length).filter(|day| self.nearest_workday.contains(*day));
        nearest.for_each(|day| days.insert(i16::from(month.nearest_workday(day))));
        for before in from_end(self.nearest_before_last) {
            days.insert(i16::from(month.nearest_workday(month.length - before)));
        }
        days
    }

    fn by_day_of_week(&self, month: Month) -> Bits {
        let is_allowed = |day: &i8| {
            let weekday = month.weekday(*day);
            self.of_week.contains(weekday)
                || self.nth.contains(&(weekday, (day - 1) / 7 + 1))
                || (self.last_of_week.contains(weekday) && day + 7 > month.length)
        };
        (1..=month.length)
            .filter(is_allowed)
            .map(i16::from)
            .collect()
    }
}

/// The form of a month.
#[derive(Debug, Clone, Copy)]
struct Month {
    length: i8,
    /// Weekday of its first day, Sunday is 0.
    lead: i8,
}

impl Month {
    fn weekday(self, day: i8) -> i8 {
        (self.lead + day - 1) % 7
    }

    /// Returns the day from Monday to Friday that is nearest to a day, within the month.
    fn nearest_workday(self, day: i8) -> i8 {
        match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

/// An expression as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) times: Times,
    pub(super) days: Days,
    /// True if minute or hour begins with `*`.
    pub(super) is_interval: bool,
}
