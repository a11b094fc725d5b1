//! Reads an expression. Of each mistake it says what is wrong, where, and what would be right.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fields::{Bits, Days, Fields, Times};
use crate::problem::{Problem, quoted};
use crate::spread::spread;
use crate::words::words;

/// Length of an expression at most, in bytes.
const LENGTH_MAX: usize = 1024;

/// A way to write days of the week.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// As in crontab files: Sunday is 0 and 7.
    #[default]
    Standard,
    /// As in Quartz: Sunday is 1, `?` stands in one of the two fields for days, `L` alone is
    /// Saturday.
    Quartz,
}

words!(Dialect, "dialect": "standard" => Standard, "quartz" => Quartz);

/// A piece of an expression, and its place.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Piece<'a> {
    fn range(self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    /// Splits at the first of these characters, which neither half keeps.
    fn split(self, by: char) -> (Self, Option<Self>) {
        let Some((before, after)) = self.text.split_once(by) else {
            return (self, None);
        };
        let rest = Piece {
            text: after,
            at: self.at + before.len() + by.len_utf8(),
        };
        (
            Piece {
                text: before,
                ..self
            },
            Some(rest),
        )
    }

    /// Returns the rest of a piece that ends with a character in either case.
    fn without_end(self, end: char) -> Option<Self> {
        let text = self.text.strip_suffix([end, end.to_ascii_lowercase()])?;
        Some(Piece { text, ..self })
    }

    fn is(self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// Returns the terms of a list.
    fn terms(self) -> impl Iterator<Item = Piece<'a>> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (term, others) = rest?.split(',');
            rest = others;
            Some(term)
        })
    }

    fn problem(self, wrong: impl Into<String>, right: impl Into<String>) -> Problem {
        Problem::new(wrong, right).at(self.range())
    }
}

fn words(text: &str) -> Vec<Piece<'_>> {
    let place = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    let words = text.split_ascii_whitespace();
    let pieces = words.map(|text| Piece {
        text,
        at: place(text),
    });
    pieces.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Year => "year",
        }
    }

    /// Returns the smallest and the largest value.
    fn bounds(self) -> (i16, i16) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
            Self::Year => (1970, 2199),
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &[
                "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
            ],
            Self::DayOfWeek => &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
            Self::Second | Self::Minute | Self::Hour | Self::DayOfMonth | Self::Year => &[],
        }
    }
}

/// Reads an expression; `H` is a hash of `name`.
pub(super) fn read(text: &str, dialect: Dialect, name: &str) -> Result<Fields, Problem> {
    if text.len() > LENGTH_MAX {
        let wrong = format!("expression has {} bytes", text.len());
        return Err(Problem::new(wrong, format!("write at most {LENGTH_MAX}")));
    }
    let words = words(text);
    if let Some(problem) = zone_of(&words) {
        return Err(problem);
    }
    if let Some(word) = words.first().filter(|word| word.text.starts_with('@')) {
        return match (expansion(*word), words.len()) {
            (Some(expansion), 1) => read(expansion, Dialect::Standard, name),
            (Some(_), _) => Err(word.problem(
                format!("{} is followed by further fields", quoted(word.text)),
                "write it alone",
            )),
            (None, _) => Err(unknown_macro(*word)),
        };
    }
    let (second, others) = match words.len() {
        6 | 7 => (Some(words[0]), &words[1..]),
        _ => (None, words.as_slice()),
    };
    let reader = Reader { dialect, name };
    match *others {
        [minute, hour, day, month, weekday] => {
            reader.fields(second, [minute, hour, day, month, weekday], None)
        }
        [minute, hour, day, month, weekday, year] => {
            reader.fields(second, [minute, hour, day, month, weekday], Some(year))
        }
        _ => {
            let place = words.get(7).map_or(0, |word| word.at);
            let wrong = match words.len() {
                1 => "expression has 1 field".to_owned(),
                fields => format!("expression has {fields} fields"),
            };
            let problem = Problem::new(
                wrong,
                "write 5 (minute, hour, day of month, month, day of week), 6 (second first) or 7 (year last)",
            );
            Err(problem.at(place..text.len()))
        }
    }
}

