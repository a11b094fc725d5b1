//! Notes on a pool and on the daemon beyond the figures, a sentence each, for every display of the daemon's
//! status.

use std::time::{Duration, SystemTime};

use super::figures::age;
use ganger_pool::overview::{
    OverdueScheduleStatus, SilencedStatus, Status, StoppedScheduleStatus, UnreadQueueStatus,
};
use ganger_pool::problems::{DaemonProblem, PoolProblem, daemon_problems, pool_problems};
use ganger_pool::status::{PoolStatus, ScalingStatus};

/// The daemon's own clock when it gave its status, unless it was set since the daemon's start.
fn status_time(status: &Status) -> SystemTime {
    let uptime = Duration::try_from_secs_f64(status.uptime_seconds).unwrap_or_default();
    let told = status.started_at.checked_add(uptime);
    told.unwrap_or(status.started_at)
}

/// Returns the notes on a pool.
pub(super) fn pool_notes(pool: &PoolStatus) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(scaled) = pool.scaled {
        let configured = pool.workers_configured;
        notes.push(format!(
            "scaled to {scaled} worker(s); {configured} configured"
        ));
    }
    if pool.paused_for_all {
        notes.push("paused on all daemons that share its table, until `resume --all`".to_owned());
    }
    if let Some(ScalingStatus { min, max, why, .. }) = &pool.autoscale {
        notes.push(format!("{min} to {max} worker(s): {why}"));
    }
    notes.extend(pool_problems(pool).into_iter().map(of_pool));
    if let Some(waits_for) = &pool.waits_for {
        notes.push(format!("a message is waiting for {waits_for}"));
    }
    if pool.likely_duplicates > 0 {
        let count = pool.likely_duplicates;
        notes.push(format!("{count} message(s) may have run twice"));
    }
    let figures = &pool.source_figures;
    if let Some(count @ 1..) = figures.repetitions {
        notes.push(format!(
            "{count} repetition(s) acknowledged without being processed"
        ));
    }
    if let Some(count @ 1..) = figures.unkeyed {
        notes.push(format!(
            "{count} message(s) without a key by which a repetition would be detected"
        ));
    }
    notes
}

fn of_pool(problem: PoolProblem<'_>) -> String {
    let because = |what: &str, why: Option<&str>| match why {
        Some(why) => format!("{what}: {why}"),
        None => what.to_owned(),
    };
    match problem {
        PoolProblem::SourceDown(why) => because("its source is unavailable", why),
        PoolProblem::BreakerOpen(why) => because("nearly all attempts fail", why),
        PoolProblem::WorkersFailing(None) => "its workers keep failing".to_owned(),
        PoolProblem::WorkersFailing(cause) => {
            because("its workers keep failing; the last failure", cause)
        }
        PoolProblem::RollStopped(cause) => format!(
            "its rolling restart has stopped, the old workers stay: a new one failed its trial: {cause}"
        ),
        PoolProblem::Unaccounted(count) => {
            format!("{count} message(s) unaccounted for; this is a bug")
        }
        PoolProblem::Stale(seen) => {
            let seen = age(seen.as_secs_f64());
            format!("this status is {seen} old: its thread is busy or stuck")
        }
    }
}

fn of_unread(unread: &UnreadQueueStatus) -> String {
    let UnreadQueueStatus {
        source,
        queue,
        backlog,
    } = unread;
    format!("{source}: no pool here reads queue `{queue}`: {backlog}")
}

/// Returns a sentence for the first queue that holds messages and that no pool reads, with the number of further ones.
pub(super) fn unread_note(status: &Status) -> Option<String> {
    let first = status.unread_queues.first().map(of_unread)?;
    Some(match status.unread_queues.len() - 1 {
        0 => first,
        more => format!("{first} (and {more} more queue(s))"),
    })
}

/// Returns the notes on the daemon itself, a line each: its alerts, and its problems.
pub(super) fn daemon_notes(status: &Status) -> Vec<String> {
    let now = status_time(status);
    let ago = |at: SystemTime| age(now.duration_since(at).unwrap_or_default().as_secs_f64());
    let alerts = status.alerts.iter();
    let active = alerts.flat_map(|alerts| &alerts.active);
    let active = active.map(|alert| {
        let (kind, since) = (&alert.kind, ago(alert.since));
        let (summary, command) = (&alert.summary, &alert.command);
        let silenced = alert.silenced.as_ref().map(|silenced| {
            let SilencedStatus {
                until, by, reason, ..
            } = silenced;
            format!("; silenced until {until} by {by}: {reason}")
        });
        let silenced = silenced.unwrap_or_default();
        format!("alert {kind} for {since}: {summary}{silenced}; run: {command}")
    });
    let problems = daemon_problems(status).into_iter();
    active
        .chain(problems.map(|problem| of_daemon(&problem, ago)))
        .collect()
}

fn of_daemon(problem: &DaemonProblem<'_>, ago: impl Fn(SystemTime) -> String) -> String {
    match problem {
        DaemonProblem::WebhookFailing(name, why) => {
            format!("webhook {name} did not accept the last message: {why}")
        }
        DaemonProblem::ReloadRefused(at, why) => {
            let since = ago(*at);
            format!("the last reload was refused {since} ago, nothing has changed: {why}")
        }
        DaemonProblem::LedgerDown(why) => {
            format!("the ledger can't be used, and no schedule is dispatched: {why}")
        }
        DaemonProblem::SchedulesHeld(why) => {
            format!("all schedules are paused ({why}); run: ganger schedule resume --all")
        }
        DaemonProblem::Unsent(outgoing, why) => {
            let (messages, source) = (outgoing.messages, &outgoing.source);
            format!(
                "{messages} message(s) of schedules can't be published to source {source}: {why}"
            )
        }
        DaemonProblem::Stopped(schedule) => {
            let StoppedScheduleStatus {
                name,
                state,
                reason,
            } = schedule;
            format!("schedule {name} is {state}: {reason}")
        }
        DaemonProblem::Overdue(OverdueScheduleStatus { name, overdue }) => {
            format!("schedule {name} is overdue: {overdue}")
        }
        DaemonProblem::Unread(unread) => of_unread(unread),
        DaemonProblem::RestartNeeded(keys) => restart_needed(keys),
    }
}

/// Returns the notes on the daemon in a few words, for where there is little room.
pub(super) fn daemon_words(status: &Status) -> Option<String> {
    let alerts = status.alerts.iter();
    let active = alerts.clone().flat_map(|alerts| &alerts.active);
    let active: Vec<String> = active
        .map(|alert| {
            let silenced = alert.silenced.as_ref().map_or("", |_| " (silenced)");
            format!("{} {}{silenced}", alert.kind, alert.of)
        })
        .collect();
    let firing = (!active.is_empty()).then(|| format!("alerts: {}", active.join(", ")));
    let webhooks = alerts.flat_map(|alerts| &alerts.webhooks);
    let failing = webhooks.filter(|webhook| webhook.problem.is_some());
    let failing = failing.map(|webhook| format!("webhook {} fails", webhook.name));
    let refused = (!status.reload.successful).then(|| "the last reload was refused".to_owned());
    let parts = firing.into_iter().chain(failing).chain(refused);
    let parts: Vec<String> = parts.chain(restart_note(status)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn restart_note(status: &Status) -> Option<String> {
    let keys = &status.reload.keys.restart_needed;
    (!keys.is_empty()).then(|| restart_needed(keys))
}

fn restart_needed(keys: &[String]) -> String {
    format!("a restart of the daemon is needed for {}", keys.join(", "))
}
