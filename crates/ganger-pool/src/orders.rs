//! What the daemon wants of a pool. What it wants in the end is all that counts: so telling it waits
//! for nobody, however many have asked the pool for something, and though it stands still.

use std::sync::Arc;
use std::time::Duration;

use ganger_config::model::PoolConfig as Policy;

/// What a pool is to do.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(super) policy: Arc<Policy>,
    /// How often its workers were to be replaced.
    pub(super) rolls: u64,
    /// It is to end: so long from draining to asking the workers to yield.
    pub(super) drain_timeout: Option<Duration>,
    /// How often it was to end faster.
    pub(super) hurries: u64,
    /// Number of the daemon's last reload, which these orders follow.
    pub(super) reload: u64,
}

impl Orders {
    /// To work by these rules.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self {
            policy,
            rolls: 0,
            drain_timeout: None,
            hurries: 0,
            reload: 0,
        }
    }

    /// To run by the reload of that number, whether it has changed anything here or not.
    pub fn reloaded(&mut self, number: u64) {
        self.reload = number;
    }

    /// New rules. With `roll` its command has changed too: the workers are replaced one by one.
    pub fn update(&mut self, policy: Arc<Policy>, roll: bool) {
        self.policy = policy;
        self.rolls += u64::from(roll);
    }

    /// To replace the workers one by one.
    pub fn roll(&mut self) {
        self.rolls += 1;
    }

    /// To finish what is in hand within so long, then end. The first such word counts.
    pub fn stop(&mut self, drain_timeout: Duration) {
        self.drain_timeout.get_or_insert(drain_timeout);
    }

    /// To go on to the next phase of the stop at once.
    pub fn hurry(&mut self) {
        self.hurries += 1;
    }

    /// The same for one that begins with these rules, and has done nothing yet of what else they say.
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

    /// However much a pool that stands still is told, nobody waits, and it finds what matters.
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
            orders.send_modify(Orders::hurry);
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
