//! What is wrong at one moment, by what the pools show of themselves. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::alert::{AlertKind, Finding};
use crate::config::model::AlertsConfig;
use crate::metrics::WorkerEnd;
use crate::pool::status::{PoolState, PoolStatus};

/// The longest text of others that is passed on, in characters.
const TEXT_CHARS_MAX: usize = 1000;

/// Ends of workers that are crashes: nobody has asked for them, and it was not we who killed them.
const CRASHES: [WorkerEnd; 6] = [
    WorkerEnd::Exited,
    WorkerEnd::Killed,
    WorkerEnd::OutOfMemory,
    WorkerEnd::ProtocolError,
    WorkerEnd::NotStarted,
    WorkerEnd::Lost,
];

/// How many of a pool's workers have crashed since it started.
pub(super) fn crashes(pool: &PoolStatus) -> u64 {
    let count = |end: WorkerEnd| pool.details.worker_ends.get(end.as_str());
    CRASHES.into_iter().filter_map(count).sum()
}

/// What the status alone does not tell of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lately {
    /// Messages dead-lettered within the window.
    pub(super) dead: u64,
    /// Workers that have crashed in it.
    pub(super) crashed: u64,
    /// A crash loop was seen before.
    pub(super) in_crash_loop: bool,
}

/// All that is wrong with these pools.
pub(super) fn findings(
    pools: &[Arc<PoolStatus>],
    lately: &BTreeMap<String, Lately>,
    rules: &AlertsConfig,
) -> Vec<Finding> {
    let of_pool = |pool: &Arc<PoolStatus>| {
        let lately = lately.get(&pool.name).copied().unwrap_or_default();
        [
            degraded(pool),
            dead_letters(pool, lately, rules),
            crash_loop(pool, lately, rules),
            waiting(pool, rules),
            roll_stopped(pool),
        ]
    };
    let of_pools = pools.iter().flat_map(of_pool).flatten();
    of_pools.chain(sources_down(pools)).collect()
}

fn about(pool: &PoolStatus, kind: AlertKind, summary: String, details: Value) -> Finding {
    Finding {
        kind,
        pool: Some(pool.name.clone()),
        source: pool.source.clone(),
        queue: Some(pool.queue.clone()),
        summary,
        details: map(details),
    }
}

