//! Actions on a schedule.

use ganger_queue::ledger::shown::{BackfillJson, ScheduleDetailsJson};
use maud::{Markup, html};
use serde_json::json;

use super::api::Api;
use super::commands::{command, commands};
use super::paths::{RUNS, SCHEDULES, form, schedule_api, schedule_path};
use super::query::Fields;
use super::runs::is_failure;
use super::shown::{count, text, time_of};
use crate::answer::Problem;

/// Number of slots of a backfill that are listed.
const LISTED: usize = 20;

/// A backfill that is being considered: its range, and the slots that would run.
pub(super) struct Planned {
    from: String,
    to: String,
    slots: Result<BackfillJson, Problem>,
}

impl Planned {
    /// Asks for the slots of the range in the query of the page, if it has one.
    pub(super) async fn of(api: &Api, at: &str, asked: &Fields) -> Option<Self> {
        let from = asked.get("backfill_from")?.to_owned();
        let to = asked.get("backfill_to")?.to_owned();
        let range = json!({ "from": from, "to": to, "dry_run": true });
        let slots = api.ask(&format!("{at}/backfill"), &range).await;
        Some(Self { from, to, slots })
    }
}

/// Shows what can be done with a schedule.
pub(super) fn actions(shown: &ScheduleDetailsJson, planned: Option<Planned>) -> Markup {
    let name = &shown.schedule.name;
    let at = form("post", &schedule_api(name));
    html! {
        h2 { "Actions" }
        div.actions {
            @match shown.schedule.state.as_str() {
                "active" => (pause(&at)),
                "paused" | "disabled" | "broken" => (resume(&at)),
                _ => {}
            }
            (trigger(&at, shown))
            (skip(&at, shown))
            (backfill(name, planned))
            @if shown.schedule.origin != "file" { (remove(shown)) }
        }
        (commands(&as_commands(shown)))
    }
}

fn as_commands(shown: &ScheduleDetailsJson) -> Vec<String> {
    let of = |verb: &str, more: &[&str]| {
        let words = [&["schedule", verb, &*shown.schedule.name], more].concat();
        command(&words)
    };
    let mut lines = vec![
        of("trigger", &["--reason", "TEXT"]),
        of("pause", &["--reason", "TEXT"]),
        of("resume", &[]),
        of("skip", &[]),
        of("backfill", &["--from", "TIME", "--to", "TIME", "--dry-run"]),
        of("history", &[]),
    ];
    if shown.schedule.origin != "file" {
        lines.push(of("edit", &["--set", "KEY=VALUE"]));
        lines.push(of("remove", &[]));
    }
    lines
}

fn pause(at: &str) -> Markup {
    html! {
        details.ask {
            summary { "Pause…" }
            form method="post" action={ (at) "/pause" } {
                p { "No slot is dispatched until it is resumed. A run that has begun goes on." }
                label { "Reason " input name="reason" maxlength="500"; }
                button { "Pause" }
            }
        }
    }
}

fn resume(at: &str) -> Markup {
    html! {
        details.ask {
            summary { "Resume…" }
            form method="post" action={ (at) "/resume" } {
                label {
                    input type="checkbox" name="make_up:bool" value="true";
                    " Make up for the slots since then, by its rule for missed ones; otherwise they are skipped"
                }
                br;
                button { "Resume" }
            }
        }
    }
}

fn trigger(at: &str, shown: &ScheduleDetailsJson) -> Markup {
    let body = shown.definition.get("body").and_then(|body| body.as_str());
    let open = shown
        .occurrences
        .iter()
        .filter(|run| run.ended_at.is_none())
        .count();
    html! {
        details.ask {
            summary { "Trigger…" }
            form method="post" action={ (at) "/trigger" } {
                input type="hidden" name="said" value="The message is sent: this is its run.";
                input type="hidden" name="back" value={ (RUNS) "/{occurrence}" };
                p {
                    "One message is sent now, whatever the state of the schedule. "
                    @if open > 0 { (open) " of its runs " (if open == 1 { "is" } else { "are" }) " open." }
                }
                label { "Reason " input name="reason" maxlength="500"; }
                label {
                    input type="checkbox" name="force:bool" value="true";
                    " Also while another run is open"
                }
                details {
                    summary { "Another body" }
                    label for="trigger-body" { "Body, instead of that of the schedule" }
                    textarea #trigger-body name="body" rows="6" placeholder=(body.unwrap_or_default()) spellcheck="false" {}
                }
                button { "Trigger" }
            }
        }
    }
}

