//! State that a lane shows to its pool, and state that the lanes of a pool share. All of it lives
//! on the pool's thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::tempo::Wants;
use super::unread::Unread;
use crate::breaker::Breaker;
use crate::events::PoolEvents;
use crate::least_loaded::Load;
use crate::streak::Streak;
use crate::trial::AnswerTally;
use crate::turns::Turns;
use crate::worker::spawner::Spawner;
use ganger_config::model::PoolConfig;
use ganger_core::shutdown::Phase;
use ganger_queue::delivery::{LogName, Message, Publish, SourceFacts};
use ganger_telemetry::metrics::Counters;

/// State shared by the lanes of a pool. All of them run on the pool's thread.
#[derive(Debug)]
pub struct Shared {
    /// Spawner of the processes.
    pub spawner: Spawner,
    /// Rules of the pool; a reload replaces them.
    pub policy: RefCell<Arc<PoolConfig>>,
    /// Events of the pool.
    pub events: PoolEvents,
    /// Counters for the metrics.
    pub counters: Counters,
    /// Breaker for the dependencies of the workers, fed by their attempts.
    pub breaker: RefCell<Breaker>,
    /// Wakes the pool when a lane has room again.
    pub room: Notify,
    /// Messages that workers left unread when they exited.
    pub unread: RefCell<Unread>,
    /// Facts that the source reports about itself.
    pub facts: SourceFacts,
    /// Channel for emits.
    pub publishes: mpsc::Sender<Publish>,
    /// Tells the pool that the lane in a slot has connected.
    pub connected: mpsc::Sender<usize>,
    /// Times of the pool's last turns.
    pub turns: Rc<Turns>,
    /// Time for which all tasks have been quick.
    pub streak: Streak,
    losses: Cell<u64>,
    proofs: Cell<u64>,
    changed: RefCell<Vec<usize>>,
    last_error: RefCell<String>,
}

impl Shared {
    /// Creates the shared state of a pool with these rules.
    pub fn new(
        policy: Arc<PoolConfig>,
        events: PoolEvents,
        facts: SourceFacts,
        publishes: mpsc::Sender<Publish>,
        connected: mpsc::Sender<usize>,
    ) -> Self {
        let now = Instant::now();
        Self {
            spawner: Spawner::new(&policy.name),
            counters: Counters::new(&policy.name),
            events,
            breaker: Breaker::new(policy.breaker).into(),
            policy: policy.into(),
            room: Notify::new(),
            unread: RefCell::default(),
            facts,
            publishes,
            connected,
            turns: Turns::new(now).into(),
            streak: Streak::new(now),
            losses: Cell::default(),
            proofs: Cell::default(),
            changed: RefCell::default(),
            last_error: RefCell::default(),
        }
    }

    /// Lists the lane in `slot` as changed.
    pub fn list(&self, slot: usize, gauge: &Gauge) {
        if !gauge.is_listed.replace(true) {
            self.changed.borrow_mut().push(slot);
        }
    }

    /// Takes the slots of the lanes that have changed since the last call.
    pub fn take_changed(&self) -> Vec<usize> {
        self.changed.take()
    }

    /// Returns the number of times the source has lost claims: at each change lanes check for void messages.
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// Sets the number of claim losses. Returns whether it has changed.
    pub fn set_losses(&self, losses: u64) -> bool {
        self.losses.replace(losses) != losses
    }

    /// Returns the number of times a worker has shown that it works.
    pub fn proofs(&self) -> u64 {
        self.proofs.get()
    }

    /// Counts once more that a worker has shown that it works.
    pub fn has_proof(&self) {
        self.proofs.set(self.proofs.get() + 1);
    }

    /// Records the error of a failed attempt.
    pub fn failed(&self, error: &str) {
        let mut last = self.last_error.borrow_mut();
        last.clear();
        last.push_str(error);
    }

    /// Returns the error of the last failed attempt, if any.
    pub fn last_error(&self) -> Option<String> {
        Some(self.last_error.borrow().clone()).filter(|error| !error.is_empty())
    }

    /// Returns the name of the pool.
    pub fn name(&self) -> String {
        self.policy.borrow().name.clone()
    }

    /// Returns the current rules of the pool.
    pub fn policy(&self) -> Arc<PoolConfig> {
        self.policy.borrow().clone()
    }
}

/// State that the pool sees of a lane: its load and its limits.
#[derive(Debug, Default)]
pub struct Gauge {
    /// True if it is listed as changed and the pool has not read it yet.
    is_listed: Cell<bool>,
    /// True while it takes messages.
    open: Cell<bool>,
    /// Number of messages given to it and not settled.
    load: Cell<usize>,
    /// Total size of their bodies, in bytes.
    bytes: Cell<usize>,
    /// Number of messages it may have.
    window: Cell<usize>,
    /// Number of messages to fetch for it.
    prefetch: Cell<usize>,
    /// Number of messages it works on at once.
    at_once: Cell<usize>,
    /// Number of messages it may be given together while others have none.
    run: Cell<usize>,
    /// True if it has a message that must run alone.
    alone: Cell<bool>,
    pid: Cell<Option<u32>>,
    phase: Cell<Phase>,
    busy_since: Cell<Option<Instant>>,
    answered: Cell<u64>,
    /// Number of answers by which a message was done or tried, without those that postpone it.
    served: Cell<u64>,
    /// Hash of the name of the message failed by the only such answer.
    failed: Cell<Option<u64>>,
    succeeded: Cell<u64>,
    /// Tally of the answers of all workers of its generation.
    tally: Rc<AnswerTally>,
    on_trial: Cell<bool>,
    /// Error of the last message that it has failed on trial.
    failure: RefCell<String>,
    progress: RefCell<Option<String>>,
    message: RefCell<CurrentMessage>,
}

