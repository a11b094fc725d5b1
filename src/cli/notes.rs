//! What else than figures is worth knowing of a pool and of the daemon, a sentence each: for whoever
//! shows how the daemon stands.

use std::time::{Duration, SystemTime};

use super::figures::age;
use crate::pool::status::{PoolState, PoolStatus, ScalingStatus};
use crate::status::{AlertsStatus, Status};

/// How long a pool may have shown nothing new before that is said: it shows itself every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The daemon's own clock when it told how it stood: that of whoever reads it may go otherwise.
pub(super) fn told_at(status: &Status) -> SystemTime {
    let uptime = Duration::try_from_secs_f64(status.uptime_seconds).unwrap_or_default();
    let told = status.started_at.checked_add(uptime);
    told.unwrap_or(status.started_at)
}

/// What is worth knowing of it, where `now` is the daemon's clock.
pub(super) fn pool_notes(pool: &PoolStatus, now: SystemTime) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(scaled) = pool.scaled {
        let configured = pool.workers_configured;
        notes.push(format!(
            "scaled to {scaled} worker(s); {configured} configured"
        ));
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
    let seen = now.duration_since(pool.as_of).unwrap_or_default();
    // At a stop one that has ended is shown as it was.
    let has_ended = pool.state == PoolState::Draining && pool.workers.is_empty();
    if seen > STALE_AFTER && !has_ended {
        let seen = age(seen.as_secs_f64());
        notes.push(format!(
            "last seen so {seen} ago; its thread is busy or stuck"
        ));
    }
    notes
}

/// What is to be known of the alerts that are sent, if any are.
pub(super) fn alerts_note(status: &Status) -> Option<String> {
    let AlertsStatus {
        webhook,
        problem,
        firing,
        ..
    } = status.alerts.as_ref()?;
    let count: u64 = firing.values().sum();
    let problem = problem.as_deref();
    let problem = problem.map(|why| format!("the webhook at {webhook} took no message: {why}"));
    let count = (count > 0).then(|| format!("{count} firing"));
    let parts: Vec<String> = count.into_iter().chain(problem).collect();
    (!parts.is_empty()).then(|| format!("alerts: {}", parts.join("; ")))
}
