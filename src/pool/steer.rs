//! Does what operators ask of a pool.

use std::sync::Arc;

use tokio::time::Instant;

use super::Pool;
use super::steering::{Refusal, Steer, Taps};
use crate::config::model::PoolConfig as Policy;
use crate::shutdown::Phase;

impl Pool {
    /// Does what an operator asks.
    pub(super) fn steer(&mut self, steer: Steer) -> Result<(), Refusal> {
        if self.stopping.is_some() {
            return Err(Refusal::Stopping(self.name()));
        }
        let pool = self.name();
        match steer {
            Steer::Scale(workers) => return self.scale(workers),
            Steer::Pause => {
                tracing::info!(pool, "paused: nothing is taken in");
                self.turn(Taps::Paused);
            }
            Steer::Drain => {
                tracing::info!(pool, "draining: nothing is taken in, and the workers leave");
                self.turn(Taps::Drained);
            }
            Steer::Resume => {
                tracing::info!(pool, "resumed");
                self.turn(Taps::Open);
            }
            Steer::Roll => self.roll(),
            Steer::Kill(slot) => return self.kill(slot),
        }
        Ok(())
    }

    fn scale(&mut self, workers: Option<usize>) -> Result<(), Refusal> {
        self.steering.scale(workers)?;
        let configured = self.workers_by_rules();
        let workers = self.steering.target(configured);
        tracing::info!(pool = self.name(), workers, configured, "scaled");
        self.resize();
        Ok(())
    }

    fn turn(&mut self, intake: Taps) {
        self.steering.turn(intake);
        if self.steering.takes_nothing() {
            self.give_back();
        }
        self.resize();
    }

    /// The number of workers follows the rules and what was asked.
    pub(super) fn resize(&mut self) {
        let restart = self.shared.policy.borrow().restart;
        self.supervisor.resize(self.workers_wanted(), restart);
    }

    /// New rules.
    pub(super) fn follow(&mut self, policy: Arc<Policy>) {
        self.steering
            .reloaded(&self.shared.policy.borrow(), &policy);
        self.follow_workers(&policy.workers, Instant::now());
        self.shared.breaker.borrow_mut().set_rules(policy.breaker);
        *self.shared.policy.borrow_mut() = policy;
        self.resize();
    }

    /// Kills a worker. What it has in hand goes back uncharged, for it was us.
    fn kill(&mut self, slot: usize) -> Result<(), Refusal> {
        let running = self.slots.get(&slot);
        let running = running.filter(|handle| handle.gauge.pid().is_some());
        let Some(handle) = running else {
            let pool = self.name();
            return Err(Refusal::NoWorker { pool, slot });
        };
        tracing::warn!(
            pool = self.name(),
            worker = slot,
            pid = handle.gauge.pid(),
            "a worker is killed: an operator has asked for it"
        );
        handle.raise(Phase::Killing);
        Ok(())
    }

    /// When nothing is taken in and nothing is left to do.
    pub(super) fn is_drained(&self) -> bool {
        self.steering.drains() && self.lanes.is_empty()
    }

    /// Lets others see how things stand, if it is time to.
    pub(super) fn show(&mut self, now: Instant) {
        if self.shown.is_due(now) {
            let status = self.status(now);
            self.shown.show(status, now);
        }
    }
}
