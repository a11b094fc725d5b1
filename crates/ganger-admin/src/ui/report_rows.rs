//! Rows of a report, as a table and as CSV.

use std::collections::BTreeMap;

use ganger_queue::ledger::shown::{ReportJson, ReportRowJson, SpreadJson};
use maud::{Markup, html};

use super::paths::{REPORTS, RUNS, run_path, schedule_path};
use super::query::Fields;
use super::shown::{count, millis, text};

/// Number of rows unless all are wanted.
const ROWS: usize = 50;

/// Subject of a row: its schedule, its source and its queue.
type Subject<'a> = (Option<&'a str>, Option<&'a str>, &'a str);

fn subject(row: &ReportRowJson) -> Subject<'_> {
    (row.schedule.as_deref(), row.source.as_deref(), &row.queue)
}

/// Rows of the time before, by subject.
pub(super) struct Previous<'a>(BTreeMap<Subject<'a>, &'a ReportRowJson>);

impl<'a> Previous<'a> {
    pub(super) fn of(report: &'a ReportJson) -> Self {
        let rows = report.rows.iter();
        Self(rows.map(|row| (subject(row), row)).collect())
    }

    /// Returns a count of the time before; none if nothing ran then.
    fn count(&self, row: &ReportRowJson, figure: fn(&ReportRowJson) -> u64) -> Option<u64> {
        let before = self.0.get(&subject(row));
        (!self.0.is_empty()).then(|| before.map_or(0, |row| figure(row)))
    }

    /// Returns the 95th percentile of the durations of the time before.
    fn p95(&self, row: &ReportRowJson) -> Option<u64> {
        let before = self.0.get(&subject(row))?;
        before.took.map(|took| took.p95_ms)
    }
}

/// Shows rows, each against that of the time before.
pub(super) fn rows(
    rows: &[ReportRowJson],
    previous: &Previous<'_>,
    is_whole: bool,
    page: &Fields,
) -> Markup {
    let most = if is_whole { rows.len() } else { ROWS };
    html! {
        h2 { "By schedule and queue" }
        div.wide tabindex="0" { table.report {
            thead {
                tr {
                    th scope="col" rowspan="2" { "Schedule or queue" } th.number scope="col" rowspan="2" { "Runs" }
                    th.number scope="col" rowspan="2" { "Failed" } th.number scope="col" rowspan="2" { "Timed out" }
                    th.number scope="col" rowspan="2" { "Skipped" } th scope="col" rowspan="2" { "Reasons" }
                    th scope="colgroup" colspan="2" { "Started late" } th scope="colgroup" colspan="3" { "Took" }
                }
                tr {
                    th.number scope="col" { "p50" } th.number scope="col" { "p95" }
                    th.number scope="col" { "p50" } th.number scope="col" { "p95" } th.number scope="col" { "Longest" }
                }
            }
            tbody {
                @for row in rows.iter().take(most) { (shown(row, previous)) }
                @if rows.is_empty() { tr { td colspan="11" { span.none { "Nothing ran in this time." } } } }
            }
        } }
        @if previous.0.is_empty() { p.of { "Nothing ran in the time before, to compare with." } }
        @else { p.of { "A figure in brackets is the difference from the time before." } }
        @if rows.len() > most { p { a href=(page.with("all", "1").at(REPORTS)) { "All " (rows.len()) " rows" } } }
    }
}

fn shown(row: &ReportRowJson, previous: &Previous<'_>) -> Markup {
    let failed = Fields::default().with("state", "failed");
    let runs = Fields::default();
    let of_row = |asked: Fields| {
        row.schedule
            .as_ref()
            .map(|schedule| asked.with("schedule", schedule).at(RUNS))
    };
    html! {
        tr {
            th.name scope="row" {
                @match &row.schedule {
                    Some(name) => a href=(schedule_path(name)) { (text(name)) },
                    None => { (text(&row.queue)) " " span.of { "queue" @if let Some(source) = &row.source { " of " (text(source)) } } },
                }
            }
            td.number { (linked(of_row(runs), row.runs)) (difference(row.runs, previous.count(row, |row| row.runs))) }
            td.number { (bad(of_row(failed), row.failed)) (difference(row.failed, previous.count(row, |row| row.failed))) }
            td.number { (bad(None, row.timed_out)) (difference(row.timed_out, previous.count(row, |row| row.timed_out))) }
            td.number { (count(row.skipped)) }
            td.name { @for (at, (reason, number)) in row.reasons.iter().enumerate() {
                @if at > 0 { ", " } (text(&reason.replace('_', " "))) " " (count(*number))
            } }
            td.number { (spread(row.late, |late| late.p50_ms)) }
            td.number { (spread(row.late, |late| late.p95_ms)) }
            td.number { (spread(row.took, |took| took.p50_ms)) }
            td.number {
                (spread(row.took, |took| took.p95_ms))
                (ratio(row.took.map(|took| took.p95_ms), previous.p95(row)))
            }
            td.number {
                @match &row.slowest {
                    Some(id) => a href=(run_path(id)) title="The run that took longest" { (spread(row.took, |took| took.max_ms)) },
                    None => (spread(row.took, |took| took.max_ms)),
                }
            }
        }
    }
}

