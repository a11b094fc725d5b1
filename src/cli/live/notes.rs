//! Notes on a pool and on the daemon beyond the figures, a sentence each, for every display of the daemon's
//! status.

use std::time::{Duration, SystemTime};

use super::figures::age;
use ganger_pool::overview::{
    OverdueScheduleStatus, SilencedStatus, Status, StoppedScheduleStatus, UnreadQueueStatus,
};
use ganger_pool::status::{PoolState, PoolStatus, ScalingStatus};

/// Age of a pool's status after which a note says so; a pool updates its status every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

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
    if let Some(problem) = &pool.source_problem {
        notes.push(format!("its source is unavailable: {problem}"));
    }
    if let Some(error) = &pool.breaker_error {
        notes.push(format!("nearly all attempts fail: {error}"));
    }
    if pool.state == PoolState::Degraded
        && let Some(cause) = &pool.last_worker_lost
    {
        notes.push(format!(
            "its workers keep failing; the last failure: {cause}"
        ));
    }
    if let Some(cause) = &pool.roll_stopped {
        notes.push(format!(
            "its rolling restart has stopped, the old workers stay: a new one failed its trial: \
             {cause}"
        ));
    }
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
    if pool.unaccounted != 0 {
        let count = pool.unaccounted;
        notes.push(format!("{count} message(s) unaccounted for; this is a bug"));
    }
    // At a stop one that has ended is shown as it was.
    let has_ended = pool.state == PoolState::Draining && pool.workers.is_empty();
    if pool.age_seconds > STALE_AFTER.as_secs_f64() && !has_ended {
        let seen = age(pool.age_seconds);
        notes.push(format!(
            "this status is {seen} old: its thread is busy or stuck"
        ));
    }
    notes
}

/// Returns a sentence for each queue that holds messages and that no pool reads.
pub(super) fn unread_notes(status: &Status) -> impl Iterator<Item = String> {
    status.unread_queues.iter().map(|unread| {
        let UnreadQueueStatus {
            source,
            queue,
            backlog,
        } = unread;
        format!("{source}: no pool here reads queue `{queue}`: {backlog}")
    })
}

/// Returns the first of those sentences, with the number of further ones.
pub(super) fn unread_note(status: &Status) -> Option<String> {
    let first = unread_notes(status).next()?;
    Some(match status.unread_queues.len() - 1 {
        0 => first,
        more => format!("{first} (and {more} more queue(s))"),
    })
}

/// Returns the notes on the daemon itself, a line each: its alerts, its webhooks, its last reload, its
/// ledger.
pub(super) fn daemon_notes(status: &Status) -> Vec<String> {
    let now = status_time(status);
    let ago = |at: SystemTime| age(now.duration_since(at).unwrap_or_default().as_secs_f64());
    let alerts = status.alerts.iter();
    let active = alerts.clone().flat_map(|alerts| &alerts.active);
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
    let webhooks = alerts.flat_map(|alerts| &alerts.webhooks);
    let webhooks = webhooks.filter_map(|webhook| {
        let (name, why) = (&webhook.name, webhook.problem.as_ref()?);
        Some(format!(
            "webhook {name} did not accept the last message: {why}"
        ))
    });
    let reload = &status.reload;
    let refused = reload.refusal().map(|why| {
        let since = ago(reload.at);
        format!("the last reload was refused {since} ago, nothing has changed: {why}")
    });
    active
        .chain(webhooks)
        .chain(refused)
        .chain(ledger_notes(status))
        .chain(restart_note(status))
        .collect()
}

fn ledger_notes(status: &Status) -> impl Iterator<Item = String> {
    let ledger = status.ledger.iter();
    let problem = ledger.clone().filter_map(|ledger| {
        let why = ledger.problem.as_ref()?;
        Some(format!(
            "the ledger can't be used, and no schedule is dispatched: {why}"
        ))
    });
    let hold = ledger.clone().filter_map(|ledger| {
        let why = ledger.hold.as_ref()?;
        Some(format!(
            "all schedules are paused ({why}); run: ganger schedule resume --all"
        ))
    });
    let overdue = ledger.clone().flat_map(|ledger| &ledger.overdue);
    let overdue = overdue.map(|OverdueScheduleStatus { name, overdue }| {
        format!("schedule {name} is overdue: {overdue}")
    });
    let outgoing = ledger.clone().flat_map(|ledger| &ledger.outgoing);
    let unsent = outgoing.filter_map(|outgoing| {
        let (source, why) = (&outgoing.source, outgoing.problem.as_ref()?);
        let messages = outgoing.messages;
        Some(format!(
            "{messages} message(s) of schedules can't be published to source {source}: {why}"
        ))
    });
    let stopped = ledger.flat_map(|ledger| &ledger.stopped).map(|schedule| {
        let StoppedScheduleStatus {
            name,
            state,
            reason,
        } = schedule;
        format!("schedule {name} is {state}: {reason}")
    });
    let all = problem.chain(hold).chain(unsent);
    all.chain(stopped).chain(overdue)
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
    (!keys.is_empty()).then(|| format!("a restart of the daemon is needed for {}", keys.join(", ")))
}
