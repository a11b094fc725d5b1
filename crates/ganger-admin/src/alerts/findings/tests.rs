//! Tests of `findings`.

use std::time::Duration;

use super::*;
use crate::alerts::tests::{pool, rules, snapshot};
use ganger_pool::status::{WorkerLoss, WorkerStatus};

/// Kinds and subjects of the findings.
fn found(pools: &[PoolStatus], recent: RecentCounts) -> Vec<String> {
    let pools: Vec<Arc<PoolStatus>> = pools.iter().cloned().map(Arc::new).collect();
    let recent = pools.iter().map(|pool| (pool.name.clone(), recent));
    let reload = ReloadStatus::default();
    let found = findings(snapshot(&pools, &reload), &recent.collect(), &rules());
    let named = |it: &Finding| format!("{} {}", it.kind.as_str(), it.subject);
    found.iter().map(named).collect()
}

#[test]
fn each_kind_is_found_by_its_sign_and_nothing_else() {
    use PoolState::*;
    let with = |state, connected, roll: Option<&str>| PoolStatus {
        source_connected: connected,
        roll_stopped: roll.map(str::to_owned),
        ..pool("p", state)
    };
    let recent = |dead, crashed, in_crash_loop| RecentCounts {
        dead,
        crashed,
        in_crash_loop,
    };
    let quiet = RecentCounts::default();
    let table: &[(PoolStatus, RecentCounts, &[&str])] = &[
        (with(Running, true, None), quiet, &[]),
        (with(Starting, false, None), quiet, &[]),
        (with(Open, true, None), quiet, &[]),
        (
            PoolStatus {
                breaker_error: Some("closed".into()),
                ..with(Open, true, None)
            },
            quiet,
            &["breaker_open p"],
        ),
        (with(Draining, false, None), quiet, &[]),
        (with(Degraded, true, None), quiet, &["pool_degraded p"]),
        (with(SourceDown, false, None), quiet, &["source_down main"]),
        (
            with(Degraded, false, None),
            quiet,
            &["pool_degraded p", "source_down main"],
        ),
        (with(Running, true, Some("x")), quiet, &["roll_stopped p"]),
        (with(Running, true, None), recent(10, 4, false), &[]),
        (
            with(Running, true, None),
            recent(11, 5, false),
            &["dead_letters p", "crash_loop p"],
        ),
        (with(Running, true, None), recent(0, 4, true), &[]),
        (
            with(Degraded, true, None),
            recent(0, 1, true),
            &["pool_degraded p", "crash_loop p"],
        ),
    ];
    for (pool, recent, expected) in table {
        assert_eq!(
            &found(std::slice::from_ref(pool), *recent),
            expected,
            "{pool:?}"
        );
    }
}

fn loss(cause: &str, stderr: &[String]) -> WorkerLoss {
    WorkerLoss {
        slot: 3,
        cause: cause.to_owned(),
        stderr: stderr.to_vec(),
        at: SystemTime::UNIX_EPOCH,
    }
}

#[test]
fn each_says_what_to_run_and_what_was_last_said() {
    let lost = PoolStatus {
        last_worker_lost: Some("exited with code 3".to_owned()),
        last_loss: Some(loss("exited with code 3", &["no module".to_owned()])),
        ..pool("p", PoolState::Degraded)
    };
    let degraded = degraded(&lost).unwrap();
    assert_eq!(degraded.command, "ganger output p 3");
    assert_eq!(degraded.error.as_deref(), Some("exited with code 3"));
    assert_eq!(degraded.stderr, ["no module"]);
    let rolled = |cause: &str| PoolStatus {
        roll_stopped: Some(cause.to_owned()),
        ..lost.clone()
    };
    let own = roll_stopped(&rolled("exited with code 3")).unwrap();
    assert_eq!(own.stderr, ["no module"]);
    let other = roll_stopped(&rolled("5 of 5 failed")).unwrap();
    assert!(other.stderr.is_empty(), "another worker's");
    assert_eq!(other.error.as_deref(), Some("5 of 5 failed"));
}

#[test]
fn workers_that_cannot_start_are_told_from_others() {
    let with = |failed_starts, up: usize, wanted| PoolStatus {
        failed_starts,
        workers_wanted: wanted,
        workers: (0..up)
            .map(|slot| WorkerStatus {
                slot,
                state: "idle".to_owned(),
                ..WorkerStatus::default()
            })
            .collect(),
        ..pool("p", PoolState::Running)
    };
    for (pool, expected) in [
        (with(0, 0, 2), false),
        (with(1, 0, 2), true),
        (with(1, 1, 2), true),
        (with(1, 2, 2), false),
        (with(9, 0, 0), false),
    ] {
        assert_eq!(not_starting(&pool).is_some(), expected, "{pool:?}");
    }
}

