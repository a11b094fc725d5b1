//! The first page: in one sentence how things are, what is wrong, and what the pools do.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Extension;
use ganger_pool::overview::{ActiveAlert, Status};
use ganger_pool::status::{PoolState, PoolStatus};
use ganger_queue::ledger::shown::UpcomingJson;
use maud::{Markup, html};

use super::api::Api;
use super::commands::command;
use super::page::{Page, Section};
use super::paths::{SCHEDULES, STATUS, dead_path, pool_path, run_path, schedule_path};
use super::query::Fields;
use super::queue::queue_links;
use super::shown::{count, first, latency, rate_of, since, sparkline, state, text, time_of};
use super::silences::silence;
use crate::answer::Problem;
use crate::occurrences::Occurrences;
use crate::trends::TrendsOfPools;

/// Interval at which pages ask the ledger.
pub(super) const LEDGER_EVERY: Duration = Duration::from_secs(5);

/// Number of samples that a line shows as one point: a minute.
const TOGETHER: usize = 6;

/// Number of coming slots, and of failed runs.
const SOME: usize = 10;

/// A problem, and what helps.
struct ProblemRow {
    severity: &'static str,
    what: String,
    since: Option<std::time::SystemTime>,
    error: Option<String>,
    remedy: String,
    /// Page of its subject.
    path: Option<String>,
    /// The alert that it is.
    alert: Option<ActiveAlert>,
}

/// Shows how things are.
pub(super) async fn page(Extension(api): Extension<Api>) -> Result<Page, Problem> {
    let status: Status = api.get(STATUS).await?;
    let trends: TrendsOfPools = api.get("/v1/trends").await?;
    let rows = problem_rows(&status, &trends);
    let (mut next, mut failed) = (Vec::new(), None);
    if status
        .ledger
        .as_ref()
        .is_some_and(|ledger| ledger.problem.is_none())
    {
        let upcoming = format!("/v1/upcoming?limit={SOME}");
        next = api.get(&upcoming).await.unwrap_or_default();
        let unresolved = format!("/v1/occurrences?unresolved=true&limit={SOME}");
        failed = api.get(&unresolved).await.ok();
    }
    let page = Page::new(Section::Now, "Now")
        .with("sentence", sentence(&status, &rows))
        .with("problems", problems(&rows))
        .with("pools", pools(&status.pools, &trends));
    let page = match status.ledger {
        Some(_) => page
            .with("next", coming(&next))
            .with_list("failures", failures(failed.as_ref())),
        None => page,
    };
    let page = page.with("daemon", daemon(&status));
    // A ledger is asked less often.
    Ok(match status.ledger {
        Some(_) => page.every(LEDGER_EVERY),
        None => page,
    })
}

fn sentence(status: &Status, rows: &[ProblemRow]) -> Markup {
    let rate: f64 = status.pools.iter().map(|pool| pool.done_per_second).sum();
    let workers: usize = status.pools.iter().map(|pool| pool.workers.len()).sum();
    let waiting: u64 = status
        .pools
        .iter()
        .filter_map(|pool| pool.backlog)
        .map(|backlog| backlog.depth)
        .sum();
    html! {
        p.lead {
            @match rows.len() {
                0 => span.state.good { span aria-hidden="true" { "●" } " All is well" },
                1 => span.state.bad { span aria-hidden="true" { "▲" } " One problem" },
                many => span.state.bad { span aria-hidden="true" { "▲" } " " (many) " problems" },
            }
            ": " (status.pools.len()) " " (plural(status.pools.len(), "pool", "pools")) " with "
            (workers) " " (plural(workers, "worker", "workers")) " finish " (rate_of(rate)) " per second; "
            (count(waiting)) " " (plural(usize::try_from(waiting).unwrap_or(usize::MAX), "message waits", "messages wait")) "."
        }
    }
}

fn plural(number: usize, one: &'static str, many: &'static str) -> &'static str {
    if number == 1 { one } else { many }
}

