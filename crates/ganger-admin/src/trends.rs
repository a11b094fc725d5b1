//! Figures of the pools over the last hour, sampled by the daemon itself: what is seen does not depend on who has looked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use ganger_pool::overview::Overview;
use ganger_pool::status::PoolStatus;

/// Interval of the samples.
const SAMPLED_EVERY: Duration = Duration::from_secs(10);
/// Number of samples that are kept: those of an hour.
const SAMPLES: usize = 360;

/// Figures of all pools over the last hour.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct TrendsOfPools {
    /// Seconds between two samples.
    pub(super) every_seconds: u64,
    /// The pools, by name.
    pub(super) pools: BTreeMap<String, PoolTrend>,
}

/// Figures of a pool over the last hour, a sample each, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub(super) struct PoolTrend {
    /// Messages done since the sample before.
    #[schema(value_type = Vec<u64>)]
    pub(super) done: VecDeque<u64>,
    /// Failed attempts since the sample before.
    #[schema(value_type = Vec<u64>)]
    pub(super) failed: VecDeque<u64>,
    /// Messages that waited; null where that was not known.
    #[schema(value_type = Vec<Option<u64>>)]
    pub(super) waiting: VecDeque<Option<u64>>,
}

/// The samples, and the totals at the last one. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Trends(Arc<Mutex<BTreeMap<String, Sampled>>>);

#[derive(Debug, Default)]
struct Sampled {
    trend: PoolTrend,
    totals: PoolTotals,
}

#[derive(Debug, Clone, Copy, Default)]
struct PoolTotals {
    done: u64,
    failed: u64,
}

impl Trends {
    /// Samples the pools of a daemon for ever.
    pub(super) async fn follow(&self, overview: &Overview) {
        let mut ticks = interval(SAMPLED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sample(&overview.status().pools);
        }
    }

    /// Takes a sample. Pools that are gone are forgotten.
    fn sample(&self, pools: &[PoolStatus]) {
        let mut all = self.lock();
        let mut before = std::mem::take(&mut *all);
        for pool in pools {
            let totals = PoolTotals {
                done: pool.counts.done,
                failed: pool.details.failed.values().sum(),
            };
            let sampled = match before.remove(&pool.name) {
                None => Sampled {
                    totals,
                    ..Sampled::default()
                },
                Some(mut sampled) => {
                    sampled.trend.add(sampled.totals, totals, pool);
                    sampled.totals = totals;
                    sampled
                }
            };
            all.insert(pool.name.clone(), sampled);
        }
    }

    /// Returns all figures.
    pub(super) fn all(&self) -> TrendsOfPools {
        let all = self.lock();
        let pools = all.iter();
        TrendsOfPools {
            every_seconds: SAMPLED_EVERY.as_secs(),
            pools: pools
                .map(|(name, sampled)| (name.clone(), sampled.trend.clone()))
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sampled>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolTrend {
    fn add(&mut self, before: PoolTotals, now: PoolTotals, pool: &PoolStatus) {
        // A pool that was started anew counts from zero.
        let since = |before: u64, now: u64| now.checked_sub(before).unwrap_or(now);
        if self.done.len() == SAMPLES {
            self.done.pop_front();
            self.failed.pop_front();
            self.waiting.pop_front();
        }
        self.done.push_back(since(before.done, now.done));
        self.failed.push_back(since(before.failed, now.failed));
        self.waiting
            .push_back(pool.backlog.map(|backlog| backlog.depth));
    }
}

#[cfg(test)]
mod tests {
    use ganger_pool::status::BacklogStatus;

    use super::*;

    fn pool(name: &str, done: u64, failed: u64, waiting: Option<u64>) -> PoolStatus {
        let mut pool = PoolStatus {
            name: name.to_owned(),
            backlog: waiting.map(|depth| BacklogStatus {
                depth,
                ..BacklogStatus::default()
            }),
            ..PoolStatus::default()
        };
        pool.counts.done = done;
        pool.details.failed.insert("crashed".to_owned(), failed);
        pool
    }

    #[test]
    fn a_trend_is_of_the_time_between_samples() {
        let trends = Trends::default();
        trends.sample(&[pool("a", 100, 5, Some(3)), pool("gone", 1, 0, None)]);
        trends.sample(&[pool("a", 130, 6, None)]);
        // It was started anew.
        trends.sample(&[pool("a", 7, 0, Some(9)), pool("new", 50, 0, None)]);
        let all = trends.all();
        assert_eq!(all.pools.keys().collect::<Vec<_>>(), ["a", "new"]);
        let expected = PoolTrend {
            done: [30, 7].into(),
            failed: [1, 0].into(),
            waiting: [None, Some(9)].into(),
        };
        assert_eq!(all.pools["a"], expected);
        assert_eq!(all.pools["new"], PoolTrend::default());
    }

    #[test]
    fn only_those_of_an_hour_are_kept() {
        let trends = Trends::default();
        for done in 0..=u64::try_from(SAMPLES).unwrap() + 5 {
            trends.sample(&[pool("a", done * done, 0, None)]);
        }
        let trend = &trends.all().pools["a"];
        assert_eq!((trend.done.len(), trend.waiting.len()), (SAMPLES, SAMPLES));
        assert_eq!(trend.done.front(), Some(&11));
    }
}