#[test]
fn a_pause_is_told_once_it_is_long() {
    let since = SystemTime::UNIX_EPOCH;
    let paused_pool = PoolStatus {
        closed_since: Some(since),
        ..pool("p", PoolState::Paused)
    };
    let limit = rules().paused.unwrap();
    let at = |lasts| paused(&paused_pool, since + lasts, &rules());
    assert_eq!(at(limit - Duration::from_secs(1)), None);
    assert_eq!(at(limit).unwrap().command, "ganger resume p");
    let never = AlertsConfig {
        paused: None,
        ..rules()
    };
    assert_eq!(paused(&paused_pool, since + 2 * limit, &never), None);
}

#[test]
fn what_is_wrong_with_the_daemon_itself_is_told() {
    let mut reload = ReloadStatus::default();
    let failing = WebhookStatus {
        name: "ops".to_owned(),
        problem: Some("it answered 500".to_owned()),
        ..WebhookStatus::default()
    };
    let fine = WebhookStatus::default();
    let found = |reload: &ReloadStatus, webhooks: &[WebhookStatus]| {
        let snapshot = Snapshot {
            webhooks,
            ..snapshot(&[], reload)
        };
        let found = findings(snapshot, &BTreeMap::new(), &rules());
        let named = |it: &Finding| format!("{} {}", it.kind.as_str(), it.subject);
        found.iter().map(named).collect::<Vec<_>>()
    };
    assert!(found(&reload, &[fine]).is_empty());
    assert_eq!(found(&reload, &[failing]), ["webhook_failing ops"]);
    reload.successful = false;
    assert_eq!(found(&reload, &[]), ["reload_refused configuration"]);
}

#[test]
fn a_source_is_told_once_whoever_reads_it() {
    let down = |name| Arc::new(pool(name, PoolState::SourceDown));
    let up = Arc::new(pool("c", PoolState::Running));
    let both = sources_down(&[down("a"), down("b")]);
    assert_eq!(both.len(), 1);
    assert_eq!((&both[0].pool, &both[0].queue), (&None, &None));
    assert_eq!(
        both[0].summary,
        "source `main` is unavailable: it is not connected"
    );
    let part = sources_down(&[down("a"), up]);
    assert!(
        part[0].summary.contains("to 1 of 2 pools (`a`)"),
        "{part:?}"
    );
    let one = sources_down(&[down("a")]);
    assert_eq!(one[0].pool.as_deref(), Some("a"));
    assert_eq!(one[0].key(), both[0].key());
}

/// An end that we caused is no crash.
#[test]
fn each_end_is_a_crash_or_none() {
    let ended = |end: WorkerEnd| {
        let mut one = pool("p", PoolState::Running);
        one.details.worker_ends = BTreeMap::from([(end.as_str().to_owned(), 1)]);
        crashes(&one) == 1
    };
    let of_ours = WorkerEnd::ALL.into_iter().filter(|end| !ended(*end));
    use WorkerEnd::*;
    assert_eq!(
        of_ours.collect::<Vec<_>>(),
        [TimedOut, Stalled, Recycled, Asked]
    );
}

#[test]
fn texts_of_others_have_a_bound() {
    let long = PoolStatus {
        source_connected: false,
        source_problem: Some("x".repeat(1_000_000)),
        roll_stopped: Some("y".repeat(1_000_000)),
        last_worker_lost: Some("z".repeat(1_000_000)),
        last_error: Some("e".repeat(1_000_000)),
        breaker_error: Some("b".repeat(1_000_000)),
        failed_starts: 1,
        workers_wanted: 1,
        last_loss: Some(loss("z", &vec!["l".repeat(1_000_000); 1000])),
        ..pool("p", PoolState::Degraded)
    };
    let reload = ReloadStatus {
        successful: false,
        problems: vec!["p".repeat(1_000_000)],
        ..ReloadStatus::default()
    };
    let pools = [Arc::new(long)];
    let all = findings(snapshot(&pools, &reload), &BTreeMap::new(), &rules());
    assert_eq!(all.len(), 6);
    for one in all {
        let details = serde_json::to_string(&one.details).unwrap();
        assert!(one.summary.len() < 1200 && details.len() < 1200);
        assert!(one.error.is_none_or(|error| error.len() <= TEXT_CHARS_MAX));
        assert!(one.stderr.len() <= STDERR_LINES_MAX);
        assert!(one.stderr.iter().all(|line| line.len() <= TEXT_CHARS_MAX));
    }
}

#[test]
fn a_ledger_that_is_behind_is_told_unless_it_is_down() {
    let found = |behind_seconds, problem: Option<&str>| {
        let ledger = LedgerStatus {
            behind_seconds,
            problem: problem.map(str::to_owned),
            ..LedgerStatus::default()
        };
        let reload = ReloadStatus::default();
        let snapshot = Snapshot {
            ledger: Some(&ledger),
            ..snapshot(&[], &reload)
        };
        let found = findings(snapshot, &BTreeMap::new(), &rules());
        let kinds = found.iter().map(|it| it.kind.as_str());
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(found(29.0, None), [""; 0]);
    assert_eq!(found(30.0, None), ["ledger_behind"]);
    assert_eq!(found(30.0, Some("locked")), ["ledger_down"]);
}
