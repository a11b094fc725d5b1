//! The consumers, and the number of messages requested. `inbox/plan.rs` decides their changes; `session.rs`
//! decides which messages the pool gets, and when.

mod plan;

use std::task::{Context, Poll};

use lapin::message::Delivery;
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::broker::consumers::{ConsumerNews, Consumers};
use crate::broker::error::RabbitMqError;
use crate::rules::demand;
use ganger_config::model::PoolConfig;
use ganger_core::budget::Share;
use plan::{ConsumersState, InboxPlan, Outlook, PlanStep};

/// The consumers and the plan for them.
#[derive(Debug)]
pub(super) struct Inbox {
    consumers: Consumers,
    plan: InboxPlan,
}

/// Consequence for other parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboxStep {
    Nothing,
    /// Consumers are being cancelled.
    Cancelled,
    /// Messages of the cancelled consumers that the pool can't use may be given back.
    Surplus,
}

/// State of the other parts, by which the consumers change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// Number of messages that the pool may have.
    pub(super) credit: usize,
    /// Additional number sent ahead, for messages that wait for their publications.
    pub(super) ahead: u16,
    /// Number of unacknowledged deliveries.
    pub(super) unacknowledged: usize,
    /// True if no more messages are wanted.
    pub(super) closing: bool,
    /// True if the queue exists, as far as known.
    pub(super) consumable: bool,
}

impl Inbox {
    pub(super) fn new(consumers: Consumers) -> Self {
        Self {
            consumers,
            plan: InboxPlan::default(),
        }
    }

    /// Reads at most `most` messages.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<Result<ConsumerNews, RabbitMqError>> {
        self.consumers.poll_read(cx, most, read)
    }

    /// Records the arrival of a message with a body of this size.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.plan.weigh(bytes);
    }

    /// Number of messages that the broker sends ahead.
    pub(super) fn prefetch(&self) -> u16 {
        self.consumers.prefetch()
    }

    /// Sets whether the queue is lost with its last consumer: then one stays, whatever the pool can use.
    pub(super) fn keep_one(&mut self, is_needed: bool) {
        self.consumers.stay(is_needed);
    }

    pub(super) fn queue(&self) -> ShortString {
        self.consumers.queue()
    }

    /// Time at which the consumers may change.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.plan.deadline()
    }

    /// Returns whether no more messages arrive.
    pub(super) fn has_ended(&self) -> bool {
        self.plan.is_cancelled() && self.consumers.is_dry()
    }

    /// Number of messages that the pool could use with this credit, within the room in memory. Those that the
    /// broker may send ahead take up that room already: they arrive without a request.
    fn useful(&self, credit: usize, unacknowledged: usize, share: &Share) -> u16 {
        let ahead = usize::from(self.prefetch()).saturating_sub(unacknowledged);
        let body_bytes = self.plan.body_bytes();
        share.promise(ahead.saturating_mul(body_bytes));
        let wanted = demand::prefetch(credit, body_bytes, demand::BYTES_ASKED_MAX);
        let fitting = demand::prefetch(credit, body_bytes, share.most());
        if fitting < wanted {
            share.deny();
        }
        share.rest();
        fitting
    }

    /// Requests as many messages from the broker as the pool can use by its newest rules: the credit may be
    /// by them already.
    pub(super) fn plan(
        &mut self,
        needs: Needs,
        pool: &PoolConfig,
        share: &Share,
        now: Instant,
    ) -> InboxStep {
        let flow = self.consumers.flow(false);
        // The only consumer that is fed can't grow with the workers. No other consumer could have had the
        // messages that it is sent too early.
        let workers = match flow.single {
            true => pool.workers.max(),
            false => pool.workers.min(),
        };
        let outlook = Outlook {
            useful: self.useful(needs.credit, needs.unacknowledged, share),
            ahead: needs.ahead,
            usual: demand::usual(workers, pool.prefetch),
            most_bytes: share.most(),
            unacknowledged: needs.unacknowledged,
            closing: needs.closing,
            consumable: needs.consumable,
        };
        let consumers = ConsumersState {
            is_changing: self.consumers.is_changing(),
            is_dry: self.consumers.is_dry(),
            flow,
        };
        match self.plan.step(&outlook, consumers, now) {
            PlanStep::Stay => InboxStep::Nothing,
            PlanStep::Surplus => InboxStep::Surplus,
            PlanStep::Outgrown => {
                self.warn_of_small_consumer(&pool.name, outlook.useful);
                InboxStep::Nothing
            }
            PlanStep::Add(prefetch) => {
                self.consumers.add(prefetch);
                InboxStep::Nothing
            }
            PlanStep::CancelNewest => {
                self.consumers.cancel_newest();
                InboxStep::Cancelled
            }
            PlanStep::CancelAll => {
                self.consumers.cancel_all();
                InboxStep::Cancelled
            }
        }
    }

    fn warn_of_small_consumer(&self, pool: &str, useful: u16) {
        tracing::warn!(
            pool,
            queue = %self.queue(),
            prefetch = self.prefetch(),
            useful,
            "the prefetch of the queue's single active consumer is too low for the workers, and \
             changing it would hand the queue to another daemon: pause and resume the pool, which \
             does that too, or set `workers` or `prefetch` that high from the start"
        );
    }

    /// Records that the messages of cancelled consumers are given back. Returns whether this is the first
    /// time during the shutdown.
    pub(super) fn gives_back(&mut self, closing: bool) -> bool {
        self.plan.gives_back(closing)
    }
}
