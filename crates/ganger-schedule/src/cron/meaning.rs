//! The meaning of an expression in words, a line for each field.

use std::ops::RangeInclusive;

use super::fields::{Bits, Days, Fields, Times};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Returns a line for each part of an expression: its label and its meaning.
pub(super) fn meaning(fields: &Fields) -> Vec<(&'static str, String)> {
    let Fields { times, days, .. } = fields;
    let mut lines = times_of_day(*times);
    lines.push(("days", days_in_words(days)));
    lines.push((
        "months",
        named(days.months, 1..=12, |month| name(&MONTHS, month - 1)),
    ));
    if let Some(years) = &days.years {
        let years: Vec<i16> = years.iter().copied().collect();
        lines.push(("years", list(&values(&years, |year| year.to_string()))));
    }
    lines
}

fn times_of_day(times: Times) -> Vec<(&'static str, String)> {
    let number = |value: i16| value.to_string();
    let mut lines = vec![
        ("hours", named(times.hours, 0..=23, number)),
        ("minutes", named(times.minutes, 0..=59, number)),
    ];
    if numbers(times.seconds) != [0] {
        lines.push(("seconds", named(times.seconds, 0..=59, number)));
    }
    lines
}

fn days_in_words(days: &Days) -> String {
    let of_month = days_of_month(days);
    let of_week = days_of_week(days);
    match (of_month, of_week) {
        (None, None) => "every day".to_owned(),
        (Some(only), None) | (None, Some(only)) if days.by_both => only,
        // Every day is among what one of the two allows.
        (Some(_), None) | (None, Some(_)) => "every day".to_owned(),
        (Some(of_month), Some(of_week)) => {
            let both = if days.by_both { "if also" } else { "and also" };
            format!("{of_month}, {both} {of_week}")
        }
    }
}

/// Returns `None` for all days of the month.
fn days_of_month(days: &Days) -> Option<String> {
    let plain = numbers(days.of_month);
    if plain.len() == 31 {
        return None;
    }
    let mut parts = values(&plain, |day| day.to_string());
    let before_last = |before| match before {
        0 => "the last day".to_owned(),
        1 => "the day before the last".to_owned(),
        days => format!("{days} days before the last"),
    };
    parts.extend(numbers(days.before_last).into_iter().map(before_last));
    for day in numbers(days.nearest_workday) {
        parts.push(format!("the day from Monday to Friday nearest to {day}"));
    }
    for before in numbers(days.nearest_before_last) {
        let day = match before {
            0 => "the last".to_owned(),
            before => before_last(before),
        };
        parts.push(format!("the day from Monday to Friday nearest to {day}"));
    }
    Some(format!("{} of the month", list(&parts)))
}

/// Returns `None` for all days of the week.
fn days_of_week(days: &Days) -> Option<String> {
    let plain = numbers(days.of_week);
    if plain.len() == 7 {
        return None;
    }
    let weekday = |day: i16| name(&WEEKDAYS, day);
    let mut parts = values(&plain, weekday);
    for (day, nth) in &days.nth {
        let nth = ["first", "second", "third", "fourth", "fifth"]
            .get(usize::try_from(nth - 1).unwrap_or(0))
            .unwrap_or(&"fifth");
        parts.push(format!(
            "the {nth} {} of the month",
            weekday(i16::from(*day))
        ));
    }
    for day in numbers(days.last_of_week) {
        parts.push(format!("the last {} of the month", weekday(day)));
    }
    Some(list(&parts))
}

/// Writes the values of a field that can have all of `range`.
fn named(bits: Bits, range: RangeInclusive<i16>, name: impl Fn(i16) -> String) -> String {
    let numbers = numbers(bits);
    match range.eq(numbers.iter().copied()) {
        true => "all".to_owned(),
        false => list(&values(&numbers, name)),
    }
}

/// Returns values in words: many of equal steps as such, else three neighbours or more as a range.
fn values(numbers: &[i16], name: impl Fn(i16) -> String) -> Vec<String> {
    if let [first, second, _, .., last] = numbers {
        let step = second - first;
        let is_even = numbers.windows(2).all(|pair| pair[1] - pair[0] == step);
        if is_even && step > 1 {
            return vec![format!(
                "{} to {} in steps of {step}",
                name(*first),
                name(*last)
            )];
        }
    }
    let mut parts = Vec::new();
    let mut rest = numbers;
    while let [first, ..] = rest {
        let length = (*first..).zip(rest).take_while(|(a, b)| a == *b).count();
        let (run, others) = rest.split_at(length);
        rest = others;
        match run {
            [first, _, .., last] if run.len() > 2 => {
                parts.push(format!("{} to {}", name(*first), name(*last)));
            }
            few => parts.extend(few.iter().map(|number| name(*number))),
        }
    }
    parts
}

fn list(parts: &[String]) -> String {
    match parts {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn numbers(bits: Bits) -> Vec<i16> {
    (0..=62)
        .filter(|number| bits.contains(*number))
        .map(i16::from)
        .collect()
}

fn name(names: &[&str], index: i16) -> String {
    let name = usize::try_from(index)
        .ok()
        .and_then(|index| names.get(index));
    name.copied().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::Dialect;
    use crate::cron::parse::read;

    #[test]
    fn each_part_is_said_in_words() {
        for (text, label, expected) in [
            ("*/15 * * * *", "minutes", "0 to 45 in steps of 15"),
            ("0,30 * * * *", "minutes", "0 and 30"),
            ("* * * * *", "minutes", "all"),
            ("0 8-18,22 * * *", "hours", "8 to 18 and 22"),
            ("0 22-1 * * *", "hours", "0, 1, 22 and 23"),
            ("5 0 0 * * *", "seconds", "5"),
            ("0 0 * * *", "days", "every day"),
            ("0 0 * * 0-6", "days", "every day"),
            (
                "0 0 1,15,L * *",
                "days",
                "1, 15 and the last day of the month",
            ),
            (
                "0 0 L-1,L-3 * *",
                "days",
                "the day before the last and 3 days before the last of the month",
            ),
            (
                "0 0 15W,LW * *",
                "days",
                "the day from Monday to Friday nearest to 15 and the day from Monday to Friday nearest to the last of the month",
            ),
            (
                "0 0 L-3W * *",
                "days",
                "the day from Monday to Friday nearest to 3 days before the last of the month",
            ),
            ("0 0 * * MON-FRI", "days", "Monday to Friday"),
            (
                "0 0 * * 5#3,1L",
                "days",
                "the third Friday of the month and the last Monday of the month",
            ),
            ("0 0 1 * MON", "days", "1 of the month, and also Monday"),
            (
                "0 0 */2 * MON",
                "days",
                "1 to 31 in steps of 2 of the month, if also Monday",
            ),
            ("0 0 * JAN,DEC *", "months", "January and December"),
            ("0 0 0 1 1 * 2027-2030", "years", "2027 to 2030"),
        ] {
            let fields = read(text, Dialect::Standard, "name").unwrap();
            let lines = meaning(&fields);
            let found = lines.iter().find(|(name, _)| *name == label);
            assert_eq!(
                found.map(|(_, words)| words.as_str()),
                Some(expected),
                "{text}"
            );
        }
    }
}
