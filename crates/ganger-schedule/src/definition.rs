//! A schedule as it is written: in the configuration, in a request, in a row. All of these make one
//! [`Definition`], which is checked in one place.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::fmt::temporal::{Pieces, TimeZoneAnnotationKind};
use jiff::{SignedDuration, ToSpan};

use crate::auto_disable;
use crate::calendar::{Calendar, Hours, Outside};
use crate::cron::Dialect;
use crate::expect::Expect;
use crate::overlap::Overlap;
use crate::problem::{Problem, quoted};
use crate::spec::{Misfire, Spec};
use crate::timing::{Every, Rule, Timing};
use crate::wall::Dst;
use crate::zone::{Zone, Zones};

/// Number of expressions of one schedule.
const CRON_MAX: usize = 100;
/// Longest jitter.
const JITTER_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A schedule as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definition {
    /// Name.
    pub name: String,
    /// Cron expressions; this, `every` or `at`.
    pub cron: Vec<String>,
    /// Dialect of the expressions.
    pub dialect: Dialect,
    /// Pace.
    pub every: Option<Duration>,
    /// Offset of the pace from 1970-01-01T00:00:00Z.
    pub offset: Option<Duration>,
    /// The only slot: `2027-01-31T08:00:00[Europe/Istanbul]`, with an offset, or by the zone.
    pub at: Option<String>,
    /// Name of the zone; else UTC.
    pub zone: Option<String>,
    /// Rule for summer time.
    pub dst: Dst,
    /// Time over which slots are spread.
    pub jitter: Duration,
    /// No slot is before it: a day or a time, written as `at`.
    pub start: Option<String>,
    /// No slot is after it: a time, written as `at`, or a day, which still belongs to it.
    pub end: Option<String>,
    /// Number of dispatches after which the schedule has ended.
    pub limit: Option<u64>,
    /// Calendar.
    pub only: Option<CalendarDefinition>,
    /// Rules for missed slots.
    pub misfire: Misfire,
    /// Rule for overlapping runs.
    pub overlap: Overlap,
    /// Rules for disabling.
    pub auto_disable: Option<auto_disable::Rules>,
    /// Expectations.
    pub expect: Expect,
}

/// A calendar as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CalendarDefinition {
    /// Name of the zone; else the schedule's.
    pub zone: Option<String>,
    /// Days of the week or ranges of them: `MON-FRI`, `SUN`. None are all.
    pub days: Vec<String>,
    /// Spans of a day: `09:00-17:30`. None are the whole day.
    pub hours: Vec<String>,
    /// Days or ranges of days that are left out: `2026-12-24`, `2026-12-24..2026-12-26`.
    pub except: Vec<String>,
    /// Rule for slots outside.
    pub outside: Outside,
}

impl Definition {
    /// Checks a definition.
    ///
    /// # Errors
    /// Every problem, each with its key.
    pub fn spec(&self, zones: &Zones) -> Result<Spec, Vec<Problem>> {
        let mut problems = Problems::default();
        let zone = match &self.zone {
            Some(name) => problems.unless(zones.get(name).map_err(|p| p.under("zone"))),
            None => Some(Zone::default()),
        };
        // What depends on an unknown zone is checked as if in UTC.
        let known = zone.clone().unwrap_or_default();
        let rules = problems.all(self.rules(&known, zones));
        let instant = |text: &Option<String>, key, is_end| {
            let text = text.as_ref()?;
            Some(instant(text, &known, zones, is_end).map_err(|problem| problem.under(key)))
        };
        let start = problems.unless_given(instant(&self.start, "start", false));
        let end = problems.unless_given(instant(&self.end, "end", true));
        if let (Some(start), Some(end)) = (start, end)
            && end < start
        {
            let wrong = format!("{end} is before start, {start}");
            problems.add(Problem::new(wrong, "write a later end").under("end"));
        }
        let only = self.only.as_ref().map(|only| only.calendar(&known, zones));
        let only = only.and_then(|only| problems.all(only));
        self.check_numbers(&mut problems);
        match (rules, zone, problems.0.is_empty()) {
            (Some(rules), Some(zone), true) => Ok(Spec {
                name: self.name.clone(),
                timing: Timing {
                    rules,
                    zone,
                    dst: self.dst,
                },
                jitter: self.jitter,
                start,
                end,
                limit: self.limit,
                only,
                misfire: self.misfire,
                overlap: self.overlap,
                auto_disable: self.auto_disable,
                expect: self.expect,
            }),
            _ => Err(problems.0),
        }
    }

