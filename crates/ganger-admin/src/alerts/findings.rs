//! Detection of problems at one moment, from the status of the pools and the daemon. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::alert::{AlertKind, Finding};
use ganger_config::model::AlertsConfig;
use ganger_core::shell::word;
use ganger_pool::overview::{
    LedgerStatus, OutgoingStatus, OverdueScheduleStatus, StoppedScheduleStatus, WebhookStatus,
};
use ganger_pool::request::ReloadStatus;
use ganger_pool::status::{PoolState, PoolStatus};
use ganger_telemetry::metrics::WorkerEnd;

/// Maximum length of others' text that is passed on, in characters.
const TEXT_CHARS_MAX: usize = 1000;

/// Maximum number of lines of a worker's stderr that are passed on.
const STDERR_LINES_MAX: usize = 20;

/// Time by which a ledger is behind that is a problem, in seconds.
const BEHIND_SECONDS: f64 = 30.0;

/// State of the daemon at one look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot<'a> {
    /// The pools.
    pub(super) pools: &'a [Arc<PoolStatus>],
    /// The last reload.
    pub(super) reload: &'a ReloadStatus,
    /// The ledger of the schedules, if there is one.
    pub(super) ledger: Option<&'a LedgerStatus>,
    /// The webhooks that alerts are sent to.
    pub(super) webhooks: &'a [WebhookStatus],
    /// Time of the look.
    pub(super) at: SystemTime,
}

/// Ends of workers that count as crashes: nobody requested them, and we did not kill the workers.
const CRASHES: [WorkerEnd; 6] = [
    WorkerEnd::Exited,
    WorkerEnd::Killed,
    WorkerEnd::OutOfMemory,
    WorkerEnd::ProtocolError,
    WorkerEnd::NotStarted,
    WorkerEnd::Lost,
];

/// Returns the number of a pool's workers that have crashed since it started.
pub(super) fn crashes(pool: &PoolStatus) -> u64 {
    let count = |end: WorkerEnd| pool.details.worker_ends.get(end.as_str());
    CRASHES.into_iter().filter_map(count).sum()
}

/// Facts about a pool that its status alone does not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RecentCounts {
    /// Number of messages dead-lettered within the window.
    pub(super) dead: u64,
    /// Number of workers that have crashed in it.
    pub(super) crashed: u64,
    /// True if a crash loop was detected before.
    pub(super) in_crash_loop: bool,
}

/// Returns all problems.
pub(super) fn findings(
    snapshot: Snapshot<'_>,
    recent: &BTreeMap<String, RecentCounts>,
    rules: &AlertsConfig,
) -> Vec<Finding> {
    let of_pool = |pool: &Arc<PoolStatus>| {
        let recent = recent.get(&pool.name).copied().unwrap_or_default();
        [
            degraded(pool),
            not_starting(pool),
            breaker_open(pool),
            dead_letters(pool, recent, rules),
            crash_loop(pool, recent, rules),
            waiting(pool, rules),
            roll_stopped(pool),
            paused(pool, snapshot.at, rules),
        ]
    };
    let of_pools = snapshot.pools.iter().flat_map(of_pool).flatten();
    let all = of_pools.chain(sources_down(snapshot.pools));
    let all = all.chain(reload_refused(snapshot.reload));
    let all = all.chain(snapshot.ledger.and_then(ledger_down));
    let all = all.chain(snapshot.ledger.and_then(ledger_behind));
    let stopped = snapshot
        .ledger
        .into_iter()
        .flat_map(|ledger| &ledger.stopped);
    let all = all.chain(stopped.map(schedule_stopped));
    let overdue = snapshot
        .ledger
        .into_iter()
        .flat_map(|ledger| &ledger.overdue);
    let all = all.chain(overdue.map(schedule_overdue));
    let outgoing = snapshot
        .ledger
        .into_iter()
        .flat_map(|ledger| &ledger.outgoing);
    let all = all.chain(outgoing.filter_map(schedule_unsent));
    all.chain(snapshot.webhooks.iter().filter_map(webhook_failing))
        .collect()
}

/// Returns a problem of a pool, with the command that shows more of it.
fn about(pool: &PoolStatus, kind: AlertKind, summary: String, details: Value) -> Finding {
    Finding {
        kind,
        subject: pool.name.clone(),
        pool: Some(pool.name.clone()),
        source: Some(pool.source.clone()),
        queue: Some(pool.queue.clone()),
        summary,
        details: map(details),
        error: None,
        stderr: Vec::new(),
        command: format!("ganger status --workers --pool {}", word(&pool.name)),
    }
}

