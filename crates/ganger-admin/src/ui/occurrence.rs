//! The page of a run: what has become of it, its log, and what an operator can do.

use std::time::Duration;

use axum::Extension;
use axum::extract::Path;
use axum::http::Uri;
use ganger_queue::ledger::LOG_LINES_MAX;
use ganger_queue::ledger::shown::{OccurrenceDetailsJson, OccurrenceJson, OccurrenceLogJson};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::api::Api;
use super::occurrence_actions::actions;
use super::occurrence_log::log;
use super::page::{Page, Section};
use super::paths::{RUNS, dead_path, pool_path, queue_path, run_api, schedule_path};
use super::query::Fields;
use super::runs::is_failure;
use super::shown::{count, first, millis, state, text, time_of};
use crate::answer::Problem;

/// Interval at which an open run is looked at: what it writes is to be read within a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Longest beginning of a note in the timeline, in characters.
const NOTE_CHARS: usize = 200;

/// Longest result that is shown, in characters.
const RESULT_CHARS: usize = 64 << 10;

/// Shows a run. With `after` its log begins after that line, or with the `first`.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    let found: OccurrenceDetailsJson = api.get(&run_api(&id)).await?;
    let run = &found.occurrence;
    let lines = run.log_lines + run.log_dropped;
    let after = match Fields::of(&uri).get("after") {
        Some("first") => None,
        Some(after) => after.parse::<u64>().ok(),
        None => lines.checked_sub(u64::from(LOG_LINES_MAX) + 1),
    };
    let at = format!("{}/log", run_api(&run.id));
    let query = after.map_or_else(Fields::default, |after| {
        Fields::default().with("after", &after.to_string())
    });
    let logged: Result<OccurrenceLogJson, Problem> = api.get(&query.at(&at)).await;
    let title = match (&run.schedule, &run.slot) {
        (Some(schedule), Some(_)) => format!("Run of {schedule}"),
        (Some(schedule), None) => format!("Triggered run of {schedule}"),
        (None, _) => format!("Message of {}", run.queue),
    };
    let page = Page::new(Section::Occurrences, title)
        .with("summary", summary(run))
        .with("actions", actions(run, dead_letter_of(run).as_deref()))
        .with("timeline", timeline(&found))
        .with("log", log(run, logged, after))
        .with("result", result(run))
        .with("facts", facts(run));
    Ok(match run.ended_at {
        Some(_) => page.still(),
        None => page.every(LOOK_EVERY),
    })
}

/// Returns the dead letters of the message of a run.
pub(super) fn dead_letter_of(run: &OccurrenceJson) -> Option<String> {
    let dead = run.dead_letter.as_ref()?;
    let asked = Fields::from([("message_id", &*dead.message_id)]);
    Some(asked.at(&dead_path(&dead.source)))
}

fn summary(run: &OccurrenceJson) -> Markup {
    html! {
        p.lead {
            (state(&run.state))
            @if let Some(reason) = run.reason.as_ref().filter(|reason| **reason != run.state) { " (" (text(&reason.replace('_', " "))) ")" }
            @if let Some(schedule) = &run.schedule {
                @match &run.slot {
                    Some(slot) => { ", slot " (time_of(slot)) " of " },
                    None => { ", a triggered run of " },
                }
                a href=(schedule_path(schedule)) { (text(schedule)) }
            }
            @match (&run.ended_at, run.duration_ms) {
                (Some(at), Some(took)) => { "; ended " (time_of(at)) " after " (millis(took)) },
                (Some(at), None) => { "; ended " (time_of(at)) },
                (None, _) => @if let Some(at) = &run.started_at { "; attempt " (run.attempt) " began " (time_of(at)) },
            }
            "."
        }
        @if let Some(request) = &run.cancel_request { p { strong { "Being cancelled: " } (text(request)) } }
        @if let (Some(progress), None) = (&run.progress, &run.ended_at) { p { strong { "Progress: " } (text(progress)) } }
        @if let Some(error) = &run.error {
            @if is_failure(&run.state) { pre.error { (text(error)) } }
            @else { details { summary { (heading_of_error(&run.state, run.ended_at.is_some())) } pre.error { (text(error)) } } }
        }
        @if let Some(note) = &run.resolved { p { strong { "Resolved: " } (text(note)) } }
    }
}

/// Returns the heading of the error of a run that has not failed.
fn heading_of_error(state: &str, has_ended: bool) -> &'static str {
    match !has_ended || state == "completed" {
        true => "Error of an earlier attempt",
        false => "Last error",
    }
}

fn timeline(found: &OccurrenceDetailsJson) -> Markup {
    html! {
        h2 { "Timeline" }
        @if found.events.is_empty() { p.none { "The record of a message of no schedule has its end only." } }
        @else { div.wide tabindex="0" { table.snug.stack {
            thead { tr {
                th scope="col" { "When" } th.number scope="col" { "After" } th scope="col" { "State" } th.number scope="col" { "Attempt" }
                th scope="col" { "Note" }
            } }
            tbody { @for (at, event) in found.events.iter().enumerate() {
                tr {
                    th scope="row" { (time_of(&event.at)) }
                    td.number data-label="After" { @if let Some(before) = at.checked_sub(1).and_then(|at| found.events.get(at)) { (between(&before.at, &event.at)) } }
                    td { (state(&event.to)) }
                    td.number data-label="Attempt" { (event.attempt) }
                    td.text { @if let Some(note) = &event.note { (text(&first(note, NOTE_CHARS))) } }
                }
            } }
        } } }
    }
}

