//! A pool as the daemon holds it.

use std::sync::Arc;

use tokio::sync::watch;

use super::life::Unbegun;
use ganger_config::model::PoolConfig;
use ganger_pool::{Orders, Steering};

/// A pool on its thread.
#[derive(Debug)]
pub(super) struct Running {
    /// What it is to do; telling it waits for nobody.
    pub(super) orders: watch::Sender<Orders>,
    /// Tells its source of changed rules.
    pub(super) rules: watch::Sender<Arc<PoolConfig>>,
    /// What operators have asked of it; none once the configuration has it no more.
    pub(super) steered: Option<watch::Receiver<Steering>>,
    /// It has no thread yet.
    pub(super) unbegun: Option<Unbegun>,
    /// A reload has told it to stop: how it ends is its own affair.
    pub(super) dismissed: bool,
}

impl Running {
    /// Tells it what to do.
    pub(super) fn tell(&self, order: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(order);
    }

    /// What one that takes its place begins with.
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