fn map(details: Value) -> Map<String, Value> {
    match details {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Texts of others have no bound of their own.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn degraded(pool: &PoolStatus) -> Option<Finding> {
    if pool.state != PoolState::Degraded {
        return None;
    }
    let name = &pool.name;
    let up = |worker: &&crate::pool::status::WorkerStatus| {
        matches!(worker.state.as_str(), "idle" | "busy")
    };
    let summary = format!(
        "pool `{name}` is degraded: its workers fail one after the other{}",
        last_lost(pool)
    );
    let details = json!({
        "workers_up": pool.workers.iter().filter(up).count(),
        "workers_wanted": pool.workers_wanted,
        "last_worker_lost": pool.last_worker_lost.as_deref().map(cut),
    });
    Some(about(pool, AlertKind::PoolDegraded, summary, details))
}

fn last_lost(pool: &PoolStatus) -> String {
    let last = pool.last_worker_lost.as_deref();
    last.map_or_else(String::new, |cause| {
        format!("; the last one: {}", cut(cause))
    })
}

fn dead_letters(pool: &PoolStatus, lately: Lately, rules: &AlertsConfig) -> Option<Finding> {
    let limit = rules.dead_letters.filter(|limit| lately.dead > *limit)?;
    let (name, count, window) = (&pool.name, lately.dead, rules.window);
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
    Some(about(pool, AlertKind::DeadLetters, summary, details))
}

/// Restarts come slower and slower: a degraded pool may have few crashes lately, and that is no
/// sign that the loop is over.
fn crash_loop(pool: &PoolStatus, lately: Lately, rules: &AlertsConfig) -> Option<Finding> {
    let limit = rules.crashes?;
    let goes_on = lately.in_crash_loop && pool.state == PoolState::Degraded;
    if lately.crashed < limit && !goes_on {
        return None;
    }
    let (name, count, window) = (&pool.name, lately.crashed, rules.window);
    let summary = format!(
        "workers of pool `{name}` crash again and again: {count} within {window:?}{}",
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
    Some(about(pool, AlertKind::CrashLoop, summary, details))
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
        "a rolling restart of pool `{name}` has stopped and the old workers stay: a new one did not \
         work: {cause}"
    );
    let details = json!({ "cause": cause });
    Some(about(pool, AlertKind::RollStopped, summary, details))
}

/// A source that is away is away for all its pools, and told once.
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
            format!("source `{source}` can't be used by {down} of {all} pools ({names}): {why}")
        }
        _ => format!("source `{source}` can't be used: {why}"),
    };
    let problems = down.iter().map(|pool| (pool.name.clone(), problem(pool)));
    let only = (readers.len() == 1).then_some(first);
    Some(Finding {
        kind: AlertKind::SourceDown,
        pool: only.map(|pool| pool.name.clone()),
        source: source.to_owned(),
        queue: only.map(|pool| pool.queue.clone()),
        summary,
        details: map(json!({ "pools": problems.collect::<BTreeMap<_, _>>() })),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pool, rules};
    use super::*;
    use crate::pool::status::BacklogStatus;

    /// The kinds and subjects of what is found.
    fn found(pools: &[PoolStatus], lately: Lately) -> Vec<String> {
        let pools: Vec<Arc<PoolStatus>> = pools.iter().cloned().map(Arc::new).collect();
        let lately = pools.iter().map(|pool| (pool.name.clone(), lately));
        let found = findings(&pools, &lately.collect(), &rules());
        let named = |it: &Finding| format!("{} {}", it.kind.as_str(), it.subject());
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
        let behind = |depth, oldest_age_seconds| PoolStatus {
            backlog: Some(BacklogStatus {
                depth,
                oldest_age_seconds,
                ..BacklogStatus::default()
            }),
            ..pool("p", Running)
        };
        let lately = |dead, crashed, in_crash_loop| Lately {
            dead,
            crashed,
            in_crash_loop,
        };
        let quiet = Lately::default();
        let table: &[(PoolStatus, Lately, &[&str])] = &[
            (with(Running, true, None), quiet, &[]),
            (with(Starting, false, None), quiet, &[]),
            (with(Open, true, None), quiet, &[]),
            (with(Draining, false, None), quiet, &[]),
            (with(Degraded, true, None), quiet, &["pool_degraded p"]),
            (with(SourceDown, false, None), quiet, &["source_down main"]),
            (
                with(Degraded, false, None),
                quiet,
                &["pool_degraded p", "source_down main"],
            ),
            (with(Running, true, Some("x")), quiet, &["roll_stopped p"]),
            (behind(1, Some(3600.0)), quiet, &[]),
            (behind(1, Some(3600.1)), quiet, &["waiting p"]),
            (behind(1, None), quiet, &[]),
            (behind(0, Some(3600.1)), quiet, &[]),
            (with(Running, true, None), lately(10, 4, false), &[]),
            (
                with(Running, true, None),
                lately(11, 5, false),
                &["dead_letters p", "crash_loop p"],
            ),
            (with(Running, true, None), lately(0, 4, true), &[]),
            (
                with(Degraded, true, None),
                lately(0, 1, true),
                &["pool_degraded p", "crash_loop p"],
            ),
        ];
        for (pool, lately, expected) in table {
            assert_eq!(
                &found(std::slice::from_ref(pool), *lately),
                expected,
                "{pool:?}"
            );
        }
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
            "source `main` can't be used: it is not connected"
        );
        let part = sources_down(&[down("a"), up]);
        assert!(
            part[0].summary.contains("by 1 of 2 pools (`a`)"),
            "{part:?}"
        );
        let one = sources_down(&[down("a")]);
        assert_eq!(one[0].pool.as_deref(), Some("a"));
        assert_eq!(one[0].key(), both[0].key());
    }

    /// What we have done ourselves is no crash.
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
            ..pool("p", PoolState::Degraded)
        };
        let all = findings(&[Arc::new(long)], &BTreeMap::new(), &rules());
        assert_eq!(all.len(), 3);
        for one in all {
            let details = serde_json::to_string(&one.details).unwrap();
            assert!(one.summary.len() < 1200 && details.len() < 1200);
        }
    }
}
