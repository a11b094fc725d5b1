//! The contract between a source and a pool: deliveries, their settlements, and the channels between the
//! two. Nothing here knows a broker, a worker or a clock.
//!
//! A source that pushes and acks, a log with offsets and rows with leases all follow the same five rules:
//!
//! 1. The pool says how many deliveries may be in flight at once ([`Intake::Credit`]); the source never
//!    exceeds it, so nothing between them grows without bound and nothing ever waits for room.
//! 2. A [`Delivery`] is settled exactly once, by value. One that is dropped goes back by itself:
//!    its place in the settlement channel is reserved when it is made, so handing it back neither
//!    waits nor fails.
//! 3. A source forgets a delivery only when its settlement has taken effect in the broker. A settlement
//!    that can't be written yet is kept and retried, and nothing new is taken in the meantime.
//! 4. When the intake closes, the source ends after the last settlement, not before.
//! 5. A delivery under a [`Claim`] that the source has lost belongs to another: it is not begun any
//!    more, and the worker that has it is told. It is settled all the same.

mod facts;
mod finished;
mod follow;
mod outcome;
mod post;
mod run;
mod settlement;

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

pub use facts::{DatabaseFigures, Figures, KafkaFigures, SourceFacts};
pub use finished::{EnteredIdentities, EntryNotice, Finished, Identity, StoredReply, repeated};
use follow::Followed;
pub use follow::{
    Begun, Follower, Following, MessageEnd, MessageRecord, PendingSettlement, RecordedEnd,
    RecordedEnds, Report, Reported, Reports,
};
pub use ganger_core::log_name::{LogName, write_numbers};
pub use ganger_core::message::{Headers, Message, Outgoing, Property};
use ganger_core::names::RUN_HEADERS;
use ganger_core::trace_context::{Recording, SpanContext};
pub use outcome::{CANCELLED, Exit, Failure, Outcome, Reason};
pub use post::{IfTaken, IfUnsubscribed, Post, Unique, UniqueScope};
pub use run::{LogLine, LogStream, Run, RunCounts, RunNote, RunNotes, size};
pub use settlement::Settlement;

/// Maximum number of deliveries that one source may have in flight, whatever the pool asks for.
pub const CREDIT_MAX: usize = 65_535;

/// Number of [`Publish`] requests in the channel at which a lane has to wait.
const PUBLISHES_WAITING_MAX: usize = 64;

/// Attempt history of a message, as its source counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Number of this attempt, counted from 1.
    pub attempt: u32,
    /// Number of workers that died with this message in hand, before this attempt.
    pub crashes: u32,
    /// Number of times in a row that a worker has answered REQUEUE.
    pub requeues: u32,
    /// It is suspected of killing workers: give it to a worker that has nothing else in hand, and nothing
    /// else to that worker until it is settled.
    pub alone: bool,
    /// The span of the previous attempt, if it was recorded.
    pub earlier: Option<SpanContext>,
    /// Step of a long task, counted from 0: the number of times that a message published with its id has
    /// continued it.
    pub step: u32,
    /// Number of attempts that it has, by its header; none for that of its pool.
    pub attempts_max: Option<u32>,
    /// Its source is told when a worker gets it.
    pub followed: bool,
    /// A ledger keeps its result, so that a reply needs no destination.
    pub keeps_result: bool,
}

