//! How a pool and its workers stand, at this moment.

use tokio::time::Instant;

use super::Pool;
use super::lane::Gauge;
use super::status::{PoolState, PoolStatus, WorkerStatus};
use crate::shutdown::Phase;

impl Pool {
    pub(super) fn status(&mut self) -> PoolStatus {
        let counts = self.shared.counters.counts();
        let (since, done) = self.last_status;
        let now = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let done_per_second = (counts.done - done) as f64 / (now - since).as_secs_f64().max(1e-3);
        self.last_status = (now, counts.done);
        let source = self.link.state.borrow().clone();
        let shared = self.shared.clone();
        let breaker = shared.breaker.borrow();
        PoolStatus {
            name: self.name(),
            state: self.state(source.healthy),
            workers_wanted: self.shared.policy.borrow().workers,
            source_problem: source.problem,
            waits_for: source.waits_for,
            breaker_error: breaker.error().map(str::to_owned),
            out: self.held.len()
                + self.suspects.len()
                + self
                    .slots
                    .values()
                    .map(|handle| handle.gauge.load())
                    .sum::<usize>(),
            counts,
            done_per_second,
            likely_duplicates: source.likely_duplicates,
            lag: source.lag.into_iter().collect(),
            workers: self.worker_statuses(),
        }
    }

    fn state(&self, source_healthy: bool) -> PoolState {
        let up = self.board.open() > 0;
        match () {
            () if self.stopping.is_some() => PoolState::Draining,
            () if self.supervisor.degraded() => PoolState::Degraded,
            () if !source_healthy => PoolState::SourceDown,
            () if self.shared.breaker.borrow().is_open() => PoolState::Open,
            () if up => PoolState::Running,
            () => PoolState::Starting,
        }
    }

    pub(super) fn worker_statuses(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        let running = self
            .slots
            .iter()
            .map(|(slot, handle)| worker_status(*slot, &handle.gauge, now));
        let waiting = self
            .supervisor
            .roster()
            .iter()
            .filter(|(slot, _)| !self.slots.contains_key(slot));
        let waiting = waiting.map(|(slot, _)| WorkerStatus {
            slot,
            pid: None,
            state: "waiting".into(),
            in_flight: 0,
            window: 0,
            message_age: None,
            answered: 0,
            progress: None,
        });
        running.chain(waiting).collect()
    }
}

fn worker_status(slot: usize, gauge: &Gauge, now: Instant) -> WorkerStatus {
    let state = match gauge.phase() {
        Phase::Running if !gauge.is_open() => "starting",
        Phase::Running if gauge.load() > 0 => "busy",
        Phase::Running => "idle",
        stopping => stopping.as_str(),
    };
    WorkerStatus {
        slot,
        pid: gauge.pid(),
        state: state.into(),
        in_flight: gauge.load(),
        window: gauge.window(),
        message_age: gauge.busy_since().map(|since| (now - since).as_secs_f64()),
        answered: gauge.answered(),
        progress: gauge.progress(),
    }
}
