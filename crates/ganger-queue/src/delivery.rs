//! The contract between a source and a pool: what a source hands out, what comes back for it,
//! and the channels between the two. Nothing here knows a broker, a worker or a clock.
//!
//! A source that pushes and acks, a log with offsets and rows with leases all sit behind the same
//! five rules:
//!
//! 1. The pool says how many deliveries may be out at once ([`Intake::Credit`]); the source never
//!    exceeds it, so nothing between them grows without bound and nothing ever waits for room.
//! 2. A [`Delivery`] is settled exactly once, by value. One that is dropped goes back by itself:
//!    its place in the settlement channel is reserved when it is made, so handing it back neither
//!    waits nor fails.
//! 3. A source forgets a delivery only when its settlement has taken effect in the broker. What it
//!    can't write yet it keeps and tries again, and takes nothing new in the meantime.
//! 4. When the intake closes, the source ends after the last settlement, not before.
//! 5. What is out under a [`Claim`] that the source has lost is another's to do: it is not begun any
//!    more, and whoever works on it is told. It is settled all the same.

mod facts;
mod finished;

mod outcome;
mod post;

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub use facts::{DatabaseFigures, Figures, KafkaFigures, SourceFacts};
pub use finished::{Entered, Finished, Identity, OnceWritten, StoredReply, repeated};
pub use ganger_core::log_name::{LogName, write_numbers};
pub use ganger_core::message::{Headers, Message, Outgoing, Property};
use ganger_core::trace_context::{Recording, SpanContext};
pub use outcome::{CANCELLED, Exit, Failure, Outcome, Reason};
pub use post::{IfTaken, IfUnsubscribed, Post, Unique, UniqueScope};

/// The most deliveries that one source may have out at once, whatever the pool would like.
pub const CREDIT_MAX: usize = 65_535;

/// How many [`Publish`] requests wait in the channel before a lane is made to wait.
const PUBLISHES_WAITING_MAX: usize = 64;

/// How often a message has been tried, as its source counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// Workers that died with this message in hand, before this attempt.
    pub crashes: u32,
    /// How often a worker has answered REQUEUE, one after the other.
    pub requeues: u32,
    /// Give it to a worker that has nothing else in hand, and nothing else to that worker until it
    /// is settled: it is suspected of killing workers.
    pub alone: bool,
    /// The span of the attempt before this one, if that was recorded.
    pub earlier: Option<SpanContext>,
    /// Which step of a long task it is, counted from 0: how often what was published for a message
    /// with its id has gone on as another.
    pub step: u32,
}

/// One message on its way to a worker. Settled exactly once; dropped, it goes back uncharged.
#[derive(Debug)]
pub struct Delivery {
    /// What the worker is to get.
    pub message: Message,
    /// How often it has been tried.
    pub history: History,
    /// It goes back if no worker has it by then: its broker would not wait much longer.
    pub begin_by: Option<Instant>,
    /// When its pool took it in.
    pub taken_at: Option<Instant>,
    /// What is noted of the attempt, if it is recorded.
    pub recording: Option<Box<Recording>>,
    claim: Option<Weak<()>>,
    /// Its work goes on once it is begun, void or not.
    goes_on: bool,
    slot: Option<Slot>,
}

/// What a source has messages by that it may lose all together, such as a partition: dropped, what
/// is out under it is void. A source whose messages stay where they are needs none.
#[derive(Debug, Default)]
pub struct Claim(Arc<()>);

#[derive(Debug)]
struct Slot {
    token: u64,
    permit: mpsc::OwnedPermit<Settlement>,
}

impl Delivery {
    /// Whether its source has lost the claim to it: someone else has it.
    pub fn is_void(&self) -> bool {
        let is_gone = |claim: &Weak<()>| claim.strong_count() == 0;
        self.claim.as_ref().is_some_and(is_gone)
    }

    /// Whether the worker that has it, and may have `begun` it, is to give it up.
    pub fn is_given_up(&self, begun: bool) -> bool {
        self.is_void() && !(begun && self.goes_on)
    }

