//! A schedule as it is written: in the configuration, in a request, in a row. All of these make one
//! [`Definition`], which is checked in one place.

mod written;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ganger_core::names::is_name;
use jiff::SignedDuration;

use crate::auto_disable;
use crate::calendar::{Calendar, Outside};
use crate::cron::Dialect;
use crate::expect::Expect;
use crate::overlap::Overlap;
use crate::problem::{Problem, quoted};
use crate::spec::{Misfire, Policy, Spec};
use crate::timing::{Every, Rule, Timing};
use crate::wall::Dst;
use crate::zone::{Zone, Zones};

pub use written::instant;

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
    /// Period.
    pub every: Option<Duration>,
    /// Offset of the period from 1970-01-01T00:00:00Z.
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
        // Values that depend on an unknown zone are checked as if in UTC.
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
        let only = self.only.as_ref().and_then(|only| {
            let within = |all: Vec<Problem>| all.into_iter().map(|p| p.within("only")).collect();
            problems.all(only.calendar(&known, zones).map_err(within))
        });
        self.check_name(&mut problems);
        self.check_numbers(&mut problems);
        self.check_durations(&mut problems);
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
                only: only.map(Arc::new),
                misfire: self.misfire,
                overlap: self.overlap,
                auto_disable: self.auto_disable,
                expect: self.expect,
                skips: BTreeSet::new(),
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
        if let Some(period) = self.every {
            let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
            let every = Every::new(signed(period), signed(self.offset.unwrap_or_default()));
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

    /// Checks the name: a key of the ledger, a part of a URL and a label.
    fn check_name(&self, problems: &mut Problems) {
        if !is_name(&self.name) {
            let wrong = format!("invalid name {}", quoted(&self.name));
            let right = "write 1 to 64 letters, digits, `_`, `.` and `-`, but not `.` or `..`";
            problems.add(Problem::new(wrong, right).under("name"));
        }
    }

    fn check_numbers(&self, problems: &mut Problems) {
        let waiting = match self.overlap {
            Overlap::Queue { max } => Some(u64::from(max)),
            Overlap::Allow | Overlap::Skip | Overlap::Replace => None,
        };
        let failures = self.auto_disable.map(|rules| rules.failures as u64);
        let made_up = u64::from(self.misfire.max);
        for (key, number, range) in [
            ("limit", self.limit, 1..=u64::MAX),
            ("misfire.max", Some(made_up), 0..=Misfire::MAX.into()),
            ("overlap.max", waiting, 1..=Overlap::QUEUE_MAX.into()),
            ("auto_disable.failures", failures, 1..=1000),
        ] {
            if let Some(number) = number.filter(|number| !range.contains(number)) {
                let right = match *range.end() {
                    u64::MAX => format!("write at least {}", range.start()),
                    end => format!("write {} to {end}", range.start()),
                };
                let problem = Problem::new(format!("{number} is out of range"), right);
                problems.add(problem.under(key));
            }
        }
        let is_one_by_one = matches!(self.overlap, Overlap::Allow | Overlap::Queue { .. });
        if self.misfire.policy == Policy::All && !is_one_by_one {
            let overlap = self.overlap.as_str();
            let wrong = format!("policy `all` with overlap `{overlap}` runs one slot of several");
            let right = "set overlap to `queue` or `allow`, or the policy to `once`";
            problems.add(Problem::new(wrong, right).under("misfire.policy"));
        }
    }

    fn check_durations(&self, problems: &mut Problems) {
        let Expect {
            within,
            finish,
            every,
        } = self.expect;
        let rules = self.auto_disable;
        let (none, any) = (Duration::ZERO, Duration::MAX);
        let some = Duration::from_nanos(1);
        for (key, duration, range) in [
            ("jitter", Some(self.jitter), none..=JITTER_MAX),
            (
                "misfire.grace",
                Some(self.misfire.grace),
                none..=Misfire::GRACE_MAX,
            ),
            (
                "auto_disable.window",
                rules.map(|rules| rules.window),
                some..=any,
            ),
            (
                "auto_disable.retry_after",
                rules.and_then(|rules| rules.retry_after),
                some..=any,
            ),
            ("expect.within", within, some..=any),
            ("expect.finish", finish, some..=any),
            ("expect.every", every, some..=any),
        ] {
            if let Some(duration) = duration.filter(|duration| !range.contains(duration)) {
                let (wrong, right) = match duration.is_zero() {
                    true => ("is not a time", "write at least `1s`, or leave it out"),
                    false => ("is too long", "write at most `7d`"),
                };
                let problem = Problem::new(format!("{duration:?} {wrong}"), right);
                problems.add(problem.under(key));
            }
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
        let days = problems.each("days", &self.days, written::weekdays);
        let hours = problems.each("hours", &self.hours, written::hours);
        let except = problems.each("except", &self.except, written::days);
        let zone = zone.unwrap_or_default();
        let calendar = Calendar::new(zone, days.concat(), hours, except, self.outside);
        let calendar = problems.unless(calendar);
        problems.or(calendar)?.ok_or_else(Vec::new)
    }
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