impl History {
    /// Returns the headers of the run that the message belongs to, if it belongs to one.
    pub fn of_run(&self, message: &Message) -> Headers {
        let most = self.attempts_max.map(|most| most.to_string());
        let occurrence = message.occurrence.as_deref().map(str::to_owned);
        let values = RUN_HEADERS.into_iter().zip([occurrence, most]);
        let given = values.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// One message on its way to a worker. Settled exactly once; if dropped, it goes back uncharged.
#[derive(Debug)]
pub struct Delivery {
    /// The message for the worker.
    pub message: Message,
    /// Its attempt history.
    pub history: History,
    /// Time at which it goes back if no worker has it: its broker would not wait much longer.
    pub begin_by: Option<Instant>,
    /// Time at which its pool took it in.
    pub taken_at: Option<Instant>,
    /// Trace recording of the attempt, if it is recorded.
    pub recording: Option<Box<Recording>>,
    claim: Option<Weak<()>>,
    /// Its work continues once it is begun, void or not.
    goes_on: bool,
    slot: Option<Slot>,
    /// Channel on which its source is told that a worker has it, and its number there.
    begun: Option<(u64, mpsc::Sender<(u64, Begun)>)>,
    /// Set if its beginning is reported to a ledger elsewhere.
    followed: Option<Arc<Followed>>,
    /// Set if it is of an occurrence in a ledger, wherever that is.
    run: Option<Arc<Run>>,
    /// Answer of its worker, if it is done.
    result: Bytes,
}

/// Claim of a source to messages that it may lose all together, such as a partition: once it is dropped,
/// the messages in flight under it are void. A source whose messages stay where they are needs none.
#[derive(Debug, Default)]
pub struct Claim(Arc<()>);

#[derive(Debug)]
struct Slot {
    token: u64,
    permit: mpsc::OwnedPermit<Settlement>,
    /// Set if its outcome is reported to a ledger elsewhere.
    followed: Option<Arc<Followed>>,
    result: Bytes,
}

impl Delivery {
    /// Returns whether its source has lost the claim to it: someone else has it.
    pub fn is_void(&self) -> bool {
        let is_gone = |claim: &Weak<()>| claim.strong_count() == 0;
        self.claim.as_ref().is_some_and(is_gone)
    }

    /// Returns whether the worker that has it, and may have `begun` it, must give it up.
    pub fn is_given_up(&self, begun: bool) -> bool {
        self.is_void() && !(begun && self.goes_on)
    }

    /// Tells the source that this worker has it, if it wants to know. Never waits.
    pub fn begin(&mut self, worker: &Arc<str>) {
        let trace = self.recording.as_ref().map(|noted| noted.worker.trace_id);
        let now = || Begun {
            at: Instant::now(),
            worker: Arc::clone(worker),
            trace: trace.map(|id| format!("{:032x}", u128::from_be_bytes(id)).into()),
        };
        if let Some((token, begun)) = self.begun.take() {
            // Its source has a place for each, unless it is gone.
            begun.try_send((token, now())).ok();
        }
        if let Some(followed) = self.followed.take() {
            followed.begin(now());
        }
        if let Some(run) = &self.run {
            run.begin();
        }
    }

    /// Returns the next step of its task in its own queue, still empty: it is of the same run.
    pub fn next_step(&self) -> Outgoing {
        Outgoing {
            queue: self.message.queue.to_string(),
            headers: self.history.of_run(&self.message),
            ..self.message.continued()
        }
    }

    /// Returns the way to its occurrence, if a ledger has that.
    pub fn run(&self) -> Option<&Arc<Run>> {
        self.run.as_ref()
    }

    /// Keeps the answer of its worker, which has done it: its result.
    pub fn keep_result(&mut self, result: Bytes) {
        self.result = result;
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
        if let Some(mut slot) = self.slot.take() {
            if let Some(run) = &self.run {
                run.end(outcome.end(&self.message.queue));
            }
            slot.result = std::mem::take(&mut self.result);
            slot.send(outcome, span, None);
        }
    }
}

impl Slot {
    fn send(self, outcome: Outcome, span: Option<SpanContext>, finished: Option<Box<Finished>>) {
        let settlement = Settlement {
            token: self.token,
            outcome,
            span,
            result: self.result,
            finished,
        };
        match self.followed {
            None => drop(self.permit.send(settlement)),
            Some(followed) => followed.settle(PendingSettlement::new(self.permit, settlement)),
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.send(Outcome::Return { suspect: false });
    }
}

/// The duty to settle a delivery that was passed on: it is settled exactly once, by value. If dropped,
/// the delivery goes back.
#[derive(Debug)]
pub struct Receipt(Option<Slot>);

impl Receipt {
    /// Adds the result of the message.
    pub fn with_result(mut self, result: Bytes) -> Self {
        if let Some(slot) = &mut self.0 {
            slot.result = result;
        }
        self
    }

    /// Hands the outcome to the source, as [`Delivery::settle`] does, with the span of the attempt and
    /// the entry for the transaction that settles it.
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

/// A request to publish without settling anything, with the broker's confirmation.
#[derive(Debug)]
pub struct Publish {
    /// The message to publish.
    pub message: Outgoing,
    /// Receives the broker's confirmation, or the reason that it refused.
    pub confirmed: oneshot::Sender<Result<(), PublishError>>,
}

/// Reason that the broker did not take a message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("publishing to `{queue}` failed: {why}")]
pub struct PublishError {
    /// The queue it was for.
    pub queue: String,
    /// The broker's reason.
    pub why: String,
}

/// Limit that the pool sets to its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// Maximum number of deliveries in flight (handed over and not settled). Zero takes nothing in.
    Credit(usize),
    /// Drain: take nothing in any more, settle the deliveries in flight, give back what is claimed, end.
    Closed,
}

/// State of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Connected, and the last settlement took effect.
    pub healthy: bool,
    /// The problem, in a sentence, while it is not.
    pub problem: Option<String>,
    /// Cause for which waiting messages wait, in words that follow "waits for".
    pub waits_for: Option<String>,
    /// An operator has paused the queue for all daemons.
    pub paused: bool,
    /// Number of settlements that came too late: someone else has the message, so it may run twice.
    pub likely_duplicates: u64,
    /// Number of times that claims were lost: each time the pool checks which messages are void.
    pub losses: u64,
    /// Number of messages of each part of the queue that are not done, if the source knows: Kafka's
    /// partitions, by name.
    pub lag: Vec<(String, u64)>,
    /// Messages that wait in the queue; none while unknown.
    pub backlog: Option<Backlog>,
}

/// Messages of a queue that are due and could be handed out, beside those in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Number of messages, counted up to a limit.
    pub depth: u64,
    /// The limit was reached: there may be more.
    pub is_limit: bool,
    /// Earliest time since which the oldest can have waited, if known.
    pub oldest: Option<SystemTime>,
}

/// The source's end of the link.
#[derive(Debug)]
pub struct SourceEnd {
    deliveries: mpsc::Sender<Delivery>,
    settle: mpsc::Sender<Settlement>,
    begin: mpsc::Sender<(u64, Begun)>,
    /// Numbers of deliveries that a worker has got, of those that are followed.
    pub begun: mpsc::Receiver<(u64, Begun)>,
    /// Settlements, in the order in which the pool made them.
    pub settlements: mpsc::Receiver<Settlement>,
    /// Emits to publish.
    pub publishes: mpsc::Receiver<Publish>,
    /// The pool's intake; it counts as closed once the sender is gone.
    pub intake: watch::Receiver<Intake>,
    /// Publishes the source's state.
    pub state: watch::Sender<SourceState>,
    /// Publishes the source's figures.
    pub facts: SourceFacts,
    /// Way on which messages of occurrences are reported, if they are followed.
    pub following: Option<Following>,
}

impl SourceEnd {
    /// Hands a message to the pool. `token` comes back with its settlement. If the pool is gone, one
    /// that returns the message is in [`SourceEnd::settlements`] already, as for any delivery that is
    /// dropped; so is that of a message whose run is cancelled.
    ///
    /// # Panics
    /// If more than [`CREDIT_MAX`] deliveries are out: a source never exceeds its credit.
    pub fn deliver(&self, token: u64, message: Message, history: History) {
        self.hand_over(self.delivery(None, token, message, history));
    }

