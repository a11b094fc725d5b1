//! The stop of a pool: acts at its deadlines, names what delays it, and returns its result.

use std::time::Duration;

use tokio::time::Instant;

use super::status::WorkerStatus;
use super::stopping::Stopping;
use super::{Handle, Pool, PoolError};
use ganger_core::shutdown::Phase;

impl Pool {
    pub(super) fn stop(&mut self, drain_timeout: Duration) {
        if self.stopping.is_some() {
            return;
        }
        let now = Instant::now();
        let stop_timeout = self.shared.policy.borrow().stop_timeout;
        self.stopping = Some(Stopping::begin(now, drain_timeout, stop_timeout));
        self.give_back();
        self.raise_all(Phase::Draining);
    }

    pub(super) fn hurry(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            // It has missed the order to stop.
            return self.stop(Duration::ZERO);
        };
        let killing = |handle: &Handle| handle.gauge.phase() == Phase::Killing;
        stopping.hurry(Instant::now(), self.slots.values().all(killing));
        for handle in self.slots.values() {
            handle.raise(handle.gauge.phase().next());
        }
    }

    fn raise_all(&self, phase: Phase) {
        self.slots.values().for_each(|handle| handle.raise(phase));
    }

    pub(super) fn next_alarm(&self, now: Instant) -> Option<Instant> {
        match &self.stopping {
            None => {
                let alarms = [
                    self.supervisor.next_start(),
                    self.next_stale(),
                    self.next_probe(now),
                    self.next_look(),
                    self.shown.next(),
                ];
                alarms.into_iter().flatten().min()
            }
            Some(stopping) => {
                let alarms = [
                    stopping.next_alarm(!self.lanes.is_empty()),
                    self.shown.next(),
                ];
                alarms.into_iter().flatten().min()
            }
        }
    }

    /// Moves the deadlines by the time in which this thread's loop stood still, which is nobody's
    /// fault. The lanes move theirs.
    pub(super) fn make_up(&mut self, now: Instant) {
        let Some(stood_still) = self.standstills.news(now) else {
            return;
        };
        if let Some(stopping) = &mut self.stopping {
            stopping.postpone(stood_still);
        }
        tracing::warn!(
            pool = self.name(),
            ?stood_still,
            "the pool's event loop stood still: deadlines are moved by as much"
        );
    }

    pub(super) fn keep_time(&mut self) {
        let now = Instant::now();
        self.make_up(now);
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        let (yields, names_laggards) = (stopping.yields(now), stopping.names_laggards(now));
        let abandons = stopping.abandons(now);
        if yields {
            self.raise_all(Phase::Yielding);
        }
        if names_laggards {
            self.name_laggards();
        }
        if abandons {
            // SIGKILL is pending, so they will not run another line of their program.
            self.lanes.abort_all();
        }
    }

    fn name_laggards(&self) {
        if self.lanes.is_empty() {
            let problem = self.link.state.borrow().problem.clone();
            tracing::warn!(pool = self.name(), problem, "the stop waits for the source");
        }
        let running = |worker: &WorkerStatus| worker.pid.is_some();
        for worker in self
            .worker_statuses(Instant::now())
            .into_iter()
            .filter(running)
        {
            tracing::warn!(
                pool = self.name(),
                worker = worker.slot,
                pid = worker.pid,
                state = worker.state,
                in_flight = worker.in_flight,
                message_age = worker.message_age,
                "the stop waits for this worker"
            );
        }
    }

    /// Returns the result of the pool once it has ended.
    pub(super) fn result(&mut self, now: Instant) -> Option<Result<(), PoolError>> {
        if self.source_gone && self.stopping.is_none() {
            self.source_failed = true;
            self.stop(Duration::ZERO);
        }
        let stopping = self.stopping.as_mut().filter(|_| self.lanes.is_empty())?;
        let gives_up = stopping.gives_up(now);
        match () {
            () if self.source_failed => Some(Err(PoolError::SourceEnded)),
            () if self.source_gone => Some(Ok(())),
            () if gives_up => Some(Err(PoolError::Unsettled)),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{mpsc, watch};
    use tokio::task::LocalSet;

    use super::super::{Orders, Steering, run};
    use crate::events::EventFeed;
    use ganger_config::model;
    use ganger_config::model::Workers;
    use ganger_config::sample::policy;
    use ganger_queue::delivery::{Intake, link};

    /// Whatever the reason for missing the first order: the second is enough.
    #[tokio::test]
    async fn a_hurry_stops_one_that_was_not_told_to_stop() {
        let (mut source, pool) = link();
        let policy = model::PoolConfig {
            workers: Workers::Fixed(0),
            ..policy()
        };
        let (orders, told) = watch::channel(Orders::new(Arc::new(policy)));
        let (_commands, commands) = mpsc::channel(1);
        orders.send_modify(Orders::hurry);
        let source = async {
            let closed = |intake: &Intake| *intake == Intake::Closed;
            drop(source.intake.wait_for(closed).await.unwrap());
            drop(source);
        };
        let (shown, _) = watch::channel(Arc::default());
        let (steered, _) = watch::channel(Steering::default());
        let feed = EventFeed::new(std::time::SystemTime::now());
        let run = run(told, pool, commands, shown, steered, feed);
        let both = async { tokio::join!(run, source).0 };
        assert_eq!(LocalSet::new().run_until(both).await, Ok(()));
    }
}