    /// Hands the outcome to the source. Never waits and never fails: if the source is gone, so is
    /// its claim on the message, and the broker hands it out again.
    pub fn settle(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        let span = self.recording.as_ref();
        let span = span.filter(|recording| recording.was_given);
        let span = span.map(|recording| recording.task);
        if let Some(slot) = self.slot.take() {
            slot.send(outcome, span, None);
        }
    }
}

impl Slot {
    fn send(self, outcome: Outcome, span: Option<SpanContext>, finished: Option<Box<Finished>>) {
        drop(self.permit.send(Settlement {
            token: self.token,
            outcome,
            span,
            finished,
        }));
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.send(Outcome::Return { suspect: false });
    }
}

/// The duty to settle a delivery that was passed on: it is settled exactly once, by value. Dropped,
/// it goes back.
#[derive(Debug)]
pub struct Receipt(Option<Slot>);

impl Receipt {
    /// Hands the outcome to the source, as [`Delivery::settle`] does, with the span of the attempt
    /// and what is to be entered of it in the transaction that settles it.
    pub fn settle(
        mut self,
        outcome: Outcome,
        span: Option<SpanContext>,
        finished: Option<Box<Finished>>,
    ) {
        if let Some(slot) = self.0.take() {
            slot.send(outcome, span, finished);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.send(Outcome::Return { suspect: false }, None, None);
        }
    }
}

/// What the source is to do with one delivery.
#[derive(Debug)]
pub struct Settlement {
    /// The number that the source gave the delivery.
    pub token: u64,
    /// What has become of it.
    pub outcome: Outcome,
    /// The span of the attempt, if it was recorded: where the message comes again, the next attempt
    /// is told.
    pub span: Option<SpanContext>,
    /// What is to be entered in the transaction that settles it. Only the source of a table is given
    /// any.
    pub finished: Option<Box<Finished>>,
}

/// A request to publish without settling anything, with the broker's confirmation.
#[derive(Debug)]
pub struct Publish {
    /// What to publish.
    pub message: Outgoing,
    /// Told once the broker has confirmed it, or why it did not.
    pub confirmed: oneshot::Sender<Result<(), PublishError>>,
}

/// Why the broker did not take a message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("publishing to `{queue}` failed: {why}")]
pub struct PublishError {
    /// The queue it was for.
    pub queue: String,
    /// The broker's word.
    pub why: String,
}

/// What the pool lets the source do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// At most so many deliveries may be out (handed over and not settled). Zero takes nothing in.
    Credit(usize),
    /// Take nothing in any more, settle what is out, give back what is claimed, end.
    Closed,
}

/// How the source is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Connected, and the last settlement took effect.
    pub healthy: bool,
    /// What is wrong, in a sentence, while it is not.
    pub problem: Option<String>,
    /// What a message that must wait waits for, in words that follow "waits for".
    pub waits_for: Option<String>,
    /// An operator has paused the queue for all daemons.
    pub paused: bool,
    /// Settlements that came too late: someone else has the message, so it may run twice.
    pub likely_duplicates: u64,
    /// How often claims were lost: each time the pool looks which messages are void.
    pub losses: u64,
    /// How many messages of each part of the queue are not done, where the source knows: Kafka's
    /// partitions, by name.
    pub lag: Vec<(String, u64)>,
    /// Messages that wait in the queue; none while that is not known.
    pub backlog: Option<Backlog>,
}

/// Messages of a queue that are due and could be handed out beside those that are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Number of messages, counted up to a limit.
    pub depth: u64,
    /// The limit was reached: there may be more.
    pub is_limit: bool,
    /// Time since which the oldest has waited at most, where that can be known.
    pub oldest: Option<SystemTime>,
}

/// The source's end of the link.
#[derive(Debug)]
pub struct SourceEnd {
    deliveries: mpsc::Sender<Delivery>,
    settle: mpsc::Sender<Settlement>,
    /// Outcomes, in the order in which the pool made them.
    pub settlements: mpsc::Receiver<Settlement>,
    /// Emits.
    pub publishes: mpsc::Receiver<Publish>,
    /// What the pool allows; its sender gone means closed.
    pub intake: watch::Receiver<Intake>,
    /// Where the source says how it is doing.
    pub state: watch::Sender<SourceState>,
    /// Where it takes down what else it knows.
    pub facts: SourceFacts,
}

