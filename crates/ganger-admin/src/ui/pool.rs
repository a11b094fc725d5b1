//! The page of a pool: its workers, its figures, and what an operator can do.

use axum::extract::Path;
use axum::{Extension, http::Uri};
use ganger_pool::status::{PoolState, PoolStatus, WorkerStatus};
use ganger_pool::worker::output::LastLines;
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::now::{rates, waiting};
use super::page::{Page, Section};
use super::paths::{form, pool_api, pool_path};
use super::queue::queue_links;
use super::shown::{age, count, latency, rate_of, since, state, text};
use crate::answer::Problem;
use crate::trends::TrendsOfPools;

/// Shows a pool, and of its workers one, `?worker=SLOT`.
pub(super) async fn page(
    Extension(api): Extension<Api>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Page, Problem> {
    let at = pool_api(&name);
    let pool: PoolStatus = api.get(&at).await?;
    let slot = uri
        .query()
        .and_then(|query| query.strip_prefix("worker=")?.parse::<usize>().ok());
    let trends: TrendsOfPools = api.get("/v1/trends").await?;
    let page = Page::new(Section::Now, format!("Pool {name}"))
        .with("summary", summary(&pool))
        .with("actions", actions(&pool))
        .with("workers", workers(&pool, slot));
    let Some(slot) = slot else {
        return Ok(page.with("figures", figures(&pool, &trends)));
    };
    let lines = api.get(&format!("{at}/workers/{slot}/output")).await;
    let worker = pool.workers.iter().find(|worker| worker.slot == slot);
    Ok(page
        .with("worker", chosen(&pool, slot, worker, lines))
        .with("figures", figures(&pool, &trends)))
}

fn summary(pool: &PoolStatus) -> Markup {
    html! {
        p.lead {
            (state(pool.state.as_str())) ": " (pool.workers.len()) " of " (pool.workers_wanted) " workers, "
            (rate_of(pool.done_per_second)) " messages per second, " (waiting(pool)) " waiting in "
            (queue_links(pool))
            " of " (text(&pool.source)) "."
        }
        @for (label, problem) in [
            ("Source", &pool.source_problem), ("Breaker", &pool.breaker_error), ("Roll stopped", &pool.roll_stopped),
            ("Last worker lost", &pool.last_worker_lost), ("Last error", &pool.last_error), ("Waits for", &pool.waits_for),
        ] {
            @if let Some(problem) = problem { p { strong { (label) ": " } span.error { (text(problem)) } } }
        }
        @if let Some(loss) = &pool.last_loss {
            details {
                summary { "Last lines of worker " (loss.slot) ", lost " (since(loss.at)) }
                pre { @for line in &loss.stderr { (text(line)) "\n" } }
            }
        }
        @if let Some(since_when) = pool.closed_since { p { "Takes nothing in at an operator's request, " (since(since_when)) "." } }
        @if let Some(scaling) = &pool.autoscale {
            p { "Scales from " (scaling.min) " to " (scaling.max) ": " (text(&scaling.why)) }
        }
        @if pool.rolling { p { "A rolling restart is under way." } }
    }
}

fn actions(pool: &PoolStatus) -> Markup {
    let at = form("post", &pool_api(&pool.name));
    let in_hand = pool
        .workers
        .iter()
        .map(|worker| worker.in_flight)
        .sum::<usize>();
    let is_closed = matches!(
        pool.state,
        PoolState::Paused | PoolState::Draining | PoolState::Drained
    );
    html! {
        h2 { "Actions" }
        div.actions {
            @if is_closed {
                form method="post" action={ (at) "/resume" } { button { "Resume" } }
            } @else {
                form method="post" action={ (at) "/pause" } {
                    button title="Nothing more is taken in; what is in hand is finished" { "Pause" }
                }
            }
            details.ask {
                summary { "Scale…" }
                form method="post" action={ (at) "/scale" } {
                    label { "Workers " input type="number" name="workers:int" min="0" max="10000" required value=(pool.workers_wanted); }
                    button { "Scale" }
                }
                form method="post" action={ (at) "/scale" } {
                    input type="hidden" name="workers:json" value="null";
                    button.quiet { "Back to the configured " (pool.workers_configured) }
                }
            }
            details.ask {
                summary { "Restart…" }
                form method="post" action={ (at) "/restart" } {
                    p { (pool.workers.len()) " workers are replaced one by one, new before old. No message is stopped." }
                    button { "Restart" }
                }
            }
            details.ask {
                summary { "Drain…" }
                form method="post" action={ (at) "/drain" } {
                    p { "Nothing more is taken in, " (in_hand) " messages in hand are finished, then the workers leave." }
                    button { "Drain" }
                }
            }
        }
        (commands(&as_commands(pool)))
    }
}

fn as_commands(pool: &PoolStatus) -> [String; 5] {
    let (name, workers) = (&*pool.name, pool.workers_wanted.to_string());
    [
        command(&["pause", name]),
        command(&["resume", name]),
        command(&["scale", name, &workers]),
        command(&["restart", name]),
        command(&["drain", name]),
    ]
}

fn workers(pool: &PoolStatus, chosen: Option<usize>) -> Markup {
    html! {
        h2 { "Workers" }
        ul.cells {
            @for worker in &pool.workers {
                li {
                    a.cell.(tone(&worker.state)) href={ (pool_path(&pool.name)) "?worker=" (worker.slot) }
                        aria-current=[(chosen == Some(worker.slot)).then_some("true")] {
                        span.slot { (worker.slot) } " " span.what { (worker.state) }
                        @if worker.in_flight > 1 { " ×" (worker.in_flight) }
                        @if let Some(seconds) = worker.message_age {
                            " " span.age { (ganger_pool::status::age(seconds)) }
                        }
                    }
                }
            }
        }
        @if pool.workers.is_empty() { p.none { "No worker runs." } }
    }
}

fn tone(state: &str) -> &'static str {
    match state {
        "busy" => "busy",
        "idle" => "idle",
        "starting" | "waiting" => "starting",
        _ => "stopping",
    }
}

