//! Actions on a run.

use ganger_queue::ledger::shown::OccurrenceJson;
use maud::{Markup, html};

use super::commands::{command, commands};
use super::paths::{RUNS, form, run_api};
use super::runs::is_failure;
use super::shown::count;

/// Shows what can be done with a run. The body is that of its dead letter.
pub(super) fn actions(run: &OccurrenceJson, dead: Option<&str>) -> Markup {
    let at = form("post", &run_api(&run.id));
    let has_ended = run.ended_at.is_some();
    html! {
        h2 { "Actions" }
        div.actions {
            @if !has_ended { (cancel(run, &at)) }
            @if has_ended && run.dead_letter.is_some() { (send_back(&at, dead)) }
            @if is_failure(&run.state) { (resolve(run, &at)) }
            @if has_ended { (delete(run)) }
        }
        (commands(&as_commands(run)))
    }
}

fn as_commands(run: &OccurrenceJson) -> Vec<String> {
    let has_ended = run.ended_at.is_some();
    let of = |verb: &str, more: &[&str]| {
        let words = [&["occurrence", verb, &*run.id], more].concat();
        command(&words)
    };
    let mut lines = Vec::new();
    if !has_ended {
        lines.push(of("cancel", &["--reason", "TEXT"]));
    }
    if has_ended && run.dead_letter.is_some() {
        lines.push(of("retry", &[]));
        lines.push(of("retry", &["--body", "FILE"]));
    }
    if is_failure(&run.state) {
        lines.push(of("resolve", &["--note", "TEXT"]));
    }
    if has_ended {
        lines.push(of("delete", &[]));
    }
    lines.push(of("show", &[]));
    lines
}

fn cancel(run: &OccurrenceJson, at: &str) -> Markup {
    html! {
        details.ask {
            summary { "Cancel…" }
            form method="post" action={ (at) "/cancel" } {
                input type="hidden" name="said" value="The run is cancelled, or its worker is asked to stop.";
                p {
                    @if run.state == "running" { "1 running message is stopped: its worker is asked to, and killed if it has not answered within timeout_grace." }
                    @else { "1 message that waits is taken out of its queue, and does not run." }
                }
                label { "Reason " input name="reason" maxlength="500"; }
                button.danger { "Cancel the run" }
            }
        }
    }
}

fn send_back(at: &str, dead: Option<&str>) -> Markup {
    html! {
        form method="post" action={ (at) "/retry" } {
            button title="Its dead letter goes back into its queue: the run goes on with another attempt" { "Send back" }
        }
        // Its dead letter has a page to change the body, which shows the difference.
        @if let Some(path) = dead { a.button href=(path) { "Send back with another body…" } }
    }
}

fn resolve(run: &OccurrenceJson, at: &str) -> Markup {
    html! {
        details.ask {
            summary { @if run.resolved.is_some() { "Change the note…" } @else { "Resolve…" } }
            form method="post" action={ (at) "/resolve" } {
                p { "It is no longer listed among the unresolved failures. Nothing runs." }
                label { "Note: the cause, or the remedy " input name="note" maxlength="500" required value=(run.resolved.as_deref().unwrap_or_default()); }
                button { "Resolve" }
            }
        }
    }
}

fn delete(run: &OccurrenceJson) -> Markup {
    html! {
        details.ask {
            summary { "Delete…" }
            form method="post" action=(form("delete", &run_api(&run.id))) {
                input type="hidden" name="back" value=(RUNS);
                p {
                    "1 run is deleted with its history and " (count(run.log_lines)) " lines of its log"
                    @if run.dead_letter.is_some() { "; its dead letter stays" } ". This can't be undone."
                }
                button.danger aria-label={ "Delete the run " (run.id) } { "Delete" }
            }
        }
    }
}
