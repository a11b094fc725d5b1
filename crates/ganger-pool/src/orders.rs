//! Orders of the daemon to a pool. Only the final state counts, so giving them does not wait for the pool,
//! even if it has many requests or is stalled.

use std::sync::Arc;
use std::time::Duration;

use ganger_config::model::PoolConfig as Policy;

/// Orders to a pool.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(super) policy: Arc<Policy>,
    /// Number of orders so far to replace the workers.
    pub(super) rolls: u64,
    /// If set, the pool has to end: time from draining to asking the workers to yield.
    pub(super) drain_timeout: Option<Duration>,
    /// Number of orders so far to move on to the next phase of the stop.
    pub(super) hurries: u64,
    /// Number of the daemon's last reload, which these orders follow.
    pub(super) reload: u64,
}

impl Orders {
    /// Creates the orders to work by these rules.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self {
            policy,
            rolls: 0,
            drain_timeout: None,
            hurries: 0,
            reload: 0,
        }
    }

    /// Sets the number of the reload that the pool has to follow, whether or not it has changed anything
    /// here.
    pub fn reloaded(&mut self, number: u64) {
        self.reload = number;
    }

    /// Sets new rules. With `roll` the command has changed too: the workers are replaced one by
    /// one.
    pub fn update(&mut self, policy: Arc<Policy>, roll: bool) {
        self.policy = policy;
        self.rolls += u64::from(roll);
    }

    /// Orders to replace the workers one by one.
    pub fn roll(&mut self) {
        self.rolls += 1;
    }

    /// Orders to finish the work in hand within that time, then end. The first such order counts.
    pub fn stop(&mut self, drain_timeout: Duration) {
        self.drain_timeout.get_or_insert(drain_timeout);
    }

    /// Orders to move on to the next phase of the stop at once.
    pub fn escalate_stop(&mut self) {
        self.hurries += 1;
    }

    /// Returns the orders of a pool that begins with these rules and has carried out nothing else
    /// yet.
    pub(super) fn begun(&self) -> Self {
        Self {
            rolls: self.rolls,
            ..Self::new(Arc::clone(&self.policy))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use ganger_config::sample::policy;

    /// However many orders a stalled pool is given, no caller waits, and the pool finds the final state.
    #[test]
    fn who_looks_late_finds_all_that_is_still_wanted() {
        let first = Arc::new(policy());
        let (orders, mut told) = watch::channel(Orders::new(first));
        let last = Arc::new(policy());
        for _ in 0..1000 {
            orders.send_modify(|orders| orders.update(Arc::new(policy()), true));
        }
        orders.send_modify(|orders| orders.update(Arc::clone(&last), false));
        for seconds in [9, 1] {
            orders.send_modify(|orders| orders.stop(Duration::from_secs(seconds)));
            orders.send_modify(Orders::escalate_stop);
        }
        let found = told.borrow_and_update().clone();
        assert!(Arc::ptr_eq(&found.policy, &last));
        assert_eq!(found.drain_timeout, Some(Duration::from_secs(9)));
        assert_eq!((found.rolls, found.hurries), (1000, 2));
        let begun = found.begun();
        assert_eq!((begun.rolls, begun.hurries), (1000, 0), "it is new anyway");
        assert_eq!(begun.drain_timeout, None);
    }
}
