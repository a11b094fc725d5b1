//! The page of the configuration: what is in force, what the files would change, and the log level.

use std::collections::BTreeMap;

use axum::Extension;
use ganger_config::changed::ChangedKeys;
use ganger_pool::overview::Status;
use ganger_pool::request::ReloadStatus;
use ganger_queue::client::SourceInfo;
use ganger_telemetry::LogLevels;
use maud::{Markup, html};

use super::api::Api;
use super::commands::{command, commands};
use super::page::{Page, Section};
use super::paths::{ALERTS, STATUS, dead_path, form, pool_path};
use super::shown::{since, text};
use crate::answer::Problem;
use crate::in_force::ConfigInForce;

/// Number of keys up to which a section is open from the beginning.
const OPEN_MAX: usize = 12;

/// Shows the configuration. Its values are for admins.
pub(super) async fn page(Extension(api): Extension<Api>) -> Result<Page, Problem> {
    let status: Status = api.get(STATUS).await?;
    let sources: Vec<SourceInfo> = api.get("/v1/sources").await?;
    let levels: LogLevels = api.get("/v1/log-level").await?;
    let config = api.get::<ConfigInForce>("/v1/config").await;
    let pools: Vec<&str> = status.pools.iter().map(|pool| pool.name.as_str()).collect();
    let page = Page::new(Section::Config, "Configuration")
        .with("files", files(config.as_ref(), &status.reload))
        .with("sources", of_sources(&sources, &status))
        .with("levels", log_levels(&levels, &pools))
        .with("alerts", alerts(&status))
        .with("settings", settings(config.as_ref()));
    let lines = [
        command(&["config", "print"]),
        command(&["reload"]),
        command(&["log-level", "debug"]),
        command(&["status"]),
    ];
    // The files are read anew for it.
    Ok(page.with("commands", commands(&lines)).still())
}

fn files(config: Result<&ConfigInForce, &Problem>, reload: &ReloadStatus) -> Markup {
    html! {
        @match config {
            Ok(ConfigInForce { differences: Some(keys), .. }) => (pending(keys)),
            Ok(config) => {
                p.lead { span.state.bad { span aria-hidden="true" { "▲" } " The files have problems: a reload would change nothing" } }
                ul.problems { @for problem in &config.problems { li.critical { span.error { (text(problem)) } } } }
            },
            Err(_) => p.lead { "The configuration is shown to admins." },
        }
        @if reload.number == 0 {
            p { "In force since the start, " (since(reload.succeeded_at)) "." }
        } @else {
            p { "In force since the last reload, " (since(reload.succeeded_at)) "; " (reload.number) " since the start." }
        }
        @if !reload.successful {
            @let is_shown = config.is_ok_and(|config| config.problems == reload.problems);
            p { strong { "The last reload was refused" @if is_shown { " for them" } ", " (since(reload.at)) "." } }
            @if !is_shown {
                ul.problems { @for problem in &reload.problems { li.critical { span.error { (text(problem)) } } } }
            }
        }
        @if !reload.keys.restart_needed.is_empty() {
            p { "Of the last reload, these wait for a restart of the daemon:" }
            (keys("restart", &reload.keys.restart_needed))
        }
        div.actions {
            form method="post" action=(form("post", "/v1/reload")) {
                button title="An invalid configuration, or one that can't be applied, changes nothing" { "Reload" }
            }
        }
    }
}

/// Shows what a reload would change.
fn pending(changes: &ChangedKeys) -> Markup {
    let waiting = changes.restart_needed.len();
    html! {
        p.lead {
            @match changes.count() {
                0 if waiting == 0 => span.state.good { span aria-hidden="true" { "●" } " The files say what is in force." },
                0 => span.state.warn { span aria-hidden="true" { "◐" } " The files differ in keys that wait for a restart." },
                1 => span.state.warn { span aria-hidden="true" { "◐" } " A reload would make 1 change." },
                many => span.state.warn { span aria-hidden="true" { "◐" } " A reload would make " (many) " changes." },
            }
        }
        @for (label, changed) in [
            ("added", &changes.added), ("changed", &changes.changed), ("removed", &changes.removed),
            ("restart", &changes.restart_needed),
        ] {
            @if !changed.is_empty() { (keys(label, changed)) }
        }
    }
}

fn keys(label: &str, keys: &[String]) -> Markup {
    html! {
        ul.plain { @for key in keys { li { span.of { (label) " " } code { (text(key)) } } } }
    }
}

