//! Carries out operators' requests to a pool.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Pool;
use super::lane::{Question, Search};
use super::status::PoolStatus;
use super::steering::{Refusal, Steer, Taps};
use crate::worker::output::LastLines;
use ganger_config::model::PoolConfig as Policy;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::{CANCELLED, Failure, Outcome, Reason};

impl Pool {
    /// Carries out an operator's request. Returns the number of rolling restarts begun so far.
    pub(super) fn steer(&mut self, steer: Steer) -> Result<u64, Refusal> {
        if self.stopping.is_some() {
            return Err(Refusal::Stopping(self.name()));
        }
        let pool = self.name();
        match steer {
            Steer::Scale(workers) => self.scale(workers)?,
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
                self.steering.resume();
                self.follow_steering();
            }
            Steer::Roll => self.roll(),
            Steer::Kill(slot) => self.kill(slot)?,
        }
        Ok(self.supervisor.rolls())
    }

    fn scale(&mut self, workers: Option<usize>) -> Result<(), Refusal> {
        self.steering.scale(workers)?;
        let configured = self.workers_by_rules();
        let workers = self.steering.target(configured);
        tracing::info!(pool = self.name(), workers, configured, "scaled");
        self.follow_steering();
        Ok(())
    }

    /// Follows changes of the source's state.
    pub(super) fn follow_source(&mut self) {
        self.follow_losses();
        let paused = self.link.state.borrow().paused;
        if self.steering.set_for_all(paused) {
            let pool = self.name();
            match paused {
                true => tracing::info!(pool, "paused for all daemons: nothing is taken in"),
                false => tracing::info!(pool, "no longer paused for all daemons"),
            }
            self.follow_steering();
        }
    }

    fn turn(&mut self, intake: Taps) {
        self.steering.turn(intake);
        self.follow_steering();
    }

    fn follow_steering(&mut self) {
        self.steering.note_closure(SystemTime::now());
        self.steered.send_replace(self.steering);
        if self.steering.takes_nothing() {
            self.give_back();
        }
        self.resize();
    }

    /// Sets the target number of workers from the rules and the operators' requests.
    pub(super) fn resize(&mut self) {
        let restart = self.shared.policy.borrow().restart;
        self.supervisor.resize(self.workers_wanted(), restart);
    }

    /// Applies new rules.
    pub(super) fn follow(&mut self, policy: Arc<Policy>) {
        self.steering
            .reloaded(&self.shared.policy.borrow(), &policy);
        self.steering.note_closure(SystemTime::now());
        self.steered.send_replace(self.steering);
        self.follow_workers(&policy.workers, Instant::now());
        self.shared.breaker.borrow_mut().set_rules(policy.breaker);
        *self.shared.policy.borrow_mut() = policy;
        self.resize();
    }

    /// Kills a worker. Its messages go back uncharged, since the kill was deliberate.
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

    /// Cancels the messages of that name: those that wait here, and those that workers have.
    pub(super) fn cancel(&mut self, id: String, asker: oneshot::Sender<usize>) {
        tracing::info!(pool = self.name(), id, "an operator cancels a message");
        // Messages that have arrived and wait for room here count as in hand.
        let mut come = Vec::new();
        while let Ok(delivery) = self.link.deliveries.try_recv() {
            come.push(delivery);
        }
        if !come.is_empty() {
            self.received(come.len(), &mut come);
        }
        let search = Rc::new(Search::new(id, asker));
        for waiting in [&mut self.held, &mut self.suspects] {
            let all = std::mem::take(waiting).into_iter();
            let (meant, rest): (VecDeque<_>, _) = all.partition(|one| search.means(&one.message));
            *waiting = rest;
            search.found(meant.len());
            for one in meant {
                let failure = Failure::new(Reason::Cancelled, CANCELLED);
                let outcome = Outcome::DeadLetter(Box::new(failure));
                let counters = &self.shared.counters;
                counters.settled(&one.message, &outcome);
                one.settle(outcome);
            }
        }
        let busy = self.slots.values().filter(|lane| lane.gauge.load() > 0);
        for lane in busy {
            // A lane that can't be asked may have it: the answer is unknown.
            if lane
                .questions
                .try_send(Question::Cancel(search.clone()))
                .is_err()
            {
                search.is_vain();
            }
        }
    }

    /// Asks a worker's lane for the last lines that the worker has printed. If no worker runs
    /// there, returns those of the last one.
    pub(super) fn last_lines(&self, slot: usize, asker: oneshot::Sender<LastLines>) {
        let ended = self.printed.of(slot);
        match (self.slots.get(&slot), ended) {
            // The caller may have gone.
            (None, Some(ended)) => drop(asker.send(ended.clone())),
            // Dropped with the lane, or by an overloaded one: the caller is told that there is no
            // worker.
            (Some(lane), _) => drop(lane.questions.try_send(Question::LastLines(asker))),
            (None, None) => {}
        }
    }

    /// Returns whether the pool is drained: nothing is taken in, and nothing is left to do.
    pub(super) fn is_drained(&self) -> bool {
        self.steering.drains() && self.lanes.is_empty()
    }

    /// Publishes the status, if it is time to.
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
}