    fn rules(&self, zone: &Zone, zones: &Zones) -> Result<Vec<Rule>, Vec<Problem>> {
        let given = [
            ("cron", !self.cron.is_empty()),
            ("every", self.every.is_some()),
            ("at", self.at.is_some()),
        ];
        let given: Vec<&str> = given
            .iter()
            .filter(|(_, is)| *is)
            .map(|(key, _)| *key)
            .collect();
        let [key] = given[..] else {
            let wrong = match given.as_slice() {
                [] => "schedule has no time".to_owned(),
                several => format!("schedule has {}", several.join(" and ")),
            };
            let problem = Problem::new(wrong, "write one of `cron`, `every` and `at`");
            return Err(vec![problem]);
        };
        if self.offset.is_some() && key != "every" {
            let problem = Problem::new(format!("`{key}` has no offset"), "remove it");
            return Err(vec![problem.under("offset")]);
        }
        if let Some(pace) = self.every {
            let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
            let every = Every::new(signed(pace), signed(self.offset.unwrap_or_default()));
            return every
                .map(|every| vec![Rule::Every(every)])
                .map_err(|problem| vec![problem]);
        }
        if let Some(text) = &self.at {
            let at = instant(text, zone, zones, false);
            let at = at.map_err(|problem| vec![problem.under("at")]);
            return Ok(vec![Rule::At(at?)]);
        }
        self.expressions()
    }

    fn expressions(&self) -> Result<Vec<Rule>, Vec<Problem>> {
        if self.cron.len() > CRON_MAX {
            let wrong = format!("schedule has {} expressions", self.cron.len());
            let problem = Problem::new(wrong, format!("write at most {CRON_MAX}"));
            return Err(vec![problem.under("cron")]);
        }
        let mut problems = Problems::default();
        let mut rules = Vec::new();
        for (index, text) in self.cron.iter().enumerate() {
            let key = match self.cron.len() {
                1 => "cron".to_owned(),
                _ => format!("cron[{index}]"),
            };
            let rule = Rule::parse(text, self.dialect, &self.name);
            rules.extend(problems.unless(rule.map_err(|problem| problem.under(key))));
        }
        problems.or(rules)
    }

    fn check_numbers(&self, problems: &mut Problems) {
        let mut refuse = |key: &str, is_wrong: bool, wrong: String, right: &str| {
            if is_wrong {
                problems.add(Problem::new(wrong, right).under(key));
            }
        };
        let (jitter, max) = (self.jitter, self.misfire.max);
        refuse(
            "name",
            self.name.is_empty(),
            "name is empty".to_owned(),
            "write one",
        );
        refuse(
            "jitter",
            jitter > JITTER_MAX,
            format!("{jitter:?} is too long"),
            "write at most `7d`",
        );
        refuse(
            "limit",
            self.limit == Some(0),
            "limit is 0".to_owned(),
            "write at least 1, or pause the schedule",
        );
        refuse(
            "misfire.max",
            max > Misfire::MAX,
            format!("{max} is too many"),
            "write 0 to 1000",
        );
        if let Some(rules) = self.auto_disable {
            let is_wrong = !(1..=1000).contains(&rules.failures);
            let wrong = format!("{} failures are out of range", rules.failures);
            refuse("auto_disable.failures", is_wrong, wrong, "write 1 to 1000");
        }
    }
}

impl CalendarDefinition {
    /// Checks a calendar; `zone` is the schedule's.
    ///
    /// # Errors
    /// Every problem, each with its key within the calendar's.
    pub fn calendar(&self, zone: &Zone, zones: &Zones) -> Result<Calendar, Vec<Problem>> {
        let mut problems = Problems::default();
        let zone = match &self.zone {
            Some(name) => problems.unless(zones.get(name).map_err(|p| p.under("zone"))),
            None => Some(zone.clone()),
        };
        let days = problems.each("days", &self.days, weekdays);
        let hours = problems.each("hours", &self.hours, hours);
        let except = problems.each("except", &self.except, range_of_days);
        let zone = zone.unwrap_or_default();
        let calendar = Calendar::new(zone, days.concat(), hours, except, self.outside);
        let calendar = problems.unless(calendar);
        let calendar = problems.or(calendar).map_err(|mut all| {
            for problem in &mut all {
                problem.key = format!("only.{}", problem.key);
            }
            all
        });
        calendar?.ok_or_else(Vec::new)
    }
}

