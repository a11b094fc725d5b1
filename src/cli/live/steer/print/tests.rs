//! The status as text, for daemons in many states.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::cli::live::samples;
use ganger_config::changed::ChangedKeys;
use ganger_pool::overview::{ActiveAlert, AlertsStatus, UnreadQueueStatus, WebhookStatus};
use ganger_pool::request::ReloadStatus;
use ganger_pool::status::{BacklogStatus, PoolState, ScalingStatus};
use ganger_queue::delivery::Figures;
use ganger_telemetry::metrics::Counts;

const UPTIME: Duration = Duration::from_secs(3 * 3600 + 25 * 60);

fn worker(slot: usize, state: &str) -> WorkerStatus {
    WorkerStatus {
        slot,
        pid: (state != "waiting").then_some(31_000),
        state: state.to_owned(),
        window: 8,
        ..WorkerStatus::default()
    }
}

fn pool(name: &str, state: PoolState) -> PoolStatus {
    PoolStatus {
        name: name.to_owned(),
        state,
        workers_wanted: 2,
        workers_configured: 2,
        source_connected: true,
        ..PoolStatus::default()
    }
}

/// A working pool, with figures of all kinds.
fn email() -> PoolStatus {
    let busy = WorkerStatus {
        in_flight: 8,
        message_age: Some(61.4),
        message: Some("order 4711".to_owned()),
        answered: 60_123,
        progress: Some("page 3 of 9".to_owned()),
        ..worker(0, "busy")
    };
    PoolStatus {
        out: 8,
        counts: Counts {
            done: 120_345,
            retried: 17,
            dead: 2,
            returned: 4,
            p50_ms: 1.234,
            p99_ms: 981.2,
            ..Counts::default()
        },
        done_per_second: 103.71,
        backlog: Some(BacklogStatus {
            depth: 1697,
            at_least: false,
            oldest_age_seconds: Some(75.3),
        }),
        workers: vec![busy, worker(1, "idle")],
        ..pool("email", PoolState::Running)
    }
}

/// A pool in each state, with every possible note.
pub(crate) fn many() -> Status {
    let range = ScalingStatus {
        min: 1,
        max: 16,
        why: "2 of its workers have nothing to do".to_owned(),
        ..ScalingStatus::default()
    };
    let images = PoolStatus {
        scaled: Some(5),
        workers_wanted: 5,
        autoscale: Some(range),
        workers: vec![worker(0, "starting"), worker(1, "waiting")],
        backlog: Some(BacklogStatus {
            depth: 100_000,
            at_least: true,
            oldest_age_seconds: None,
        }),
        ..pool("images", PoolState::Starting)
    };
    let imports = PoolStatus {
        source_problem: Some("127.0.0.1:5672: Connection refused (os error 111)".to_owned()),
        waits_for: Some("message m-1 of another daemon".to_owned()),
        ..pool("imports", PoolState::SourceDown)
    };
    let payments = PoolStatus {
        breaker_error: Some("the bank is closed".to_owned()),
        likely_duplicates: 3,
        source_figures: Figures {
            repetitions: Some(7),
            unkeyed: Some(2),
            ..Figures::default()
        },
        unaccounted: -1,
        ..pool("payments", PoolState::Open)
    };
    let stuck = PoolStatus {
        age_seconds: 90.0,
        ..pool("stuck", PoolState::Running)
    };
    let broken = PoolStatus {
        last_worker_lost: Some("exited with code 1".to_owned()),
        roll_stopped: Some("exited with code 1".to_owned()),
        ..pool("broken", PoolState::Degraded)
    };
    let others = [
        ("halted", PoolState::Paused),
        ("leaving", PoolState::Draining),
        ("gone", PoolState::Drained),
    ];
    let others = others.map(|(name, state)| pool(name, state));
    let pools = [email(), images, imports, payments, stuck, broken];
    let mut status = samples::status(UPTIME, pools.into_iter().chain(others).collect());
    status.log_records_dropped = 12;
    status.unread_queues = vec![UnreadQueueStatus {
        source: "main".to_owned(),
        queue: "emial".to_owned(),
        backlog: BacklogStatus {
            depth: 3,
            at_least: false,
            oldest_age_seconds: Some(3725.0),
        },
    }];
    with_trouble_of_its_own(&mut status);
    status
}

/// Adds alerts, a webhook that fails and a reload that was refused.
fn with_trouble_of_its_own(status: &mut Status) {
    let alert = ActiveAlert {
        silenced: None,
        kind: "pool_degraded".to_owned(),
        severity: "critical".to_owned(),
        of: "broken".to_owned(),
        pool: Some("broken".to_owned()),
        summary: "pool `broken` is degraded".to_owned(),
        command: "ganger output broken 0".to_owned(),
        since: samples::at(UPTIME - Duration::from_secs(720)),
    };
    let webhook = WebhookStatus {
        name: "hooks.example:443".to_owned(),
        problem: Some("it answered 503".to_owned()),
        ..WebhookStatus::default()
    };
    status.alerts = Some(AlertsStatus {
        firing: BTreeMap::from([("pool_degraded".to_owned(), 1)]),
        active: vec![alert],
        webhooks: vec![webhook],
        ..AlertsStatus::default()
    });
    status.reload = ReloadStatus {
        successful: false,
        at: samples::at(UPTIME - Duration::from_secs(300)),
        problems: vec!["ganger.toml:3: daemon.log_lvel is not a known key".to_owned()],
        keys: ChangedKeys {
            restart_needed: vec!["admin.listen".to_owned()],
            ..ChangedKeys::default()
        },
        ..ReloadStatus::default()
    };
}

#[test]
fn pools_in_all_states() {
    insta::assert_snapshot!(status(&many(), false));
}

#[test]
fn with_their_workers() {
    insta::assert_snapshot!(status(&many(), true));
}

#[test]
fn a_daemon_without_pools() {
    insta::assert_snapshot!(status(&samples::status(UPTIME, Vec::new()), true));
}
