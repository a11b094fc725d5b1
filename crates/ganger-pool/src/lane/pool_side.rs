//! Interface of a lane to its pool: settles its messages, shows its state and reads the rules.

use std::cell::Ref;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::core_waits::{Taken, Waited};
use super::gauge::{Gauge, Shared};
use super::tempo::Wants;
use crate::breaker;
use crate::breaker::Evidence;
use crate::verdict::{Case, Event, decide, lasting_name};
use crate::worker::run_queue::RunQueue;
use ganger_config::model::PoolConfig;
use ganger_core::event_loop::awake_since;
use ganger_core::shutdown::Phase;
use ganger_protocol::status::Status;
use ganger_queue::delivery::{Delivery, Exit, Message, Outcome, Publish};
use ganger_telemetry as telemetry;
use ganger_telemetry::metrics::Durations;
use ganger_telemetry::traces;

/// Handle of a lane to its pool.
#[derive(Debug, Clone)]
pub(super) struct PoolSide {
    slot: usize,
    shared: Rc<Shared>,
    gauge: Rc<Gauge>,
}

impl PoolSide {
    /// Creates the handle of the lane in `slot`.
    pub(super) fn new(slot: usize, shared: Rc<Shared>, gauge: Rc<Gauge>) -> Self {
        Self {
            slot,
            shared,
            gauge,
        }
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Borrows the pool's rules.
    pub(super) fn rules(&self) -> Ref<'_, Arc<PoolConfig>> {
        self.shared.policy.borrow()
    }

    /// Returns the pool's rules, to be kept.
    pub(super) fn policy(&self) -> Arc<PoolConfig> {
        self.shared.policy()
    }

    /// Returns the time that the source takes to settle and to fetch.
    pub(super) fn turn(&self) -> Duration {
        self.shared.facts.turn()
    }

    /// Returns the earliest time at which data read now may have arrived.
    pub(super) fn available_since(&self, now: Instant) -> Instant {
        self.shared.turns.available_since(now, awake_since())
    }

    /// Returns the time that a worker, and this thread, which reads its answers, have waited for a core.
    pub(super) fn waited(worker: &RunQueue) -> Option<Waited> {
        Some(Waited {
            worker: worker.waited()?,
            reader: RunQueue::of_the_thread_that_asks().waited()?,
        })
    }

    /// Records the real time that its worker has taken.
    pub(super) fn record_duration(&self, taken: Taken, now: Instant) {
        self.shared.streak.takes_in(taken.answers, taken.time, now);
    }

    /// Returns the channel for emits.
    pub(super) fn publishes(&self) -> &mpsc::Sender<Publish> {
        &self.shared.publishes
    }

    /// Returns the number of times the breaker has opened.
    pub(super) fn openings(&self) -> u64 {
        self.shared.breaker.borrow().openings()
    }

    /// Returns the number of times the source has lost claims.
    pub(super) fn losses(&self) -> u64 {
        self.shared.losses()
    }

    /// Returns whether it is new in a rolling restart and has not shown yet that it works.
    pub(super) fn is_on_trial(&self) -> bool {
        self.gauge.is_on_trial()
    }

    /// Returns the number of messages that its worker has answered.
    pub(super) fn answers(&self) -> u64 {
        self.gauge.answered()
    }

    /// Returns whether a message may be left unread once more.
    pub(super) fn tolerates(&self, name: String) -> bool {
        self.shared.unread.borrow_mut().tolerates(name)
    }

    /// Starts taking messages.
    pub(super) fn open(&self) {
        self.gauge.opened();
    }

    /// Stops taking messages.
    pub(super) fn close(&self) {
        self.gauge.close();
        self.list();
        self.has_room();
    }

    /// Wakes the pool to read the lane's load.
    pub(super) fn has_room(&self) {
        self.shared.room.notify_one();
    }

    /// Shows the phase that its stop has reached.
    pub(super) fn enter(&self, phase: Phase) {
        self.gauge.set_phase(phase);
        self.list();
    }

    /// Shows the numbers of messages that it wants and the time since which it is busy.
    pub(super) fn show(&self, wants: Wants, busy_since: Option<Instant>) {
        self.gauge.show(wants, busy_since);
        self.list();
    }

    /// Shows the message that it has processed for longest, with the worker's number for it.
    pub(super) fn works_on(&self, oldest: Option<(u64, &Message)>) {
        self.gauge.works_on(oldest);
    }

    /// Shows that it has no message in flight.
    pub(super) fn is_idle(&self) {
        self.gauge.is_idle();
    }