fn weekdays(text: &str) -> Result<Vec<Weekday>, Problem> {
    let names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let number = |name: &str| {
        names
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name.trim()))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        let wrong = format!("{} is no day of the week", quoted(text));
        return Err(Problem::new(
            wrong,
            "write SUN to SAT, or a range such as MON-FRI",
        ));
    };
    let last = if last < first { last + 7 } else { last };
    let days = (first..=last).map(|day| i8::try_from(day % 7));
    let days = days.filter_map(|day| Weekday::from_sunday_zero_offset(day.ok()?).ok());
    Ok(days.collect())
}

fn hours(text: &str) -> Result<Hours, Problem> {
    let read = || {
        let (from, until) = text.split_once('-')?;
        let time = |text: &str| text.trim().parse::<Time>().ok().filter(is_whole);
        let until = match until.trim() {
            "24:00" | "24" => None,
            until => Some(time(until)?),
        };
        // Midnight as an end is that of the next day.
        let until = until.filter(|until| *until != Time::midnight());
        Some(Hours {
            from: time(from)?,
            until,
        })
    };
    read().ok_or_else(|| {
        let wrong = format!("{} is no span of a day", quoted(text));
        Problem::new(wrong, "write `09:00-17:30`")
    })
}

fn is_whole(time: &Time) -> bool {
    time.subsec_nanosecond() == 0
}

fn range_of_days(text: &str) -> Result<(Date, Date), Problem> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let read = |text: &str| text.trim().parse::<Date>().ok();
    read(first).zip(read(last)).ok_or_else(|| {
        let wrong = format!("{} is no day", quoted(text));
        Problem::new(wrong, "write `2026-12-24` or `2026-12-24..2026-12-26`")
    })
}

/// Reads an instant: by its offset, its zone, or `zone`. A day alone is its midnight, as an end its
/// last second.
///
/// # Errors
/// If it is no instant, or its zone is unknown.
pub fn instant(text: &str, zone: &Zone, zones: &Zones, is_end: bool) -> Result<Timestamp, Problem> {
    let wrong = || {
        let wrong = format!("{} is no time", quoted(text));
        Problem::new(
            wrong,
            "write `2027-01-31T08:00:00`, with `Z`, `+01:00` or `[Europe/Berlin]` at its end",
        )
    };
    let pieces = Pieces::parse(text.trim()).map_err(|_| wrong())?;
    let time = pieces.time().unwrap_or(Time::midnight());
    if !is_whole(&time) {
        return Err(Problem::new(
            format!("{} has a part of a second", quoted(text)),
            "write whole seconds",
        ));
    }
    let mut civil = pieces.date().to_datetime(time);
    if is_end && pieces.time().is_none() {
        civil = civil
            .checked_add(1.day())
            .and_then(|next| next.checked_sub(1.second()))
            .map_err(|_| wrong())?;
    }
    let mut offset = pieces.to_numeric_offset();
    let mut named = None;
    match pieces
        .time_zone_annotation()
        .map(jiff::fmt::temporal::TimeZoneAnnotation::kind)
    {
        Some(TimeZoneAnnotationKind::Named(name)) => named = Some(zones.get(name.as_str())?),
        Some(TimeZoneAnnotationKind::Offset(zone)) => offset = offset.or(Some(*zone)),
        Some(_) | None => {}
    }
    let Some(offset) = offset else {
        let zone = named.as_ref().unwrap_or(zone);
        return zone.instant(civil).map_err(|_| wrong());
    };
    let at = offset.to_timestamp(civil).map_err(|_| wrong())?;
    if named.is_some_and(|zone| zone.civil(at) != civil) {
        let wrong = format!("{} has an offset that its zone has not then", quoted(text));
        return Err(Problem::new(wrong, "leave out the offset"));
    }
    Ok(at)
}

/// Problems so far.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    fn unless<T>(&mut self, value: Result<T, Problem>) -> Option<T> {
        value.map_err(|problem| self.add(problem)).ok()
    }

    fn unless_given<T>(&mut self, value: Option<Result<T, Problem>>) -> Option<T> {
        value.and_then(|value| self.unless(value))
    }

    fn all<T>(&mut self, value: Result<T, Vec<Problem>>) -> Option<T> {
        value.map_err(|problems| self.0.extend(problems)).ok()
    }

    /// Reads each text of a list.
    fn each<T>(
        &mut self,
        key: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<T, Problem>,
    ) -> Vec<T> {
        let read_one = |(index, text): (usize, &String)| {
            let value = read(text).map_err(|problem| problem.under(format!("{key}[{index}]")));
            self.unless(value)
        };
        texts.iter().enumerate().filter_map(read_one).collect()
    }

    fn or<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.0)
        }
    }
}

#[cfg(test)]
mod tests;
