//! The page of reports, and the same as CSV.

use axum::Extension;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use ganger_queue::ledger::REPORT_MAX;
use ganger_queue::ledger::shown::{ReportJson, ReportOrder};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands, with_options};
use super::page::{Page, Section};
use super::paths::{REPORTS, REPORTS_CSV};
use super::query::{Fields, tabs};
use super::report_rows::{Previous, csv, rows};
use super::run_counts::RunCounts;
use super::shown::{count, text, time, time_of};
use crate::answer::Problem;

/// Time for which runs are counted, unless all are asked for.
const COUNTS_FOR: &str = "100ms";

/// Ranges, each with its name and its hours.
const RANGES: [(&str, &str, i64); 3] = [
    ("24h", "24 hours", 24),
    ("7d", "7 days", 7 * 24),
    ("30d", "30 days", 30 * 24),
];

/// Names of the orders.
const ORDERS: [(ReportOrder, &str); 4] = [
    (ReportOrder::Failures, "failures"),
    (ReportOrder::Lateness, "late starts"),
    (ReportOrder::Durations, "long runs"),
    (ReportOrder::Slow, "the slowest run"),
];

/// Fields by which a report is filtered, in the API and on the command line as well, each with its label.
const FILTERS: [(&str, &str); 3] = [("schedule", "Schedule"), ("tag", "Tag"), ("queue", "Queue")];

/// A report that a page asks for.
struct WantedReport {
    /// The query, without what only the page knows.
    asked: Fields,
    order: ReportOrder,
    /// Word of the range, if it is one of those that are offered.
    range: Option<&'static str>,
    from: Timestamp,
    to: Timestamp,
    is_whole: bool,
    /// All runs are counted, however long that takes.
    counts_all: bool,
}

impl WantedReport {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let mut asked = Fields::of(uri).without(&["limit"]);
        let order = asked.take("order").unwrap_or_default();
        let order = ReportOrder::of(&order).unwrap_or_default();
        let range = asked.take("range");
        let is_whole = asked.take("all").is_some();
        let counts_all = asked.take("count").is_some();
        let time = |name: &str| asked.get(name).map(|text| instant(name, text)).transpose();
        let (from, to) = (time("from")?, time("to")?);
        let asked = asked.without(&["from", "to"]);
        let preset = match (from, to) {
            (None, None) => {
                let word = range.as_deref().unwrap_or("24h");
                let of_word = RANGES.iter().find(|(of, ..)| *of == word);
                Some(of_word.unwrap_or(&RANGES[0]))
            }
            _ => None,
        };
        let hours = preset.map_or(24, |(.., hours)| *hours);
        let to = to.unwrap_or_else(Timestamp::now);
        let from = from.unwrap_or_else(|| to - SignedDuration::from_hours(hours));
        if from >= to {
            return Err(Problem::bad("from must be before to"));
        }
        Ok(Self {
            asked,
            order,
            range: preset.map(|(word, ..)| *word),
            from,
            to,
            is_whole,
            counts_all,
        })
    }

    /// Returns the address of the report of a time in the API.
    fn at(&self, from: Timestamp, to: Timestamp) -> String {
        let asked = self
            .asked
            .with("from", &from.to_string())
            .with("to", &to.to_string())
            .with("limit", &REPORT_MAX.to_string())
            .with("within", if self.counts_all { "" } else { COUNTS_FOR });
        asked.at(&format!("/v1/reports/{}", self.order.as_str()))
    }

    /// Returns the query of the page.
    fn page(&self) -> Fields {
        let count = if self.counts_all { "all" } else { "" };
        let asked = self.asked.with("order", self.order.as_str());
        let asked = asked.with("count", count);
        match self.range {
            Some(range) => asked.with("range", range),
            None => asked
                .with("from", &self.from.to_string())
                .with("to", &self.to.to_string()),
        }
    }
}

