//! The definition of a schedule and its versions, with the keys that differ.

use ganger_queue::ledger::difference::{Difference, differences};
use ganger_queue::ledger::shown::{ScheduleDetailsJson, ScheduleJson, VersionJson};
use maud::{Markup, html};
use serde_json::Value;

use super::paths::{form, schedule_api};
use super::shown::{text, time_of};
use crate::answer::Problem;

/// Number of versions that are shown at once.
const SHOWN: usize = 20;

/// Returns a value of JSON for people.
pub(super) fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// Shows the definition of a schedule, and a form to change it if it can be changed here.
pub(super) fn definition(shown: &ScheduleDetailsJson) -> Markup {
    let name = &shown.schedule.name;
    let json = pretty(&shown.definition);
    html! {
        h2 { "Definition" }
        pre { (text(&json)) }
        @match shown.schedule.origin.as_str() {
            "api" => details.ask {
                summary { "Edit…" }
                form method="post" action=(form("put", &schedule_api(name))) {
                    input type="hidden" name="if-match" value={ "\"" (shown.etag) "\"" };
                    label for="definition-json" { "Keys of the schedule, as in [[schedules]], in JSON" }
                    textarea #definition-json name=":json" rows=(json.lines().count().clamp(8, 30)) spellcheck="false" required { (json) }
                    p { "It is checked first, and entered as a new version. If somebody else has changed it since, nothing happens." }
                    button { "Save" }
                }
            },
            "file" => p.none { "It is changed in the configuration file, which a reload reads." },
            _ => p.none { "It is changed where it was made: in SQL." },
        }
    }
}

/// Shows the versions of a schedule, each with its difference from the one before.
pub(super) fn versions(
    schedule: &ScheduleJson,
    versions: Result<Vec<VersionJson>, Problem>,
) -> Markup {
    let versions = match versions {
        Ok(versions) => versions,
        Err(problem) => return html! { h2 { "Versions" } p.error { (text(problem.detail())) } },
    };
    html! {
        h2 { "Versions" }
        div.wide tabindex="0" { table {
            thead { tr {
                th.number scope="col" { "Version" } th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "Difference" }
                th scope="col" { "Action" }
            } }
            tbody {
                @for (at, version) in versions.iter().take(SHOWN).enumerate() { (row(schedule, version, versions.get(at + 1))) }
                @if versions.is_empty() { tr { td colspan="5" { span.none { "No daemon has seen it yet." } } } }
            }
        } }
        @if versions.len() > SHOWN { p.none { (versions.len() - SHOWN) " older versions are kept." } }
    }
}

fn row(schedule: &ScheduleJson, version: &VersionJson, before: Option<&VersionJson>) -> Markup {
    let changes = before.map(|before| differences(&before.definition, &version.definition));
    let is_current = version.version == schedule.version;
    html! {
        tr {
            th.number scope="row" { (version.version) }
            td { (time_of(&version.at)) }
            td { (text(version.actor.as_deref().unwrap_or("unknown"))) br; span.of { (text(&version.origin)) } }
            td.text {
                @match changes {
                    Some(changes) if changes.is_empty() => span.none { "the same keys" },
                    Some(changes) => (difference(&changes)),
                    None => span.none { "the oldest that is kept" },
                }
                details { summary { "Whole definition" } pre { (text(&pretty(&version.definition))) } }
            }
            td {
                @if is_current { span.of { "in force" } }
                @else if schedule.origin == "api" {
                    details.ask {
                        summary { "Rollback…" }
                        form method="post" action={ (form("post", &schedule_api(&schedule.name))) "/rollback" } {
                            input type="hidden" name="version:int" value=(version.version);
                            p { "The definition of version " (version.version) " is entered again, as version " (schedule.version + 1) "." }
                            button { "Rollback to " (version.version) }
                        }
                    }
                }
            }
        }
    }
}

/// Shows keys that differ.
fn difference(changes: &[Difference]) -> Markup {
    html! {
        dl.difference {
            @for change in changes {
                dt { code { (text(&change.key)) } }
                dd {
                    @if !change.old.is_null() { del { (text(&pretty(&change.old))) } }
                    @if !change.new.is_null() { ins { (text(&pretty(&change.new))) } }
                }
            }
        }
    }
}
