//! What else than figures is worth knowing of a pool and of the daemon, a sentence each: for whoever
//! shows how the daemon stands.

use std::time::Duration;

use super::figures::age;
use crate::pool::status::{PoolState, PoolStatus, ScalingStatus};
use crate::status::{AlertsStatus, Status, UnreadQueueStatus};

/// How long a pool may have shown nothing new before that is said: it shows itself every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// What is worth knowing of it.
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
        notes.push(format!("its source can't be used: {problem}"));
    }
    if let Some(error) = &pool.breaker_error {
        notes.push(format!("nearly all attempts fail: {error}"));
    }
    if pool.state == PoolState::Degraded
        && let Some(cause) = &pool.last_worker_lost
    {
        notes.push(format!(
            "its workers fail one after the other; the last one: {cause}"
        ));
    }
    if let Some(cause) = &pool.roll_stopped {
        notes.push(format!(
            "its rolling restart has stopped, the old workers stay: a new one did not work: {cause}"
        ));
    }
    if let Some(waits_for) = &pool.waits_for {
        notes.push(format!("a message waits for {waits_for}"));
    }
    if pool.likely_duplicates > 0 {
        let count = pool.likely_duplicates;
        notes.push(format!("{count} message(s) may have run twice"));
    }
    let figures = &pool.source_figures;
    if let Some(count @ 1..) = figures.repetitions {
        notes.push(format!(
            "{count} repetition(s) acknowledged without being worked on"
        ));
    }
    if let Some(count @ 1..) = figures.unkeyed {
        notes.push(format!(
            "{count} message(s) without a key by which a repetition would be known"
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
            "last seen so {seen} ago; its thread is busy or stuck"
        ));
    }
    notes
}

/// Queues that hold messages and that no pool reads, a sentence each.
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

/// The first of them, and how many more there are.
pub(super) fn unread_note(status: &Status) -> Option<String> {
    let first = unread_notes(status).next()?;
    Some(match status.unread_queues.len() - 1 {
        0 => first,
        more => format!("{first} (and {more} more queue(s))"),
    })
}

/// What is to be known of the alerts that are sent, if any are.
pub(super) fn alerts_note(status: &Status) -> Option<String> {
    let AlertsStatus {
        webhook,
        problem,
        firing,
        ..
    } = status.alerts.as_ref()?;
    let kinds: Vec<String> = firing
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| format!("{kind} ({count})"))
        .collect();
    let problem = problem.as_deref();
    let problem = problem.map(|why| format!("the webhook at {webhook} took no message: {why}"));
    let kinds = (!kinds.is_empty()).then(|| format!("firing {}", kinds.join(", ")));
    let parts: Vec<String> = kinds.into_iter().chain(problem).collect();
    (!parts.is_empty()).then(|| format!("alerts: {}", parts.join("; ")))
}
