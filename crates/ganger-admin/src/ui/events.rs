//! The page of the last events of the pools.

use axum::Extension;
use axum::http::Uri;
use ganger_queue::client::SourceInfo;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::api::Api;
use super::page::{Page, Section};
use super::paths::{DEAD, EVENTS, dead_path, pool_path};
use super::query::Fields;
use super::shown::{first, state, text, time};
use crate::answer::Problem;

/// Number of events on a page.
const ROWS: usize = 50;
/// Longest part of a reason in a row, in characters.
const REASON_CHARS: usize = 200;

/// Kinds of events, as the API names them.
const KINDS: [&str; 7] = [
    "pool_started",
    "pool_ended",
    "pool_state",
    "scaled",
    "worker_started",
    "worker_ended",
    "dead_letters",
];

/// An event.
#[derive(Debug, Deserialize)]
struct EventRow {
    id: String,
    at: f64,
    event: String,
    #[serde(default)]
    pool: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Shows the last events, the newest first. The query is that of `/v1/events/recent`.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let fields = Fields::of(&uri);
    let sought = fields.only(&["pool", "event"]);
    let asked = sought.with("limit", &ROWS.to_string());
    let asked = asked.with("before", fields.get("before").unwrap_or_default());
    let events: Vec<EventRow> = api.get(&asked.at("/v1/events/recent")).await?;
    let sources: Vec<SourceInfo> = api.get("/v1/sources").await?;
    let last = events.last().filter(|_| events.len() == ROWS);
    let older = last.map(|last| sought.with("before", &last.id).at(EVENTS));
    Ok(Page::new(Section::Events, "Events")
        .with("filters", filters(&fields))
        .with_list("events", listed(&events, &sources, older.as_deref())))
}

fn filters(fields: &Fields) -> Markup {
    let chosen = fields.get("event");
    html! {
        form.filters action=(EVENTS) {
            label { "Pool " input name="pool" value=[fields.get("pool")]; }
            label {
                "Event "
                select name="event" {
                    option value="" { "all" }
                    @for kind in KINDS {
                        option value=(kind) selected[chosen == Some(kind)] { (kind.replace('_', " ")) }
                    }
                }
            }
            button { "Filter" }
            @if !fields.only(&["pool", "event", "before"]).is_empty() { a href=(EVENTS) { "The newest of all" } }
        }
    }
}

fn listed(events: &[EventRow], sources: &[SourceInfo], older: Option<&str>) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cards {
                thead { tr { th scope="col" { "When" } th scope="col" { "Pool" } th scope="col" { "Event" } } }
                tbody {
                    @for event in events {
                        tr {
                            td { (time(moment_of(event.at))) }
                            td {
                                @if let Some(pool) = &event.pool { a href=(pool_path(pool)) { (text(pool)) } }
                            }
                            td.cut { (sentence(event, sources)) }
                        }
                    }
                    @if events.is_empty() { tr { td colspan="3" { "No such event since the daemon was started." } } }
                }
            }
        }
        @if let Some(older) = older { p { a href=(older) { "Older events" } } }
        @else { p.none { "The daemon keeps its last 4096 events; older ones are in its log." } }
    }
}

fn moment_of(seconds: f64) -> Timestamp {
    let seconds = jiff::SignedDuration::try_from_secs_f64(seconds).unwrap_or_default();
    Timestamp::from_duration(seconds).unwrap_or_default()
}

/// Returns the page of the dead letters of a pool.
fn dead_of(pool: &str, sources: &[SourceInfo]) -> String {
    let mut sources = sources.iter();
    let source = sources.find(|source| source.pools.iter().any(|own| own.name == pool));
    source.map_or_else(
        || DEAD.to_owned(),
        |source| Fields::from([("pool", pool)]).at(&dead_path(&source.name)),
    )
}

/// Says what has happened.
fn sentence(event: &EventRow, sources: &[SourceInfo]) -> Markup {
    let of = |name: &str| match event.more.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    html! {
        @match event.event.as_str() {
            "pool_started" => "Pool started",
            "pool_ended" => "Pool ended",
            "pool_state" => {
                (state(&of("state"))) " – was " (of("before").replace('_', " "))
                @if !of("reason").is_empty() { ": " span.error { (text(&first(&of("reason"), REASON_CHARS))) } }
            },
            "scaled" => { "Target set to " (of("workers")) " workers, was " (of("before")) },
            "worker_started" => { "Worker " (of("slot")) " started, process " (of("pid")) },
            "worker_ended" => { "Worker " (of("slot")) " ended: " (text(&first(&of("cause"), REASON_CHARS))) },
            "dead_letters" => {
                @let number = of("count");
                span.error { "▲ " }
                a.error href=(dead_of(event.pool.as_deref().unwrap_or_default(), sources)) {
                    (number) @if number == "1" { " dead letter" } @else { " dead letters" }
                }
            },
            other => (text(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_a_sentence() {
        for (json, expected) in [
            (
                r#""event":"worker_ended","pool":"p","slot":3,"pid":null,"cause":"<b>""#,
                "Worker 3 ended: &lt;b&gt;",
            ),
            (
                r#""event":"scaled","pool":"p","workers":3,"before":1"#,
                "Target set to 3 workers, was 1",
            ),
            (r#""event":"new_kind","pool":"p""#, "new_kind"),
        ] {
            let event: EventRow =
                serde_json::from_str(&format!("{{\"id\":\"1-2\",\"at\":1.5,{json}}}")).unwrap();
            assert_eq!(sentence(&event, &[]).into_string(), expected);
            assert_eq!(moment_of(event.at).to_string(), "1970-01-01T00:00:01.5Z");
        }
    }
}