/// Reads a time of the form, which is in UTC, or one of the API.
fn instant(name: &str, text: &str) -> Result<Timestamp, Problem> {
    let of_form = || text.parse::<jiff::civil::DateTime>().ok();
    let of_form = || {
        let zoned = of_form()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(zoned.timestamp())
    };
    let read = text.parse::<Timestamp>().ok().or_else(of_form);
    read.ok_or_else(|| {
        Problem::bad(format!(
            "{name} must be a time such as 2027-01-31T08:00:00Z: `{}`",
            text.escape_debug()
        ))
    })
}

/// Shows a report, against that of the same time before. Its query is that of `/v1/reports/{order}`, with the order, or
/// with a range instead of its times.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let wanted = WantedReport::of(&uri)?;
    let length = wanted.to.duration_since(wanted.from);
    let before = wanted.from - length;
    let (report, earlier) = (
        wanted.at(wanted.from, wanted.to),
        wanted.at(before, wanted.from),
    );
    let (report, earlier) = tokio::join!(
        api.get::<ReportJson>(&report),
        api.get::<ReportJson>(&earlier)
    );
    let (report, earlier) = (report?, earlier?);
    let previous = Previous::of(&earlier);
    Ok(Page::new(Section::Reports, "Reports")
        .with("choice", choice(&wanted))
        .with("totals", totals(&wanted, &report, &earlier))
        .with(
            "rows",
            rows(&report.rows, &previous, wanted.is_whole, &wanted.page()),
        )
        .with("csv", links(&wanted))
        .still())
}

/// Sends a report as CSV.
pub(super) async fn table(Extension(api): Extension<Api>, uri: Uri) -> Result<Response, Problem> {
    let wanted = WantedReport::of(&uri)?;
    let report: ReportJson = api.get(&wanted.at(wanted.from, wanted.to)).await?;
    let name = format!(
        "attachment; filename=\"report-{}.csv\"",
        wanted.to.strftime("%Y-%m-%d")
    );
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, name),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, csv(&report.rows)).into_response())
}

fn choice(wanted: &WantedReport) -> Markup {
    let page = wanted.page();
    let orders = ORDERS.iter().map(|(order, name)| {
        let path = page.with("order", order.as_str()).at(REPORTS);
        (path, html! { (name) }, *order == wanted.order)
    });
    let ranges = RANGES.iter().map(|(word, name, _)| {
        let path = page.without(&["from", "to"]).with("range", word);
        (
            path.at(REPORTS),
            html! { (name) },
            wanted.range == Some(*word),
        )
    });
    let field = |name: &str| wanted.asked.get(name).unwrap_or_default().to_owned();
    let of_form = |at: Timestamp| match wanted.range {
        Some(_) => String::new(),
        None => at.strftime("%Y-%m-%dT%H:%M").to_string(),
    };
    html! {
        div.no-print {
            (tabs("Time", &ranges.collect::<Vec<_>>()))
            (tabs("First", &orders.collect::<Vec<_>>()))
        }
        form.filters action=(REPORTS) {
            input type="hidden" name="order" value=(wanted.order.as_str());
            @if let Some(range) = wanted.range { input type="hidden" name="range" value=(range); }
            @for (name, label) in FILTERS {
                label { (label) " " input name=(name) value=(field(name)) maxlength="200" autocomplete="off"; }
            }
            label { "From (UTC) " input type="datetime-local" name="from" value=(of_form(wanted.from)); }
            label { "To (UTC) " input type="datetime-local" name="to" value=(of_form(wanted.to)); }
            button { "Show" }
        }
    }
}

