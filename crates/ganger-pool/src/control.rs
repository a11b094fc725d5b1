//! A pool under control from outside: carries out the daemon's orders and operators' commands, and
//! reports the status.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lane::{Gauge, Search, Sought};
use super::orders::Orders;
use super::scaling::Scaling;
use super::status::{
    BacklogStatus, PoolState, PoolStatus, ScalingStatus, WorkerStatus, unaccounted,
};
use super::steering::{IntakeState, Refusal, Steer, Steering};
use super::stopping::Stopping;
use super::{Command, Pool};
use ganger_config::model::PoolConfig as Policy;
use ganger_core::shutdown::Phase;

/// Orders of the daemon.
impl Pool {
    /// Carries out changed orders; without a daemon the pool ends.
    pub(super) fn follow_orders(&mut self, orders: Option<Orders>) {
        let Some(orders) = orders else {
            self.orders_ended = true;
            return self.stop(Duration::ZERO);
        };
        let before = std::mem::replace(&mut self.orders, orders.clone());
        if !Arc::ptr_eq(&before.policy, &orders.policy) {
            self.follow(orders.policy);
        }
        if before.rolls != orders.rolls {
            self.roll();
        }
        if let Some(drain_timeout) = orders.drain_timeout {
            self.stop(drain_timeout);
        }
        for _ in before.hurries..orders.hurries {
            self.escalate_stop();
        }
    }

    /// Applies new rules.
    fn follow(&mut self, policy: Arc<Policy>) {
        let mut steering = self.steering();
        steering.reloaded(&self.shared.policy(), &policy);
        self.set_steering(steering);
        let (before, target) = (self.scaling.take(), self.supervisor.target());
        self.scaling = Scaling::renewed(before, &policy.workers, target, Instant::now());
        self.shared.breaker.borrow_mut().set_rules(policy.breaker);
        *self.shared.policy.borrow_mut() = policy;
        self.resize();
        self.lanes.wake();
    }

    /// Begins to replace every worker.
    fn roll(&mut self) {
        let generation = self.supervisor.roll(Instant::now());
        let old = self.supervisor.rolling().map(|(old, _)| old);
        let command = self.shared.policy().command.clone();
        self.rollout.begin(generation, command, old);
    }

    pub(super) fn stop(&mut self, drain_timeout: Duration) {
        if self.stopping.is_some() {
            return;
        }
        let (now, stop_timeout) = (Instant::now(), self.shared.policy().stop_timeout);
        let stopping = Stopping::begin(now, drain_timeout, stop_timeout, self.source_is_gone);
        self.stopping = Some(stopping);
        self.give_back();
        self.lanes.raise_all(Phase::Draining);
    }

    fn escalate_stop(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            // The pool has missed the order to stop.
            return self.stop(Duration::ZERO);
        };
        let is_being_killed = |gauge: &Gauge| gauge.phase() == Phase::Killing;
        stopping.escalate_stop(Instant::now(), self.lanes.gauges().all(is_being_killed));
        self.lanes.escalate_stop();
    }
}

/// Commands of operators.
impl Pool {
    pub(super) fn handle_command(&mut self, command: Command) {
        match command {
            // The caller may no longer wait for the answer.
            Command::Status(reply) => drop(reply.send(self.show_now(Instant::now()))),
            Command::Steer(steer, reply) => drop(reply.send(self.steer(steer))),
            Command::Cancel(sought, asker) => self.cancel(sought, asker),
            Command::LastLines(slot, asker) => self.lanes.last_lines(slot, asker),
        }
    }

    /// Carries out an operator's request. Returns the number of rolling restarts begun so far.
    fn steer(&mut self, steer: Steer) -> Result<u64, Refusal> {
        let pool = self.shared.name();
        if self.stopping.is_some() {
            return Err(Refusal::Stopping(pool));
        }
        let mut steering = self.steering();
        match steer {
            Steer::Scale(workers) => {
                steering.scale(workers)?;
                let configured = self.workers_by_rules();
                let workers = steering.target(configured);
                tracing::info!(pool, workers, configured, "scaled");
                self.follow_steering(steering);
            }
            Steer::Pause => {
                tracing::info!(pool, "paused: intake stopped");
                steering.turn(IntakeState::Paused);
                self.follow_steering(steering);
            }
            Steer::Drain => {
                tracing::info!(pool, "draining: intake stopped, workers stop once idle");
                steering.turn(IntakeState::Drained);
                self.follow_steering(steering);
            }
            Steer::Resume => {
                tracing::info!(pool, "resumed");
                steering.resume();
                self.follow_steering(steering);
            }
            Steer::Roll => self.roll(),
            Steer::Kill(slot) => self.kill(slot)?,
        }
        Ok(self.supervisor.rolls())
    }

    /// Returns the current requests of operators.
    pub(super) fn steering(&self) -> Steering {
        *self.steered.borrow()
    }

    fn set_steering(&self, mut steering: Steering) {
        steering.note_closure(SystemTime::now());
        self.steered.send_replace(steering);
    }

    pub(super) fn follow_steering(&mut self, steering: Steering) {
        self.set_steering(steering);
        if steering.takes_nothing() {
            self.give_back();
        }
        self.resize();
    }

    /// Kills a worker. Its messages go back uncharged, since the kill was deliberate.
    fn kill(&self, slot: usize) -> Result<(), Refusal> {
        let pool = self.shared.name();
        let Some(pid) = self.lanes.gauge(slot).and_then(Gauge::pid) else {
            return Err(Refusal::NoWorker { pool, slot });
        };
        tracing::warn!(
            pool,
            worker = slot,
            pid,
            "killing a worker at an operator's request"
        );
        self.lanes.raise(slot, Phase::Killing);
        Ok(())
    }