/// Returns the problem of a time zone within an expression: before its fields, as in some crons, or after them.
fn zone_of(words: &[Piece<'_>]) -> Option<Problem> {
    let (first, last) = (words.first()?, words.last()?);
    let (name, value) = first.split('=');
    let zone = match value {
        Some(zone) if name.is("CRON_TZ") || name.is("TZ") => zone,
        _ if words.len() > 1 && is_like_a_zone(last.text) => *last,
        _ => return None,
    };
    let named = match is_like_a_zone(zone.text) {
        true => zone.text,
        false => "Europe/Berlin",
    };
    let place = if value.is_some() { first } else { last };
    let wrong = format!("{} is no part of an expression", quoted(place.text));
    Some(place.problem(wrong, format!("remove it, and set zone = \"{named}\"")))
}

/// Returns true for `UTC`, and for names such as `Europe/Berlin`.
fn is_like_a_zone(text: &str) -> bool {
    let is_name = |part: &str| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-+".contains(c);
        part.starts_with(|c: char| c.is_ascii_uppercase()) && part.chars().all(is_of_name)
    };
    let is_place = text.contains('/') && text.contains(|c: char| c.is_ascii_lowercase());
    ["UTC", "GMT"].contains(&text) || is_place && text.split('/').all(is_name)
}

fn expansion(word: Piece<'_>) -> Option<&'static str> {
    let all = [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ];
    let found = all.into_iter().find(|(name, _)| word.is(name));
    found.map(|(_, expansion)| expansion)
}

fn unknown_macro(word: Piece<'_>) -> Problem {
    if word.is("@reboot") {
        return word.problem(
            "`@reboot` is not supported",
            "start the program with the service manager, or write a time",
        );
    }
    word.problem(
        format!("{} is unknown", quoted(word.text)),
        "write @hourly, @daily, @weekly, @monthly, @yearly or @every 5m",
    )
}

/// The values of a field.
fn range_of(kind: Kind, dialect: Dialect) -> &'static str {
    match (kind, dialect) {
        (Kind::Second | Kind::Minute, _) => "0 to 59",
        (Kind::Hour, _) => "0 to 23",
        (Kind::DayOfMonth, _) => "1 to 31, `L`, `LW` or `15W`",
        (Kind::Month, _) => "1 to 12 or JAN to DEC",
        (Kind::DayOfWeek, Dialect::Standard) => "0 to 7 (Sunday is 0 and 7) or SUN to SAT",
        (Kind::DayOfWeek, Dialect::Quartz) => "1 to 7 (Sunday is 1) or SUN to SAT",
        (Kind::Year, _) => "1970 to 2199",
    }
}

#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    dialect: Dialect,
    name: &'a str,
}

