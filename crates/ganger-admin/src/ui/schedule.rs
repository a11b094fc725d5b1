//! The page of a schedule: its state, its times, its last runs, its definition and the versions of that.

use std::time::Duration;

use axum::extract::Path;
use axum::http::Uri;
use axum::{Extension, http::StatusCode};
use ganger_queue::ledger::shown::{ScheduleDetailsJson, ScheduleJson, SlotJson, VersionJson};
use maud::{Markup, html};

use super::api::Api;
use super::live::Followed;
use super::page::{Page, Section};
use super::paths::{self, SCHEDULES, form, schedule_api};
use super::query::Fields;
use super::runs::{self, RUNS};
use super::schedule_actions::{Planned, actions};
use super::schedule_versions::{definition, versions};
use super::shown::{count, state, text, time_of};
use super::year::year;
use crate::answer::Problem;
use crate::explain::Explained;
use crate::ledger::LedgerJson;
use crate::occurrences::Occurrences;

/// Interval at which the page is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Number of coming slots.
const SLOTS: usize = 20;

/// Shows a schedule. With `backfill_from` and `backfill_to` it shows the slots that a backfill would run.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path(name): Path<String>,
    uri: Uri,
    followed: Option<Extension<Followed>>,
) -> Result<Page, Problem> {
    let asked = Fields::of(&uri);
    let at = schedule_api(&name);
    let explained_at = format!("{at}/explain?n={SLOTS}");
    let ran = Fields::default().with("schedule", &name);
    let runs_at = ran.with("limit", &RUNS.to_string()).at("/v1/occurrences");
    let versions_at = format!("{at}/versions");
    let shown: Result<ScheduleDetailsJson, Problem> = api.get(&at).await;
    let shown = match shown {
        Err(problem) if problem.is(StatusCode::NOT_FOUND) => {
            return removed(&api, &name, &versions_at, problem).await;
        }
        shown => shown?,
    };
    let (explained, ran, versions_of, ledger) = tokio::join!(
        api.get::<Explained>(&explained_at),
        api.get::<Occurrences>(&runs_at),
        api.get::<Vec<VersionJson>>(&versions_at),
        api.get::<LedgerJson>("/v1/ledger"),
    );
    let planned = Planned::of(&api, &at, &asked).await;
    // It is counted once: a day more or less is no reason to count a year every other second.
    let zone = shown.definition.get("zone").and_then(|zone| zone.as_str());
    let year = match followed {
        Some(_) => None,
        None => {
            let counts_all = asked.get("count").is_some();
            Some(year(&api, &name, zone.unwrap_or("UTC"), counts_all).await)
        }
    };
    let hold = ledger.ok().and_then(|ledger| ledger.hold);
    let is_planned = planned.is_some();
    let page = Page::new(Section::Schedules, format!("Schedule {name}"))
        .with("summary", summary(&shown, hold.as_deref()))
        .with("actions", actions(&shown, planned))
        .with_list("runs", last_runs(&name, &shown, ran));
    let page = match year {
        Some(year) => page.with("year", year),
        None => page,
    };
    let page = page
        .with("times", times(&shown, explained))
        .with("definition", definition(&shown))
        .with("versions", versions(&shown.schedule, versions_of));
    Ok(match is_planned {
        true => page.still(),
        false => page.every(LOOK_EVERY),
    })
}

/// Shows the versions of a schedule that was removed, if there are any.
async fn removed(
    api: &Api,
    name: &str,
    versions_at: &str,
    problem: Problem,
) -> Result<Page, Problem> {
    let kept: Vec<VersionJson> = api.get(versions_at).await.unwrap_or_default();
    if kept.is_empty() {
        return Err(problem);
    }
    let runs = Fields::default().with("schedule", name).at(paths::RUNS);
    let summary = html! {
        p.lead { "This schedule was removed. Its versions are kept, and " a href=(runs) { "its runs" } "." }
    };
    let gone = ScheduleJson {
        name: name.to_owned(),
        state: "removed".to_owned(),
        state_reason: None,
        overdue: None,
        next_slot: None,
        last_state: None,
        results: Vec::new(),
        tags: Vec::new(),
        origin: String::new(),
        version: 0,
    };
    Ok(
        Page::new(Section::Schedules, format!("Schedule {name}, removed"))
            .with("summary", summary)
            .with("versions", versions(&gone, Ok(kept)))
            .still(),
    )
}

