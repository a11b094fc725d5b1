//! The log of a run as a page shows it.

use ganger_queue::ledger::LOG_LINES_MAX;
use ganger_queue::ledger::shown::{LogLineJson, OccurrenceJson, OccurrenceLogJson};
use maud::{Markup, html};

use super::commands::{command, commands};
use super::paths::run_path;
use super::query::Fields;
use super::shown::{count, text};
use crate::answer::Problem;

/// Shows lines of the log of a run, by attempt. They begin after the line `after`.
pub(super) fn log(
    run: &OccurrenceJson,
    logged: Result<OccurrenceLogJson, Problem>,
    after: Option<u64>,
) -> Markup {
    let log = match logged {
        Ok(log) => log,
        Err(problem) => return html! { h2 { "Log" } p.none { (text(problem.detail())) } },
    };
    let most = u64::from(LOG_LINES_MAX);
    let is_live = run.ended_at.is_none();
    html! {
        h2 { "Log" }
        @if log.dropped > 0 { p.of { (count(log.dropped)) (if log.dropped == 1 { " line was" } else { " lines were" }) " dropped, since there were too many." } }
        @if let Some(after) = after.filter(|_| run.log_lines > log.lines.len() as u64) {
            p {
                a href=(at(run, "first")) { "First lines" } " "
                @if let Some(earlier) = after.checked_sub(most) { a href=(at(run, &earlier.to_string())) { "Earlier lines" } }
            }
        }
        @if log.lines.is_empty() { p.none { @if is_live { "It has written nothing yet." } @else { "It has written nothing." } } }
        @for lines in log.lines.chunk_by(|one, other| one.attempt == other.attempt) {
            @if let Some(line) = lines.first() { h3 { "Attempt " (line.attempt) } }
            pre.log.live[is_live] tabindex="0" role="region" aria-label="Lines of the attempt" { @for line in lines { (shown(line)) "\n" } }
        }
        @if let Some(last) = log.lines.last().filter(|last| last.line.unsigned_abs() + 1 < run.log_lines + run.log_dropped) {
            p { a href=(at(run, &last.line.to_string())) { "Later lines" } }
        }
        (commands(&[command(&["occurrence", "log", "--follow", &run.id])]))
    }
}

/// Returns the page with the lines after one.
fn at(run: &OccurrenceJson, after: &str) -> String {
    let after = Fields::default().with("after", after);
    format!("{}#log", after.at(&run_path(&run.id)))
}

fn shown(line: &LogLineJson) -> Markup {
    let word = match line.stream.as_str() {
        "log" => line.level.as_deref().unwrap_or("log"),
        stream => stream,
    };
    let tone = match word {
        "error" => "bad",
        "warn" | "stderr" => "warn",
        _ => "calm",
    };
    let of_day = line.at.get(11..19).unwrap_or(&line.at);
    html! {
        time.clock datetime=(line.at) title=(line.at) { (of_day) } " "
        span.mark.(tone) { (text(word)) } " " (text(line.text.trim_end_matches('\n')))
    }
}
