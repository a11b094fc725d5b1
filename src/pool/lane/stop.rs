//! How a worker's time ends: the limits that it may overstep, the age that it may reach, and the
//! steps by which it is made to leave.

use std::sync::Arc;

use tokio::time::Instant;

use super::in_flight::{Cause, Version};
use super::{CLOSED_PIPE_GRACE, Lane, MEMORY_CHECK_EVERY};
use crate::config::model::Recycle;
use crate::names::{CANCEL, CONTEXT_SWITCH, QUIT};
use crate::shutdown::Phase;
use crate::worker::process::Signal;

impl Lane {
    /// Does what is due by now.
    pub(super) fn keep_time(&mut self, now: Instant) {
        self.follow_policy();
        if self.notes.calm_at().is_some_and(|calm| calm <= now) {
            self.notes.tell_suppressed();
        }
        self.follow_breaker();
        self.follow_losses();
        self.enforce_timeouts(now);
        self.watch_closed_pipe(now);
        self.recycle_if_due(now);
        let asked = *self.asked.borrow_and_update();
        while self.phase < asked {
            self.enter(self.phase.next(), now);
        }
        let leaving = self.recycled || (Phase::Draining..Phase::Quitting).contains(&self.phase);
        if leaving && self.in_flight.is_empty() && self.phase < Phase::Quitting {
            while self.phase < Phase::Quitting {
                self.enter(self.phase.next(), now);
            }
        }
        if self.phase_ends().is_some_and(|end| end <= now) {
            self.enter(self.phase.next(), now);
        }
    }