fn summary(shown: &ScheduleDetailsJson, hold: Option<&str>) -> Markup {
    let schedule = &shown.schedule;
    let description = shown.definition.get("description");
    html! {
        @if let Some(description) = description.and_then(|text| text.as_str()) { p { (text(description)) } }
        p.lead {
            (state(&schedule.state))
            @if let Some(reason) = &schedule.state_reason { ": " (text(reason)) }
            @if let (Some(slot), "active") = (&schedule.next_slot, schedule.state.as_str()) { "; next slot " (time_of(slot)) }
            "; " (count(shown.runs)) " runs"
            @if let Some(last) = &schedule.last_state { ", the last one " (state(last)) }
            "."
        }
        @if let Some(hold) = hold {
            ul.problems { li.critical {
                strong { "All schedules are paused: " } span.error { (text(hold)) } " "
                a href=(SCHEDULES) { "Resume them" }
            } }
        }
        @if let Some(overdue) = &schedule.overdue {
            ul.problems { li.critical { strong { span aria-hidden="true" { "▲ " } "Overdue: " } (text(overdue)) } }
        }
        p.of {
            @match schedule.origin.as_str() {
                "file" => "Defined in a configuration file",
                "api" => "Defined through the API",
                "sql" => "Defined in SQL",
                other => (text(other)),
            }
            @if schedule.version > 0 { ", version " (schedule.version) }
            @for tag in &schedule.tags {
                " " a.tag href=(Fields::default().with("tag", tag).at(SCHEDULES)) { (text(tag)) }
            }
        }
    }
}

fn last_runs(name: &str, shown: &ScheduleDetailsJson, ran: Result<Occurrences, Problem>) -> Markup {
    let list = match ran {
        Ok(ran) => ran.occurrences,
        Err(_) => shown.occurrences.clone(),
    };
    let all = Fields::default().with("schedule", name);
    let states: Vec<&str> = list.iter().map(|run| &*run.state).collect();
    html! {
        h2 { "Last runs" }
        @if !list.is_empty() { p.dots { (runs::dots(&states)) } (runs::durations(&list)) }
        (runs::table(&list, true, "It has not run yet."))
        @if list.len() >= RUNS { p { a href=(all.at(paths::RUNS)) { "All runs" } } }
    }
}

fn times(shown: &ScheduleDetailsJson, explained: Result<Explained, Problem>) -> Markup {
    let explained = match explained {
        Ok(explained) => explained,
        Err(problem) => return html! { h2 { "Times" } p.error { (text(problem.detail())) } },
    };
    html! {
        h2 { "Times" }
        (words(&explained))
        h3 { "Next slots" }
        (slots(shown, &explained.slots))
    }
}

/// Shows times in words.
pub(super) fn words(explained: &Explained) -> Markup {
    html! {
        dl.facts {
            @for line in &explained.words { dt { (text(&line.label)) } dd { (text(&line.text)) } }
        }
    }
}

fn slots(shown: &ScheduleDetailsJson, slots: &[SlotJson]) -> Markup {
    let at = format!("{}/skip", schedule_api(&shown.schedule.name));
    let at = form("post", &at);
    html! {
        @if !shown.skips.is_empty() {
            ul.plain {
                @for slot in &shown.skips { li {
                    (state("skipped")) " on purpose: " (time_of(slot)) " "
                    form.tight method="post" action=(at) {
                        input type="hidden" name="slot" value=(slot);
                        input type="hidden" name="undo:bool" value="true";
                        input type="hidden" name="said" value="The slot {slot} runs after all.";
                        button.quiet aria-label={ "Run " (slot) " after all" } { "Undo" }
                    }
                } }
            }
        }
        @if slots.is_empty() { p.none { "There is no further slot." } }
        @else { div.wide tabindex="0" { table.snug {
            thead { tr {
                th scope="col" { "Your time" } th scope="col" { "Time of the schedule" } th scope="col" { "Note" } th scope="col" { "Action" }
            } }
            tbody { @for slot in slots.iter().filter(|slot| !shown.skips.contains(&slot.slot)) {
                tr {
                    th scope="row" { (time_of(&slot.slot)) }
                    td { (text(&local(slot))) }
                    td { (text(&slot.note)) }
                    td { form.tight method="post" action=(at) {
                        input type="hidden" name="slot" value=(slot.slot);
                        input type="hidden" name="said" value="The slot {slot} is skipped.";
                        button.quiet aria-label={ "Skip " (slot.slot) } { "Skip" }
                    } }
                }
            } }
        } } }
    }
}

/// Returns a slot by the clocks of its zone.
fn local(slot: &SlotJson) -> String {
    slot.local.replacen('T', " ", 1)
}

/// Shows slots of a definition that is not entered yet.
pub(super) fn planned_slots(slots: &[SlotJson]) -> Markup {
    html! {
        div.wide tabindex="0" { table.snug {
            thead { tr { th scope="col" { "Your time" } th scope="col" { "Time of the schedule" } th scope="col" { "Note" } } }
            tbody { @for slot in slots {
                tr { th scope="row" { (time_of(&slot.slot)) } td { (text(&local(slot))) } td { (text(&slot.note)) } }
            } }
        } }
    }
}