/// Returns the time between two instants.
fn between(before: &str, after: &str) -> String {
    let (before, after) = (before.parse::<Timestamp>(), after.parse::<Timestamp>());
    let (Ok(before), Ok(after)) = (before, after) else {
        return String::new();
    };
    let took = after.duration_since(before).as_millis();
    u64::try_from(took).map_or_else(|_| String::new(), millis)
}

fn result(run: &OccurrenceJson) -> Markup {
    let Some(result) = &run.result else {
        return html! {};
    };
    let shown = match serde_json::from_str::<Value>(result) {
        Ok(json @ (Value::Object(_) | Value::Array(_))) => {
            serde_json::to_string_pretty(&json).unwrap_or_default()
        }
        _ => result.clone(),
    };
    let shown: String = shown.chars().take(RESULT_CHARS).collect();
    html! { h2 { "Result" } pre { (text(&shown)) } }
}

fn facts(run: &OccurrenceJson) -> Markup {
    html! {
        h2 { "Facts" }
        dl.facts {
            dt { "Id" } dd { code { (text(&run.id)) } }
            (messages(run))
            dt { "Queue" } dd {
                a href=(queue_path(run.source.as_deref().unwrap_or_default(), &run.queue)) { (text(&run.queue)) }
                @if let Some(source) = &run.source { " " span.of { "of " (text(source)) } }
            }
            @if let Some(schedule) = &run.schedule {
                dt { "Schedule" }
                dd { a href=(schedule_path(schedule)) { (text(schedule)) } @if run.version > 0 { ", version " (run.version) } }
            }
            @if let Some(slot) = &run.slot { dt { "Slot" } dd { (time_of(slot)) } }
            @if let Some(slot) = &run.last_slot { dt { "Last slot" } dd { (time_of(slot)) } }
            @if run.missed > 0 { dt { "Stands for" } dd { (count(run.missed)) " more slots" } }
            dt { "Queued" } dd { (time_of(&run.queued_at)) }
            @if let Some(at) = &run.started_at { dt { "Started" } dd { (time_of(at)) } }
            @if let Some(at) = &run.heard_at { dt { "Last heard of" } dd { (time_of(at)) } }
            @if let Some(at) = &run.ended_at { dt { "Ended" } dd { (time_of(at)) } }
            @if let Some(took) = run.duration_ms { dt { "Took" } dd { (millis(took)) } }
            dt { "Attempt" } dd { (run.attempt) }
            @if let Some(progress) = &run.progress { dt { "Progress" } dd { (text(progress)) } }
            (failure(run))
            @if let Some(worker) = &run.worker {
                dt { "Worker" } dd { (worker.worker) " of " a href=(pool_path(&worker.pool)) { (text(&worker.pool)) } ", process " (worker.pid) }
                dt { "Daemon" } dd { (text(&worker.daemon)) }
            }
            @if let Some(trace) = &run.trace_id { dt { "Trace" } dd { code { (text(trace)) } } }
        }
    }
}

fn messages(run: &OccurrenceJson) -> Markup {
    let by = |name: &str, value: &str| Fields::default().with(name, value).at(RUNS);
    html! {
        @if let Some(id) = &run.message_id { dt { "Message id" } dd { code { (text(id)) } } }
        @if let Some(id) = &run.correlation_id {
            dt { "Correlation id" } dd { a href=(by("correlation_id", id)) title="Runs with this correlation id" { code { (text(id)) } } }
        }
    }
}

fn failure(run: &OccurrenceJson) -> Markup {
    let by = |value: &str| Fields::default().with("fingerprint", value).at(RUNS);
    html! {
        @if let Some(fingerprint) = &run.fingerprint {
            dt { "Fingerprint" }
            dd { a href=(by(fingerprint)) title="Runs with this error" { code { (text(fingerprint)) } } }
        }
        @if let Some(code) = run.exit_code { dt { "Exit code" } dd { (code) } }
        @if let Some(signal) = run.signal { dt { "Signal" } dd { (signal) } }
        @if let (Some(path), Some(dead)) = (dead_letter_of(run), &run.dead_letter) {
            dt { "Dead letter" } dd { a href=(path) { code { (text(&dead.message_id)) } } " " span.of { "of " (text(&dead.source)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_cancelled_run_may_be_its_own() {
        let earlier = "Error of an earlier attempt";
        for (state, has_ended, heading) in [
            ("completed", true, earlier),
            ("waiting", false, earlier),
            ("cancelled", true, "Last error"),
        ] {
            assert_eq!(heading_of_error(state, has_ended), heading, "{state}");
        }
    }
}