fn problem_rows(status: &Status, trends: &TrendsOfPools) -> Vec<ProblemRow> {
    let mut rows: Vec<ProblemRow> = status
        .alerts
        .iter()
        .flat_map(|alerts| &alerts.active)
        .map(of_alert)
        .collect();
    let is_alerted = |pool: &PoolStatus| {
        let active = status.alerts.iter().flat_map(|alerts| &alerts.active);
        active
            .filter(|alert| alert.pool.as_ref() == Some(&pool.name))
            .count()
            > 0
    };
    let of_pools = status.pools.iter().filter(|pool| !is_alerted(pool));
    rows.extend(of_pools.filter_map(|pool| of_pool(pool).or_else(|| failing(pool, trends))));
    if let Some(ledger) = &status.ledger {
        let ours = ledger.problem.iter().map(|problem| ProblemRow {
            severity: "critical",
            what: "The ledger can't be used: no schedule is dispatched".to_owned(),
            since: None,
            error: Some(problem.clone()),
            remedy: "It is tried again by itself; see the source's server.".to_owned(),
            path: None,
            alert: None,
        });
        rows.extend(ours);
        let held = ledger.hold.iter().map(|reason| ProblemRow {
            severity: "warning",
            what: "All schedules are paused".to_owned(),
            since: None,
            error: Some(reason.clone()),
            remedy: "Resume them on the page of schedules.".to_owned(),
            path: Some(SCHEDULES.to_owned()),
            alert: None,
        });
        rows.extend(held);
    }
    rows
}

fn of_alert(alert: &ActiveAlert) -> ProblemRow {
    ProblemRow {
        severity: if alert.severity == "critical" {
            "critical"
        } else {
            "warning"
        },
        what: alert.summary.clone(),
        since: Some(alert.since),
        error: None,
        remedy: alert.command.clone(),
        path: match alert.pool.as_deref() {
            Some(pool) => Some(pool_path(pool)),
            None => alert
                .kind
                .starts_with("schedule_")
                .then(|| schedule_path(&alert.of)),
        },
        alert: Some(alert.clone()),
    }
}

fn of_pool(pool: &PoolStatus) -> Option<ProblemRow> {
    let (what, error, remedy) = match pool.state {
        PoolState::Degraded => (
            "its workers keep failing",
            pool.last_worker_lost.clone(),
            workers_of(pool),
        ),
        PoolState::Open => (
            "nearly all attempts fail; one message at a time is tried",
            pool.breaker_error.clone(),
            "Repair what the workers depend on: the pool goes on by itself.".to_owned(),
        ),
        PoolState::SourceDown => (
            "its source can't be used",
            pool.source_problem.clone(),
            "It is tried again by itself; see the source's server.".to_owned(),
        ),
        PoolState::Starting
        | PoolState::Running
        | PoolState::Paused
        | PoolState::Draining
        | PoolState::Drained => return None,
    };
    Some(ProblemRow {
        severity: "critical",
        what: format!("Pool {}: {what}", pool.name),
        since: None,
        error,
        remedy,
        path: Some(pool_path(&pool.name)),
        alert: None,
    })
}

/// Returns the command that shows the last lines of the worker that was lost last; of all workers if none was.
fn workers_of(pool: &PoolStatus) -> String {
    match &pool.last_loss {
        Some(loss) => command(&["output", &pool.name, &loss.slot.to_string()]),
        None => command(&["status", "--workers", "--pool", &pool.name]),
    }
}

/// Returns that a pool has failed more often than not in the last minute.
fn failing(pool: &PoolStatus, trends: &TrendsOfPools) -> Option<ProblemRow> {
    let trend = trends.pools.get(&pool.name)?;
    let last = |figures: &VecDeque<u64>| figures.iter().rev().take(TOGETHER).sum::<u64>();
    let (done, failed) = (last(&trend.done), last(&trend.failed));
    (failed > done).then(|| ProblemRow {
        severity: "warning",
        what: format!(
            "Pool {}: {} attempts have failed in the last minute, {} messages were done",
            pool.name,
            count(failed),
            count(done)
        ),
        since: None,
        error: pool.last_error.clone(),
        remedy: workers_of(pool),
        path: Some(pool_path(&pool.name)),
        alert: None,
    })
}

fn problems(rows: &[ProblemRow]) -> Markup {
    html! {
        @if !rows.is_empty() {
            h2 { "Problems" }
            ul.problems {
                @for row in rows {
                    li.(row.severity) {
                        strong {
                            @match &row.path {
                                Some(path) => a href=(path) { (text(&row.what)) },
                                None => (text(&row.what)),
                            }
                        }
                        @if let Some(at) = row.since { " " (since(at)) }
                        @if let Some(error) = &row.error { p.error { (text(error)) } }
                        p.remedy { code { (text(&row.remedy)) } }
                        @if let Some(alert) = &row.alert { (silence(alert)) }
                    }
                }
            }
        }
    }
}