    /// Hands over a message that is void once the claim is dropped; [`SourceEnd::lost`] announces it.
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn deliver_under(&self, claim: &Claim, token: u64, message: Message, history: History) {
        self.hand_over(self.delivery(Some(claim), token, message, history));
    }

    /// Hands over a message that a worker must have by `begin_by`, or that goes back. Its work continues
    /// once it is begun.
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
        let mut delivery = self.delivery(Some(claim), token, message, history);
        delivery.goes_on = true;
        delivery.begin_by = Some(begin_by);
        self.hand_over(delivery);
    }

    fn delivery(
        &self,
        claim: Option<&Claim>,
        token: u64,
        message: Message,
        mut history: History,
    ) -> Delivery {
        let claim = claim.map(|claim| Arc::downgrade(&claim.0));
        let following = self.following.as_ref();
        let followed = following
            .and_then(|following| following.delivered(&message, history.attempt, claim.clone()));
        history.keeps_result = message.occurrence.is_some()
            || following.is_some_and(|following| following.records_all());
        let of_occurrence = message.occurrence.as_ref().zip(following);
        let run = of_occurrence.and_then(|(occurrence, following)| {
            following.run(occurrence, history.attempt, claim.clone())
        });
        Delivery {
            message,
            history,
            begin_by: None,
            taken_at: None,
            recording: None,
            claim,
            goes_on: false,
            slot: Some(Slot {
                followed: followed.clone(),
                ..self.slot(token)
            }),
            begun: history.followed.then(|| (token, self.begin.clone())),
            followed,
            run,
            result: Bytes::new(),
        }
    }

    /// Hands on a message that another source has delivered. The receipt returned is the duty to settle
    /// it, once its settlement under `token` is in [`SourceEnd::settlements`].
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
        Slot {
            token,
            permit,
            followed: None,
            result: Bytes::new(),
        }
    }

    fn hand_over(&self, delivery: Delivery) {
        let occurrence = delivery.message.occurrence.as_ref();
        let following = self.following.as_ref().zip(occurrence);
        if following.is_some_and(|(following, occurrence)| following.cancels(occurrence)) {
            let failure = Failure::new(Reason::Cancelled, CANCELLED);
            return delivery.settle(Outcome::DeadLetter(Box::new(failure)));
        }
        if self.deliveries.try_send(delivery).is_err() {
            tracing::debug!("the pool has ended; the message is returned");
        }
    }

    /// Counts messages that were worked on and now belong to another.
    pub fn may_run_twice(&self, count: u64) {
        self.state
            .send_modify(|state| state.likely_duplicates += count);
    }

    /// Makes the pool check which messages are void, after claims were dropped.
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
    /// Sets the source's intake.
    pub intake: watch::Sender<Intake>,
    /// State of the source.
    pub state: watch::Receiver<SourceState>,
    /// Figures of the source.
    pub facts: SourceFacts,
}

/// Makes the channels between one source and one pool. The intake starts with no credit.
pub fn link() -> (SourceEnd, PoolEnd) {
    let (deliveries_tx, deliveries) = mpsc::channel(CREDIT_MAX);
    let (settle, settlements) = mpsc::channel(CREDIT_MAX);
    let (begin, begun) = mpsc::channel(CREDIT_MAX);
    let (publishes_tx, publishes) = mpsc::channel(PUBLISHES_WAITING_MAX);
    let (intake_tx, intake) = watch::channel(Intake::Credit(0));
    let (state, state_rx) = watch::channel(SourceState::default());
    let facts = SourceFacts::default();
    (
        SourceEnd {
            deliveries: deliveries_tx,
            settle,
            begin,
            begun,
            settlements,
            publishes,
            intake,
            state,
            facts: facts.clone(),
            following: None,
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
