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
mod message;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::trace_context::{Recording, SpanContext};
pub use facts::{DatabaseFigures, Figures, KafkaFigures, SourceFacts};
pub use message::{Headers, Message, Outgoing, Property};

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

    /// Hands the outcome to the source. Never waits and never fails: if the source is gone, so is
    /// its claim on the message, and the broker hands it out again.
    pub fn settle(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        let span = self.recording.as_ref();
        let span = span.filter(|recording| recording.was_given);
        let span = span.map(|recording| recording.task);
        if let Some(Slot { token, permit }) = self.slot.take() {
            drop(permit.send(Settlement {
                token,
                outcome,
                span,
            }));
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.send(Outcome::Return { suspect: false });
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
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The work is done: take it from the queue.
    Done,
    /// The work is done: publish this, and once that is confirmed take it from the queue.
    Reply(Box<Outgoing>),
    /// The worker asked for it to come again. Not charged as an attempt; counted, so that the wait
    /// can grow.
    Requeue {
        /// How long it stays away.
        after: Duration,
    },
    /// Not begun, or stopped by us: back at once as if it had never been handed out.
    Return {
        /// It was in the hands of a worker that died with several messages begun: it runs alone
        /// next time.
        suspect: bool,
    },
    /// Stopped by us, and its worker asked for a rest: back as if it had never been handed out, but
    /// not at once.
    ReturnAfter {
        /// How long it stays away.
        delay: Duration,
    },
    /// The attempt failed and is charged; it comes again.
    RetryAfter {
        /// How long it stays away.
        delay: Duration,
        /// Why it failed.
        failure: Box<Failure>,
    },
    /// The attempt failed and was the last.
    DeadLetter(Box<Failure>),
}

impl Outcome {
    /// Whether a worker's work came to an end by it. What was not begun, or given up, runs once,
    /// wherever it runs in the end.
    pub fn is_of_work(&self) -> bool {
        match self {
            Self::Done
            | Self::Reply(_)
            | Self::Requeue { .. }
            | Self::RetryAfter { .. }
            | Self::DeadLetter(_) => true,
            Self::Return { .. } | Self::ReturnAfter { .. } => false,
        }
    }

    /// The worker did what it was asked to, or asked to do it later.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Done | Self::Reply(_) | Self::Requeue { .. } => true,
            Self::Return { .. }
            | Self::ReturnAfter { .. }
            | Self::RetryAfter { .. }
            | Self::DeadLetter(_) => false,
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    /// The kind of failure, one of a small set, for grouping and labels.
    pub reason: Reason,
    /// What happened, in a sentence.
    pub error: String,
    /// How the worker ended, where it did.
    pub exit: Option<Exit>,
    /// The last lines that the worker wrote to stderr, where it died.
    pub stderr: Vec<String>,
    /// A reply that could not be delivered: the work is done, and this is its result.
    pub reply: Option<Box<Outgoing>>,
}

impl Failure {
    /// A failure of which nothing more is known.
    pub fn new(reason: Reason, error: impl Into<String>) -> Self {
        Self {
            reason,
            error: error.into(),
            ..Self::default()
        }
    }
}

/// The kinds of failure. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The worker answered that it failed.
    #[default]
    Failed,
    /// The worker answered that it never will succeed.
    Rejected,
    /// The worker died.
    Crashed,
    /// The hard timeout passed.
    TimedOut,
    /// The worker was silent for longer than the stall timeout.
    Stalled,
    /// The worker broke the protocol.
    ProtocolError,
    /// The message can't be given to this worker: too large, or binary for a version 1 worker.
    Undeliverable,
    /// The reply has nowhere to go.
    UnroutableReply,
    /// An operator has cancelled it.
    Cancelled,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Failed,
        Self::Rejected,
        Self::Crashed,
        Self::TimedOut,
        Self::Stalled,
        Self::ProtocolError,
        Self::Undeliverable,
        Self::UnroutableReply,
        Self::Cancelled,
    ];

    /// The name that dead letters, logs and metrics show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Crashed => "crashed",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::ProtocolError => "protocol_error",
            Self::Undeliverable => "undeliverable",
            Self::UnroutableReply => "unroutable_reply",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it counts against `crashes_max`: the message took its worker down.
    pub fn is_crash(self) -> bool {
        self == Self::Crashed
    }
}

/// The error of a message that an operator has cancelled.
pub const CANCELLED: &str = "cancelled by an operator";

/// How a process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The signal's number, if one ended it.
    pub signal: Option<i32>,
    /// The kernel killed it for want of memory.
    pub oom: bool,
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
    /// Settlements that came too late: someone else has the message, so it may run twice.
    pub likely_duplicates: u64,
    /// How often claims were lost: each time the pool looks which messages are void.
    pub losses: u64,
    /// How many messages of each part of the queue are not done, where the source knows: Kafka's
    /// partitions, by name.
    pub lag: Vec<(String, u64)>,
    /// How many more messages could be handed out, where the pool's number of workers follows that.
    pub depth: Option<u64>,
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
        self.send(token, message, history, None, None)
    }

    /// Likewise, a message that is void once the claim is dropped; [`SourceEnd::lost`] tells so.
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn deliver_under(&self, claim: &Claim, token: u64, message: Message, history: History) {
        let claim = Arc::downgrade(&claim.0);
        self.send(token, message, history, None, Some(claim))
    }

    /// Likewise, a message that must be in the hands of a worker by then, or be given back.
    ///
    /// # Panics
    /// As [`SourceEnd::deliver`] does.
    pub fn deliver_by(
        &self,
        token: u64,
        message: Message,
        history: History,
        begin_by: Option<Instant>,
    ) {
        self.send(token, message, history, begin_by, None)
    }

    fn send(
        &self,
        token: u64,
        message: Message,
        history: History,
        begin_by: Option<Instant>,
        claim: Option<Weak<()>>,
    ) {
        let permit = self
            .settle
            .clone()
            .try_reserve_owned()
            .expect("the settlement channel has a place for every delivery within the credit");
        let slot = Some(Slot { token, permit });
        let delivery = Delivery {
            message,
            history,
            begin_by,
            taken_at: None,
            recording: None,
            claim,
            slot,
        };
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
