//! What happens to the pools, told from how they stood and how they stand: a pure comparison, and
//! the loop that makes it. It costs the pools nothing, and misses only what is over before it is seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::event::Event;
use super::feed::Feed;
use crate::pool::status::{PoolStatus, WorkerStatus};
use crate::status::Overview;

/// How often it is looked. Pools show changes after a tenth of a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Looks at the pools and tells what has happened, for ever.
pub(super) async fn observe(overview: &Overview, feed: &Feed) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = BTreeMap::new();
    loop {
        ticks.tick().await;
        let pools = overview.registry().pools();
        let now = pools
            .into_iter()
            .map(|pool| (pool.name.clone(), pool))
            .collect();
        for event in changes(&before, &now) {
            feed.push(event);
        }
        before = now;
    }
}

type Pools = BTreeMap<String, Arc<PoolStatus>>;

/// What has happened between the two looks.
fn changes(before: &Pools, now: &Pools) -> Vec<Event> {
    let mut events = Vec::new();
    for (name, pool) in before {
        if !now.contains_key(name) {
            events.extend(workers(name, &pool.workers, &[]));
            events.push(Event::PoolEnded { pool: name.clone() });
        }
    }
    for (name, pool) in now {
        match before.get(name) {
            // Shown once and never again changed.
            Some(old) if Arc::ptr_eq(old, pool) => {}
            Some(old) => events.extend(of_pool(old, pool)),
            None => {
                events.push(Event::PoolStarted { pool: name.clone() });
                events.extend(workers(name, &[], &pool.workers));
            }
        }
    }
    events
}

fn of_pool(old: &PoolStatus, new: &PoolStatus) -> Vec<Event> {
    let pool = || new.name.clone();
    let mut events = workers(&new.name, &old.workers, &new.workers);
    if old.workers_wanted != new.workers_wanted {
        events.push(Event::Scaled {
            pool: pool(),
            workers: new.workers_wanted,
            before: old.workers_wanted,
        });
    }
    if old.state != new.state {
        let reason = new.source_problem.clone().or(new.breaker_error.clone());
        events.push(Event::PoolState {
            pool: pool(),
            state: new.state,
            before: old.state,
            reason,
        });
    }
    // A pool that was replaced begins to count anew.
    let count = new.counts.dead.saturating_sub(old.counts.dead);
    if count > 0 {
        events.push(Event::DeadLetters {
            pool: pool(),
            count,
        });
    }
    events
}

fn workers(pool: &str, old: &[WorkerStatus], new: &[WorkerStatus]) -> Vec<Event> {
    let processes = |workers: &[WorkerStatus]| -> BTreeMap<usize, u32> {
        let running = workers.iter();
        running
            .filter_map(|worker| Some((worker.slot, worker.pid?)))
            .collect()
    };
    let (old, new) = (processes(old), processes(new));
    let ended = old.iter().filter(|(slot, pid)| new.get(slot) != Some(pid));
    let ended = ended.map(|(slot, pid)| Event::WorkerEnded {
        pool: pool.to_owned(),
        slot: *slot,
        pid: *pid,
    });
    let started = new.iter().filter(|(slot, pid)| old.get(slot) != Some(pid));
    let started = started.map(|(slot, pid)| Event::WorkerStarted {
        pool: pool.to_owned(),
        slot: *slot,
        pid: *pid,
    });
    ended.chain(started).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Counts;
    use crate::pool::status::PoolState;

    fn pool(state: PoolState, dead: u64, pids: &[u32]) -> Arc<PoolStatus> {
        let worker = |(slot, pid): (usize, &u32)| WorkerStatus {
            slot,
            pid: (*pid > 0).then_some(*pid),
            ..WorkerStatus::default()
        };
        Arc::new(PoolStatus {
            name: "p".into(),
            state,
            workers: pids.iter().enumerate().map(worker).collect(),
            counts: Counts {
                dead,
                ..Counts::default()
            },
            ..PoolStatus::default()
        })
    }

    fn told(before: Option<&Arc<PoolStatus>>, now: Option<&Arc<PoolStatus>>) -> Vec<String> {
        let pools = |pool: Option<&Arc<PoolStatus>>| -> Pools {
            pool.map(|pool| ("p".to_owned(), pool.clone()))
                .into_iter()
                .collect()
        };
        let told = changes(&pools(before), &pools(now));
        for event in &told {
            assert_eq!(serde_json::to_value(event).unwrap()["event"], event.name());
        }
        told.iter().map(|event| event.name().to_owned()).collect()
    }

    #[test]
    fn each_change_is_told_once() {
        use PoolState::*;
        let (young, old) = (pool(Starting, 0, &[7, 0]), pool(Running, 3, &[8, 9]));
        assert_eq!(told(None, Some(&young)), ["pool_started", "worker_started"]);
        let changed = [
            "worker_ended",
            "worker_started",
            "worker_started",
            "pool_state",
            "dead_letters",
        ];
        assert_eq!(told(Some(&young), Some(&old)), changed);
        assert!(told(Some(&old), Some(&old.clone())).is_empty());
        assert!(told(Some(&old), Some(&pool(Running, 3, &[8, 9]))).is_empty());
        assert_eq!(
            told(Some(&old), None),
            ["worker_ended", "worker_ended", "pool_ended"]
        );
        assert!(
            told(Some(&old), Some(&pool(Running, 0, &[8, 9]))).is_empty(),
            "counts anew"
        );
    }
}