fn of_sources(sources: &[SourceInfo], status: &Status) -> Markup {
    html! {
        h2 { "Sources" }
        div.wide tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "Source" } th scope="col" { "Kind" } th scope="col" { "Pools" } th scope="col" { "State" }
                } }
                tbody {
                    @for source in sources {
                        @let pools = status.pools.iter().filter(|pool| pool.source == source.name);
                        @let problem = pools.clone().find_map(|pool| pool.source_problem.as_ref());
                        @let is_connected = pools.clone().all(|pool| pool.source_connected);
                        tr {
                            th scope="row" { a href=(dead_path(&source.name)) { (text(&source.name)) } }
                            td { (source.kind) }
                            td.cut {
                                @for (at, pool) in source.pools.iter().enumerate() {
                                    @if at > 0 { ", " }
                                    a href=(pool_path(&pool.name)) { (text(&pool.name)) }
                                }
                            }
                            td.cut {
                                @match problem {
                                    Some(problem) => {
                                        span.state.bad { span aria-hidden="true" { "▲" } " problem" } " " span.error { (text(problem)) }
                                    },
                                    None if source.pools.is_empty() => span.state.calm { span aria-hidden="true" { "○" } " not used by a pool" },
                                    None if is_connected => span.state.good { span aria-hidden="true" { "●" } " connected" },
                                    None => span.state.warn { span aria-hidden="true" { "◐" } " not connected" },
                                }
                            }
                        }
                    }
                    @if sources.is_empty() { tr { td colspan="4" { "No source is configured." } } }
                }
            }
        }
    }
}

fn log_levels(levels: &LogLevels, pools: &[&str]) -> Markup {
    html! {
        h2 { "Log level" }
        p { "In force: " code { (text(&levels.filter)) } }
        @if !levels.pools.is_empty() {
            ul.plain {
                @for (pool, level) in &levels.pools {
                    li {
                        "Pool " (text(pool)) ": " code { (text(level)) } " "
                        form.inline method="post" action=(form("post", "/v1/log-level")) {
                            input type="hidden" name="level:json" value="null";
                            input type="hidden" name="pool" value=(pool);
                            button.quiet { "Back to that of all" }
                        }
                    }
                }
            }
        }
        form.filters method="post" action=(form("post", "/v1/log-level")) {
            label { "Level " input name="level" required list="log-levels" placeholder="debug" title="A level, or for all a filter such as info,ganger_pool=debug"; }
            datalist #log-levels { @for level in ["error", "warn", "info", "debug", "trace"] { option value=(level); } }
            label {
                "For "
                select name="pool" {
                    option value="" { "all" }
                    @for pool in pools { option value=(pool) { "pool " (pool) } }
                }
            }
            button { "Set" }
        }
        form method="post" action=(form("post", "/v1/log-level")) {
            input type="hidden" name="level:json" value="null";
            button.quiet { "Back to the configured level" }
        }
    }
}

fn alerts(status: &Status) -> Markup {
    html! {
        h2 { "Alerts" }
        p {
            @match &status.alerts {
                None => "None are sent: there is no section [alerts].",
                Some(alerts) => {
                    (alerts.active.len()) " active, sent to " (alerts.webhooks.len()) " "
                    @if alerts.webhooks.len() == 1 { "webhook" } @else { "webhooks" } ". "
                    a href=(ALERTS) { "Alerts and webhooks" }
                },
            }
        }
    }
}

fn settings(config: Result<&ConfigInForce, &Problem>) -> Markup {
    html! {
        h2 { "In force" }
        @match config {
            Err(problem) => p.none { (text(problem.detail())) },
            Ok(config) => {
                p.none { "Defaults included. A secret is shown as the environment variable of its name." }
                @for (section, keys) in by_section(&config.settings) {
                    details open[keys.len() <= OPEN_MAX] {
                        summary { strong { (text(section)) } " " span.of { (keys.len()) } }
                        dl.facts {
                            @for (key, value) in keys {
                                dt { code { @if key.is_empty() { (text(section)) } @else { (text(key)) } } }
                                dd { code { (text(value)) } }
                            }
                        }
                    }
                }
            },
        }
    }
}

/// Returns the keys of each section: `daemon`, `pools.email`, and so on.
fn by_section(settings: &BTreeMap<String, String>) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut sections: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (key, value) in settings {
        let (section, rest) = section_of(key);
        sections.entry(section).or_default().push((rest, value));
    }
    sections
}

/// Divides a key into its section and the rest. A name of the user's may be quoted, with dots in it.
fn section_of(key: &str) -> (&str, &str) {
    let Some((kind, rest)) = key.split_once('.') else {
        return ("", key);
    };
    if !matches!(kind, "sources" | "pools" | "schedules") {
        return (kind, rest);
    }
    let name = match rest.strip_prefix('"') {
        None => rest.find('.'),
        Some(quoted) => quoted.find("\".").map(|end| end + 2),
    };
    match name {
        None => (key, ""),
        Some(end) => {
            let (section, rest) = key.split_at(kind.len() + 1 + end);
            (section, rest.trim_start_matches('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_by_section() {
        for (key, section, rest) in [
            ("daemon.log_level", "daemon", "log_level"),
            (
                "pools.email.retry.attempts",
                "pools.email",
                "retry.attempts",
            ),
            ("pools.\"a.b\".workers", "pools.\"a.b\"", "workers"),
            ("alerts.webhooks.x.url", "alerts", "webhooks.x.url"),
            ("version", "", "version"),
        ] {
            assert_eq!(section_of(key), (section, rest), "{key}");
        }
    }
}
