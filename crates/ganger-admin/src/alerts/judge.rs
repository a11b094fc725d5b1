//! Derives alerts from the problems at each look: a problem must have lasted before it is an alert, and be
//! resolved as long before the alert ends. Pure; the clocks are the caller's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::alert::{Alert, AlertKey, AlertKind, Ended, Finding, Scope};
use super::findings::{RecentCounts, Snapshot, crashes, findings};
use super::rates::Recent;
use ganger_config::model::AlertsConfig;
use ganger_pool::status::PoolStatus;

/// Observations so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    watched: BTreeMap<AlertKey, TrackedProblem>,
    rates: BTreeMap<String, Rates>,
    /// True after the first look: a pool that is new counts from zero.
    has_looked: bool,
}

/// A problem, present or past.
#[derive(Debug)]
struct TrackedProblem {
    alert: Alert,
    since: Instant,
    /// True once it has lasted as long as required.
    is_firing: bool,
    /// Time since which it is resolved, if it is.
    right_since: Option<Instant>,
}

#[derive(Debug)]
struct Rates {
    dead: Recent,
    crashed: Recent,
}

/// Changes by a look.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// New alerts.
    pub(super) fired: Vec<AlertKey>,
    /// Alerts that have ended.
    pub(super) ended: Vec<(AlertKey, Ended)>,
}

impl Judge {
    /// Evaluates a look at everything.
    pub(super) fn look(
        &mut self,
        now: Instant,
        snapshot: Snapshot<'_>,
        rules: &AlertsConfig,
    ) -> Changes {
        let recent = self.count(now, snapshot.pools, rules.window);
        let found = findings(snapshot, &recent, rules);
        let found = found.into_iter().map(|one| (one.key(), one)).collect();
        self.judge(now, snapshot, found, rules.hold)
    }

    /// Returns the current alerts.
    pub(super) fn firing(&self) -> impl Iterator<Item = (&AlertKey, &Alert)> {
        let firing = self.watched.iter().filter(|(_, one)| one.is_firing);
        firing.map(|(key, one)| (key, &one.alert))
    }

    /// Ends all alerts: nobody looks any more.
    pub(super) fn end(&mut self, why: Ended) -> Changes {
        let watched = std::mem::take(self).watched.into_iter();
        let ended = watched.filter(|(_, one)| one.is_firing);
        Changes {
            fired: Vec::new(),
            ended: ended.map(|(key, _)| (key, why)).collect(),
        }
    }

    fn count(
        &mut self,
        now: Instant,
        pools: &[Arc<PoolStatus>],
        window: Duration,
    ) -> BTreeMap<String, RecentCounts> {
        let is_there = |name: &String| pools.iter().any(|pool| pool.name == *name);
        self.rates.retain(|name, _| is_there(name));
        let is_new = self.has_looked;
        self.has_looked = true;
        let mut recent = BTreeMap::new();
        for pool in pools {
            let (name, dead, crashed) = (&pool.name, pool.counts.dead, crashes(pool));
            let rates = self.rates.entry(name.clone()).or_insert_with(|| {
                let before = |count| if is_new { 0 } else { count };
                Rates {
                    dead: Recent::from(before(dead), now),
                    crashed: Recent::from(before(crashed), now),
                }
            });
            let one = RecentCounts {
                dead: rates.dead.see(dead, now, window),
                crashed: rates.crashed.see(crashed, now, window),
                in_crash_loop: self
                    .watched
                    .contains_key(&(AlertKind::CrashLoop, name.clone())),
            };
            recent.insert(name.clone(), one);
        }
        recent
    }

    fn judge(
        &mut self,
        now: Instant,
        snapshot: Snapshot<'_>,
        found: BTreeMap<AlertKey, Finding>,
        hold: Duration,
    ) -> Changes {
        let mut changes = Changes::default();
        let hold = |kind: AlertKind| if kind.flaps() { hold } else { Duration::ZERO };
        self.watched.retain(|key, one| {
            if found.contains_key(key) {
                return true;
            }
            let right_since = *one.right_since.get_or_insert(now);
            let is_gone = !is_watched(key, snapshot.pools);
            let is_over = !one.is_firing || is_gone || now - right_since >= hold(key.0);
            if one.is_firing && is_over {
                let why = if is_gone {
                    Ended::PoolGone
                } else {
                    Ended::Over
                };
                changes.ended.push((key.clone(), why));
            }
            !is_over
        });
        for (key, finding) in found {
            let one = self
                .watched
                .entry(key)
                .or_insert_with_key(|_| TrackedProblem {
                    alert: Alert {
                        finding: finding.clone(),
                        since: snapshot.at,
                    },
                    since: now,
                    is_firing: false,
                    right_since: None,
                });
            one.right_since = None;
            if !one.is_firing && now - one.since >= hold(finding.kind) {
                one.is_firing = true;
                changes.fired.push(finding.key());
            }
            one.alert.finding = finding;
        }
        changes
    }
}