    /// The next moment at which [`Lane::keep_time`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.cause.is_some() {
            return self.phase_ends();
        }
        let policy = self.shared.policy.borrow();
        let listening = self.deaf_since.is_none();
        let stall = policy
            .stall_timeout
            .filter(|_| listening && self.waits_for_worker());
        let timeout = listening
            .then(|| self.in_flight.next_deadline(&policy))
            .flatten();
        let binary = !self.pending.is_empty()
            && self.version == Version::Unknown
            && self.in_flight.is_empty()
            && self.closed_at.is_none();
        let closed = self.closed_at.filter(|_| self.phase < Phase::Quitting);
        [
            timeout,
            stall.map(|timeout| self.last_frame + timeout),
            self.phase_ends(),
            closed.map(|at| at + CLOSED_PIPE_GRACE),
            self.recycle_at,
            self.memory_check_at,
            self.notes.calm_at(),
            binary.then(|| self.hello_deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Kills the worker over something that it did.
    pub(super) fn kill(&mut self, cause: Cause) {
        if self.cause.is_none() {
            self.cause = Some(cause);
            self.close();
            self.process.signal_group(Signal::Kill);
        }
    }

    /// The pool is told that nothing more is taken.
    pub(super) fn close(&self) {
        self.gauge.open.set(false);
        self.shared.list(self.slot, &self.gauge);
        self.shared.room.notify_one();
    }

    /// Drops what is not in the pipe yet: it goes back.
    pub(super) fn refuse_work(&mut self) {
        self.close();
        self.mailbox.close();
        self.give_back_pending();
    }

    fn give_back_pending(&mut self) {
        while let Ok(delivery) = self.mailbox.try_recv() {
            self.pending.push_back(delivery);
        }
        for delivery in std::mem::take(&mut self.pending) {
            self.settle(
                delivery,
                crate::pool::verdict::Event::Stopped { suspect: false },
            );
        }
    }

    /// When the breaker has opened, what is not in the pipe yet is not begun.
    fn follow_breaker(&mut self) {
        let openings = self.shared.breaker.borrow().openings();
        if openings != self.openings {
            self.openings = openings;
            self.give_back_pending();
            self.shared.room.notify_one();
        }
    }

    /// What the source has lost is another's to do. A version 1 worker can't be told: the line names
    /// no message, and could reach it when it is on the next.
    fn follow_losses(&mut self) {
        let losses = self.shared.losses.get();
        if losses != self.losses
            && let Version::Two { .. } = self.version
        {
            self.losses = losses;
            let ids = self.in_flight.yield_void();
            self.cancel(&ids);
        }
    }

    fn cancel(&mut self, ids: &[u64]) {
        for id in ids {
            self.process.tell(&format!("{CANCEL} {id}"));
        }
    }

    /// After a reload: what was derived from the rules is derived anew.
    fn follow_policy(&mut self) {
        let unchanged = Arc::ptr_eq(&self.drawn_by, &self.shared.policy.borrow());
        if unchanged || self.recycled || self.phase > Phase::Running {
            return;
        }
        self.drawn_by = self.shared.policy();
        self.plan_recycling();
        self.show();
        self.shared.room.notify_one();
    }

    /// Draws the moments at which the worker is replaced by a fresh one.
    pub(super) fn plan_recycling(&mut self) {
        let Recycle {
            tasks,
            age,
            memory_bytes,
            jitter,
        } = self.shared.policy.borrow().recycle;
        let share = 1.0 - jitter * fastrand::f64();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count of messages; exactness is not wanted"
        )]
        let some_of = |tasks: u64| ((tasks as f64 * share) as u64).max(1);
        self.recycle_after = tasks.map(some_of);
        self.recycle_at = age.map(|age| self.connected_at + age.mul_f64(share));
        self.memory_check_at = memory_bytes.map(|_| self.connected_at + MEMORY_CHECK_EVERY);
    }

    /// A worker whose emits wait for the broker is not listened to, so it can't be late: its clock
    /// stands still.
    fn stop_the_clock(&mut self, now: Instant) {
        match self.deaf_since {
            None if !self.to_publish.is_empty() => self.deaf_since = Some(now),
            Some(since) if self.to_publish.is_empty() => {
                self.deaf_since = None;
                self.in_flight.postpone(now - since);
                self.last_frame += now - since;
            }
            None | Some(_) => {}
        }
    }

    fn enforce_timeouts(&mut self, now: Instant) {
        self.stop_the_clock(now);
        if self.deaf_since.is_some() {
            return;
        }
        let policy = self.shared.policy();
        let (cancel, kill) = self.in_flight.due(&policy, now);
        if let Version::Two { .. } = self.version {
            self.cancel(&cancel);
        }
        if let Some(id) = kill {
            self.kill(Cause::TimedOut(id));
        }
        let silent = |timeout| self.waits_for_worker() && self.last_frame + timeout <= now;
        if policy.stall_timeout.is_some_and(silent) {
            self.kill(Cause::Stalled);
        }
    }

    /// It has a message that it has not answered.
    fn waits_for_worker(&self) -> bool {
        self.in_flight.head().is_some()
    }

    fn watch_closed_pipe(&mut self, now: Instant) {
        let unasked = self.closed_at.filter(|_| self.phase < Phase::Quitting);
        if self.cause.is_none() && unasked.is_some_and(|at| at + CLOSED_PIPE_GRACE <= now) {
            self.cause = Some(Cause::PipeClosed);
            self.stop_taking_work();
            // It may be cleaning up: it is asked to leave like any other.
            self.enter(Phase::Quitting, now);
        }
    }

    fn recycle_if_due(&mut self, now: Instant) {
        if self.recycled || self.phase > Phase::Running {
            return;
        }
        let answered = self.gauge.answered.get();
        let worn = self.recycle_after.is_some_and(|tasks| answered >= tasks);
        let old = self.recycle_at.is_some_and(|at| at <= now);
        if worn || old || self.is_bloated(now) {
            self.recycled = true;
            self.stop_taking_work();
            tracing::info!(
                worker = self.slot,
                pid = self.process.pid(),
                answered,
                "recycling the worker"
            );
        }
    }

    /// From here on it leaves as soon as it can, so there is nothing left to be recycled for.
    fn stop_taking_work(&mut self) {
        self.recycle_at = None;
        self.memory_check_at = None;
        self.refuse_work();
    }

    fn is_bloated(&mut self, now: Instant) -> bool {
        if self.memory_check_at.is_none_or(|at| at > now) {
            return false;
        }
        self.memory_check_at = Some(now + MEMORY_CHECK_EVERY);
        let limit = self.shared.policy.borrow().recycle.memory_bytes;
        let resident = self.process.resident_bytes();
        limit
            .zip(resident)
            .is_some_and(|(limit, resident)| resident > limit)
    }

    fn phase_ends(&self) -> Option<Instant> {
        let policy = self.shared.policy.borrow();
        Some(self.phase_since + self.phase.lasts(policy.stop_timeout)?)
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.phase_since = now;
        self.gauge.phase.set(phase);
        match phase {
            Phase::Running => {}
            Phase::Draining => self.stop_taking_work(),
            Phase::Yielding => self.ask_to_yield(),
            Phase::Quitting => {
                self.process.tell(QUIT);
                self.process.close_stdin();
                self.connection.finish_sending();
            }
            Phase::Terminating => self.process.signal_group(Signal::Terminate),
            Phase::Killing => self.process.signal_group(Signal::Kill),
        }
    }

    fn ask_to_yield(&mut self) {
        let ids = self.in_flight.yield_all();
        if ids.is_empty() {
            return;
        }
        match self.version {
            Version::Two { .. } => self.cancel(&ids),
            Version::One | Version::Unknown => {
                self.process.tell(CONTEXT_SWITCH);
            }
        }
    }
}
