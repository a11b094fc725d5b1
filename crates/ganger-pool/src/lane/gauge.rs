//! What the pool sees of a lane, and what the lanes of a pool share. All of it lives on the pool's
//! thread.

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

/// What the lanes of a pool share. All of them run on the pool's thread.
#[derive(Debug)]
pub struct Shared {
    /// Starts the processes.
    pub spawner: Spawner,
    /// The pool's rules; a reload replaces them.
    pub policy: RefCell<Arc<PoolConfig>>,
    /// What is told of the pool.
    pub events: PoolEvents,
    /// What is counted.
    pub counters: Counters,
    /// What their attempts tell of what the workers depend on.
    pub breaker: RefCell<Breaker>,
    /// Wakes the pool when a lane has room again.
    pub room: Notify,
    /// What workers that left had not read.
    pub unread: RefCell<Unread>,
    /// What the source knows of itself.
    pub facts: SourceFacts,
    /// Where emits go.
    pub publishes: mpsc::Sender<Publish>,
    /// Tells the pool that the lane in a slot has connected.
    pub connected: mpsc::Sender<usize>,
    /// When the pool looked at what there was.
    pub turns: Rc<Turns>,
    /// How long all tasks have been quick.
    pub streak: Streak,
    losses: Cell<u64>,
    proofs: Cell<u64>,
    changed: RefCell<Vec<usize>>,
    last_error: RefCell<String>,
}

impl Shared {
    /// For a pool with these rules.
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

    /// The lane in that slot shows something new.
    pub fn list(&self, slot: usize, gauge: &Gauge) {
        if !gauge.is_listed.replace(true) {
            self.changed.borrow_mut().push(slot);
        }
    }

    /// The slots of the lanes that have shown something new since this was asked last.
    pub fn take_changed(&self) -> Vec<usize> {
        self.changed.take()
    }

    /// How often the source has lost claims: each time lanes look which of their messages are void.
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// So often the source has lost claims by now. Returns whether that is news.
    pub fn set_losses(&self, losses: u64) -> bool {
        self.losses.replace(losses) != losses
    }

    /// How often a worker has shown that it works.
    pub fn proofs(&self) -> u64 {
        self.proofs.get()
    }

    /// A worker has shown once more that it works.
    pub fn has_proof(&self) {
        self.proofs.set(self.proofs.get() + 1);
    }

    /// An attempt has failed with that error.
    pub fn failed(&self, error: &str) {
        let mut last = self.last_error.borrow_mut();
        last.clear();
        last.push_str(error);
    }

    /// The error of the last attempt that has failed; none if none has.
    pub fn last_error(&self) -> Option<String> {
        Some(self.last_error.borrow().clone()).filter(|error| !error.is_empty())
    }

    /// The pool's rules now.
    pub fn policy(&self) -> Arc<PoolConfig> {
        self.policy.borrow().clone()
    }
}

/// What the pool sees of a lane: how much it has and how much it may have.
#[derive(Debug, Default)]
pub struct Gauge {
    /// The pool has been told that it shows something new, and has not looked yet.
    is_listed: Cell<bool>,
    /// It takes messages.
    open: Cell<bool>,
    /// Messages given to it and not settled.
    load: Cell<usize>,
    /// Their bodies' size together, in bytes.
    bytes: Cell<usize>,
    /// How many it may have.
    window: Cell<usize>,
    /// How many are fetched for it.
    prefetch: Cell<usize>,
    /// How many it works on at once.
    at_once: Cell<usize>,
    /// How many it may be given together while others have none.
    run: Cell<usize>,
    /// It has a message that nothing may be added to.
    alone: Cell<bool>,
    pid: Cell<Option<u32>>,
    phase: Cell<Phase>,
    busy_since: Cell<Option<Instant>>,
    answered: Cell<u64>,
    /// Answers by which a message is done, or was tried: not those that ask for it later.
    served: Cell<u64>,
    /// The message that the only one of them has failed, by the hash of its name.
    failed: Cell<Option<u64>>,
    succeeded: Cell<u64>,
    /// Answers of all workers of its generation.
    tally: Rc<AnswerTally>,
    on_trial: Cell<bool>,
    /// The error of the last message that it has failed on trial.
    failure: RefCell<String>,
    progress: RefCell<Option<String>>,
    message: RefCell<CurrentMessage>,
}

