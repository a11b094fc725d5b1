//! The metrics again under the names of MessageWorkerPool, for existing dashboards. Dots are
//! underscores, as its own exporter for Prometheus writes them.

use super::family::{Family, Sample};
use ganger_pool::overview::Status;
use ganger_pool::status::PoolStatus;

/// Returns all of these metrics. The original counters had no label; here they have the pool.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let each = |family: Family, count: fn(&PoolStatus) -> u64| {
        let pools = status.pools.iter();
        family.of(pools.map(|pool| Sample::count(vec![("pool", pool.name.clone())], count(pool))))
    };
    vec![
        each(
            Family::gauge(
                "messageworkerpool_tasks_processing",
                "Current number of tasks being processed.",
            ),
            |pool| pool.out as u64,
        ),
        each(
            Family::counter(
                "messageworkerpool_tasks_processed_total",
                "Total number of tasks processed.",
            ),
            |pool| pool.counts.done + pool.counts.retried + pool.counts.dead,
        ),
        each(
            Family::counter(
                "messageworkerpool_tasks_succeeded_total",
                "Successfully processed tasks.",
            ),
            |pool| pool.counts.done,
        ),
        each(
            Family::counter("messageworkerpool_tasks_failed_total", "Failed tasks."),
            |pool| pool.counts.retried + pool.counts.dead,
        ),
        each(
            Family::gauge(
                "messageworkerpool_workers_active",
                "Number of active workers.",
            ),
            |pool| in_state(pool, "busy"),
        ),
        each(
            Family::gauge("messageworkerpool_workers_idle", "Number of idle workers."),
            |pool| in_state(pool, "idle"),
        ),
    ]
}

fn in_state(pool: &PoolStatus, state: &str) -> u64 {
    let workers = pool.workers.iter();
    workers.filter(|worker| worker.state == state).count() as u64
}
