//! Expressions of Cronos, the library that Milvaion and Hangfire use, in the standard dialect. Source:
//! <https://github.com/HangfireIO/Cronos>. They differ in three points: `?` is `*`, there are two more
//! macros, and if both day fields are restricted, both must match.

use crate::problem::{Problem, quoted};

const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Returns an expression in the standard dialect, and the days of the week to which a calendar has to
/// limit its slots besides; none are all.
pub(super) fn translated(text: &str) -> Result<(String, Vec<String>), Problem> {
    let mut fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let macros = [
        ("@every_second", "* * * * * *"),
        ("@every_minute", "* * * * *"),
    ];
    if let [one] = fields[..]
        && one.starts_with('@')
    {
        let found = macros
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(one));
        let cron = found.map_or(one, |(_, cron)| cron);
        return Ok((cron.to_owned(), Vec::new()));
    }
    for field in &mut fields {
        if *field == "?" {
            *field = "*";
        }
    }
    let mut days = Vec::new();
    if let [.., day, _, weekday] = fields.as_mut_slice()
        && ![*day, *weekday].iter().any(|field| field.starts_with('*'))
    {
        days = weekdays(weekday)?;
        *weekday = "*";
    }
    Ok((fields.join(" "), days))
}

/// Returns the names of the days of a field.
fn weekdays(field: &str) -> Result<Vec<String>, Problem> {
    let mut all = [false; 7];
    for term in field.split(',') {
        for day in term_days(term).ok_or_else(|| no_days(field))? {
            all[day % 7] = true;
        }
    }
    let days = WEEKDAYS.iter().zip(all).filter(|(_, is)| *is);
    Ok(days.map(|(day, _)| (*day).to_owned()).collect())
}

/// Returns the days of a term: a day, a range or a step.
fn term_days(term: &str) -> Option<Vec<usize>> {
    let (base, step) = match term.split_once('/') {
        Some((base, step)) => (base, Some(step.parse().ok().filter(|step| *step > 0)?)),
        None => (term, None),
    };
    let (first, last) = match base.split_once('-') {
        Some((first, last)) => (weekday(first)?, weekday(last)?),
        None => {
            let first = weekday(base)?;
            (first, step.map_or(first, |_| 7))
        }
    };
    let last = if last < first { last + 7 } else { last };
    Some((first..=last).step_by(step.unwrap_or(1)).collect())
}

fn weekday(text: &str) -> Option<usize> {
    let by_name = WEEKDAYS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    by_name.or_else(|| text.parse().ok().filter(|day| *day <= 7))
}

fn no_days(field: &str) -> Problem {
    let wrong = format!(
        "both days must match, and {} is no list of days",
        quoted(field)
    );
    Problem::new(
        wrong,
        "write `*` for one of the two days, and let the worker check the other",
    )
}