impl Reader<'_> {
    fn fields(
        self,
        second: Option<Piece<'_>>,
        others: [Piece<'_>; 5],
        year: Option<Piece<'_>>,
    ) -> Result<Fields, Problem> {
        let [minute, hour, day, month, weekday] = others;
        let seconds = match second {
            Some(second) => self.bits(Kind::Second, second)?,
            None => [0].into_iter().collect(),
        };
        let times = Times {
            seconds,
            minutes: self.bits(Kind::Minute, minute)?,
            hours: self.bits(Kind::Hour, hour)?,
        };
        let mut days = self.days(day, weekday)?;
        days.months = self.bits(Kind::Month, month)?;
        days.years = year.map(|year| self.years(year)).transpose()?.flatten();
        if !days.is_possible() {
            let (of, end, right) = match (&days.years, year) {
                (Some(_), Some(year)) => (
                    "these years",
                    year.range().end,
                    "choose a day that one of the months has in one of the years",
                ),
                _ => (
                    "any year",
                    weekday.range().end,
                    "choose a day that one of the months has",
                ),
            };
            let wrong = format!("there is no such day in {of}, so it never fires");
            return Err(Problem::new(wrong, right).at(day.at..end));
        }
        Ok(Fields {
            times,
            days,
            is_interval: minute.text.starts_with('*') || hour.text.starts_with('*'),
        })
    }

    fn bits(self, kind: Kind, field: Piece<'_>) -> Result<Bits, Problem> {
        let mut bits = Bits::default();
        for term in field.terms() {
            let values = self.values(kind, term)?;
            values.into_iter().for_each(|value| bits.insert(value));
        }
        Ok(bits)
    }

    fn years(self, field: Piece<'_>) -> Result<Option<BTreeSet<i16>>, Problem> {
        if field.text == "*" {
            return Ok(None);
        }
        let mut years = BTreeSet::new();
        for term in field.terms() {
            years.extend(self.values(Kind::Year, term)?);
        }
        Ok(Some(years))
    }

    fn days(self, day: Piece<'_>, weekday: Piece<'_>) -> Result<Days, Problem> {
        let is_any = |field: Piece<'_>| field.text.starts_with(['*', '?']);
        let by_both = is_any(day) || is_any(weekday);
        if !by_both && self.dialect == Dialect::Quartz {
            return Err(weekday.problem(
                "both day of month and day of week are given",
                "write `?` for one of them: Quartz doesn't say what both mean",
            ));
        }
        let mut days = Days {
            by_both,
            ..Days::default()
        };
        for term in day.terms() {
            self.day_of_month(&mut days, term, day)?;
        }
        for term in weekday.terms() {
            self.day_of_week(&mut days, term, weekday)?;
        }
        Ok(days)
    }

    fn day_of_month(
        self,
        days: &mut Days,
        term: Piece<'_>,
        field: Piece<'_>,
    ) -> Result<(), Problem> {
        let (start, before) = term.split('-');
        match before {
            None if term.is("L") => days.before_last.insert(0),
            None if term.is("LW") => days.nearest_before_last.insert(0),
            Some(before) if start.is("L") => {
                let (before, meant) = match before.without_end('W') {
                    Some(before) => (before, &mut days.nearest_before_last),
                    None => (before, &mut days.before_last),
                };
                let wrong = format!("{} is not a number of days", quoted(before.text));
                let number = small_number(before).filter(|number| (1..=30).contains(number));
                let problem = || before.problem(wrong, "write `L-1` to `L-30`");
                meant.insert(number.ok_or_else(problem)?);
            }
            _ => match term.without_end('W') {
                Some(nearest) => {
                    let day = self.number(Kind::DayOfMonth, nearest)?;
                    days.nearest_workday.insert(day);
                }
                None => {
                    let values = self.values_of_day(Kind::DayOfMonth, term, field)?;
                    values.into_iter().for_each(|day| days.of_month.insert(day));
                }
            },
        }
        Ok(())
    }

    fn day_of_week(
        self,
        days: &mut Days,
        term: Piece<'_>,
        field: Piece<'_>,
    ) -> Result<(), Problem> {
        if term.is("L") {
            if self.dialect == Dialect::Standard {
                return Err(term.problem(
                    "invalid day of week `L`",
                    "write `5L` for the last Friday of the month, or SAT for Saturdays",
                ));
            }
            days.of_week.insert(6);
        } else if let Some(weekday) = term.without_end('L') {
            let weekday = self.number(Kind::DayOfWeek, weekday)?;
            days.last_of_week.insert(weekday % 7);
        } else if let (weekday, Some(nth)) = term.split('#') {
            let weekday = self.number(Kind::DayOfWeek, weekday)? % 7;
            let number = small_number(nth).filter(|number| (1..=5).contains(number));
            let Some(number) = number else {
                let wrong = format!("{} is not a week of a month", quoted(nth.text));
                return Err(nth.problem(wrong, "write `#1` to `#5`, or `L` for the last one"));
            };
            let both = [weekday, number].map(i8::try_from);
            if let [Ok(weekday), Ok(number)] = both {
                days.nth.push((weekday, number));
            }
        } else {
            let values = self.values_of_day(Kind::DayOfWeek, term, field)?;
            values.into_iter().for_each(|day| days.of_week.insert(day));
        }
        Ok(())
    }

    fn values_of_day(
        self,
        kind: Kind,
        term: Piece<'_>,
        field: Piece<'_>,
    ) -> Result<Vec<i16>, Problem> {
        if !term.text.starts_with('?') {
            return self.values(kind, term);
        }
        let (min, max) = kind.bounds();
        match self.dialect {
            Dialect::Quartz if field.text == "?" => Ok((min..=max).collect()),
            Dialect::Quartz => Err(field.problem("`?` is not alone", "write `?` or a list")),
            Dialect::Standard => Err(term.problem(
                "`?` is of the dialect `quartz`",
                "write `*`, or set dialect = \"quartz\"",
            )),
        }
    }

    /// Returns the values of a term that is no special day.
    fn values(self, kind: Kind, term: Piece<'_>) -> Result<Vec<i16>, Problem> {
        let (base, step) = term.split('/');
        let step = step.map(|step| self.step(kind, step)).transpose()?;
        let (min, max) = kind.bounds();
        if base.text.starts_with(['H', 'h']) {
            return self.hashed(kind, base, step);
        }
        let (start, end) = match base.split('-') {
            (all, None) if all.text == "*" => (min, max),
            (only, None) => {
                let start = self.number(kind, only)?;
                (start, step.map_or(start, |_| self.last(kind)))
            }
            (start, Some(end)) => (self.number(kind, start)?, self.number(kind, end)?),
        };
        if end < start && kind == Kind::Year {
            return Err(base.problem("range of years ends before it begins", "swap the two"));
        }
        // A range such as 22-4 goes on at the smallest value.
        let size = max - min + 1;
        let end = if end < start { end + size } else { end };
        let values = (start..=end).step_by(step.unwrap_or(1));
        Ok(values.map(|value| min + (value - min) % size).collect())
    }

    /// Returns the last value of a term with a start and a step.
    fn last(self, kind: Kind) -> i16 {
        match (kind, self.dialect) {
            (Kind::DayOfWeek, Dialect::Standard) => 7,
            _ => kind.bounds().1,
        }
    }

    fn step(self, kind: Kind, step: Piece<'_>) -> Result<usize, Problem> {
        let (min, max) = kind.bounds();
        let number = small_number(step).filter(|number| (1..=max - min).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| {
            let article = if kind == Kind::Hour { "an" } else { "a" };
            let (shown, noun) = (quoted(step.text), kind.noun());
            let wrong = format!("{shown} is not a step of {article} {noun}");
            let right = format!("write 1 to {}; for longer periods use `every`", max - min);
            step.problem(wrong, right)
        })
    }

    /// Returns the values of `H`, `H(0-29)`, `H/15`, `H(0-29)/10`.
    fn hashed(self, kind: Kind, base: Piece<'_>, step: Option<usize>) -> Result<Vec<i16>, Problem> {
        let (min, max) = match kind {
            Kind::Year => return Err(base.problem("invalid year `H`", "write years or `*`")),
            // Those that each month has.
            Kind::DayOfMonth => (1, 28),
            _ => kind.bounds(),
        };
        let wrong = || {
            base.problem(
                format!("invalid hash {}", quoted(base.text)),
                "write H, H/15 or H(0-29)",
            )
        };
        let within = match base.split('(') {
            (hash, None) if hash.is("H") => (min, max),
            (hash, Some(inner)) if hash.is("H") => {
                let inner = inner.without_end(')').ok_or_else(wrong)?;
                let (first, last) = inner.split('-');
                let last = last.ok_or_else(wrong)?;
                (self.number(kind, first)?, self.number(kind, last)?)
            }
            _ => return Err(wrong()),
        };
        let (first, last) = within;
        if last < first || last > self.last(kind) {
            return Err(base.problem("range of a hash ends before it begins", "swap the two"));
        }
        let choices = match step {
            Some(step) => i16::try_from(step)
                .unwrap_or(i16::MAX)
                .min(last - first + 1),
            None => last - first + 1,
        };
        let bound = u64::try_from(choices).unwrap_or(1);
        let hash = spread(self.name, i64::from(kind as u8), bound);
        let start = first + i16::try_from(hash).unwrap_or(0);
        let last = step.map_or(start, |_| last);
        let values = (start..=last).step_by(step.unwrap_or(1));
        // Sunday may be 7.
        let (least, most) = kind.bounds();
        let wrapped = |value| least + (value - least) % (most - least + 1);
        Ok(values.map(wrapped).collect())
    }

    fn number(self, kind: Kind, piece: Piece<'_>) -> Result<i16, Problem> {
        let range = range_of(kind, self.dialect);
        let noun = kind.noun();
        let names = kind.names().iter();
        let named = names
            .zip(kind.bounds().0..)
            .find(|(name, _)| piece.is(name));
        if let Some((_, number)) = named {
            return Ok(number);
        }
        if piece.text.is_empty() {
            return Err(piece.problem(format!("{noun} is missing"), format!("write {range}")));
        }
        let shown = quoted(piece.text);
        if !piece.text.bytes().all(|byte| byte.is_ascii_digit()) {
            let wrong = format!("{noun} {shown} is not a number");
            return Err(piece.problem(wrong, format!("write {range}")));
        }
        // The numbers as they are written, and how far they are from our own.
        let (min, max, shift) = match (kind, self.dialect) {
            (Kind::DayOfWeek, Dialect::Standard) => (0, 7, 0),
            (Kind::DayOfWeek, Dialect::Quartz) => (1, 7, 1),
            _ => (kind.bounds().0, kind.bounds().1, 0),
        };
        let number = small_number(piece).filter(|number| (min..=max).contains(number));
        number.map(|number| number - shift).ok_or_else(|| {
            let wrong = format!("{noun} {shown} is out of range");
            piece.problem(wrong, format!("write {range}"))
        })
    }
}

fn small_number(piece: Piece<'_>) -> Option<i16> {
    let is_number = piece.text.bytes().all(|byte| byte.is_ascii_digit());
    piece.text.parse().ok().filter(|_| is_number)
}