/// Draws the messages that a pool has done in each minute of the last hour.
pub(super) fn rates(trends: &TrendsOfPools, pool: &str) -> Markup {
    let Some(trend) = trends.pools.get(pool) else {
        return html! {};
    };
    let done: Vec<u64> = trend.done.iter().copied().collect();
    // The newest minute is whole.
    let minutes: Vec<u64> = done
        .rchunks(TOGETHER)
        .rev()
        .map(|minute| minute.iter().sum())
        .collect();
    let most = minutes.iter().max().copied().unwrap_or(0);
    let label = format!(
        "Messages done per minute over the last hour: {} in the last minute, at most {}",
        count(minutes.last().copied().unwrap_or(0)),
        count(most)
    );
    let figures = minutes
        .iter()
        .map(|done| f64::from(u32::try_from(*done).unwrap_or(u32::MAX)));
    sparkline(&figures.collect::<Vec<_>>(), &label)
}

fn pools(pools: &[PoolStatus], trends: &TrendsOfPools) -> Markup {
    html! {
        h2 { "Pools" }
        div.wide tabindex="0" {
            table.cards {
                thead { tr {
                    th { "Pool" } th { "State" } th.number { "Workers" } th.number { "Done/s" } th { "Last hour" } th.number { "p50" }
                    th.number { "Failed" } th.number { "Dead" } th.number { "Waiting" } th { "Oldest" } th { "Queue" }
                } }
                tbody {
                    @for pool in pools {
                        @let dead = Fields::from([("pool", &*pool.name)]).at(&dead_path(&pool.source));
                        tr {
                            th scope="row" { a href=(pool_path(&pool.name)) { (text(&pool.name)) } }
                            td { (state(pool.state.as_str())) }
                            td.number data-label="Workers" { (pool.workers.len()) "/" (pool.workers_wanted) }
                            td.number data-label="Done/s" { (rate_of(pool.done_per_second)) }
                            td { (rates(trends, &pool.name)) }
                            td.number data-label="p50" { (latency(pool.counts.p50_ms)) }
                            td.number data-label="Failed" { (count(pool.details.failed.values().sum())) }
                            td.number data-label="Dead" {
                                @if pool.counts.dead > 0 { a href=(dead) { (count(pool.counts.dead)) } } @else { "0" }
                            }
                            td.number data-label="Waiting" { (waiting(pool)) }
                            td data-label="Oldest" { (pool.backlog.and_then(|backlog| backlog.oldest_age()).unwrap_or_default()) }
                            td data-label="Queue" { (queue_links(pool)) " " span.of { (text(&pool.source)) } }
                        }
                    }
                    @if pools.is_empty() { tr { td colspan="11" { "No pool is configured." } } }
                }
            }
        }
    }
}

/// Returns the number of messages that wait for a pool, as far as it is known.
pub(super) fn waiting(pool: &PoolStatus) -> String {
    match pool.backlog {
        Some(backlog) if backlog.at_least => format!("{}+", count(backlog.depth)),
        Some(backlog) => count(backlog.depth),
        None => "–".to_owned(),
    }
}

fn coming(next: &[UpcomingJson]) -> Markup {
    html! {
        h2 { "Next slots" }
        @if next.is_empty() { p.none { "Nothing is due within a day." } }
        ol.plain {
            @for slot in next {
                li {
                    (time_of(&slot.slot.slot)) " "
                    a href=(schedule_path(&slot.schedule)) { (text(&slot.schedule)) }
                    @if !slot.slot.note.is_empty() { " " span.of { (text(&slot.slot.note)) } }
                }
            }
        }
    }
}

fn failures(failed: Option<&Occurrences>) -> Markup {
    html! {
        h2 { "Last failures" }
        @match failed {
            None => p.none { "The ledger did not answer." },
            Some(failed) if failed.occurrences.is_empty() => p.none { "No run has failed that is not resolved." },
            Some(failed) => ul.plain {
                @for run in &failed.occurrences {
                    li {
                        (state(&run.state)) " "
                        a href=(run_path(&run.id)) {
                            (text(run.schedule.as_deref().unwrap_or(&run.queue)))
                        }
                        @if let Some(at) = &run.ended_at { " " (time_of(at)) }
                        @if let Some(error) = &run.error { " " span.error { (text(&first(error, 120))) } }
                    }
                }
            },
        }
    }
}

fn daemon(status: &Status) -> Markup {
    html! {
        h2 { "Daemon" }
        p {
            "ganger " (status.version) ", process " (status.pid) ", " (status.state) ", started " (since(status.started_at))
            "; " (ganger_core::units::show_size(status.buffered_bytes as u64)) " of messages in memory."
        }
        @if status.reload.refused > 0 && !status.reload.successful {
            p {
                "The last reload was refused, " (since(status.reload.at)) ":"
                @for problem in &status.reload.problems { " " span.error { (text(problem)) } }
            }
        }
    }
}
