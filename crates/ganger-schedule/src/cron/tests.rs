//! Tests expressions by tables: what they mean, and what is said of those that are wrong.

use jiff::civil::{DateTime, date};
use proptest::prelude::*;

use super::*;

fn standard(text: &str) -> Cron {
    Cron::parse(text, Dialect::Standard, "name")
        .unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

fn quartz(text: &str) -> Cron {
    Cron::parse(text, Dialect::Quartz, "name").unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

/// Returns the next civil times from the beginning of 2026 on, which begins on a Thursday.
fn times(cron: &Cron, count: usize) -> Vec<String> {
    let start = date(2026, 1, 1).at(0, 0, 0, 0);
    let next = |from: &DateTime| cron.at_or_after(*from + jiff::SignedDuration::from_secs(1));
    let all = std::iter::successors(cron.at_or_after(start), next);
    all.take(count).map(|at| at.to_string()).collect()
}

/// Returns the days of the next civil times, in one line.
fn days(cron: &Cron, count: usize) -> String {
    let days: Vec<String> = times(cron, count)
        .iter()
        .map(|time| time[5..10].to_owned())
        .collect();
    days.join(" ")
}

#[test]
fn fields_have_values_ranges_steps_and_lists() {
    for (text, expected) in [
        ("*/20 * * * *", "00:00 00:20 00:40 01:00"),
        ("5/20 * * * *", "00:05 00:25 00:45 01:05"),
        ("10-40/15 * * * *", "00:10 00:25 00:40 01:10"),
        ("50-10/10 * * * *", "00:00 00:10 00:50 01:00"),
        ("0 22-4/2 * * *", "00:00 02:00 04:00 22:00"),
        ("1,3,59 0 * * *", "00:01 00:03 00:59 00:01"),
        ("30,0,30 9 * * *", "09:00 09:30 09:00 09:30"),
        ("0 9-17/4,20 * * *", "09:00 13:00 17:00 20:00"),
        ("@hourly", "00:00 01:00 02:00 03:00"),
        ("@midnight", "00:00 00:00 00:00 00:00"),
        ("  0\t12 * * *  ", "12:00 12:00 12:00 12:00"),
    ] {
        let times = times(&standard(text), 4);
        let times: Vec<&str> = times.iter().map(|time| &time[11..16]).collect();
        assert_eq!(times.join(" "), expected, "{text}");
    }
}

#[test]
fn there_may_be_seconds_and_years() {
    assert_eq!(
        times(&standard("*/30 0 9 * * *"), 3),
        [
            "2026-01-01T09:00:00",
            "2026-01-01T09:00:30",
            "2026-01-02T09:00:00"
        ]
    );
    assert_eq!(
        times(&standard("0 0 0 1 1 * 2027,2030-2031"), 4),
        [
            "2027-01-01T00:00:00",
            "2030-01-01T00:00:00",
            "2031-01-01T00:00:00"
        ]
    );
    // From 1970 on, so that none has a leap day.
    assert!(Cron::parse("0 0 0 29 2 * */4", Dialect::Standard, "").is_err());
}

#[test]
fn days_are_named_in_many_ways() {
    for (text, expected) in [
        ("0 0 L * *", "01-31 02-28 03-31 04-30"),
        ("0 0 L-2 * *", "01-29 02-26 03-29 04-28"),
        ("0 0 LW * *", "01-30 02-27 03-31 04-30"),
        ("0 0 1W * *", "01-01 02-02 03-02 04-01"),
        ("0 0 15W * *", "01-15 02-16 03-16 04-15"),
        ("0 0 31W * *", "01-30 03-31 05-29 07-31"),
        ("0 0 28W 2 *", "02-27 02-26 02-28 02-28"),
        ("0 0 1,L * *", "01-01 01-31 02-01 02-28"),
        ("0 0 30-2 * *", "01-01 01-02 01-30 01-31"),
        ("0 0 * * FRI-MON", "01-02 01-03 01-04 01-05"),
        ("0 0 * * 5-7", "01-02 01-03 01-04 01-09"),
        ("0 0 * * 7", "01-04 01-11 01-18 01-25"),
        ("0 0 * * 0", "01-04 01-11 01-18 01-25"),
        ("0 0 * * 7-2", "01-04 01-05 01-06 01-11"),
        ("0 0 * * 1-7/2", "01-02 01-04 01-05 01-07"),
        ("0 0 * * 3/2", "01-02 01-04 01-07 01-09"),
        ("0 0 * * fri#1", "01-02 02-06 03-06 04-03"),
        ("0 0 * * 5#5", "01-30 05-29 07-31 10-30"),
        ("0 0 * * 5L", "01-30 02-27 03-27 04-24"),
        ("0 0 * * friL,0#1", "01-04 01-30 02-01 02-27"),
        ("0 0 1 NOV-FEB *", "01-01 02-01 11-01 12-01"),
        ("0 0 1 jan *", "01-01 01-01 01-01 01-01"),
        ("@weekly", "01-04 01-11 01-18 01-25"),
        ("@monthly", "01-01 02-01 03-01 04-01"),
        ("@Yearly", "01-01 01-01 01-01 01-01"),
        ("0 0 29 2 *", "02-29 02-29 02-29 02-29"),
    ] {
        assert_eq!(days(&standard(text), 4), expected, "{text}");
    }
}

#[test]
fn quartz_counts_days_of_the_week_from_one() {
    for (text, expected) in [
        ("0 0 0 ? * 1", "01-04 01-11 01-18 01-25"),
        ("0 0 0 ? * 2-6", "01-01 01-02 01-05 01-06"),
        ("0 0 0 ? * SUN", "01-04 01-11 01-18 01-25"),
        ("0 0 0 ? * L", "01-03 01-10 01-17 01-24"),
        ("0 0 0 ? * 6L", "01-30 02-27 03-27 04-24"),
        ("0 0 0 ? * 6#3", "01-16 02-20 03-20 04-17"),
        ("0 0 0 ? * 1/3", "01-03 01-04 01-07 01-10"),
        ("0 0 0 L-3 * ?", "01-28 02-25 03-28 04-27"),
        ("0 0 0 L-3W * ?", "01-28 02-25 03-27 04-27"),
        ("0 0 0 1 * ? 2027", "01-01 02-01 03-01 04-01"),
    ] {
        assert_eq!(days(&quartz(text), 4), expected, "{text}");
    }
}

#[test]
fn a_hash_depends_on_name_and_field_alone() {
    let hashed = |text: &str, name: &str| {
        let cron = Cron::parse(text, Dialect::Standard, name).unwrap();
        times(&cron, 3).join(" ")
    };
    // Never to change: schedules would move.
    assert_eq!(
        hashed("H H * * *", "invoices"),
        "2026-01-01T10:25:00 2026-01-02T10:25:00 2026-01-03T10:25:00"
    );
    assert_ne!(
        hashed("H H * * *", "invoices"),
        hashed("H H * * *", "reports")
    );
    for n in 0..200 {
        let name = n.to_string();
        let parse = |text: &str| Cron::parse(text, Dialect::Standard, &name).unwrap();
        let minutes: Vec<i8> = minutes(&parse("H/15 * * * *"), 5);
        assert!(minutes[0] < 15 && minutes[4] == minutes[0]);
        assert!(
            minutes
                .windows(2)
                .take(3)
                .all(|pair| pair[1] - pair[0] == 15)
        );
        assert!((10..=19).contains(&self::minutes(&parse("H(10-19) * * * *"), 1)[0]));
        assert!((10..=14).contains(&self::minutes(&parse("H(10-19)/5 * * * *"), 1)[0]));
        assert_eq!(times(&parse("0 0 H * *"), 12).len(), 12);
        assert!(times(&parse("0 0 H 2 *"), 2)[1].starts_with("2027-02"));
        assert!(!parse("H 3 * * *").is_interval());
        let weekend = times(&parse("0 0 * * H(6-7)"), 1)[0].clone();
        assert!(["2026-01-03T00:00:00", "2026-01-04T00:00:00"].contains(&weekend.as_str()));
    }
}

fn minutes(cron: &Cron, count: usize) -> Vec<i8> {
    let minutes = times(cron, count)
        .into_iter()
        .map(|time| time[14..16].parse().unwrap());
    minutes.collect()
}

#[test]
fn a_mistake_is_named_with_its_place_and_a_remedy() {
    let mut lines = include_str!("mistakes.txt").lines();
    lines.next();
    for line in lines {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [text, at, wrong, right] = fields[..] else {
            panic!("{line}");
        };
        let problem = Cron::parse(text, Dialect::Standard, "name").unwrap_err();
        let found = format!("{:?}", problem.at.unwrap());
        assert_eq!(
            (&*found, &*problem.wrong, &*problem.right),
            (at, wrong, right),
            "{text}"
        );
    }
}

#[test]
fn mistakes_in_the_dialect_of_quartz_are_named_as_well() {
    let quartz = |text: &str| {
        Cron::parse(text, Dialect::Quartz, "")
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        quartz("0 0 0 1 * 2"),
        "both day of month and day of week are given (byte 10): write `?` for one of them: Quartz doesn't say what both mean"
    );
    assert_eq!(
        quartz("0 0 0 ? * 8"),
        "day of week `8` is out of range (byte 10): write 1 to 7 (Sunday is 1) or SUN to SAT"
    );
    assert_eq!(
        quartz("0 0 0 ?,1 * ?"),
        "`?` is not alone (byte 6): write `?` or a list"
    );
}

#[test]
fn only_a_star_makes_an_interval() {
    for (text, is_interval) in [
        ("* * * * *", true),
        ("*/5 3 * * *", true),
        ("*,5 3 * * *", true),
        ("0 * * * *", true),
        ("@hourly", true),
        ("@daily", false),
        ("0-59 0-23 * * *", false),
        ("H H * * *", false),
        ("* 0 3 * * *", false),
        ("* 3,* 3 * * *", false),
    ] {
        assert_eq!(standard(text).is_interval(), is_interval, "{text}");
    }
}

/// Rare days are found quickly, and those that never come refused as quickly.
#[test]
fn a_rare_day_is_found() {
    let cron = standard("0 0 29 2 */6");
    let start = date(2033, 3, 1).at(0, 0, 0, 0);
    let next = cron.at_or_after(start).unwrap();
    assert_eq!(next.date(), date(2048, 2, 29));
    assert_eq!(cron.at_or_before(start).unwrap().date(), date(2032, 2, 29));
    let late = date(9999, 12, 31).at(23, 59, 59, 0);
    assert_eq!(standard("0 0 29 2 *").at_or_after(late), None);
    assert!(
        standard("0 0 29 2 *")
            .at_or_before(date(-9999, 1, 1).at(0, 0, 0, 0))
            .is_none()
    );
}

/// Field texts from which any expression is made.
fn field(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(values)
}

fn expression() -> impl Strategy<Value = String> {
    (
        field(&["0", "*", "*/20", "5-15/5", "59", "50-10/7"]),
        field(&["*", "0", "30", "*/7", "58,59"]),
        field(&["*", "0", "23", "1-3", "*/5", "22-2"]),
        field(&[
            "*", "1", "31", "L", "LW", "15W", "1W", "31W", "28-2", "*/13", "L-30", "L-3W",
        ]),
        field(&["*", "1", "2", "4-6", "FEB", "NOV-JAN"]),
        field(&["*", "0", "MON-FRI", "5#5", "5L", "SAT-SUN", "*/3"]),
        field(&["*", "2024-2030", "1970,2199"]),
    )
        .prop_map(|(s, m, h, day, month, week, year)| {
            format!("{s} {m} {h} {day} {month} {week} {year}")
        })
}

proptest! {
    /// Nothing lies between two neighbours, and each is found from the other.
    #[test]
    fn forwards_and_backwards_are_alike(text in expression(), second in 0i64..7_000_000_000) {
        let Ok(cron) = Cron::parse(&text, Dialect::Standard, "name") else { return Ok(()) };
        let second_long = jiff::SignedDuration::from_secs(1);
        let epoch = date(1970, 1, 1).at(0, 0, 0, 0);
        let at = epoch + jiff::SignedDuration::from_secs(second);
        let Some(next) = cron.at_or_after(at) else { return Ok(()) };
        prop_assert!(next >= at);
        prop_assert_eq!(cron.at_or_after(next), Some(next));
        prop_assert_eq!(cron.at_or_before(next), Some(next));
        let previous = cron.at_or_before(next - second_long);
        if let Some(previous) = previous {
            prop_assert!(previous < at || next == at);
            prop_assert_eq!(cron.at_or_after(previous + second_long), Some(next));
        }
    }

    /// Those of a year and some days are counted as they are found.
    #[test]
    fn times_are_counted_as_they_are_found(text in expression(), day in 0i64..30_000, second in 0i64..400 * 86_400) {
        let Ok(cron) = Cron::parse(&text, Dialect::Standard, "name") else { return Ok(()) };
        let later = |at: DateTime, seconds| at + jiff::SignedDuration::from_secs(seconds);
        let from = later(date(1970, 1, 1).at(0, 0, 0, 0), day * 86_400 + second % 86_400);
        let end = later(from, second);
        let next = |at: &DateTime| cron.at_or_after(later(*at, 1));
        let found = std::iter::successors(cron.at_or_after(from), next);
        let found = found.take_while(|at| *at < end).take(5000).count() as u64;
        let counted = cron.count(from, end);
        prop_assert!(counted == found || found == 5000 && counted > found, "{} {}", counted, found);
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place(text in "[-0-9*,/#?LWH() @A-Za-zä]{0,40}") {
        for dialect in [Dialect::Standard, Dialect::Quartz] {
            if let Err(problem) = Cron::parse(&text, dialect, "name") {
                let at = problem.at.unwrap();
                prop_assert!(text.get(at).is_some());
            }
        }
    }
}