/// Message that a worker has processed for longest.
#[derive(Debug, Default)]
struct CurrentMessage {
    /// Number that the worker knows it by; 0 for none.
    number: u64,
    name: LogName,
}

/// Methods for the pool.
impl Gauge {
    /// Creates the gauge of a lane that is about to start, whose answers count in `tally`; on trial
    /// if it is new in a rolling restart and has to show that it works.
    pub fn new(on_trial: bool, tally: Rc<AnswerTally>) -> Self {
        Self {
            on_trial: on_trial.into(),
            tally,
            ..Self::default()
        }
    }

    /// Returns the current load. The next change is listed again.
    pub fn look(&self) -> Load {
        self.is_listed.set(false);
        Load {
            open: self.open.get(),
            messages: self.load.get(),
            bytes: self.bytes.get(),
            window: self.window.get(),
            prefetch: self.prefetch.get(),
            at_once: self.at_once.get(),
            run: self.run.get(),
            alone: self.alone.get(),
        }
    }

    /// Records that it was given a message of that size, which may have to run alone.
    pub fn given(&self, bytes: usize, alone: bool) {
        self.load.set(self.load.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.alone.set(alone);
    }

    /// Stops it from taking messages.
    pub fn close(&self) {
        self.open.set(false);
    }

    /// Ends its trial: it has shown that it works.
    pub fn passed_trial(&self) {
        self.on_trial.set(false);
    }

    /// Returns whether it takes messages.
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Returns the number of messages given to it and not settled.
    pub fn load(&self) -> usize {
        self.load.get()
    }

    /// Returns the number of messages it may have.
    pub fn window(&self) -> usize {
        self.window.get()
    }

    /// Returns the process id of its worker.
    pub fn pid(&self) -> Option<u32> {
        self.pid.get()
    }

    /// Returns the phase that its stop has reached.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Returns the time at which work on its current message began.
    pub fn busy_since(&self) -> Option<Instant> {
        self.busy_since.get()
    }

    /// Returns the number of messages that it has answered.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Returns the number of answers by which a message was done or tried.
    pub fn served(&self) -> u64 {
        self.served.get()
    }

    /// Returns whether it has shown that it works: by an answer that is no failure, or by continuing to run
    /// after a failure.
    pub fn has_worked(&self) -> bool {
        self.served.get() > 0 && self.failed.get().is_none()
    }

    /// Returns the number of those answers that are no failure.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.get()
    }

    /// Returns the error of the last message that it has failed on trial; empty if there is none.
    pub fn failure(&self) -> String {
        self.failure.borrow().clone()
    }

    /// Returns the name of the message that its worker has processed for longest: its correlation id or,
    /// without one, the name made of its numbers, or its message id.
    pub fn message(&self) -> Option<String> {
        let shown = self.message.borrow();
        let name = shown.name.as_str();
        (shown.number > 0 && !name.is_empty()).then(|| name.to_owned())
    }

    /// Returns the last progress that its worker reported.
    pub fn progress(&self) -> Option<String> {
        self.progress.borrow().clone()
    }
}

/// Methods for the lane.
impl Gauge {
    pub(super) fn started(&self, pid: u32) {
        self.pid.set(Some(pid));
    }

    pub(super) fn opened(&self) {
        self.open.set(true);
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.set(phase);
    }

    pub(super) fn has_answered(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    /// Records that it has tried a message; `failed` is the message if it was the worker's first and has
    /// failed.
    pub(super) fn has_served(&self, failed: Option<u64>) {
        self.failed.set(failed);
        self.served.set(self.served.get() + 1);
    }

    /// Records that it has tried a message, which is done or has failed with that error.
    pub(super) fn has_tried(&self, error: Option<&str>) {
        self.tally.add(error.is_none());
        if let Some(error) = error.filter(|_| self.on_trial.get()) {
            self.failure.replace(error.to_owned());
        }
    }

    /// Returns the message that it has failed by its only answer.
    pub(super) fn failed(&self) -> Option<u64> {
        self.failed.get()
    }

    pub(super) fn set_progress(&self, progress: String) {
        *self.progress.borrow_mut() = Some(progress);
    }

    pub(super) fn settled(&self, bytes: usize, alone: bool, success: bool) {
        self.load.set(self.load.get() - 1);
        self.bytes.set(self.bytes.get() - bytes);
        if alone {
            self.alone.set(false);
        }
        self.succeeded
            .set(self.succeeded.get() + u64::from(success));
    }

    /// Shows the number of messages that it wants and the time since which it is busy.
    pub(super) fn show(&self, wants: Wants, busy_since: Option<Instant>) {
        self.window.set(wants.window);
        self.prefetch.set(wants.prefetch);
        self.at_once.set(wants.at_once);
        self.run.set(wants.run);
        self.busy_since.set(busy_since);
    }

    /// Shows the message that it has processed for longest, with the worker's number for it.
    pub(super) fn works_on(&self, oldest: Option<(u64, &Message)>) {
        let mut shown = self.message.borrow_mut();
        let Some((number, message)) = oldest else {
            shown.number = 0;
            return;
        };
        if shown.number == number {
            return;
        }
        shown.number = number;
        shown.name.set(message);
    }

    /// Clears the progress: it has no message in flight.
    pub(super) fn is_idle(&self) {
        self.progress.take();
    }

    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial.get()
    }
}