impl SourceEnd {
    /// Hands a message to the pool. `token` comes back with its settlement. If the pool is gone, one
    /// that returns the message is in [`SourceEnd::settlements`] already, as for any delivery that is
    /// dropped.
    ///
    /// # Panics
    /// If more than [`CREDIT_MAX`] deliveries are out: a source never exceeds its credit.
    pub fn deliver(&self, token: u64, message: Message, history: History) {
        self.hand_over(self.delivery(token, message, history));
    }

    /// Likewise, a message that is void once the claim is dropped; [`SourceEnd::lost`] tells so.
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn deliver_under(&self, claim: &Claim, token: u64, message: Message, history: History) {
        let mut delivery = self.delivery(token, message, history);
        delivery.claim = Some(Arc::downgrade(&claim.0));
        self.hand_over(delivery);
    }

    /// Likewise, a message that must be in the hands of a worker by then, or be given back. Its work goes
    /// on once it is begun.
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn deliver_by(
        &self,
        claim: &Claim,
        token: u64,
        message: Message,
        history: History,
        begin_by: Instant,
    ) {
        let mut delivery = self.delivery(token, message, history);
        delivery.claim = Some(Arc::downgrade(&claim.0));
        delivery.goes_on = true;
        delivery.begin_by = Some(begin_by);
        self.hand_over(delivery);
    }

    fn delivery(&self, token: u64, message: Message, history: History) -> Delivery {
        Delivery {
            message,
            history,
            begin_by: None,
            taken_at: None,
            recording: None,
            claim: None,
            goes_on: false,
            slot: Some(self.slot(token)),
        }
    }

    /// Hands on a message that another source has delivered. What is left of that is the duty to
    /// settle it, once its settlement under `token` is in [`SourceEnd::settlements`].
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn pass_on(&self, token: u64, mut delivery: Delivery) -> Receipt {
        let slot = delivery.slot.replace(self.slot(token));
        self.hand_over(delivery);
        Receipt(slot)
    }

    fn slot(&self, token: u64) -> Slot {
        let permit = self
            .settle
            .clone()
            .try_reserve_owned()
            .expect("the settlement channel has a place for every delivery within the credit");
        Slot { token, permit }
    }

    fn hand_over(&self, delivery: Delivery) {
        if self.deliveries.try_send(delivery).is_err() {
            tracing::debug!("the pool is gone; the message is on its way back");
        }
    }

    /// Counts messages that were worked on and are somebody else's now.
    pub fn may_run_twice(&self, count: u64) {
        self.state
            .send_modify(|state| state.likely_duplicates += count);
    }

    /// Has the pool look which messages are void, after claims were dropped.
    pub fn lost(&self) {
        self.state.send_modify(|state| state.losses += 1);
    }
}

/// The pool's end of the link.
#[derive(Debug)]
pub struct PoolEnd {
    /// Messages to be worked on.
    pub deliveries: mpsc::Receiver<Delivery>,
    /// Emits, to be published beside the settlements.
    pub publishes: mpsc::Sender<Publish>,
    /// What the source may take in.
    pub intake: watch::Sender<Intake>,
    /// How the source is doing.
    pub state: watch::Receiver<SourceState>,
    /// What else it knows.
    pub facts: SourceFacts,
}

/// Makes the channels between one source and one pool. The intake starts with no credit.
pub fn link() -> (SourceEnd, PoolEnd) {
    let (deliveries_tx, deliveries) = mpsc::channel(CREDIT_MAX);
    let (settle, settlements) = mpsc::channel(CREDIT_MAX);
    let (publishes_tx, publishes) = mpsc::channel(PUBLISHES_WAITING_MAX);
    let (intake_tx, intake) = watch::channel(Intake::Credit(0));
    let (state, state_rx) = watch::channel(SourceState::default());
    let facts = SourceFacts::default();
    (
        SourceEnd {
            deliveries: deliveries_tx,
            settle,
            settlements,
            publishes,
            intake,
            state,
            facts: facts.clone(),
        },
        PoolEnd {
            deliveries,
            publishes: publishes_tx,
            intake: intake_tx,
            state: state_rx,
            facts,
        },
    )
}

#[cfg(test)]
mod tests;