fn linked(path: Option<String>, number: u64) -> Markup {
    html! { @match path { Some(path) if number > 0 => a href=(path) { (count(number)) }, _ => (count(number)) } }
}

fn bad(path: Option<String>, number: u64) -> Markup {
    html! { @if number > 0 { strong.error { (linked(path, number)) } } @else { (count(number)) } }
}

fn spread(spread: Option<SpreadJson>, figure: fn(SpreadJson) -> u64) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| millis(figure(spread)))
}

/// Shows by how much a count differs from that of the time before.
fn difference(now: u64, before: Option<u64>) -> Markup {
    let Some(before) = before else {
        return html! {};
    };
    html! {
        @if now > before { " " span.of { "(+" (count(now - before)) ")" } }
        @else if now < before { " " span.of { "(−" (count(before - now)) ")" } }
    }
}

/// Shows by how much a duration differs from that of the time before, if that is a tenth or more.
fn ratio(now: Option<u64>, before: Option<u64>) -> Markup {
    let (Some(now), Some(before)) = (now, before.filter(|before| *before > 0)) else {
        return html! {};
    };
    let more = now.saturating_sub(before) * 100 / before;
    let less = before.saturating_sub(now) * 100 / before;
    html! {
        @if more >= 10 { " " span.of { "(+" (more) " %)" } }
        @else if less >= 10 { " " span.of { "(−" (less) " %)" } }
    }
}

/// Returns rows as CSV, with durations in milliseconds.
pub(super) fn csv(rows: &[ReportRowJson]) -> String {
    let mut out = String::from(
        "schedule,source,queue,runs,open,completed,failed,timed_out,cancelled,skipped,late_p50_ms,late_p95_ms,\
         late_max_ms,took_p50_ms,took_p95_ms,took_max_ms,slowest,reasons\r\n",
    );
    for row in rows {
        let figures = |spread: Option<SpreadJson>| match spread {
            Some(spread) => [spread.p50_ms, spread.p95_ms, spread.max_ms].map(|ms| ms.to_string()),
            None => [const { String::new() }; 3],
        };
        let counts = [
            row.runs,
            row.open,
            row.completed,
            row.failed,
            row.timed_out,
            row.cancelled,
            row.skipped,
        ];
        let reasons = row.reasons.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, number)| format!("{reason} {number}"))
            .collect();
        let mut fields = vec![
            field(row.schedule.as_deref().unwrap_or_default()),
            field(row.source.as_deref().unwrap_or_default()),
            field(&row.queue),
        ];
        fields.extend(counts.map(|number| number.to_string()));
        fields.extend(figures(row.late));
        fields.extend(figures(row.took));
        fields.push(field(row.slowest.as_deref().unwrap_or_default()));
        fields.push(field(&reasons.join("; ")));
        out.push_str(&fields.join(","));
        out.push_str("\r\n");
    }
    out
}

/// Returns a text as a field of CSV. One that a spreadsheet would take for a formula begins with an apostrophe.
fn field(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_no_formula_and_keeps_its_quotes() {
        assert_eq!(field("nightly"), "nightly");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("@x,y"), "\"'@x,y\"");
    }

    #[test]
    fn rows_are_lines_with_all_fields() {
        let row = ReportRowJson {
            schedule: Some("s".to_owned()),
            source: None,
            queue: "q".to_owned(),
            day: None,
            runs: 3,
            open: 0,
            completed: 2,
            failed: 1,
            timed_out: 0,
            cancelled: 0,
            skipped: 0,
            reasons: [("attempts".to_owned(), 1)].into(),
            late: None,
            took: Some(SpreadJson {
                p50_ms: 1,
                p95_ms: 2,
                max_ms: 3,
            }),
            slowest: None,
        };
        let csv = csv(&[row]);
        let (head, line) = csv.split_once("\r\n").unwrap();
        assert_eq!(line, "s,,q,3,0,2,1,0,0,0,,,,1,2,3,,attempts 1\r\n");
        assert_eq!(head.split(',').count(), line.split(',').count());
    }
}