fn skip(at: &str, shown: &ScheduleDetailsJson) -> Markup {
    html! {
        @if let (Some(slot), "active") = (&shown.schedule.next_slot, shown.schedule.state.as_str()) {
            details.ask {
                summary { "Skip the next…" }
                form method="post" action={ (at) "/skip" } {
                    input type="hidden" name="said" value="The slot {slot} is skipped.";
                    p {
                        "The next slot that is not skipped yet, " (time_of(slot)) " or later, does not run. \
                         Until it is due this can be undone below, among the next slots."
                    }
                    label { "Reason " input name="reason" maxlength="500"; }
                    button { "Skip the next" }
                }
            }
        }
    }
}

fn remove(shown: &ScheduleDetailsJson) -> Markup {
    let name = &shown.schedule.name;
    let failed = shown.occurrences.iter();
    let failed = failed
        .filter(|run| is_failure(&run.state) && run.resolved.is_none())
        .count();
    html! {
        details.ask {
            summary { "Remove…" }
            form method="post" action=(form("delete", &schedule_api(name))) {
                input type="hidden" name="if-match" value={ "\"" (shown.etag) "\"" };
                input type="hidden" name="back" value=(SCHEDULES);
                p {
                    "1 schedule is removed, and none of its slots runs any more. Its " (count(shown.runs))
                    " runs and its versions are kept"
                    @if failed > 0 { "; " (failed) " of the last runs failed and are not resolved" } "."
                }
                button.danger { "Remove" }
            }
        }
    }
}

/// Shows the form of a backfill, and the slots that it would run.
fn backfill(name: &str, planned: Option<Planned>) -> Markup {
    let (from, to) = planned.as_ref().map_or(("", ""), |planned| {
        (planned.from.as_str(), planned.to.as_str())
    });
    html! {
        details.ask open[planned.is_some()] {
            summary { "Backfill…" }
            form action=(schedule_path(name)) {
                p { "Slots of the past that have not run are run now. First the slots are listed; nothing is sent yet. The times are \
                     those of the schedule's zone." }
                label { "From " input type="datetime-local" step="1" name="backfill_from" required value=(from); }
                label { "To " input type="datetime-local" step="1" name="backfill_to" required value=(to); }
                button { "List the slots" }
            }
            @match planned {
                Some(Planned { slots: Err(problem), .. }) => p.error { (text(problem.detail())) },
                Some(Planned { from, to, slots: Ok(slots) }) => (planned_backfill(name, (&from, &to), &slots)),
                None => {}
            }
        }
    }
}

fn planned_backfill(name: &str, (from, to): (&str, &str), planned: &BackfillJson) -> Markup {
    let slots = planned.slots.len();
    html! {
        @if slots == 0 {
            p { "No slot of that range would run: " (count(planned.done)) " have run already." }
        } @else {
            p { strong { (slots) " slots would run; " } (count(planned.done)) " of the range have run before and are left alone." }
            ol.plain.columns {
                @for slot in planned.slots.iter().take(LISTED) { li { (time_of(slot)) } }
            }
            @if slots > LISTED { p { "… and " (slots - LISTED) " more, until " (time_of(&planned.slots[slots - 1])) "." } }
            form method="post" action={ (form("post", &schedule_api(name))) "/backfill" } {
                input type="hidden" name="from" value=(from);
                input type="hidden" name="to" value=(to);
                input type="hidden" name="back" value=(schedule_path(name));
                input type="hidden" name="said" value="{slots} slots of the past run now.";
                p { (slots) " messages are sent at once, whatever its rule for overlaps." }
                label { "Reason " input name="reason" maxlength="500"; }
                button.danger { "Run " (slots) " slots" }
                " " a href=(schedule_path(name)) { "Never mind" }
            }
        }
    }
}