/// Returns a problem of a pool, with the end of its last worker that ended without a request.
fn about_loss(pool: &PoolStatus, kind: AlertKind, summary: String, details: Value) -> Finding {
    let finding = Finding {
        error: pool.last_worker_lost.as_deref().map(cut),
        ..about(pool, kind, summary, details)
    };
    let Some(loss) = &pool.last_loss else {
        return finding;
    };
    Finding {
        stderr: last_lines(&loss.stderr),
        command: format!("ganger output {} {}", word(&pool.name), loss.slot),
        ..finding
    }
}

fn last_lines(lines: &[String]) -> Vec<String> {
    let more = lines.len().saturating_sub(STDERR_LINES_MAX);
    lines.iter().skip(more).map(|line| cut(line)).collect()
}

/// Returns a problem of the daemon itself.
fn about_daemon(kind: AlertKind, subject: &str, summary: String, command: &str) -> Finding {
    Finding {
        kind,
        subject: subject.to_owned(),
        pool: None,
        source: None,
        queue: None,
        summary,
        details: Map::new(),
        error: None,
        stderr: Vec::new(),
        command: command.to_owned(),
    }
}

fn map(details: Value) -> Map<String, Value> {
    match details {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Cuts a text of others, which has no limit of its own.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn degraded(pool: &PoolStatus) -> Option<Finding> {
    if pool.state != PoolState::Degraded {
        return None;
    }
    let name = &pool.name;
    let summary = format!(
        "pool `{name}` is degraded: its workers keep failing{}",
        last_lost(pool)
    );
    let details = json!({
        "workers_up": workers_up(pool),
        "workers_wanted": pool.workers_wanted,
        "last_worker_lost": pool.last_worker_lost.as_deref().map(cut),
    });
    Some(about_loss(pool, AlertKind::PoolDegraded, summary, details))
}

fn workers_up(pool: &PoolStatus) -> usize {
    let up = pool.workers.iter();
    let up = up.filter(|worker| matches!(worker.state.as_str(), "idle" | "busy"));
    up.count()
}

/// Detects workers that have not even connected, if there are fewer than there should be.
fn not_starting(pool: &PoolStatus) -> Option<Finding> {
    let (name, up, wanted) = (&pool.name, workers_up(pool), pool.workers_wanted);
    if pool.failed_starts == 0 || up >= wanted {
        return None;
    }
    let count = pool.failed_starts;
    let summary = format!(
        "workers of pool `{name}` can't start: the last {count} did not connect, {up} of {wanted} are \
         up{}",
        last_lost(pool)
    );
    let details = json!({
        "failed_starts": count,
        "workers_up": up,
        "workers_wanted": wanted,
    });
    let kind = AlertKind::WorkersNotStarting;
    Some(about_loss(pool, kind, summary, details))
}

fn breaker_open(pool: &PoolStatus) -> Option<Finding> {
    let error = cut(pool.breaker_error.as_deref()?);
    let name = &pool.name;
    let summary = format!(
        "the breaker of pool `{name}` is open: nearly all attempts fail, one message at a time is \
         tried: {error}"
    );
    let details = json!({ "retried_since_start": pool.counts.retried });
    Some(Finding {
        error: Some(error),
        ..about(pool, AlertKind::BreakerOpen, summary, details)
    })
}

fn paused(pool: &PoolStatus, at: SystemTime, rules: &AlertsConfig) -> Option<Finding> {
    let (limit, since) = (rules.paused?, pool.closed_since?);
    let lasts = at.duration_since(since).ok()?;
    if lasts < limit {
        return None;
    }
    let name = &pool.name;
    let summary = format!(
        "the intake of pool `{name}` has been stopped by an operator for more than {limit:?}: it \
         is {}",
        pool.state.as_str()
    );
    let details = json!({ "limit_seconds": limit.as_secs_f64(), "state": pool.state });
    Some(Finding {
        command: format!("ganger resume {}", word(name)),
        ..about(pool, AlertKind::PoolPaused, summary, details)
    })
}

fn reload_refused(reload: &ReloadStatus) -> Option<Finding> {
    let why = cut(&reload.refusal()?);
    let summary =
        format!("the last reload of the configuration was refused, nothing has changed: {why}");
    let problems = reload.problems.iter().map(|problem| cut(problem));
    let finding = about_daemon(
        AlertKind::ReloadRefused,
        "configuration",
        summary,
        "ganger check --online",
    );
    Some(Finding {
        details: map(json!({ "problems": problems.collect::<Vec<_>>() })),
        error: Some(why),
        ..finding
    })
}

fn ledger_down(ledger: &LedgerStatus) -> Option<Finding> {
    let why = cut(ledger.problem.as_deref()?);
    let summary = format!("the ledger can't be used, and no schedule is dispatched: {why}");
    let kind = AlertKind::LedgerDown;
    let finding = about_daemon(kind, "ledger", summary, "ganger schedule list");
    Some(Finding {
        source: Some(ledger.source.clone()),
        error: Some(why),
        ..finding
    })
}

/// Finds a ledger that can be used for dispatching but is not told what becomes of messages.
fn ledger_behind(ledger: &LedgerStatus) -> Option<Finding> {
    let is_behind = ledger.problem.is_none() && ledger.behind_seconds >= BEHIND_SECONDS;
    is_behind.then(|| {
        let seconds = ledger.behind_seconds;
        let summary = format!(
            "the ledger is {seconds:.0} s behind what has become of messages of other sources"
        );
        let kind = AlertKind::LedgerBehind;
        Finding {
            source: Some(ledger.source.clone()),
            ..about_daemon(kind, "ledger", summary, "ganger status")
        }
    })
}

fn schedule_stopped(schedule: &StoppedScheduleStatus) -> Finding {
    let StoppedScheduleStatus {
        name,
        state,
        reason,
    } = schedule;
    let why = cut(reason);
    let summary = format!("schedule `{name}` is {state}, and dispatches nothing: {why}");
    let command = format!("ganger schedule show {}", word(name));
    Finding {
        details: map(json!({ "state": state })),
        error: Some(why),
        ..about_daemon(AlertKind::ScheduleStopped, name, summary, &command)
    }
}

fn schedule_overdue(schedule: &OverdueScheduleStatus) -> Finding {
    let OverdueScheduleStatus { name, overdue } = schedule;
    let overdue = cut(overdue);
    let summary = format!("schedule `{name}` is overdue: {overdue}");
    let command = format!("ganger schedule show {}", word(name));
    about_daemon(AlertKind::ScheduleOverdue, name, summary, &command)
}

fn schedule_unsent(outgoing: &OutgoingStatus) -> Option<Finding> {
    let why = cut(outgoing.problem.as_deref()?);
    let OutgoingStatus {
        source, messages, ..
    } = outgoing;
    let summary = format!(
        "{messages} message(s) of schedules can't be published to source `{source}`: {why}"
    );
    let kind = AlertKind::ScheduleUnsent;
    Some(Finding {
        source: Some(source.clone()),
        details: map(json!({ "messages": messages })),
        error: Some(why),
        ..about_daemon(kind, source, summary, "ganger check --online")
    })
}

fn webhook_failing(webhook: &WebhookStatus) -> Option<Finding> {
    let why = cut(webhook.problem.as_deref()?);
    let name = &webhook.name;
    let summary = format!("the webhook `{name}` did not accept the last alert: {why}");
    let kind = AlertKind::WebhookFailing;
    let finding = about_daemon(kind, name, summary, "ganger check --send-alert");
    Some(Finding {
        details: map(json!({ "sent": webhook.sent, "failed": webhook.failed })),
        error: Some(why),
        ..finding
    })
}

fn last_lost(pool: &PoolStatus) -> String {
    let last = pool.last_worker_lost.as_deref();
    last.map_or_else(String::new, |cause| {
        format!("; the last failure: {}", cut(cause))
    })
}

fn dead_letters(pool: &PoolStatus, recent: RecentCounts, rules: &AlertsConfig) -> Option<Finding> {
    let limit = rules.dead_letters.filter(|limit| recent.dead > *limit)?;
    let (name, count, window) = (&pool.name, recent.dead, rules.window);
    let summary = format!(
        "{count} message(s) of pool `{name}` were dead-lettered within {window:?}, more than {limit}"
    );
    let reasons = pool.details.dead.iter().filter(|(_, count)| **count > 0);
    let details = json!({
        "count": count,
        "window_seconds": window.as_secs_f64(),
        "limit": limit,
        "since_start": pool.counts.dead,
        "reasons_since_start": reasons.collect::<BTreeMap<_, _>>(),
    });
    Some(Finding {
        error: pool.last_error.as_deref().map(cut),
        command: format!("ganger dead list --pool {} --by-error", word(name)),
        ..about(pool, AlertKind::DeadLetters, summary, details)
    })
}

/// Detects a crash loop. Restarts come slower and slower: a degraded pool may have few crashes
/// lately, and that does not mean that the loop is over.
fn crash_loop(pool: &PoolStatus, recent: RecentCounts, rules: &AlertsConfig) -> Option<Finding> {
    let limit = rules.crashes?;
    let goes_on = recent.in_crash_loop && pool.state == PoolState::Degraded;
    if recent.crashed < limit && !goes_on {
        return None;
    }
    let (name, count, window) = (&pool.name, recent.crashed, rules.window);
    let summary = format!(
        "workers of pool `{name}` crash repeatedly: {count} within {window:?}{}",
        last_lost(pool)
    );
    let ends = pool.details.worker_ends.iter();
    let ends = ends.filter(|(_, count)| **count > 0);
    let details = json!({
        "count": count,
        "window_seconds": window.as_secs_f64(),
        "limit": limit,
        "worker_ends_since_start": ends.collect::<BTreeMap<_, _>>(),
        "last_worker_lost": pool.last_worker_lost.as_deref().map(cut),
    });
    Some(about_loss(pool, AlertKind::CrashLoop, summary, details))
}

fn waiting(pool: &PoolStatus, rules: &AlertsConfig) -> Option<Finding> {
    let limit = rules.waiting?;
    let backlog = pool
        .backlog
        .filter(|backlog| backlog.is_older_than(limit))?;
    let summary = format!("pool `{}` is behind: {backlog}", pool.name);
    let details = json!({
        "depth": backlog.depth,
        "at_least": backlog.at_least,
        "oldest_age_seconds": backlog.oldest_age_seconds,
        "limit_seconds": limit.as_secs_f64(),
    });
    Some(about(pool, AlertKind::Waiting, summary, details))
}

fn roll_stopped(pool: &PoolStatus) -> Option<Finding> {
    let cause = cut(pool.roll_stopped.as_deref()?);
    let name = &pool.name;
    let summary = format!(
        "a rolling restart of pool `{name}` has stopped and the old workers stay: a new one failed \
         its trial: {cause}"
    );
    let details = json!({ "cause": cause });
    let loss = pool.last_loss.as_ref();
    let loss = loss.filter(|loss| Some(&loss.cause) == pool.roll_stopped.as_ref());
    Some(Finding {
        error: Some(cause),
        stderr: loss.map_or_else(Vec::new, |loss| last_lines(&loss.stderr)),
        ..about(pool, AlertKind::RollStopped, summary, details)
    })
}

/// Detects sources that are down: one that is away is away for all its pools, and reported once.
fn sources_down(pools: &[Arc<PoolStatus>]) -> Vec<Finding> {
    let mut sources: BTreeMap<&str, Vec<&PoolStatus>> = BTreeMap::new();
    for pool in pools {
        sources.entry(&pool.source).or_default().push(pool);
    }
    let down = |(source, readers): (&str, Vec<&PoolStatus>)| source_down(source, &readers);
    sources.into_iter().filter_map(down).collect()
}

fn source_down(source: &str, readers: &[&PoolStatus]) -> Option<Finding> {
    let problem = |pool: &PoolStatus| {
        let problem = pool.source_problem.as_deref();
        cut(problem.unwrap_or("it is not connected"))
    };
    // A degraded pool has no place in its state to say so.
    let is_down = |pool: &&&PoolStatus| match pool.state {
        PoolState::SourceDown => true,
        PoolState::Degraded => !pool.source_connected,
        PoolState::Starting
        | PoolState::Running
        | PoolState::Open
        | PoolState::Paused
        | PoolState::Draining
        | PoolState::Drained => false,
    };
    let down: Vec<&PoolStatus> = readers.iter().filter(is_down).copied().collect();
    let first = down.first()?;
    let names = down.iter().map(|pool| format!("`{}`", pool.name));
    let names = names.take(20).collect::<Vec<_>>().join(", ");
    let why = problem(first);
    let summary = match (down.len(), readers.len()) {
        (down, all) if down < all => {
            format!("source `{source}` is unavailable to {down} of {all} pools ({names}): {why}")
        }
        _ => format!("source `{source}` is unavailable: {why}"),
    };
    let problems = down.iter().map(|pool| (pool.name.clone(), problem(pool)));
    let only = (readers.len() == 1).then_some(first);
    Some(Finding {
        kind: AlertKind::SourceDown,
        subject: source.to_owned(),
        pool: only.map(|pool| pool.name.clone()),
        source: Some(source.to_owned()),
        queue: only.map(|pool| pool.queue.clone()),
        summary,
        details: map(json!({ "pools": problems.collect::<BTreeMap<_, _>>() })),
        error: Some(why),
        stderr: Vec::new(),
        command: "ganger check --online".to_owned(),
    })
}

#[cfg(test)]
mod tests;