    /// Cancels these messages: those that wait in the pool, and those that workers have.
    fn cancel(&mut self, sought: Sought, asker: oneshot::Sender<usize>) {
        // Messages that have arrived and wait for room here count as in hand.
        let deliveries = &mut self.link.deliveries;
        let mut arrived = std::iter::from_fn(|| deliveries.try_recv().ok()).collect();
        self.take_in(&mut arrived);
        let search = Rc::new(Search::new(self.shared.name(), sought, asker));
        self.waiting.cancel(&search);
        self.lanes.cancel(&search);
    }

    /// Returns the number of workers by the rules.
    fn workers_by_rules(&self) -> usize {
        let fixed = || self.shared.policy.borrow().workers.min();
        self.scaling.as_ref().map_or_else(fixed, Scaling::target)
    }

    /// Returns the target number of workers, including operators' requests.
    fn workers_wanted(&self) -> usize {
        self.steering().target(self.workers_by_rules())
    }

    /// Sets the target number of workers from the rules and the operators' requests.
    pub(super) fn resize(&mut self) {
        let restart = self.shared.policy.borrow().restart;
        self.supervisor.resize(self.workers_wanted(), restart);
    }
}

/// The status.
impl Pool {
    /// Publishes the status, if that is due.
    pub(super) fn show(&mut self, now: Instant) {
        if self.shown.is_due(now) {
            self.show_now(now);
        }
    }

    pub(super) fn show_now(&mut self, now: Instant) -> Arc<PoolStatus> {
        let status = self.status(now);
        // Reported as a total, so that many dead letters are not as many events.
        self.shared.events.dead(status.counts.dead);
        self.shown.show(status, now)
    }

    /// Reports changes of the state and of the target.
    pub(super) fn report_changes(&self) {
        let (events, source) = (&self.shared.events, &self.link.state);
        let state = self.state(source.borrow().healthy);
        events.state(state, || {
            let of_breaker = || self.shared.breaker.borrow().error().map(str::to_owned);
            source.borrow().problem.clone().or_else(of_breaker)
        });
        events.workers(self.workers_wanted());
    }

    fn status(&self, now: Instant) -> PoolStatus {
        let policy = self.shared.policy();
        let counts = self.shared.counters.counts();
        let source = self.link.state.borrow().clone();
        let steering = self.steering();
        let in_hand = self.in_hand();
        let last_loss = self.losses.last();
        PoolStatus {
            state: self.state(source.healthy),
            workers_wanted: self.workers_wanted(),
            workers_configured: self.workers_by_rules(),
            scaled: steering.scaled(),
            paused_for_all: steering.is_for_all(),
            autoscale: self.scaling_status(&policy, now),
            source_connected: source.healthy,
            source_problem: source.problem,
            waits_for: source.waits_for,
            breaker_error: self.shared.breaker.borrow().error().map(str::to_owned),
            roll_stopped: self.rollout.stopped().map(str::to_owned),
            last_worker_lost: last_loss.map(|loss| loss.cause.clone()),
            last_loss: last_loss.cloned(),
            last_error: self.shared.last_error(),
            failed_starts: self.losses.failed_starts(),
            closed_since: steering.closed_since(),
            rolls: self.supervisor.rolls(),
            rolling: self.supervisor.is_rolling(),
            reload: self.orders.reload,
            out: in_hand,
            unaccounted: unaccounted(&counts, in_hand),
            credit: self.credit(),
            counts,
            details: self.shared.counters.details(),
            done_per_second: 0.0,
            likely_duplicates: source.likely_duplicates,
            lag: source.lag.into_iter().collect(),
            backlog: source
                .backlog
                .map(|backlog| BacklogStatus::at(backlog, SystemTime::now())),
            source_figures: self.link.facts.read(),
            workers: self.worker_statuses(now),
            ..PoolStatus::starting(&policy)
        }
    }

    fn state(&self, source_healthy: bool) -> PoolState {
        let steering = self.steering();
        match () {
            () if self.stopping.is_some() => PoolState::Draining,
            () if steering.drains() && self.lanes.is_empty() => PoolState::Drained,
            () if steering.drains() => PoolState::Draining,
            () if self.supervisor.degraded() => PoolState::Degraded,
            () if !source_healthy => PoolState::SourceDown,
            () if steering.takes_nothing() => PoolState::Paused,
            () if self.shared.breaker.borrow().is_open() => PoolState::Open,
            () if self.lanes.board().open() > 0 || self.starts_by_message() => PoolState::Running,
            () => PoolState::Starting,
        }
    }

    /// Returns the number of messages taken in and not settled.
    fn in_hand(&self) -> usize {
        let with_workers: usize = self.lanes.gauges().map(Gauge::load).sum();
        self.waiting.len() + with_workers
    }

    fn scaling_status(&self, policy: &Policy, now: Instant) -> Option<ScalingStatus> {
        let (scaling, rules) = (self.scaling.as_ref()?, policy.workers.range()?);
        Some(scaling.status(rules, self.queued(), now))
    }

    fn worker_statuses(&self, now: Instant) -> Vec<WorkerStatus> {
        let slots = self.supervisor.roster().iter();
        let waiting = slots.filter(|(slot, _)| self.lanes.gauge(*slot).is_none());
        let waiting = waiting.map(|(slot, _)| WorkerStatus {
            slot,
            state: "waiting".into(),
            ..WorkerStatus::default()
        });
        self.lanes.statuses(now).chain(waiting).collect()
    }
}
