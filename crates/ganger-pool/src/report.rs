//! Status of a pool and its workers at this moment.

use std::time::SystemTime;

use tokio::time::Instant;

use super::lane::Gauge;
use super::status::{BacklogStatus, PoolState, PoolStatus, WorkerStatus};
use super::{Handle, Pool};
use ganger_core::shutdown::Phase;
use ganger_telemetry::metrics::Counts;

impl Pool {
    pub(super) fn status(&self, now: Instant) -> PoolStatus {
        let policy = self.shared.policy();
        let counts = self.shared.counters.counts();
        let source = self.link.state.borrow().clone();
        let in_hand = self.in_hand();
        PoolStatus {
            state: self.state(source.healthy),
            workers_wanted: self.workers_wanted(),
            workers_configured: self.workers_by_rules(),
            scaled: self.steering.scaled(),
            paused_for_all: self.steering.is_for_all(),
            autoscale: self.scaling_status(now),
            source_connected: source.healthy,
            source_problem: source.problem,
            waits_for: source.waits_for,
            breaker_error: self.shared.breaker.borrow().error().map(str::to_owned),
            roll_stopped: self.roll_stopped.clone(),
            last_worker_lost: self.last_worker_lost.clone(),
            last_loss: self.last_loss.clone(),
            last_error: self.shared.last_error(),
            failed_starts: self.failed_starts,
            closed_since: self.steering.closed_since(),
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

    /// Returns the number of messages taken in and not settled.
    fn in_hand(&self) -> usize {
        let load = |handle: &Handle| handle.gauge.load();
        let with_workers: usize = self.slots.values().map(load).sum();
        self.held.len() + self.suspects.len() + with_workers
    }

    fn state(&self, source_healthy: bool) -> PoolState {
        let up = self.board.open() > 0;
        match () {
            () if self.stopping.is_some() => PoolState::Draining,
            () if self.is_drained() => PoolState::Drained,
            () if self.steering.drains() => PoolState::Draining,
            () if self.supervisor.degraded() => PoolState::Degraded,
            () if !source_healthy => PoolState::SourceDown,
            () if self.steering.takes_nothing() => PoolState::Paused,
            () if self.shared.breaker.borrow().is_open() => PoolState::Open,
            () if up => PoolState::Running,
            () => PoolState::Starting,
        }
    }

    /// Reports changes of the state and of the target.
    pub(super) fn tell_changes(&self) {
        let (events, source) = (&self.shared.events, &self.link.state);
        let state = self.state(source.borrow().healthy);
        events.state(state, || {
            let of_breaker = || self.shared.breaker.borrow().error().map(str::to_owned);
            source.borrow().problem.clone().or_else(of_breaker)
        });
        events.workers(self.workers_wanted());
    }

    pub(super) fn worker_statuses(&self, now: Instant) -> Vec<WorkerStatus> {
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
            state: "waiting".into(),
            ..WorkerStatus::default()
        });
        running.chain(waiting).collect()
    }
}

/// Returns the number of messages that came in and are neither settled nor in hand. Anything but
/// zero is a bug.
fn unaccounted(counts: &Counts, in_hand: usize) -> i64 {
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let Counts {
        taken,
        done,
        dead,
        returned,
        requeued,
        retried,
        ..
    } = *counts;
    whole(taken) - whole(done + dead + returned + requeued + retried) - whole(in_hand as u64)
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
        message: gauge.message(),
        answered: gauge.answered(),
        progress: gauge.progress(),
        memory_bytes: None,
        cpu_seconds: None,
    }
}
