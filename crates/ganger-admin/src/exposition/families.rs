//! All metrics, one after the other.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::alerts;
use super::backlogs::{self, queue};
use super::family::{Family, Sample, SampleValue};
use super::figures;
use super::ledger;
use super::process::{ProcessUse, Processes};
use super::seed;
use ganger_pool::overview::Status;
use ganger_pool::status::{PoolState, PoolStatus, ScalingStatus, WorkerStatus};
use ganger_telemetry::metrics::spread::Spread;

/// All states of a pool.
const STATES: [PoolState; 8] = [
    PoolState::Starting,
    PoolState::Running,
    PoolState::Degraded,
    PoolState::Open,
    PoolState::SourceDown,
    PoolState::Paused,
    PoolState::Draining,
    PoolState::Drained,
];

/// Returns all metrics at this moment; optionally also under the seed system's names.
pub fn families(status: &Status, processes: &Processes, with_seed_names: bool) -> Vec<Family> {
    let mut families = tasks(status);
    families.extend(times(status));
    families.extend(workers(status, processes));
    families.extend(ranges(status));
    families.extend(sources(status));
    families.extend(backlogs::families(status));
    families.extend(alerts::families(status));
    families.extend(figures::families(status));
    families.extend(ledger::families(status));
    families.extend(reload(status));
    families.extend(daemon(status, processes));
    if with_seed_names {
        families.extend(seed::families(status));
    }
    families
}

