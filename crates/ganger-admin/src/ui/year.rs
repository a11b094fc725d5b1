//! A year of a schedule: a heat map of its results by day, and the same figures as a table.

use std::collections::BTreeMap;

use ganger_queue::ledger::REPORT_MAX;
use ganger_queue::ledger::shown::ReportJson;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands, with_options};
use super::paths::{REPORTS, schedule_path};
use super::query::Fields;
use super::run_counts::RunCounts;
use super::shown::{count, text, time_of};
use crate::answer::Problem;

/// Number of runs that are counted. Those of a year of a schedule that runs every half an hour are fewer.
const RUNS_MAX: u32 = 20_000;
/// Time for which they are counted: the page shows more than the year.
const COUNTS_FOR: &str = "25ms";
/// Number of weeks, with the current one.
const WEEKS: i32 = 53;
/// Number of days with failures that are listed.
const LISTED: usize = 30;

/// Distance of two days in the picture, the size of one, and the room for the names of months and of weekdays.
const STEP: i32 = 13;
const SIZE: i32 = 11;
const TOP: i32 = 14;
const LEFT: i32 = 30;

/// Returns the figures of a day or of a month, each with its name.
fn figures(counts: RunCounts) -> [(&'static str, u64); 5] {
    [
        ("succeeded", counts.completed),
        ("failed", counts.failed),
        ("timed out", counts.timed_out),
        ("cancelled", counts.cancelled),
        ("skipped", counts.skipped),
    ]
}

/// Returns the word by which the picture shows the runs of a day.
fn tone(counts: RunCounts) -> &'static str {
    match (counts.failures(), counts.completed, counts.runs) {
        (_, _, 0) => "none",
        (0, 0, _) => "calm",
        (0, _, _) => "good",
        (_, 0, _) => "bad",
        _ => "some",
    }
}

/// Results of a year by day.
struct Year<'a> {
    schedule: &'a str,
    zone: &'a str,
    /// The first day, a Monday, and its beginning.
    first: Date,
    from: Timestamp,
    today: Date,
    days: BTreeMap<Date, RunCounts>,
    /// Time since which runs are counted, if there were too many.
    counted_from: Option<String>,
    /// They were counted without a limit of time.
    counts_all: bool,
}

/// Shows the year of a schedule, by the days of its zone, for as long as it takes to count all or for a moment.
pub(super) async fn year(api: &Api, schedule: &str, zone: &str, counts_all: bool) -> Markup {
    html! {
        h2 { "Results of a year" }
        @match Year::read(api, schedule, zone, counts_all).await {
            Ok(year) => (year.shown()),
            Err(problem) => p.error { (text(problem.detail())) },
        }
    }
}

/// Returns the Monday with which the year begins that ends on a day.
fn first_day(today: Date) -> Date {
    let since_monday = i32::from(today.weekday().since(Weekday::Monday));
    let days = (WEEKS - 1) * 7 + since_monday;
    today.checked_sub(days.days()).unwrap_or(Date::MIN)
}

impl<'a> Year<'a> {
    async fn read(
        api: &Api,
        schedule: &'a str,
        zone: &'a str,
        counts_all: bool,
    ) -> Result<Self, Problem> {
        let own = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
        let today = Timestamp::now().to_zoned(own.clone()).date();
        let first = first_day(today);
        let from = first.to_zoned(own).map(|first| first.timestamp());
        let from = from.unwrap_or(Timestamp::UNIX_EPOCH);
        let asked = Fields::from([
            ("schedule", schedule),
            ("from", &from.to_string()),
            ("by", "day"),
            ("zone", zone),
            ("runs", &RUNS_MAX.to_string()),
            ("limit", &REPORT_MAX.to_string()),
            ("within", if counts_all { "" } else { COUNTS_FOR }),
        ]);
        let report: ReportJson = api.get(&asked.at("/v1/reports/failures")).await?;
        let mut days: BTreeMap<Date, RunCounts> = BTreeMap::new();
        for row in &report.rows {
            if let Some(day) = row.day.as_ref().and_then(|day| day.parse::<Date>().ok()) {
                let counts = days.entry(day).or_default();
                *counts = *counts + row.into();
            }
        }
        // A backfill is of slots of any time.
        days.retain(|day, _| (first..=today).contains(day));
        Ok(Self {
            schedule,
            zone,
            first,
            from,
            today,
            days,
            counted_from: (!report.is_complete).then_some(report.from),
            counts_all,
        })
    }