fn totals(wanted: &WantedReport, report: &ReportJson, earlier: &ReportJson) -> Markup {
    let of = |report: &ReportJson| report.rows.iter().map(RunCounts::from).sum::<RunCounts>();
    let (now, before) = (of(report), of(earlier));
    let bad = now.failures();
    let figures = [
        ("Runs", now.runs, before.runs),
        ("Completed", now.completed, before.completed),
        ("Failed", now.failed, before.failed),
        ("Timed out", now.timed_out, before.timed_out),
        ("Cancelled", now.cancelled, before.cancelled),
        ("Skipped", now.skipped, before.skipped),
        ("Open", now.open, before.open),
    ];
    let range = RANGES.iter().find(|(word, ..)| Some(*word) == wanted.range);
    let (this, that) = range.map_or_else(
        || ("This time".to_owned(), "As long before".to_owned()),
        |(_, name, _)| (format!("Last {name}"), format!("The {name} before")),
    );
    html! {
        p.lead {
            @if bad == 0 { span.state.good { span aria-hidden="true" { "●" } " No run failed" } }
            @else { span.state.bad { span aria-hidden="true" { "▲" } " " (count(bad)) (if bad == 1 { " run failed" } else { " runs failed" }) } }
            " of " (count(now.runs)) ", from " (time_of(&report.from)) " to " (time_of(&report.to)) "."
        }
        @if !report.is_complete { p {
            strong { "Not complete: " } "only the newest runs are counted, since " (time_of(&report.from)) ". "
            (count_all(wanted))
        } }
        div.wide tabindex="0" { table.totals {
            thead { tr { th scope="col" { "Time" } @for (name, ..) in &figures { th.number scope="col" { (name) } } } }
            tbody {
                tr { th scope="row" { (this) } @for (_, now, _) in &figures { td.number { (count(*now)) } } }
                tr { th scope="row" { (that) } @for (_, _, before) in &figures { td.number { (count(*before)) } } }
            }
        } }
        @if !earlier.is_complete { p.of {
            "Of the time before, the runs since " (time_of(&earlier.from)) " are counted. "
            @if report.is_complete { (count_all(wanted)) }
        } }
    }
}

/// Leads to the report for which runs are counted for longer.
fn count_all(wanted: &WantedReport) -> Markup {
    html! {
        @if wanted.counts_all { "More than a million, or than can be counted in ten seconds, are never counted." }
        @else { a.no-print href=(wanted.page().with("count", "all").at("/ui/reports")) { "Count all" } ", which takes longer." }
    }
}

fn links(wanted: &WantedReport) -> Markup {
    html! {
        p.no-print { a href=(wanted.page().at(REPORTS_CSV)) { "The same as CSV" } }
        p.only-print { "ganger, " (time(Timestamp::now())) @if let Some(tag) = wanted.asked.get("tag") { ", tag " (text(tag)) } }
        (commands(&[as_command(wanted)]))
    }
}

/// Returns the command that reports the same.
fn as_command(wanted: &WantedReport) -> String {
    let times = Fields::from([
        ("from", &*wanted.from.to_string()),
        ("to", &wanted.to.to_string()),
    ]);
    let report = command(&["schedule", "report", wanted.order.as_str()]);
    let filters = wanted.asked.only(&FILTERS.map(|(name, _)| name));
    with_options(&with_options(&report, &times), &filters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(query: &str) -> Result<WantedReport, Problem> {
        WantedReport::of(&format!("/ui/reports?{query}").parse().unwrap())
    }

    #[test]
    fn a_range_or_times_are_the_time_of_a_report() {
        let week = wanted("range=7d&tag=x&order=slow").unwrap();
        assert_eq!(week.to.duration_since(week.from).as_hours(), 168);
        assert_eq!(week.page().at("/p"), "/p?tag=x&order=slow&range=7d");
        let command = as_command(&week);
        assert!(
            command.starts_with("ganger schedule report slow --from 2"),
            "{command}"
        );
        assert!(command.ends_with(" --tag x"), "{command}");
        let day = wanted("from=2026-12-01T08:00&to=2026-12-02T08:00:00Z&range=7d").unwrap();
        assert_eq!(day.to.duration_since(day.from).as_hours(), 24);
        assert_eq!(day.range, None);
        assert!(
            day.at(day.from, day.to)
                .starts_with("/v1/reports/failures?from=2026-12-01T08")
        );
        assert!(wanted("from=2026-12-02T08:00&to=2026-12-01T08:00").is_err());
        assert!(wanted("from=noon").is_err());
        assert!(week.at(week.from, week.to).ends_with("&within=100ms"));
        let all = wanted("range=7d&count=all").unwrap();
        assert!(!all.at(all.from, all.to).contains("within"));
        assert_eq!(all.page().at("/p"), "/p?order=failures&count=all&range=7d");
    }
}
