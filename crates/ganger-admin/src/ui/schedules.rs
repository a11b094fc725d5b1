//! The page of schedules, and the pause of all of them.

use axum::Extension;
use axum::http::Uri;
use ganger_pool::overview::Status;
use ganger_queue::ledger::shown::{AuditJson, ScheduleJson};
use ganger_schedule::occurrence::ScheduleState;
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::now::LEDGER_EVERY;
use super::page::{Page, Section};
use super::paths::{NEW_SCHEDULE, RUNS, SCHEDULES, STATUS, form, schedule_api, schedule_path};
use super::query::{Fields, tabs};
use super::runs::dots;
use super::shown::{count, first, state, text, time_of};
use crate::answer::Problem;
use crate::ledger::LedgerJson;

/// Number of schedules on a page.
const ROWS: usize = 50;

/// Number of last runs whose results are shown as dots.
const RESULTS: usize = 20;

/// Shows schedules. The query is that of `/v1/schedules`.
pub(super) async fn page(Extension(api): Extension<Api>, uri: Uri) -> Result<Page, Problem> {
    let asked = Fields::of(&uri).without(&["limit", "results"]);
    let ledger: LedgerJson = api.get("/v1/ledger").await?;
    let held = match &ledger.hold {
        Some(reason) => Some((reason.clone(), holder(&api).await)),
        None => None,
    };
    let status: Status = api.get(STATUS).await?;
    let counts = status.ledger.unwrap_or_default().schedules;
    let of_api = asked
        .with("limit", &(ROWS + 1).to_string())
        .with("results", &RESULTS.to_string());
    let listed: Result<Vec<ScheduleJson>, Problem> = api.get(&of_api.at("/v1/schedules")).await;
    let views = std::iter::once("").chain(ScheduleState::WORDS.iter().copied());
    let views: Vec<(String, Markup, bool)> = views
        .map(|word| {
            let number = match word {
                "" => counts.values().sum(),
                word => counts.get(word).copied().unwrap_or_default(),
            };
            let name = html! { (if word.is_empty() { "all" } else { word }) " " span.of { (count(number)) } };
            let path = asked.without(&["after"]).with("state", word).at(SCHEDULES);
            (path, name, asked.get("state").unwrap_or_default() == word)
        })
        .collect();
    Ok(Page::new(Section::Schedules, "Schedules")
        .with("hold", hold(held.as_ref(), counts.get("active").copied()))
        .with("filters", filters(&asked, &views))
        .with_list("schedules", list(&asked, listed))
        .every(LEDGER_EVERY))
}

/// Returns the change that has paused all schedules, if it is recorded.
async fn holder(api: &Api) -> Option<AuditJson> {
    let changes: Vec<AuditJson> = api.get("/v1/audit?subject=*&limit=20").await.ok()?;
    changes
        .into_iter()
        .find(|change| change.action == "pause_all")
}

fn hold(held: Option<&(String, Option<AuditJson>)>, active: Option<u64>) -> Markup {
    html! {
        @if let Some((reason, change)) = held {
            ul.problems { li.critical {
                strong { span aria-hidden="true" { "▲ " } "All schedules are paused: no slot is dispatched" }
                @if let Some(change) = change {
                    " since " (time_of(&change.at)) ", by " (text(change.actor.as_deref().unwrap_or("unknown")))
                }
                p.error { (text(reason)) }
                form method="post" action=(form("post", "/v1/schedules/resume")) {
                    button title="Slots since then are missed ones: the rule of each schedule decides on them" { "Resume all" }
                }
            } }
        } @else {
            div.actions {
                a.button href=(NEW_SCHEDULE) { "New schedule" }
                details.ask {
                    summary { "Pause all…" }
                    form method="post" action=(form("post", "/v1/schedules/pause")) {
                        p {
                            "None of the slots of " (count(active.unwrap_or_default())) " active schedules is dispatched, by no daemon of this \
                             ledger, until they are resumed. Runs that have begun go on."
                        }
                        label { "Reason " input name="reason" maxlength="500" required; }
                        button.danger { "Pause all" }
                    }
                }
            }
        }
    }
}

