//! Has the pools of this daemon cancel the messages of runs that are to be cancelled. What becomes of them is
//! seen from their settlements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use ganger_pool::registry::Registry;
use ganger_queue::delivery::Follower;
use ganger_table::ledger::{CancelRequests, Ledger};

/// Interval at which the ledger is asked for runs that are to be cancelled.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after which pools are asked again for the same message.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Runs that are to be cancelled.
#[derive(Debug)]
pub(super) struct Cancelling {
    registry: Registry,
    /// Cancels messages as they are delivered.
    follower: Follower,
    next_look: Instant,
    /// Runs of whose messages all pools were asked, and when.
    asked: HashMap<Arc<str>, Instant>,
    /// Problem that is already logged.
    problem: Option<String>,
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.follower.cancel_arriving(HashSet::new());
    }
}

impl Cancelling {
    pub(super) fn new(registry: Registry, follower: Follower) -> Self {
        Self {
            registry,
            follower,
            next_look: Instant::now(),
            asked: HashMap::new(),
            problem: None,
        }
    }

    /// Looks for runs that are to be cancelled, if it is time.
    pub(super) fn look(&mut self, ledger: &mut Ledger) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        match ledger.cancel_requested() {
            Ok(CancelRequests { ids, problem }) => {
                self.cancel(ids.into_iter().map(Arc::from).collect(), now);
                self.report(problem);
            }
            // If the ledger is away, the next dispatch tells it.
            Err(error) => tracing::debug!(%error, "runs that are to be cancelled are not known"),
        }
    }

    /// Logs a problem once.
    fn report(&mut self, problem: Option<String>) {
        if let (Some(problem), true) = (&problem, problem != self.problem) {
            tracing::error!(
                problem,
                "the database rejects that runs are cancelled: they wait on; retrying"
            );
        }
        self.problem = problem;
    }

    fn cancel(&mut self, runs: HashSet<Arc<str>>, now: Instant) {
        self.asked.retain(|run, _| runs.contains(run));
        // First those that arrive: so none is missed on its way to a pool.
        self.follower.cancel_arriving(runs.clone());
        for run in runs {
            let asked = self.asked.get(&run);
            if asked.is_none() {
                tracing::info!(
                    occurrence = &*run,
                    "a run is to be cancelled: cancelling messages as they arrive"
                );
            }
            let is_due = asked.is_none_or(|asked| *asked + AGAIN_AFTER <= now);
            if is_due && self.registry.cancel_anywhere(&run) {
                self.asked.insert(run, now);
            }
        }
    }
}
