//! The first page: in one sentence how things are, what is wrong, and what the pools do.

use std::time::Duration;

use axum::Extension;
use ganger_pool::overview::Status;
use ganger_pool::status::{BacklogStatus, PoolStatus};
use ganger_queue::ledger::shown::UpcomingJson;
use maud::{Markup, html};

use super::api::Api;
use super::page::{Page, Section};
use super::paths::{STATUS, dead_path, pool_path, run_path, schedule_path};
use super::problems::{ProblemRow, TOGETHER, problem_count, problem_rows, problems};
use super::query::Fields;
use super::queue::queue_links;
use super::shown::{count, first, latency, rate_of, since, sparkline, state, text, time_of};
use crate::answer::Problem;
use crate::occurrences::Occurrences;
use crate::trends::TrendsOfPools;

/// Interval at which pages ask the ledger.
pub(super) const LEDGER_EVERY: Duration = Duration::from_secs(5);

/// Number of coming slots, and of failed runs.
const SOME: usize = 10;

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
    let of_pools = status.pools.iter().filter_map(|pool| pool.backlog);
    let unread = status.unread_queues.iter().map(|unread| unread.backlog);
    let backlogs: Vec<BacklogStatus> = of_pools.chain(unread).collect();
    let waiting: u64 = backlogs.iter().map(|backlog| backlog.depth).sum();
    let is_more = backlogs.iter().any(|backlog| backlog.at_least);
    html! {
        p.lead {
            @match problem_count(rows) {
                0 => span.state.good { span aria-hidden="true" { "●" } " All is well" },
                1 => span.state.bad { span aria-hidden="true" { "▲" } " One problem" },
                many => span.state.bad { span aria-hidden="true" { "▲" } " " (count(many)) " problems" },
            }
            ": " (status.pools.len()) " " (plural(status.pools.len(), "pool", "pools")) " with "
            (workers) " " (plural(workers, "worker", "workers")) " finish " (rate_of(rate)) " per second; "
            (count(waiting)) @if is_more { "+" } " "
            (if waiting == 1 && !is_more { "message waits" } else { "messages wait" }) "."
        }
    }
}

fn plural(number: usize, one: &'static str, many: &'static str) -> &'static str {
    if number == 1 { one } else { many }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::problems::calm;
    use ganger_pool::overview::UnreadQueueStatus;

    fn backlog(depth: u64, at_least: bool) -> BacklogStatus {
        BacklogStatus {
            depth,
            at_least,
            oldest_age_seconds: None,
        }
    }

    #[test]
    fn messages_that_no_pool_reads_wait_as_well() {
        let mut status = calm();
        status.pools.push(PoolStatus {
            backlog: Some(backlog(2, false)),
            ..PoolStatus::default()
        });
        let sentence = |status: &Status| sentence(status, &[]).into_string();
        assert!(sentence(&status).contains("; 2 messages wait."));
        assert!(sentence(&status).contains("All is well"));
        status.unread_queues.push(UnreadQueueStatus {
            backlog: backlog(3, true),
            ..UnreadQueueStatus::default()
        });
        assert!(sentence(&status).contains("; 5+ messages wait."));
    }

    #[test]
    fn a_refused_reload_is_said_once_at_the_top() {
        let mut status = calm();
        status.reload.refused = 1;
        status.reload.successful = false;
        status.reload.problems = vec!["why".to_owned()];
        let rows = problem_rows(&status, &TrendsOfPools::default());
        assert!(
            sentence(&status, &rows)
                .into_string()
                .contains("One problem")
        );
        assert!(problems(&rows).into_string().contains("why"));
        assert!(!daemon(&status).into_string().contains("why"));
    }
}
