//! A pool's number of workers where it follows the load: measures the load at intervals and carries
//! out decisions. The decision itself is made in `autoscale`.

use tokio::time::Instant;

use super::Pool;
use super::autoscale::{Decision, Held, Look};
use super::load::Scaling;
use super::status::ScalingStatus;
use ganger_config::model::{Autoscale, Workers};

impl Pool {
    /// Applies new rules for the number of workers.
    pub(super) fn follow_workers(&mut self, workers: &Workers, now: Instant) {
        match (&mut self.scaling, workers) {
            (Some(scaling), Workers::Range(_)) => scaling.next_look = now,
            (_, workers) => {
                let target = self.supervisor.target();
                self.scaling = Scaling::new(workers, target, now);
            }
        }
    }

    /// Returns the number of workers by the rules.
    pub(super) fn workers_by_rules(&self) -> usize {
        let fixed = || self.shared.policy.borrow().workers.min();
        let scaling = self.scaling.as_ref();
        scaling.map_or_else(fixed, |scaling| scaling.scaler.target())
    }

    /// Returns the target number of workers, operators' requests included.
    pub(super) fn workers_wanted(&self) -> usize {
        self.steering.target(self.workers_by_rules())
    }

    /// Returns the state of the autoscaling, if the number of workers follows the load.
    pub(super) fn scaling_status(&self, now: Instant) -> Option<ScalingStatus> {
        let scaling = self.scaling.as_ref()?;
        let policy = self.shared.policy();
        let report = scaling.scaler.report(policy.workers.range()?);
        let changes = scaling.changes.iter();
        Some(ScalingStatus {
            min: report.min,
            max: report.max,
            reason: report.reason.as_str().to_owned(),
            why: report.reason.to_string(),
            changed_seconds_ago: report.changed.map(|(at, _)| (now - at).as_secs_f64()),
            changed_for: report.changed.map(|(_, why)| why.to_string()),
            queued: self.queued(),
            changes: changes
                .map(|(why, count)| ((*why).into(), *count))
                .collect(),
        })
    }

    /// Returns the time of the next look at the load, if it is followed.
    pub(super) fn next_look(&self) -> Option<Instant> {
        Some(self.scaling.as_ref()?.next_look)
    }

    /// Records the workers' current load.
    pub(super) fn note_load(&mut self, now: Instant) {
        let (work, up) = (self.board.work(), self.board.open());
        if let Some(scaling) = &mut self.scaling {
            scaling.goes_on(work, up, now);
        }
    }

    /// Checks, if it is time, whether there are too few or too many workers.
    pub(super) fn follow_load(&mut self, now: Instant) {
        let is_due = |scaling: &Scaling| scaling.next_look <= now;
        if !self.scaling.as_ref().is_some_and(is_due) || self.stopping.is_some() {
            return;
        }
        let policy = self.shared.policy();
        let Some(rules) = policy.workers.range() else {
            return;
        };
        let held = self.held_for();
        let Some(look) = self.look_at_load(rules, held, now) else {
            return;
        };
        let scaled = self.steering.scaled();
        let Some(scaling) = &mut self.scaling else {
            return;
        };
        scaling.next_look = now + rules.look_every();
        scaling.scaler.pin(scaled, now);
        let before = scaling.scaler.target();
        let decision = scaling.scaler.look(rules, &look);
        if let Some(decision) = decision {
            if decision.target != before {
                *scaling.changes.entry(decision.reason.as_str()).or_default() += 1;
                self.resize();
            }
            self.tell_of(decision, before, &look);
        }
    }

    fn look_at_load(
        &mut self,
        rules: &Autoscale,
        held: Option<Held>,
        now: Instant,
    ) -> Option<Look> {
        let out = self.board.out() + self.held.len() + self.suspects.len();
        let waiting = out.saturating_sub(self.board.work().worked_on) as u64;
        let queued = self.queued();
        let pids = self.slots.values().filter_map(|handle| handle.gauge.pid());
        let scaling = self.scaling.as_mut()?;
        scaling.goes_on(scaling.work, scaling.up, now);
        let since = scaling.waiting_since.unwrap_or(now);
        scaling.waiting_since = (waiting > 0).then_some(since);
        Some(Look {
            now,
            up: scaling.up,
            coming: self.supervisor.coming(),
            idle: std::mem::replace(&mut scaling.idle, usize::MAX),
            worked: scaling.worked,
            available: scaling.available,
            finished: self.shared.counters.answers(),
            waiting,
            out: out as u64,
            queued,
            waiting_since: scaling.waiting_since,
            held,
            machine: scaling.machine.look(rules, pids),
        })
    }

    /// Returns the number of messages in the queue beside those that are here, where the source
    /// knows.
    fn queued(&self) -> Option<u64> {
        let backlog = self.link.state.borrow().backlog?;
        Some(backlog.depth)
    }

    /// Returns the reason not to change the number of workers now.
    fn held_for(&self) -> Option<Held> {
        match () {
            () if self.steering.takes_nothing() => Some(Held::Paused),
            () if self.supervisor.degraded() => Some(Held::Degraded),
            () if self.shared.breaker.borrow().is_open() => Some(Held::BreakerOpen),
            () if !self.link.state.borrow().healthy => Some(Held::SourceDown),
            () if self.supervisor.is_rolling() => Some(Held::Rolling),
            () => None,
        }
    }

    fn tell_of(&mut self, decision: Decision, before: usize, look: &Look) {
        let Decision { target, reason } = decision;
        let Some(scaling) = &mut self.scaling else {
            return;
        };
        let is_hindered = scaling.is_new_hindrance(&reason);
        let (pool, why) = (self.name(), reason.to_string());
        let (queued, here) = (look.queued, look.out);
        if target != before {
            tracing::info!(
                pool,
                from = before,
                to = target,
                why,
                queued,
                here,
                "the number of workers changes"
            );
        } else if is_hindered {
            tracing::info!(pool, workers = target, why, queued, here, "no more workers");
        } else {
            tracing::debug!(pool, workers = target, why, "the number of workers stays");
        }
    }
}
