//! The status as text for people.

use super::super::figures::{age, depth, oldest};
use super::super::notes::{daemon_notes, pool_notes};
use crate::cli::output;
use serde_json::Value;

use ganger_core::foreign;
use ganger_pool::overview::Status;
use ganger_pool::status::{PoolStatus, WorkerStatus};
use ganger_pool::worker::output::LastLines;
use ganger_telemetry::LogLevels;

/// Formats the answer to a request, with the keys that a reload has changed.
pub(super) fn done(answer: &Value) -> String {
    let done = answer["done"].as_str().unwrap_or("done").to_owned();
    let lists = [
        ("changed", "changed"),
        ("added", "added"),
        ("removed", "removed"),
        ("restart_needed", "needs a restart of the daemon"),
    ];
    let lists = lists.iter().flat_map(|(name, word)| {
        let keys = answer[name].as_array().into_iter().flatten();
        let keys = keys.filter_map(Value::as_str);
        keys.map(move |key| format!("  {word}: {key}"))
    });
    let lines = [done].into_iter().chain(lists);
    let lines = lines.map(|line| foreign::line(&line).into_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats the status.
pub(super) fn status(status: &Status, with_workers: bool) -> String {
    let mut lines = vec![head(status), pools(status)];
    let notes = notes(status).chain(daemon_notes(status));
    lines.extend(notes.map(|note| foreign::line(&note).into_owned()));
    if with_workers {
        lines.extend([String::new(), workers(status)]);
    }
    lines.join("\n")
}

fn head(status: &Status) -> String {
    let Status {
        version,
        pid,
        state,
        ..
    } = status;
    let uptime = age(status.uptime_seconds);
    let mut head = format!("ganger {version}, process {pid}, {state}, up {uptime}");
    if status.log_records_dropped > 0 {
        head += &format!(", {} log records dropped", status.log_records_dropped);
    }
    head
}

fn pools(status: &Status) -> String {
    let header = [
        "POOL", "STATE", "WORKERS", "IN HAND", "DONE", "DONE/S", "RETRIED", "DEAD", "RETURNED",
        "P50 MS", "P99 MS", "WAITING", "OLDEST",
    ];
    output::table(&header, status.pools.iter().map(row))
}

fn row(pool: &PoolStatus) -> Vec<String> {
    let up = pool.workers.iter();
    let up = up
        .filter(|worker| matches!(worker.state.as_str(), "idle" | "busy"))
        .count();
    vec![
        pool.name.clone(),
        pool.state.as_str().to_owned(),
        format!("{up}/{}", pool.workers_wanted),
        pool.out.to_string(),
        pool.counts.done.to_string(),
        format!("{:.1}", pool.done_per_second),
        pool.counts.retried.to_string(),
        pool.counts.dead.to_string(),
        pool.counts.returned.to_string(),
        format!("{:.2}", pool.counts.p50_ms),
        format!("{:.2}", pool.counts.p99_ms),
        depth(pool.backlog),
        oldest(pool.backlog),
    ]
}

/// Returns the notes on the pools, a line each.
fn notes(status: &Status) -> impl Iterator<Item = String> {
    status.pools.iter().flat_map(|pool| {
        let notes = pool_notes(pool).into_iter();
        notes.map(|note| format!("{}: {note}", pool.name))
    })
}

fn workers(status: &Status) -> String {
    let header = [
        "POOL",
        "SLOT",
        "PID",
        "STATE",
        "IN HAND",
        "WINDOW",
        "MESSAGE",
        "MESSAGE AGE",
        "ANSWERED",
        "PROGRESS",
    ];
    let rows = status.pools.iter().flat_map(|pool| {
        let rows = pool.workers.iter();
        rows.map(|worker| worker_row(&pool.name, worker))
    });
    output::table(&header, rows)
}

fn worker_row(pool: &str, worker: &WorkerStatus) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        pool.to_owned(),
        worker.slot.to_string(),
        or_dash(worker.pid.map(|pid| pid.to_string())),
        worker.state.clone(),
        worker.in_flight.to_string(),
        worker.window.to_string(),
        or_dash(worker.message.clone()),
        or_dash(worker.message_age.map(age)),
        worker.answered.to_string(),
        or_dash(worker.progress.clone()),
    ]
}

/// Formats a worker's last output.
pub(super) fn last_lines(lines: &LastLines) -> String {
    let shown = |stream, line: &String| format!("{stream}: {}", foreign::line(line));
    let stdout = lines.stdout.iter().map(|line| shown("stdout", line));
    let stderr = lines.stderr.iter().map(|line| shown("stderr", line));
    let ended = lines.ended.iter();
    let ended = ended.map(|cause| shown("the worker has ended", cause));
    let all = stdout.chain(stderr).chain(ended);
    all.collect::<Vec<_>>().join("\n")
}

/// Formats the log levels.
pub(super) fn log_levels(levels: &LogLevels) -> String {
    let pools = levels.pools.iter();
    let pools = pools.map(|(pool, level)| format!("{pool}: {level}"));
    let all = [levels.filter.clone()].into_iter().chain(pools);
    all.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(super) mod tests;
