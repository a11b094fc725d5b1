//! The pool's workers: starts those that the supervisor plans, and records their connections and
//! ends.

use std::rc::Rc;
use std::time::SystemTime;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError};
use tokio::time::Instant;

use super::lane::{Ended, Gauge, Start};
use super::roster::Generation;
use super::status::WorkerLoss;
use super::supervise::{Action, End};
use super::{Handle, MAILBOX, Pool, QUESTIONS_WAITING_MAX, lane};
use crate::worker::output::LastLines;
use ganger_core::shutdown::Phase;
use ganger_telemetry::metrics::WorkerEnd;

impl Pool {
    pub(super) fn carry_out_plan(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        let board = &self.board;
        let is_busy = |slot| !board.is_idle(slot);
        for action in self.supervisor.plan(now, is_busy) {
            match action {
                Action::Start(slot, generation) => self.start(slot, generation),
                Action::Drain(slot) => {
                    if let Some(handle) = self.slots.get(&slot) {
                        handle.raise(Phase::Draining);
                    }
                }
                Action::Rolled(generation) => {
                    self.commands.retain(|other, _| *other >= generation);
                    self.tallies.retain(|other, _| *other >= generation);
                    self.roll_stopped = None;
                    tracing::info!(pool = self.name(), generation, "every worker is new");
                }
                Action::RollFailed(generation) => {
                    self.commands.remove(&generation);
                    self.tallies.remove(&generation);
                    tracing::error!(
                        pool = self.name(),
                        cause = self.roll_stopped,
                        "rolling restart stopped: a new worker did not work; the old ones stay"
                    );
                }
            }
        }
    }

    fn start(&mut self, slot: usize, generation: Generation) {
        let command = self
            .commands
            .range(..=generation)
            .next_back()
            .or(self.commands.iter().next());
        let Some((_, command)) = command else { return };
        let command = command.clone();
        let (mailbox_tx, mailbox) = mpsc::channel(MAILBOX);
        let (questions_tx, questions) = mpsc::channel(QUESTIONS_WAITING_MAX);
        let (phase_tx, phase) = watch::channel(Phase::Running);
        let tally = self.tally(generation);
        let gauge = Rc::new(Gauge::new(self.supervisor.is_on_trial(slot), tally));
        let start = Start {
            slot,
            command,
            shared: self.shared.clone(),
            gauge: gauge.clone(),
            mailbox,
            questions,
            phase,
        };
        let task = self.lanes.spawn_local(lane::run(start));
        self.slot_of.insert(task.id(), slot);
        self.slots.insert(
            slot,
            Handle {
                gauge,
                mailbox: mailbox_tx,
                questions: questions_tx,
                phase: phase_tx,
            },
        );
    }

    pub(super) fn connected(&mut self, slot: usize) {
        let was_degraded = self.supervisor.degraded();
        self.failed_starts = 0;
        self.supervisor.connected(slot, Instant::now());
        let pid = self.slots.get(&slot).and_then(|handle| handle.gauge.pid());
        tracing::info!(pool = self.name(), worker = slot, pid, "worker up");
        self.note_recovery(was_degraded);
    }

    /// Ends a crash loop with the first worker that shows that it works.
    pub(super) fn watch_answers(&mut self) {
        if self.supervisor.degraded() && self.shared.proofs() > self.proofs_at_last_end {
            self.supervisor.worked(Instant::now());
            self.note_recovery(true);
        }
    }

    fn note_recovery(&self, was_degraded: bool) {
        if was_degraded && !self.supervisor.degraded() {
            tracing::info!(pool = self.name(), "the pool has recovered");
        }
    }

    pub(super) fn lane_ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(panic) => panic.id(),
        };
        let Some(slot) = self.slot_of.remove(&id) else {
            return;
        };
        let Some(handle) = self.slots.remove(&slot) else {
            return;
        };
        self.board.remove(slot);
        // A lane settles all its messages, unless it is lost or its worker was left to the kernel.
        self.shared.counters.given_back(handle.gauge.load());
        let ended = ended.map_or_else(
            |panic| Ended {
                connected: true,
                orderly: false,
                how: WorkerEnd::Lost,
                cause: format!("its lane was lost: {panic}"),
                printed: LastLines::default(),
                worked: handle.gauge.has_worked(),
                explained: false,
                over: None,
            },
            |(_, ended)| ended,
        );
        let pid = handle.gauge.pid();
        self.shared.counters.worker_ended(ended.how);
        if pid.is_some() || !ended.orderly {
            self.shared.events.worker_ended(slot, pid, &ended.cause);
        }
        if ended.orderly {
            tracing::info!(
                pool = self.name(),
                worker = slot,
                pid,
                cause = ended.cause,
                "worker gone"
            );
        } else {
            self.shared
                .counters
                .worker_lost(slot, pid, &ended.cause, &ended.printed.stderr);
            self.last_worker_lost = Some(ended.cause.clone());
            self.last_loss = Some(WorkerLoss {
                slot,
                cause: ended.cause.clone(),
                stderr: ended.printed.stderr.clone(),
                at: SystemTime::now(),
            });
        }
        // A failed start on trial stops the rolling restart, while the pool itself is well.
        if !ended.connected && !ended.orderly && !self.supervisor.is_on_trial(slot) {
            self.failed_starts += 1;
        }
        self.supervise(slot, &ended);
        self.printed.keep(slot, ended.cause, ended.printed);
    }

    fn supervise(&mut self, slot: usize, ended: &Ended) {
        let proofs = self.shared.proofs();
        let proven = |handle: &Handle| handle.gauge.is_open() && handle.gauge.has_worked();
        let was_degraded = self.supervisor.degraded();
        let was_rolling = self.supervisor.is_rolling();
        let end = End {
            connected: ended.connected,
            worked: ended.worked,
            explained: ended.explained,
            late: matches!(ended.how, WorkerEnd::TimedOut | WorkerEnd::Stalled),
            over: ended.over,
            orderly: ended.orderly,
            recycled: ended.how == WorkerEnd::Recycled,
            pool_worked: proofs > self.proofs_at_last_end,
            others_proven: self.slots.values().any(proven),
        };
        self.supervisor
            .ended(slot, end, Instant::now(), fastrand::f64());
        self.proofs_at_last_end = proofs;
        if was_rolling && !self.supervisor.is_rolling() {
            self.roll_stopped = Some(ended.cause.clone());
        }
        if self.supervisor.degraded() && !was_degraded {
            self.give_back();
            tracing::error!(
                pool = self.name(),
                cause = ended.cause,
                "the pool is degraded: its workers fail one after the other; one at a time is tried"
            );
        }
    }
}