fn filters(asked: &Fields, views: &[(String, Markup, bool)]) -> Markup {
    html! {
        (tabs("State", views))
        form.filters action=(SCHEDULES) {
            (asked.only(&["state"]).hidden())
            label { "Name or tag " input type="search" name="text" value=(asked.get("text").unwrap_or_default()) maxlength="200"; }
            label { "Tag " input name="tag" value=(asked.get("tag").unwrap_or_default()) maxlength="200"; }
            button { "Filter" }
            @if asked.get("text").or(asked.get("tag")).is_some() { a href=(SCHEDULES) { "Clear" } }
        }
    }
}

fn list(asked: &Fields, listed: Result<Vec<ScheduleJson>, Problem>) -> Markup {
    let listed = match listed {
        Ok(listed) => listed,
        Err(problem) => return html! { p.error { (text(problem.detail())) } },
    };
    let last = listed.get(ROWS - 1).filter(|_| listed.len() > ROWS);
    html! {
        div.wide tabindex="0" {
            table.stack {
                thead { tr {
                    th scope="col" { "Schedule" } th scope="col" { "State" } th scope="col" { "Next slot" } th scope="col" { "Last runs" }
                    th scope="col" { "Tags" } th scope="col" { "Origin" } th scope="col" { "Actions" }
                } }
                tbody {
                    @for schedule in listed.iter().take(ROWS) { (row(asked, schedule)) }
                    @if listed.is_empty() { tr { td colspan="7" {
                        span.none { "No schedule is listed. A schedule sends a message into a queue at its times." }
                    } } }
                }
            }
        }
        p {
            @if asked.get("after").is_some() { a href=(asked.without(&["after"]).at(SCHEDULES)) { "First schedules" } " " }
            @if let Some(last) = last { a href=(asked.with("after", &last.name).at(SCHEDULES)) { "Further schedules" } }
        }
        (commands(&[
            command(&["schedule", "list", "--results", "20"]),
            command(&["schedule", "pause", "--all", "--reason", "TEXT"]),
            command(&["schedule", "resume", "--all"]),
            command(&["schedule", "trigger", "NAME"]),
        ]))
    }
}

fn row(asked: &Fields, schedule: &ScheduleJson) -> Markup {
    let at = form("post", &schedule_api(&schedule.name));
    html! {
        tr {
            th.name scope="row" { a href=(schedule_path(&schedule.name)) { (text(&schedule.name)) } }
            td.text {
                (state(&schedule.state))
                @if let Some(reason) = &schedule.state_reason { br; span.of { (text(&first(reason, 100))) } }
                @if let Some(overdue) = &schedule.overdue { br; span.error { "Overdue: " (text(&first(overdue, 160))) } }
            }
            td data-label="Next slot" { @match &schedule.next_slot {
                Some(slot) if schedule.state == "active" => (time_of(slot)),
                _ => span.of { "–" },
            } }
            td data-label="Last runs" {
                @match &schedule.last_state { Some(last) => (state(last)), None => span.of { "–" } }
                @if !schedule.results.is_empty() { " " br; (dots(&schedule.results.iter().map(|state| &**state).collect::<Vec<_>>())) }
            }
            td.tags { @for tag in &schedule.tags { a.tag href=(asked.without(&["after"]).with("tag", tag).at(SCHEDULES)) { (text(tag)) } " " } }
            td data-label="Origin" { (text(&schedule.origin)) }
            td {
                div.actions.tight {
                    form method="post" action={ (at) "/trigger" } {
                        input type="hidden" name="said" value="The message is sent: this is its run.";
                        input type="hidden" name="back" value={ (RUNS) "/{occurrence}" };
                        button aria-label={ "Trigger " (schedule.name) } title="Send its message now" { "Trigger" }
                    }
                    @match schedule.state.as_str() {
                        "active" => form method="post" action={ (at) "/pause" } {
                            button aria-label={ "Pause " (schedule.name) } title="Slots are not dispatched until it is resumed" { "Pause" }
                        },
                        "paused" | "disabled" | "broken" => form method="post" action={ (at) "/resume" } {
                            button aria-label={ "Resume " (schedule.name) } title="Slots since then are skipped" { "Resume" }
                        },
                        _ => {}
                    }
                }
            }
        }
    }
}