    /// Shows the progress that its worker reports.
    pub(super) fn progress(&self, progress: String) {
        self.gauge.set_progress(progress);
    }

    /// Counts an answer of its worker.
    pub(super) fn answered(&self, took: Durations) {
        self.gauge.has_answered();
        self.shared.counters.answered(took);
    }

    /// Counts an emit of its worker that the broker has confirmed.
    pub(super) fn emitted(&self) {
        self.shared.counters.emitted();
    }

    /// Counts a note of its worker that is ignored.
    pub(super) fn ignored(&self, status: Status) {
        self.shared.counters.note(status.0);
    }

    /// Gives back a message that was not begun.
    pub(super) fn give_back(&self, delivery: Delivery) {
        self.settle(delivery, Event::Stopped { suspect: false });
    }

    /// Decides the outcome of a message and hands it to its source.
    pub(super) fn settle(&self, delivery: Delivery, event: Event) {
        let (message, history) = (&delivery.message, delivery.history);
        let _about = telemetry::about(delivery.recording.as_ref().map(|noted| noted.task));
        let answer = event.answer().map(|answer| answer.message.clone());
        let is_answer = answer.is_some();
        let mut outcome = decide(
            event,
            Case {
                message,
                history,
                policy: &self.rules(),
                chance: fastrand::f64(),
            },
        );
        if delivery.recording.is_some() {
            self.record(&delivery, &mut outcome);
        }
        let counters = &self.shared.counters;
        counters.settled(message, &outcome);
        let evidence = breaker::evidence(&outcome);
        let served = is_answer && !matches!(outcome, Outcome::Requeue { .. });
        if served {
            self.has_served(message, evidence);
        }
        if let Some(evidence) = evidence {
            let attempt = breaker::Attempt {
                is_first: history.attempt <= 1,
                taken_at: delivery.taken_at,
                message: || lasting_name(message),
            };
            let mut breaker = self.shared.breaker.borrow_mut();
            breaker.record(evidence, attempt, Instant::now());
        }
        let success = served && outcome.is_success();
        let failure = outcome.failure();
        if served && (success || failure.is_some()) {
            self.gauge
                .has_tried(failure.map(|failure| failure.error.as_str()));
        }
        if let Some(failure) = failure {
            self.shared.failed(&failure.error);
        }
        self.gauge
            .settled(message.body.len(), history.alone, success);
        self.list();
        let mut delivery = delivery;
        if outcome == Outcome::Done {
            delivery.keep_result(answer.unwrap_or_default());
        }
        delivery.settle(outcome);
    }

    /// Records the worker's own answer to a message. A worker that answers with a failure may then end for
    /// another reason: it shows that it works by the next message.
    fn has_served(&self, message: &Message, evidence: Option<Evidence<'_>>) {
        let only_failed = evidence != Some(Evidence::Up) && self.gauge.served() == 0;
        self.gauge
            .has_served(only_failed.then(|| name_hash(message)));
        if self.gauge.has_worked() {
            self.shared.has_proof();
        }
    }

    /// Returns whether its worker, which ended in this way, has shown that it works.
    pub(super) fn has_worked(&self, exit: Exit) -> bool {
        let left_well = exit.code == Some(0);
        self.gauge.has_worked() || (left_well && self.gauge.served() > 0)
    }

    /// Returns the hash of the name of the only message that its worker has failed by its own answer.
    pub(super) fn failed_message(&self) -> Option<u64> {
        self.gauge.failed()
    }

    /// Completes the spans of an attempt; the trace continues with the reply.
    fn record(&self, delivery: &Delivery, outcome: &mut Outcome) {
        let Some(recording) = &delivery.recording else {
            return;
        };
        let reply = match outcome {
            Outcome::Reply(reply) => Some(reply),
            Outcome::DeadLetter(failure) => failure.reply.as_mut(),
            Outcome::Done
            | Outcome::Requeue { .. }
            | Outcome::Return { .. }
            | Outcome::ReturnAfter { .. }
            | Outcome::RetryAfter { .. } => None,
        };
        if let Some(reply) = reply {
            recording.carry_on(&delivery.message.headers, &mut reply.headers);
        }
        let at = traces::Place {
            pool: &self.rules(),
            worker: self.slot,
            pid: self.gauge.pid(),
        };
        traces::end(at, delivery, recording, outcome);
    }

    fn list(&self) {
        self.shared.list(self.slot, &self.gauge);
    }
}

/// Returns a hash of the message's lasting name.
pub(super) fn name_hash(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    lasting_name(message).hash(&mut hasher);
    hasher.finish()
}
