//! How the status looks to people.

use std::time::Duration;

use super::super::output;
use crate::pool::status::{PoolState, PoolStatus, ScalingStatus, WorkerStatus};
use crate::status::{AlertsStatus, Status};

/// How long a pool may have shown nothing new before that is said: it shows itself every second.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// Prints how things stand.
pub(super) fn status(status: &Status, with_workers: bool) -> miette::Result<()> {
    output::line(head(status))?;
    output::line(output::foreign(&pools(status)))?;
    let notes = status.pools.iter().flat_map(notes).chain(alerts(status));
    for note in notes {
        output::line(output::foreign(&note))?;
    }
    if with_workers {
        output::line("")?;
        output::line(output::foreign(&workers(status)))?;
    }
    Ok(())
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

/// What is to be known of the alerts that are sent, if any are.
fn alerts(status: &Status) -> Option<String> {
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

fn pools(status: &Status) -> String {
    let header = [
        "POOL", "STATE", "WORKERS", "IN HAND", "DONE", "DONE/S", "RETRIED", "DEAD", "RETURNED",
        "P50 MS", "P99 MS", "LAG",
    ];
    output::table(&header, status.pools.iter().map(row))
}

fn row(pool: &PoolStatus) -> Vec<String> {
    let up = pool.workers.iter();
    let up = up
        .filter(|worker| matches!(worker.state.as_str(), "idle" | "busy"))
        .count();
    let lag = match pool.lag.is_empty() {
        true => "-".to_owned(),
        false => pool.lag.values().sum::<u64>().to_string(),
    };
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
        lag,
    ]
}

/// What else is worth knowing of a pool, a line each.
fn notes(pool: &PoolStatus) -> Vec<String> {
    let name = &pool.name;
    let mut notes = Vec::new();
    if let Some(scaled) = pool.scaled {
        let configured = pool.workers_configured;
        notes.push(format!(
            "{name}: scaled to {scaled} worker(s); {configured} configured"
        ));
    }
    if let Some(ScalingStatus { min, max, why, .. }) = &pool.autoscale {
        notes.push(format!("{name}: {min} to {max} worker(s): {why}"));
    }
    if let Some(problem) = &pool.source_problem {
        notes.push(format!("{name}: its source can't be used: {problem}"));
    }
    if let Some(error) = &pool.breaker_error {
        notes.push(format!("{name}: nearly all attempts fail: {error}"));
    }
    if pool.state == PoolState::Degraded
        && let Some(cause) = &pool.last_worker_lost
    {
        notes.push(format!(
            "{name}: its workers fail one after the other; the last one: {cause}"
        ));
    }
    if let Some(cause) = &pool.roll_stopped {
        notes.push(format!(
            "{name}: its rolling restart has stopped, the old workers stay: a new one did not work: \
             {cause}"
        ));
    }
    if let Some(waits_for) = &pool.waits_for {
        notes.push(format!("{name}: a message waits for {waits_for}"));
    }
    if pool.likely_duplicates > 0 {
        let count = pool.likely_duplicates;
        notes.push(format!("{name}: {count} message(s) may have run twice"));
    }
    if pool.unaccounted != 0 {
        let count = pool.unaccounted;
        notes.push(format!(
            "{name}: {count} message(s) unaccounted for; this is a bug"
        ));
    }
    let seen = pool.as_of.elapsed().unwrap_or_default();
    if seen > STALE_AFTER {
        let seen = age(seen.as_secs_f64());
        notes.push(format!(
            "{name}: last seen so {seen} ago; its thread is busy or stuck"
        ));
    }
    notes
}

fn workers(status: &Status) -> String {
    let header = [
        "POOL",
        "SLOT",
        "PID",
        "STATE",
        "IN HAND",
        "WINDOW",
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
        or_dash(worker.message_age.map(age)),
        worker.answered.to_string(),
        or_dash(worker.progress.clone()),
    ]
}

/// A time for people, in its two largest units.
fn age(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let whole = time.as_secs();
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", whole % 60),
        () if whole >= 10 => format!("{whole}s"),
        () => format!("{:.1}s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_two_units() {
        let table = [
            (0.04, "0.0s"),
            (9.94, "9.9s"),
            (59.9, "59s"),
            (61.0, "1m 1s"),
            (3_661.0, "1h 1m"),
            (90_061.0, "1d 1h"),
            (f64::NAN, "0.0s"),
        ];
        for (seconds, text) in table {
            assert_eq!(age(seconds), text);
        }
    }
}