    fn shown(&self) -> Markup {
        let bad = self.days.values().filter(|day| day.failures() > 0).count();
        let days = match self.days.len() {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        let label = format!(
            "Results by day since {}: {days} with runs, {bad} of them with failures; the table below has the figures",
            self.first
        );
        html! {
            p {
                @match bad {
                    _ if self.days.is_empty() => "The ledger has no run of the last year.",
                    0 => { (days) " with runs, none of them with a failure." },
                    bad => { (days) " with runs, " (bad) " of them with failures." },
                }
                " " span.of { "Days are those of " (text(self.zone)) ", the time zone of the schedule." }
            }
            @if let Some(from) = &self.counted_from {
                p { strong { "Counted since " (time_of(from)) ": " } "there are too many runs to count the earlier ones"
                    @if self.counts_all { "." } @else {
                        " in a moment. " a href=(Fields::from([("count", "all")]).at(&schedule_path(self.schedule))) { "Count all" } ", which takes longer."
                    } }
            }
            div.wide.newest tabindex="0" role="region" aria-label="Heat map of results" { (self.picture(&label)) }
            p.legend {
                span.good { "■" } " all succeeded " span.bad { "△" } " some failed " span.bad { "▲" } " none succeeded "
                span.calm { "□" } " only skipped, cancelled or open " span.calm { "·" } " no run"
            }
            details { summary { "As a table" } (self.months()) (self.failures()) }
            (commands(&[self.as_command()]))
        }
    }

    fn as_command(&self) -> String {
        let options = Fields::from([
            ("schedule", self.schedule),
            ("from", &*self.from.to_string()),
            ("zone", self.zone),
        ]);
        with_options(&command(&["schedule", "report", "--by-day"]), &options)
    }

    fn picture(&self, label: &str) -> Markup {
        let (width, height) = (LEFT + WEEKS * STEP, TOP + 7 * STEP);
        let days = std::iter::successors(Some(self.first), |day| day.tomorrow().ok());
        let days = (0..).zip(days.take_while(|day| *day <= self.today));
        html! {
            svg.year role="img" aria-label=(label) width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } {
                @for (row, name) in [(0, "Mon"), (2, "Wed"), (4, "Fri")] {
                    text x="0" y=(TOP + row * STEP + SIZE - 2) { (name) }
                }
                @for (number, day) in days {
                    @let (x, y) = (LEFT + number / 7 * STEP, TOP + number % 7 * STEP);
                    @if day.day() == 1 { text x=(x) y="9" { (day.strftime("%b").to_string()) } }
                    (self.day(day, (x, y)))
                }
            }
        }
    }

    fn day(&self, day: Date, (x, y): (i32, i32)) -> Markup {
        let counts = self.days.get(&day).copied().unwrap_or_default();
        let tone = tone(counts);
        let (middle, size) = (SIZE / 2, if tone == "none" { 2 } else { SIZE });
        let inset = (SIZE - size) / 2;
        let corners = format!(
            "M{} {}h{}l-{middle} -{}z",
            x + 1,
            y + SIZE - 2,
            SIZE - 2,
            SIZE - 4
        );
        html! {
            g.(tone) {
                rect x=(x + inset) y=(y + inset) width=(size) height=(size) {}
                @if counts.failures() > 0 { path d=(corners) {} }
                title { (day.strftime("%a %d %b %Y").to_string()) ": " (words(counts)) }
            }
        }
    }

    fn months(&self) -> Markup {
        let mut months: BTreeMap<Date, RunCounts> = BTreeMap::new();
        for (day, counts) in &self.days {
            let month = months.entry(day.first_of_month()).or_default();
            *month = *month + *counts;
        }
        html! {
            div.wide tabindex="0" { table.snug.months {
                caption { "Runs by month, " (text(self.zone)) }
                thead { tr {
                    th scope="col" { "Month" } th.number scope="col" { "Runs" }
                    @for (name, _) in figures(RunCounts::default()) { th.number scope="col" { (name) } }
                } }
                tbody {
                    @for (month, counts) in months.iter().rev() { tr {
                        th scope="row" { (month.strftime("%B %Y").to_string()) } td.number { (count(counts.runs)) }
                        @for (_, number) in figures(*counts) { td.number { (count(number)) } }
                    } }
                    @if months.is_empty() { tr { td colspan="7" { span.none { "No run." } } } }
                }
            } }
        }
    }

    /// Lists the days with failures, each with its report.
    fn failures(&self) -> Markup {
        let bad = self.days.iter().filter(|(_, day)| day.failures() > 0);
        let bad: Vec<(&Date, &RunCounts)> = bad.rev().collect();
        html! {
            @if !bad.is_empty() {
                h3 { "Days with failures" }
                ul.plain {
                    @for (day, counts) in bad.iter().take(LISTED) {
                        li { a href=(self.report_of(**day)) { (day.strftime("%a %d %b %Y").to_string()) } ": " (words(**counts)) }
                    }
                }
                @if bad.len() > LISTED { p.none { "And " (bad.len() - LISTED) " earlier days." } }
            }
        }
    }