/// The message that a worker has been on for longest.
#[derive(Debug, Default)]
struct CurrentMessage {
    /// The worker's number for it; 0 for none.
    number: u64,
    name: LogName,
}

/// What the pool does and sees.
impl Gauge {
    /// Of a lane that is about to start, whose answers count in that tally; on trial if it is new in a
    /// rolling restart and has to show that it works.
    pub fn new(on_trial: bool, tally: Rc<AnswerTally>) -> Self {
        Self {
            on_trial: on_trial.into(),
            tally,
            ..Self::default()
        }
    }

    /// What it shows now. It has to be told of anew from here on.
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

    /// It has been given a message of that size, which may have to run alone.
    pub fn given(&self, bytes: usize, alone: bool) {
        self.load.set(self.load.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.alone.set(alone);
    }

    /// It takes no messages any more.
    pub fn close(&self) {
        self.open.set(false);
    }

    /// It has shown that it works.
    pub fn passed_trial(&self) {
        self.on_trial.set(false);
    }

    /// It takes messages.
    pub fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Messages given to it and not settled.
    pub fn load(&self) -> usize {
        self.load.get()
    }

    /// How many it may have.
    pub fn window(&self) -> usize {
        self.window.get()
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.pid.get()
    }

    /// How far its stop has come.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Since when its current message is worked on.
    pub fn busy_since(&self) -> Option<Instant> {
        self.busy_since.get()
    }

    /// Messages that it has answered.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Those by which a message is done, or was tried.
    pub fn served(&self) -> u64 {
        self.served.get()
    }

    /// Whether it has shown that it works: by an answer that is no failure, or by living on after
    /// one that is.
    pub fn has_worked(&self) -> bool {
        self.served.get() > 0 && self.failed.get().is_none()
    }

    /// Those that are no failure.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.get()
    }

    /// The error of the last message that it has failed on trial; empty if there is none.
    pub fn failure(&self) -> String {
        self.failure.borrow().clone()
    }

    /// What the message is called that its worker has been on for longest: its correlation id, or the
    /// name that its numbers make, or its message id, where it has none.
    pub fn message(&self) -> Option<String> {
        let shown = self.message.borrow();
        let name = shown.name.as_str();
        (shown.number > 0 && !name.is_empty()).then(|| name.to_owned())
    }

    /// What its worker last said of its progress.
    pub fn progress(&self) -> Option<String> {
        self.progress.borrow().clone()
    }
}

/// What the lane shows.
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

    /// It has tried a message; which, if that was its first and it has failed it.
    pub(super) fn has_served(&self, failed: Option<u64>) {
        self.failed.set(failed);
        self.served.set(self.served.get() + 1);
    }

    /// It has tried a message, which is done, or has failed with that error.
    pub(super) fn has_tried(&self, error: Option<&str>) {
        self.tally.add(error.is_none());
        if let Some(error) = error.filter(|_| self.on_trial.get()) {
            self.failure.replace(error.to_owned());
        }
    }

    /// The message that it has failed by its only answer.
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

    /// It wants so many messages, and has been busy since then.
    pub(super) fn show(&self, wants: Wants, busy_since: Option<Instant>) {
        self.window.set(wants.window);
        self.prefetch.set(wants.prefetch);
        self.at_once.set(wants.at_once);
        self.run.set(wants.run);
        self.busy_since.set(busy_since);
    }

    /// It has been on that message for longest, by the worker's number for it.
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

    /// It has nothing in hand.
    pub(super) fn is_idle(&self) {
        self.progress.take();
    }

    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial.get()
    }
}