fn chosen(
    pool: &PoolStatus,
    slot: usize,
    worker: Option<&WorkerStatus>,
    lines: Result<LastLines, Problem>,
) -> Markup {
    let of_pool = form("post", &pool_api(&pool.name));
    let at = format!("{of_pool}/workers/{slot}");
    html! {
        h2 { "Worker " (slot) }
        @if let Some(worker) = worker {
            dl.facts {
                dt { "State" } dd { (worker.state) }
                @if let Some(pid) = worker.pid { dt { "Process" } dd { (pid) } }
                @if let Some(bytes) = worker.memory_bytes { dt { "Memory" } dd { (ganger_core::units::show_size(bytes)) } }
                @if let Some(seconds) = worker.cpu_seconds { dt { "CPU time" } dd { (age(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default())) } }
                dt { "Answered" } dd { (count(worker.answered)) }
                dt { "In flight" } dd { (worker.in_flight) " of " (worker.window) }
                @if let Some(message) = &worker.message { dt { "Message" } dd { code { (text(message)) } } }
                @if let Some(progress) = &worker.progress { dt { "Progress" } dd { (text(progress)) } }
            }
            div.actions {
                @if let Some(message) = &worker.message {
                    details.ask {
                        summary { "Cancel the message…" }
                        form method="post" action={ (of_pool) "/cancel" } {
                            input type="hidden" name="id" value=(message);
                            p {
                                "All messages that have this id, also those that wait, are cancelled: their workers are asked to stop, and "
                                "each becomes a dead letter."
                            }
                            button.danger { "Cancel" }
                        }
                    }
                }
                details.ask {
                    summary { "Kill…" }
                    form method="post" action={ (at) "/kill" } {
                        p { (worker.in_flight) " messages in its hands are stopped and run again, uncharged; another worker takes its place." }
                        button.danger { "Kill" }
                    }
                }
            }
        } @else {
            p.none { "No worker runs in this slot now." }
        }
        h3 { "Last lines" }
        @match lines {
            Ok(lines) => {
                @if let Some(cause) = &lines.ended { p { "It has ended: " (text(cause)) } }
                @for (stream, lines) in [("stderr", &lines.stderr), ("stdout", &lines.stdout)] {
                    @if !lines.is_empty() {
                        h4 { (stream) }
                        pre.log { @for line in lines { (text(line)) "\n" } }
                    }
                }
            }
            Err(problem) => p.none { (text(problem.detail())) },
        }
    }
}

fn figures(pool: &PoolStatus, trends: &TrendsOfPools) -> Markup {
    html! {
        h2 { "Last hour" }
        (rates(trends, &pool.name))
        h2 { "Since the start" }
        dl.facts {
            dt { "Done" } dd { (count(pool.counts.done)) }
            dt { "Replies" } dd { (count(pool.counts.replied)) }
            dt { "Retried" } dd { (count(pool.counts.retried)) }
            dt { "Requeued" } dd { (count(pool.counts.requeued)) }
            dt { "Returned" } dd { (count(pool.counts.returned)) }
            dt { "Dead letters" } dd { (count(pool.counts.dead)) }
            dt { "Workers lost" } dd { (count(pool.counts.restarts)) }
            dt { "p50" } dd { (latency(pool.counts.p50_ms)) }
        }
        @if pool.details.failed.values().any(|number| *number > 0) {
            h3 { "Failed attempts" }
            table {
                thead { tr { th { "Reason" } th.number { "Attempts" } } }
                tbody {
                    @for (reason, number) in pool.details.failed.iter().filter(|(_, number)| **number > 0) {
                        tr { th scope="row" { (text(reason)) } td.number { (count(*number)) } }
                    }
                }
            }
        }
    }
}