/// Returns whether the alert's subject still exists.
fn is_watched((kind, subject): &AlertKey, pools: &[Arc<PoolStatus>]) -> bool {
    match kind.scope() {
        Scope::Pool => pools.iter().any(|pool| pool.name == *subject),
        Scope::Source => pools.iter().any(|pool| pool.source == *subject),
        Scope::Schedule | Scope::Daemon => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::super::tests::{pool, rules, snapshot};
    use super::*;
    use ganger_pool::request::ReloadStatus;
    use ganger_pool::status::PoolState;

    const HOLD: u64 = 30;

    /// Looks at these seconds, at the pools that exist then; returns the alerts.
    fn told(looks: impl IntoIterator<Item = (u64, Vec<PoolStatus>)>) -> Vec<String> {
        let (start, mut judge, mut told) = (Instant::now(), Judge::default(), Vec::new());
        for (second, pools) in looks {
            let pools: Vec<Arc<PoolStatus>> = pools.into_iter().map(Arc::new).collect();
            let now = start + Duration::from_secs(second);
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            let reload = ReloadStatus::default();
            let snapshot = Snapshot {
                at,
                ..snapshot(&pools, &reload)
            };
            let changes = judge.look(now, snapshot, &rules());
            let name = |(kind, subject): &AlertKey| format!("{} {subject}", kind.as_str());
            for key in &changes.fired {
                told.push(format!("{second}: {}", name(key)));
            }
            for (key, why) in &changes.ended {
                told.push(format!("{second}: {} {}", name(key), why.as_str()));
            }
        }
        told
    }

    fn one(state: PoolState) -> Vec<PoolStatus> {
        vec![pool("p", state)]
    }

    #[test]
    fn what_lasts_is_told_once_and_so_is_its_end() {
        let looks = (0..200).map(|second| match second {
            50..=120 => (second, one(PoolState::Degraded)),
            _ => (second, one(PoolState::Running)),
        });
        assert_eq!(
            told(looks),
            ["80: pool_degraded p", "151: pool_degraded p over"]
        );
    }

    #[test]
    fn what_comes_and_goes_is_told_neither_when_it_comes_nor_when_it_goes() {
        let looks = (0..1000).map(|second| match second % 40 {
            0..20 => (second, one(PoolState::Degraded)),
            _ => (second, one(PoolState::Running)),
        });
        assert!(told(looks).is_empty());
        let looks = (0..1000).map(|second| match second {
            100..200 if second % 40 > 10 => (second, one(PoolState::Running)),
            _ => (second, one(PoolState::Degraded)),
        });
        assert_eq!(told(looks), ["30: pool_degraded p"]);
    }

    #[test]
    fn a_pool_that_is_gone_has_no_alert() {
        let roll = PoolStatus {
            roll_stopped: Some("exited with code 3".into()),
            ..pool("p", PoolState::SourceDown)
        };
        let other = PoolStatus {
            source: "other".into(),
            ..pool("q", PoolState::Running)
        };
        let looks = (0..100).map(|second| match second {
            0..50 => (second, vec![roll.clone(), other.clone()]),
            _ => (second, vec![other.clone()]),
        });
        let expected = [
            "0: roll_stopped p",
            "30: source_down main",
            "50: source_down main pool_gone",
            "50: roll_stopped p pool_gone",
        ];
        assert_eq!(told(looks), expected);
    }

    #[test]
    fn counts_that_were_there_before_or_begin_anew_are_no_news() {
        let dead = |count| {
            let mut pool = pool("p", PoolState::Running);
            pool.counts.dead = count;
            vec![pool]
        };
        let looks = (0..300).map(|second| match second {
            0..100 => (second, dead(1_000_000)),
            // Another of the name, which has begun with zero.
            100..200 => (second, dead(10)),
            200 => (second, vec![]),
            _ => (second, dead(11)),
        });
        let expected = ["231: dead_letters p", "292: dead_letters p over"];
        assert_eq!(told(looks), expected);
    }

    #[test]
    fn a_crash_loop_ends_when_the_pool_works_again() {
        let crashed = |count, state| {
            let mut pool = pool("p", state);
            pool.details.worker_ends = [("exited".to_owned(), count)].into();
            vec![pool]
        };
        // Fast at first, then one each half minute; recycled and asked ones are none.
        let looks = (0..600).map(|second| match second {
            0..10 => (second, crashed(0, PoolState::Running)),
            10..300 => (second, crashed(9 + second / 30, PoolState::Degraded)),
            _ => (second, crashed(18, PoolState::Running)),
        });
        let crash_loop = told(looks)
            .into_iter()
            .filter(|it| it.contains("crash_loop"));
        assert_eq!(
            crash_loop.collect::<Vec<_>>(),
            ["40: crash_loop p", "330: crash_loop p over"]
        );
    }

    proptest! {
        /// Whatever happens, an alert begins and ends in turns, begins after it has lasted and ends after it
        /// was resolved as long.
        #[test]
        fn begins_and_ends_take_turns(states in prop::collection::vec((1..20_u64, any::<bool>()), 1..200)) {
            let (mut second, mut since) = (0, None);
            let mut looks = Vec::new();
            let (mut lasted, mut was_right) = (Vec::new(), Vec::new());
            for (step, is_wrong) in states {
                second += step;
                if since.is_none_or(|(_, was)| was != is_wrong) {
                    since = Some((second, is_wrong));
                }
                let long = since.is_some_and(|(from, _)| second - from >= HOLD);
                if is_wrong { lasted.push((second, long)) } else { was_right.push((second, long)) }
                let state = if is_wrong { PoolState::Degraded } else { PoolState::Running };
                looks.push((second, one(state)));
            }
            let mut is_firing = false;
            let (mut fired, mut ended) = (Vec::new(), Vec::new());
            for line in told(looks) {
                let (second, what) = line.split_once(": ").unwrap();
                let second: u64 = second.parse().unwrap();
                let is_end = what.ends_with("over");
                prop_assert_eq!(is_firing, is_end);
                is_firing = !is_firing;
                if is_end { ended.push(second) } else { fired.push(second) }
            }
            for second in fired {
                prop_assert!(lasted.contains(&(second, true)));
            }
            for second in ended {
                prop_assert!(was_right.contains(&(second, true)));
            }
        }
    }
}
