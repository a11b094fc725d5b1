//! A pool as the daemon holds it.

use std::sync::Arc;

use tokio::sync::watch;

use super::life::UnstartedPool;
use ganger_config::model::PoolConfig;
use ganger_pool::{Orders, Steering};

/// A pool on its thread.
#[derive(Debug)]
pub(super) struct Running {
    /// Orders to the pool; sending them never blocks.
    pub(super) orders: watch::Sender<Orders>,
    /// Sends changed rules to its source.
    pub(super) rules: watch::Sender<Arc<PoolConfig>>,
    /// Commands of operators; none once the pool is removed from the configuration.
    pub(super) steered: Option<watch::Receiver<Steering>>,
    /// Set while it has no thread.
    pub(super) unbegun: Option<UnstartedPool>,
    /// True once a reload has told it to stop: its end is then no failure of the daemon.
    pub(super) dismissed: bool,
}

impl Running {
    /// Changes the orders to the pool.
    pub(super) fn tell(&self, order: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(order);
    }

    /// Returns the initial steering of its successor.
    pub(super) fn steering_for(&self, successor: &PoolConfig) -> Steering {
        let Some(steered) = &self.steered else {
            return Steering::default();
        };
        let mut steering = *steered.borrow();
        steering.reloaded(&self.rules.borrow(), successor);
        steering.of_successor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_config::model::Workers;
    use ganger_config::sample::policy;

    #[test]
    fn what_was_asked_of_a_pool_holds_for_the_one_in_its_place() {
        let of = |workers| {
            let workers = Workers::Fixed(workers);
            Arc::new(PoolConfig {
                workers,
                ..policy()
            })
        };
        let asked = Steering::of(Some(7), true);
        let (_tell, steered) = watch::channel(asked);
        let mut pool = Running {
            orders: watch::channel(Orders::new(of(2))).0,
            rules: watch::channel(of(2)).0,
            steered: Some(steered),
            unbegun: None,
            dismissed: true,
        };
        assert_eq!(pool.steering_for(&of(2)), asked);
        assert_eq!(pool.steering_for(&of(3)), Steering::of(None, true));
        pool.steered = None;
        assert_eq!(pool.steering_for(&of(2)), Steering::default());
    }
}