    fn report_of(&self, day: Date) -> String {
        let zone = TimeZone::get(self.zone).unwrap_or(TimeZone::UTC);
        let begin = |day: Date| {
            let begin = day.to_zoned(zone.clone()).map(|begin| begin.timestamp());
            begin.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
        };
        let range = Fields::from([
            ("schedule", self.schedule),
            ("from", &*begin(day)),
            ("to", &begin(day.tomorrow().unwrap_or(day))),
        ]);
        range.at(REPORTS)
    }
}

/// Writes counts as words, such as `24 runs: 23 succeeded, 1 failed`.
fn words(counts: RunCounts) -> String {
    let runs = match counts.runs {
        0 => return "no run".to_owned(),
        1 => "1 run".to_owned(),
        runs => format!("{} runs", count(runs)),
    };
    let figures = figures(counts).into_iter();
    let figures = figures.filter(|(_, number)| *number > 0);
    let figures: Vec<String> = figures
        .map(|(name, number)| format!("{} {name}", count(number)))
        .collect();
    match figures.is_empty() {
        true => format!("{runs}, open"),
        false => format!("{runs}: {}", figures.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn year(days: &[(&str, RunCounts)]) -> Year<'static> {
        let today: Date = "2026-11-30".parse().unwrap();
        let days = days.iter();
        Year {
            schedule: "it's",
            zone: "Asia/Tokyo",
            first: first_day(today),
            from: "2025-11-30T15:00:00Z".parse().unwrap(),
            today,
            days: days
                .map(|(day, counts)| (day.parse().unwrap(), *counts))
                .collect(),
            counted_from: None,
            counts_all: false,
        }
    }

    fn counts(completed: u64, failed: u64, skipped: u64) -> RunCounts {
        RunCounts {
            runs: completed + failed + skipped,
            completed,
            failed,
            skipped,
            ..RunCounts::default()
        }
    }

    #[test]
    fn a_year_ends_today_and_begins_with_a_monday() {
        for (today, first) in [
            ("2026-11-30", "2025-12-01"),
            ("2026-12-06", "2025-12-01"),
            ("2028-02-29", "2027-03-01"),
        ] {
            let day: Date = today.parse().unwrap();
            assert_eq!(first_day(day).to_string(), first, "{today}");
        }
    }

    #[test]
    fn a_day_is_shown_by_its_results() {
        for (counts, expected) in [
            (counts(0, 0, 0), "none"),
            (counts(3, 0, 1), "good"),
            (counts(3, 1, 0), "some"),
            (counts(0, 1, 1), "bad"),
            (counts(0, 0, 2), "calm"),
        ] {
            assert_eq!(tone(counts), expected);
        }
        assert_eq!(words(counts(3, 1, 0)), "4 runs: 3 succeeded, 1 failed");
        assert_eq!(words(RunCounts::default()), "no run");
    }

    #[test]
    fn the_picture_has_each_day_and_the_table_the_figures() {
        let days = [
            ("2026-11-29", counts(2, 1, 0)),
            ("2026-10-31", counts(5, 0, 0)),
        ];
        let shown = year(&days).shown().into_string();
        assert_eq!(shown.matches("<g class=").count(), 365);
        assert_eq!(shown.matches("<path").count(), 1);
        let (day, month) = (
            "Sun 29 Nov 2026: 3 runs: 2 succeeded, 1 failed",
            "<th scope=\"row\">October 2026</th><td class=\"number\">5</td>",
        );
        for part in [
            day,
            month,
            "2 days with runs, 1 of them with failures",
            "Asia/Tokyo",
            "?schedule=it%27s&amp;from=2026-11-28T15%3A00%3A00Z&amp;to=2026-11-29T15%3A00%3A00Z",
            r"--schedule 'it'\''s' --from 2025-11-30T15:00:00Z --zone Asia/Tokyo",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("style="));
    }

    #[test]
    fn a_year_that_is_not_complete_says_since_when_it_is_counted() {
        let mut year = year(&[("2026-11-29", counts(2, 1, 0))]);
        assert!(!year.shown().into_string().contains("Counted since"));
        year.counted_from = Some("2026-06-01T00:00:00Z".to_owned());
        let shown = year.shown().into_string();
        assert!(shown.contains("Counted since"), "{shown}");
        assert!(
            shown.contains("href=\"/ui/schedules/it%27s?count=all\""),
            "{shown}"
        );
        year.counts_all = true;
        assert!(!year.shown().into_string().contains("Count all"));
    }
}
