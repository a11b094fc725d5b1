//! The page of all daemons: this one and its peers, and the pools of one name together.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use ganger_pool::overview::Status;
use ganger_pool::status::PoolStatus;
use maud::{Markup, html};

use super::api::Api;
use super::now::waiting;
use super::page::{Page, Section};
use super::paths::{NOW, pool_path};
use super::shown::{count, rate_of, since, state, text};
use crate::answer::Problem;
use crate::daemons::DaemonJson;

/// Interval at which the daemons are asked.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Age from which on a status is stale, in seconds.
const STALE_AFTER: f64 = 5.0;

/// Shows all daemons.
pub(super) async fn page(Extension(api): Extension<Api>) -> Result<Page, Problem> {
    let all: Vec<DaemonJson> = api.get("/v1/daemons").await?;
    Ok(Page::new(Section::Daemons, "Daemons")
        .with("daemons", daemons(&all))
        .with("pools", pools(&all))
        .every(LOOK_EVERY))
}

fn is_stale(daemon: &DaemonJson) -> bool {
    daemon.problem.is_some() || daemon.age_seconds.is_none_or(|age| age > STALE_AFTER)
}

fn daemons(all: &[DaemonJson]) -> Markup {
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr {
                    th { "Daemon" } th { "State" } th { "Version" } th { "Started" } th.number { "Pools" }
                    th.number { "Workers" } th.number { "Done/s" } th.number { "Not ready" } th { "Answer" }
                } }
                tbody {
                    @for daemon in all {
                        tr.stale[is_stale(daemon)] {
                            th scope="row" { (link(daemon)) }
                            @match &daemon.status {
                                Some(status) => (figures(status)),
                                None => td colspan="7" { "It has never answered." },
                            }
                            td { (answered(daemon)) }
                        }
                    }
                }
            }
        }
        @if all.len() == 1 {
            p.none { "Further daemons are shown once " code { "[admin.peers.NAME]" } " names them in the configuration." }
        }
    }
}

fn link(daemon: &DaemonJson) -> Markup {
    html! {
        @match &daemon.url {
            None => a href=(NOW) { (text(&daemon.name)) },
            Some(url) => a href={ (url.trim_end_matches('/')) (NOW) } { (text(&daemon.name)) },
        }
        @if daemon.url.is_none() { " " span.of { "this one" } }
    }
}

fn figures(status: &Status) -> Markup {
    let rate: f64 = status.pools.iter().map(|pool| pool.done_per_second).sum();
    let workers: usize = status.pools.iter().map(|pool| pool.workers.len()).sum();
    html! {
        td { (state(&status.state.to_string())) }
        td { (text(&status.version)) }
        td { (since(status.started_at)) }
        td.number { (status.pools.len()) }
        td.number { (workers) }
        td.number { (rate_of(rate)) }
        td.number { (status.not_ready().len()) }
    }
}

fn answered(daemon: &DaemonJson) -> Markup {
    html! {
        @match (&daemon.problem, daemon.age_seconds) {
            (Some(problem), age) => {
                span.error { (text(problem)) }
                @if let Some(age) = age { ", last " (ganger_pool::status::age(age)) " ago" }
            }
            (None, Some(age)) if age > STALE_AFTER => { (ganger_pool::status::age(age)) " ago" }
            (None, _) => "now",
        }
    }
}

/// Pools of one name, each with its daemon.
type Namesakes<'a> = BTreeMap<&'a str, Vec<(&'a DaemonJson, &'a PoolStatus)>>;

fn pools(all: &[DaemonJson]) -> Markup {
    let mut by_name = Namesakes::new();
    for daemon in all {
        for pool in daemon.status.iter().flat_map(|status| &status.pools) {
            by_name.entry(&pool.name).or_default().push((daemon, pool));
        }
    }
    html! {
        h2 { "Pools" }
        div.wide tabindex="0" {
            table {
                thead { tr {
                    th { "Pool" } th { "Daemon" } th { "State" } th.number { "Workers" } th.number { "Done/s" }
                    th.number { "Dead" } th.number { "Waiting" }
                } }
                @for (name, pools) in &by_name {
                    tbody { (namesakes(name, pools)) }
                }
            }
        }
    }
}

fn namesakes(name: &str, pools: &[(&DaemonJson, &PoolStatus)]) -> Markup {
    let workers: usize = pools.iter().map(|(_, pool)| pool.workers.len()).sum();
    let rate: f64 = pools.iter().map(|(_, pool)| pool.done_per_second).sum();
    let dead: u64 = pools.iter().map(|(_, pool)| pool.counts.dead).sum();
    html! {
        @if pools.len() > 1 {
            tr {
                th scope="rowgroup" { (text(name)) }
                td { (pools.len()) " daemons" } td {} td.number { (workers) } td.number { (rate_of(rate)) }
                td.number { (count(dead)) } td {}
            }
        }
        @for (daemon, pool) in pools {
            tr.stale[is_stale(daemon)] {
                th scope="row" {
                    @match &daemon.url {
                        None => a href=(pool_path(name)) { (text(name)) },
                        Some(url) => a href={ (url.trim_end_matches('/')) (pool_path(name)) } { (text(name)) },
                    }
                }
                td { (text(&daemon.name)) }
                td { (state(pool.state.as_str())) }
                td.number { (pool.workers.len()) "/" (pool.workers_wanted) }
                td.number { (rate_of(pool.done_per_second)) }
                td.number { (count(pool.counts.dead)) }
                td.number { (waiting(pool)) }
            }
        }
    }
}
