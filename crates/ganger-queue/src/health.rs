//! Health of a source: each problem is logged once when it begins, again when its reason changes, and
//! once when it is resolved. Each kind of queue has its own list of problems; the reaction to them is
//! decided elsewhere.

use std::collections::BTreeMap;

use crate::delivery::SourceEnd;

/// Maximum number of logged reasons for one problem: they may change with each retry.
const REASONS_LOGGED_MAX: usize = 8;

/// Problems of a source, independent of each other. Of several the least in order is shown.
pub trait Issue: Copy + Ord {
    /// Returns its name in the log.
    fn description(self) -> &'static str;

    /// Returns whether it makes the source unhealthy; otherwise it is only reported.
    fn is_down(self) -> bool {
        true
    }
}

/// Health of one source.
#[derive(Debug)]
pub struct Health<I> {
    pool: String,
    open: BTreeMap<I, OpenIssue>,
}

#[derive(Debug)]
struct OpenIssue {
    problem: String,
    /// Reasons already logged, the first of them when the problem began.
    logged: Vec<String>,
}

impl<I: Issue> Health<I> {
    /// Makes the health of a source without problems.
    pub fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            open: BTreeMap::new(),
        }
    }

    /// Returns whether the problem is present.
    pub fn has(&self, issue: I) -> bool {
        self.open.contains_key(&issue)
    }

    /// Records that a problem began, or has another reason than before.
    pub fn begin(&mut self, end: &SourceEnd, issue: I, problem: impl Into<String>) {
        let (pool, description, problem) =
            (self.pool.as_str(), issue.description(), problem.into());
        match self.open.get_mut(&issue) {
            None => {
                tracing::error!(pool, problem, "{description}");
                let logged = vec![problem.clone()];
                self.open.insert(issue, OpenIssue { problem, logged });
            }
            Some(known) if known.problem == problem => return,
            Some(known) => {
                if known.logged.len() < REASONS_LOGGED_MAX && !known.logged.contains(&problem) {
                    tracing::warn!(pool, problem, "ongoing: {description}");
                    known.logged.push(problem.clone());
                }
                known.problem = problem;
            }
        }
        self.publish(end);
    }

    /// Records that a problem is resolved, if it was present.
    pub fn resolve(&mut self, end: &SourceEnd, issue: I) {
        if self.open.remove(&issue).is_some() {
            tracing::info!(pool = self.pool, "resolved: {}", issue.description());
            self.publish(end);
        }
    }

    /// Resolves all problems but this one: nothing is known of any other.
    pub fn resolve_all_but(&mut self, end: &SourceEnd, issue: I) {
        let others: Vec<I> = self.open.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != issue) {
            self.resolve(end, other);
        }
    }

    /// Counts messages that were worked on and may be worked on again, and logs the reason.
    pub fn may_run_twice(&self, end: &SourceEnd, count: u64, why: &str) {
        if count > 0 {
            end.may_run_twice(count);
            tracing::warn!(pool = self.pool, count, why, "messages may run twice");
        }
    }

    /// Publishes the current state.
    pub fn publish(&self, end: &SourceEnd) {
        let first = self.open.values().next();
        let problem = first.map(|issue| &issue.problem);
        let healthy = !self.open.keys().any(|issue| issue.is_down());
        end.state.send_if_modified(|state| {
            let news = state.healthy != healthy || state.problem.as_ref() != problem;
            state.healthy = healthy;
            state.problem = problem.cloned();
            news
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{PoolEnd, link};
    use ganger_telemetry::capture::logged;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Sky {
        Dark,
        Cloudy,
    }

    impl Issue for Sky {
        fn description(self) -> &'static str {
            match self {
                Self::Dark => "it is dark",
                Self::Cloudy => "it is cloudy",
            }
        }

        fn is_down(self) -> bool {
            self == Self::Dark
        }
    }

    fn shown(pool: &PoolEnd) -> (bool, Option<String>) {
        let state = pool.state.borrow();
        (state.healthy, state.problem.clone())
    }

    #[test]
    fn each_reason_is_told_once_from_the_beginning_to_the_end() {
        let (end, pool) = link();
        let mut health = Health::new("p");
        let text = logged("trace", || {
            health.resolve(&end, Sky::Dark);
            for problem in ["night", "night", "soot", "night", "soot"] {
                health.begin(&end, Sky::Dark, problem);
                assert_eq!(shown(&pool), (false, Some(problem.to_owned())));
            }
            health.resolve(&end, Sky::Dark);
            health.begin(&end, Sky::Dark, "night");
        });
        let told = [
            "ERROR ganger_queue::health: it is dark pool=\"p\" problem=\"night\"",
            " WARN ganger_queue::health: ongoing: it is dark pool=\"p\" problem=\"soot\"",
            " INFO ganger_queue::health: resolved: it is dark pool=\"p\"",
            "ERROR ganger_queue::health: it is dark pool=\"p\" problem=\"night\"",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), told);
    }

    #[test]
    fn reasons_without_end_are_shown_and_told_no_more() {
        let (end, pool) = link();
        let mut health = Health::new("p");
        let text = logged("trace", || {
            for n in 0..100 {
                health.begin(&end, Sky::Dark, n.to_string());
            }
        });
        assert_eq!(text.lines().count(), REASONS_LOGGED_MAX);
        assert_eq!(shown(&pool), (false, Some("99".to_owned())));
    }

    #[test]
    fn what_a_source_bears_is_shown_and_does_not_take_it_down() {
        let (end, pool) = link();
        let mut health = Health::new("p");
        health.publish(&end);
        assert_eq!(shown(&pool), (true, None));
        health.begin(&end, Sky::Cloudy, "rain");
        assert_eq!(shown(&pool), (true, Some("rain".to_owned())));
        health.begin(&end, Sky::Dark, "night");
        assert_eq!(shown(&pool), (false, Some("night".to_owned())));
        health.resolve_all_but(&end, Sky::Cloudy);
        assert_eq!(shown(&pool), (true, Some("rain".to_owned())));
    }

    proptest! {
        /// Whatever begins and ends: the state shows the worst problem present, and nothing is woken
        /// without a change.
        #[test]
        fn what_is_shown_is_the_worst_that_is_there(
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0u8..3), 0..40),
        ) {
            let (end, mut pool) = link();
            let mut health = Health::new("p");
            health.publish(&end);
            let mut there: BTreeMap<Sky, String> = BTreeMap::new();
            for (is_dark, begins, problem) in steps {
                let issue = if is_dark { Sky::Dark } else { Sky::Cloudy };
                let before = shown(&pool);
                pool.state.mark_unchanged();
                if begins {
                    health.begin(&end, issue, problem.to_string());
                    there.insert(issue, problem.to_string());
                } else {
                    health.resolve(&end, issue);
                    there.remove(&issue);
                }
                let expected = (!there.contains_key(&Sky::Dark), there.values().next().cloned());
                prop_assert_eq!(shown(&pool), expected.clone());
                prop_assert_eq!(pool.state.has_changed().unwrap(), expected != before);
                prop_assert_eq!(health.has(issue), begins);
            }
        }
    }
}