type Labels = Vec<(&'static str, String)>;

fn pool(pool: &PoolStatus) -> Labels {
    vec![("pool", pool.name.clone())]
}

fn with(mut labels: Labels, name: &'static str, value: impl Into<String>) -> Labels {
    labels.push((name, value.into()));
    labels
}

/// Adds a series for each pool.
fn each(
    status: &Status,
    family: Family,
    labels: impl Fn(&PoolStatus) -> Labels,
    count: impl Fn(&PoolStatus) -> u64,
) -> Family {
    let pools = status.pools.iter();
    family.of(pools.map(|pool| Sample::count(labels(pool), count(pool))))
}

fn tasks(status: &Status) -> Vec<Family> {
    let gauge = |name, help| Family::gauge(name, help);
    let counter = |name, help| Family::counter(name, help);
    let kinds_of = |family: Family, labels: fn(&PoolStatus) -> Labels, of: Kinds| {
        let pools = status.pools.iter();
        family.of(pools.flat_map(|pool| kinds(labels(pool), "reason", of(pool))))
    };
    let processing = gauge(
        "ganger_tasks_processing",
        "Messages taken in and not yet settled.",
    );
    let taken = counter(
        "ganger_tasks_taken_total",
        "Messages taken in from the source.",
    );
    let processed = counter(
        "ganger_tasks_processed_total",
        "Messages settled, by outcome; a message that is redelivered is settled more than once.",
    );
    let done = counter(
        "ganger_tasks_succeeded_total",
        "Messages done, with or without a reply.",
    );
    let failed = counter("ganger_tasks_failed_total", "Failed attempts, by reason.");
    let dead = counter(
        "ganger_dead_letters_total",
        "Messages dead-lettered, by reason.",
    );
    let emits = counter(
        "ganger_emits_total",
        "Emits of workers that the broker has confirmed.",
    );
    let twice = counter(
        "ganger_likely_duplicates_total",
        "Messages settled too late, so that they may run twice.",
    );
    vec![
        each(status, processing, queue, |pool| pool.out as u64),
        each(status, taken, queue, |pool| pool.counts.taken),
        processed.of(status.pools.iter().flat_map(outcomes)),
        each(status, done, queue, |pool| pool.counts.done),
        kinds_of(failed, queue, |pool| &pool.details.failed),
        kinds_of(dead, pool, |pool| &pool.details.dead),
        each(status, emits, pool, |pool| pool.counts.emitted),
        each(status, twice, pool, |pool| pool.likely_duplicates),
        unaccounted(status),
    ]
}

type Kinds = fn(&PoolStatus) -> &BTreeMap<String, u64>;

fn outcomes(pool: &PoolStatus) -> [Sample; 6] {
    let counts = &pool.counts;
    let counted = [
        ("done", counts.done - counts.replied),
        ("replied", counts.replied),
        ("requeued", counts.requeued),
        ("returned", counts.returned),
        ("retried", counts.retried),
        ("dead", counts.dead),
    ];
    let labels = queue(pool);
    counted.map(|(outcome, count)| Sample::count(with(labels.clone(), "outcome", outcome), count))
}

fn times(status: &Status) -> Vec<Family> {
    vec![
        spread(
            status,
            "ganger_task_duration_seconds",
            "Time from a message's turn at a worker to its answer.",
            |pool| &pool.details.task_duration,
        ),
        spread(
            status,
            "ganger_queue_wait_seconds",
            "Time from the intake of a message by the pool to its turn at a worker.",
            |pool| &pool.details.queue_wait,
        ),
        spread(
            status,
            "ganger_pipe_roundtrip_seconds",
            "Time from the writing of a message into a worker's pipe to its answer.",
            |pool| &pool.details.pipe_roundtrip,
        ),
    ]
}

fn kinds(labels: Labels, name: &'static str, counts: &BTreeMap<String, u64>) -> Vec<Sample> {
    let sample = |(kind, count): (&String, &u64)| {
        Sample::count(with(labels.clone(), name, kind.as_str()), *count)
    };
    counts.iter().map(sample).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
fn unaccounted(status: &Status) -> Family {
    let sample = |one: &PoolStatus| Sample::number(pool(one), one.unaccounted as f64);
    Family::gauge(
        "ganger_unaccounted",
        "Messages taken in that are neither settled nor in hand; anything but 0 is a bug.",
    )
    .of(status.pools.iter().map(sample))
}

fn spread(
    status: &Status,
    name: &'static str,
    help: &'static str,
    of: impl Fn(&PoolStatus) -> &Spread,
) -> Family {
    let sample = |one: &PoolStatus| Sample {
        labels: queue(one),
        value: SampleValue::Spread(of(one).clone()),
    };
    Family::histogram(name, help).of(status.pools.iter().map(sample))
}

/// Adds a series for each pool whose number of workers follows the load.
fn bound(status: &Status, family: Family, value: impl Fn(&ScalingStatus) -> Option<u64>) -> Family {
    let sample = |one: &PoolStatus| {
        let value = value(one.autoscale.as_ref()?)?;
        Some(Sample::count(pool(one), value))
    };
    family.of(status.pools.iter().filter_map(sample))
}

fn changes(one: &PoolStatus) -> Vec<Sample> {
    let range = one.autoscale.as_ref();
    range.map_or_else(Vec::new, |range| kinds(pool(one), "reason", &range.changes))
}

/// Returns the metrics of automatic scaling, where it is on.
fn ranges(status: &Status) -> Vec<Family> {
    vec![
        bound(
            status,
            Family::gauge(
                "ganger_workers_min",
                "Minimum number of workers of a pool whose number follows the load.",
            ),
            |range| Some(range.min as u64),
        ),
        bound(
            status,
            Family::gauge(
                "ganger_workers_max",
                "Maximum number of workers of a pool whose number follows the load.",
            ),
            |range| Some(range.max as u64),
        ),
        bound(
            status,
            Family::gauge(
                "ganger_source_depth",
                "Messages in the queue without those taken in, as in ganger_queue_depth; only for \
                 pools whose number of workers follows the load.",
            ),
            |range| range.queued,
        ),
        Family::counter(
            "ganger_workers_changes_total",
            "Changes of the number of workers by the load, by reason.",
        )
        .of(status.pools.iter().flat_map(changes)),
    ]
}

fn workers(status: &Status, processes: &Processes) -> Vec<Family> {
    let in_state = |state: &'static str| {
        move |pool: &PoolStatus| {
            let workers = pool.workers.iter();
            workers.filter(|worker| worker.state == state).count() as u64
        }
    };
    let up = |pool: &PoolStatus| in_state("idle")(pool) + in_state("busy")(pool);
    vec![
        each(
            status,
            Family::gauge("ganger_workers_active", "Workers with a message in hand."),
            pool,
            in_state("busy"),
        ),
        each(
            status,
            Family::gauge("ganger_workers_idle", "Workers without a message."),
            pool,
            in_state("idle"),
        ),
        each(
            status,
            Family::gauge("ganger_workers_up", "Workers that take messages."),
            pool,
            up,
        ),
        each(
            status,
            Family::gauge(
                "ganger_workers_wanted",
                "Target number of workers of the pool.",
            ),
            pool,
            |pool| pool.workers_wanted as u64,
        ),
        Family::counter("ganger_worker_restarts_total", "Ends of workers, by cause.").of(status
            .pools
            .iter()
            .flat_map(|one| kinds(pool(one), "cause", &one.details.worker_ends))),
        Family::gauge(
            "ganger_worker_resident_bytes",
            "Resident memory of each worker's process.",
        )
        .of(of_workers(status, processes, resident)),
        Family::counter(
            "ganger_worker_cpu_seconds_total",
            "CPU time of each worker's process; it is reset with a new process.",
        )
        .of(of_workers(status, processes, |used| used.cpu_seconds)),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
fn resident(used: &ProcessUse) -> f64 {
    used.resident_bytes as f64
}

fn of_workers(
    status: &Status,
    processes: &Processes,
    value: impl Fn(&ProcessUse) -> f64,
) -> Vec<Sample> {
    let sample = |one: &PoolStatus, worker: &WorkerStatus| {
        let used = processes.of(worker.pid?)?;
        let labels = with(pool(one), "slot", worker.slot.to_string());
        Some(Sample::number(labels, value(used)))
    };
    let pools = status.pools.iter();
    pools
        .flat_map(|one| {
            one.workers
                .iter()
                .filter_map(move |worker| sample(one, worker))
        })
        .collect()
}

fn sources(status: &Status) -> Vec<Family> {
    let lag = |one: &PoolStatus| {
        let labels = pool(one);
        let lag = one.lag.iter();
        let sample = |(partition, lag): (&String, &u64)| {
            Sample::count(with(labels.clone(), "partition", partition.as_str()), *lag)
        };
        lag.map(sample).collect::<Vec<_>>()
    };
    let states = |one: &PoolStatus| {
        let state = |state: PoolState| {
            let name = state.as_str().replace(' ', "_");
            Sample::count(
                with(pool(one), "state", name),
                u64::from(one.state == state),
            )
        };
        STATES.map(state)
    };
    vec![
        each(
            status,
            Family::gauge(
                "ganger_source_connected",
                "1 while the source is connected and its last settlement took effect, otherwise 0.",
            ),
            |one| with(pool(one), "kind", one.kind.as_str()),
            |pool| u64::from(pool.source_connected),
        ),
        Family::gauge(
            "ganger_source_lag",
            "Messages not done, by partition, if the source knows.",
        )
        .of(status.pools.iter().flat_map(lag)),
        each(
            status,
            Family::gauge(
                "ganger_source_credit",
                "Maximum number of messages that the source may have out.",
            ),
            pool,
            |pool| pool.credit as u64,
        ),
        Family::gauge("ganger_pool_state", "1 for the state that the pool is in.")
            .of(status.pools.iter().flat_map(states)),
    ]
}

fn dropped(status: &Status) -> Family {
    Family::counter(
        "ganger_log_records_dropped_total",
        "Log records dropped because stderr was blocked.",
    )
    .of([Sample::count(vec![], status.log_records_dropped)])
}

fn left_out(status: &Status) -> Family {
    Family::counter(
        "ganger_log_records_left_out_total",
        "Log records suppressed because many identical ones were written in the same second.",
    )
    .of([Sample::count(vec![], status.log_records_left_out)])
}

/// Returns the metrics of the last reload of the configuration.
fn reload(status: &Status) -> [Family; 2] {
    let one =
        |name, help, value: f64| Family::gauge(name, help).of([Sample::number(vec![], value)]);
    [
        one(
            "ganger_config_last_reload_successful",
            "1 if the last reload of the configuration was carried out, or there was none; 0 if it was \
             refused.",
            f64::from(u8::from(status.reload.successful)),
        ),
        one(
            "ganger_config_last_reload_success_timestamp_seconds",
            "Time of the last reload that was carried out, or of the start, in seconds since 1970.",
            since_1970(status.reload.succeeded_at),
        ),
    ]
}

fn since_1970(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
fn daemon(status: &Status, processes: &Processes) -> Vec<Family> {
    let one =
        |name, help, value: f64| Family::gauge(name, help).of([Sample::number(vec![], value)]);
    let mut families = vec![
        Family::gauge(
            "ganger_build_info",
            "Always 1; the labels identify the build.",
        )
        .of([Sample::number(
            vec![("version", status.version.clone())],
            1.0,
        )]),
        dropped(status),
        left_out(status),
        one(
            "ganger_buffered_bytes",
            "Size of the messages that all pools hold in memory.",
            status.buffered_bytes as f64,
        ),
        one(
            "ganger_buffered_bytes_max",
            "Maximum size of the messages that all pools hold in memory.",
            status.buffered_bytes_max as f64,
        ),
        one(
            "process_start_time_seconds",
            "Start time of the daemon, in seconds since 1970.",
            since_1970(status.started_at),
        ),
    ];
    if let Some(used) = processes.of(status.pid) {
        families.extend([
            Family::counter("process_cpu_seconds_total", "CPU time of the daemon.")
                .of([Sample::number(vec![], used.cpu_seconds)]),
            one(
                "process_resident_memory_bytes",
                "Resident memory of the daemon.",
                used.resident_bytes as f64,
            ),
            one(
                "process_virtual_memory_bytes",
                "Virtual memory of the daemon.",
                used.virtual_bytes as f64,
            ),
            one(
                "process_threads",
                "Threads of the daemon.",
                used.threads as f64,
            ),
        ]);
    }
    if let Some(files) = processes.open_files {
        families.push(one(
            "process_open_fds",
            "Open files of the daemon.",
            files as f64,
        ));
    }
    if let Some(files) = processes.open_files_max {
        families.push(one(
            "process_max_fds",
            "Maximum number of open files of the daemon.",
            files as f64,
        ));
    }
    families
}
