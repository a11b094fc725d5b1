//! The page of runs: occurrences of schedules, and records of messages.

use axum::Extension;
use axum::http::Uri;
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands, with_options};
use super::page::{Page, Section};
use super::paths;
use super::query::{Fields, tabs};
use super::runs::{self, RUNS};
use super::shown::text;
use crate::answer::Problem;
use crate::occurrences::Occurrences;

/// Views, each with its name and its state; `unresolved` is another field of the query.
const VIEWS: [(&str, &str); 9] = [
    ("all", ""),
    ("unresolved failures", "unresolved"),
    ("running", "running"),
    ("queued", "queued"),
    ("waiting", "waiting"),
    ("failed", "failed"),
    ("timed out", "timed_out"),
    ("completed", "completed"),
    ("skipped", "skipped"),
];

/// Fields of the form.
const FIELDS: [(&str, &str); 4] = [
    ("schedule", "Schedule"),
    ("correlation_id", "Correlation id"),
    ("message_id", "Message id"),
    ("fingerprint", "Fingerprint of the error"),
];

/// Shows runs, the newest first. The query is that of `/v1/occurrences`.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let asked = Fields::of(&uri).without(&["limit"]);
    let of_api = asked.with("limit", &RUNS.to_string()).at("/v1/occurrences");
    let listed: Result<Occurrences, Problem> = api.get(&of_api).await;
    Ok(Page::new(Section::Occurrences, "Runs")
        .with("filters", filters(&asked))
        .with_list("runs", list(&asked, listed)))
}

fn filters(asked: &Fields) -> Markup {
    let chosen = match asked.get("unresolved") {
        Some("true") => "unresolved",
        _ => asked.get("state").unwrap_or_default(),
    };
    let views: Vec<(String, Markup, bool)> = VIEWS
        .iter()
        .map(|(name, word)| {
            let rest = asked.without(&["state", "unresolved", "cursor"]);
            let view = match *word {
                "unresolved" => rest.with("unresolved", "true"),
                word => rest.with("state", word),
            };
            (view.at(paths::RUNS), html! { (name) }, chosen == *word)
        })
        .collect();
    let is_filtered = FIELDS.iter().any(|(name, _)| asked.get(name).is_some());
    html! {
        (tabs("State", &views))
        form.filters action=(paths::RUNS) {
            (asked.only(&["state", "unresolved"]).hidden())
            @for (name, label) in FIELDS {
                label { (label) " " input name=(name) value=(asked.get(name).unwrap_or_default()) maxlength="300" autocomplete="off"; }
            }
            button { "Filter" }
            @if is_filtered { a href=(asked.without(&FIELDS.map(|(name, _)| name)).without(&["cursor"]).at(paths::RUNS)) { "Clear" } }
        }
    }
}

fn list(asked: &Fields, listed: Result<Occurrences, Problem>) -> Markup {
    let listed = match listed {
        Ok(listed) => listed,
        Err(problem) => return html! { p.error { (text(problem.detail())) } },
    };
    let is_of_one = asked.get("schedule").is_some();
    html! {
        (runs::table(&listed.occurrences, is_of_one, "No run is listed."))
        p {
            @if asked.get("cursor").is_some() { a href=(asked.without(&["cursor"]).at(paths::RUNS)) { "Newest runs" } " " }
            @if let Some(cursor) = &listed.cursor { a href=(asked.with("cursor", cursor).at(paths::RUNS)) { "Older runs" } }
        }
        @if let Some(line) = as_command(asked, listed.occurrences.is_empty()) { (commands(&[line])) }
    }
}

/// Returns the command that shows the same runs. A list is not of the id of a message, which has one run.
fn as_command(asked: &Fields, is_none_listed: bool) -> Option<String> {
    if let Some(id) = asked.get("message_id") {
        return (!is_none_listed).then(|| command(&["occurrence", "show", id]));
    }
    let fields = asked.only(&["schedule", "state", "fingerprint", "correlation_id"]);
    let unresolved = match asked.get("unresolved") {
        Some("true") => &["--unresolved"][..],
        _ => &[],
    };
    let words = [&["occurrence", "list"], unresolved].concat();
    Some(with_options(&command(&words), &fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_shows_the_runs_of_the_page() {
        let of_schedule = Fields::from([("schedule", "a"), ("unresolved", "true")]);
        assert_eq!(
            as_command(&of_schedule, true).unwrap(),
            "ganger occurrence list --unresolved --schedule a"
        );
        let of_message = Fields::from([("message_id", "m 1")]);
        assert_eq!(
            as_command(&of_message, false).unwrap(),
            "ganger occurrence show 'm 1'"
        );
        assert_eq!(as_command(&of_message, true), None);
    }
}
