//! The consumers, and how many messages are asked for. What is to be done about them is decided in
//! `inbox/plan.rs`; which messages the pool gets, and when, in `intake.rs`.

mod plan;

use std::task::{Context, Poll};

use lapin::message::Delivery;
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::broker::consumers::{ConsumerNews, Consumers};
use crate::broker::error::RabbitMqError;
use crate::rules::demand;
use ganger_core::budget::Share;
use plan::{InboxPlan, PlanStep, TapsState};

pub(super) use plan::Outlook;

/// The consumers and what is planned for them.
#[derive(Debug)]
pub(super) struct Inbox {
    consumers: Consumers,
    plan: InboxPlan,
}

/// What follows for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboxStep {
    Nothing,
    /// Consumers are cancelled just now.
    Cancelled,
    /// What those that are cancelled had, and the pool has no use for, may go back.
    Surplus,
    /// The one consumer that the queue feeds is too small, and stays.
    Outgrown,
}

impl Inbox {
    pub(super) fn new(consumers: Consumers) -> Self {
        Self {
            consumers,
            plan: InboxPlan::default(),
        }
    }

    /// Reads so many messages at most.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        read: &mut Vec<Delivery>,
    ) -> Poll<Result<ConsumerNews, RabbitMqError>> {
        self.consumers.poll_read(cx, most, read)
    }

    /// A message with a body of so many bytes has come.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.plan.weigh(bytes);
    }

    /// How many messages the broker sends ahead.
    pub(super) fn prefetch(&self) -> u16 {
        self.consumers.prefetch()
    }

    /// Whether the queue is said to feed one consumer only.
    pub(super) fn is_single(&self) -> bool {
        self.consumers.flow(false).single
    }

    /// Whether the queue is lost with its last consumer: then one stays, whatever the pool can use.
    pub(super) fn keep_one(&mut self, is_needed: bool) {
        self.consumers.stay(is_needed);
    }

    pub(super) fn queue(&self) -> ShortString {
        self.consumers.queue()
    }

    /// When the consumers may change.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.plan.deadline()
    }

    /// Nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.plan.is_cancelled() && self.consumers.is_dry()
    }

    /// How many messages the pool could use with this credit, within what there is room for in
    /// memory. What the broker may send ahead takes that already: it comes without being asked for.
    pub(super) fn useful(&self, credit: usize, unacknowledged: usize, share: &Share) -> u16 {
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

    /// Asks the broker for as many messages as the pool can use.
    pub(super) fn plan(&mut self, outlook: &Outlook, now: Instant) -> InboxStep {
        let taps = TapsState {
            is_changing: self.consumers.is_changing(),
            is_dry: self.consumers.is_dry(),
            flow: self.consumers.flow(false),
        };
        match self.plan.step(outlook, taps, now) {
            PlanStep::Stay => InboxStep::Nothing,
            PlanStep::Surplus => InboxStep::Surplus,
            PlanStep::Outgrown => InboxStep::Outgrown,
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

    /// What the cancelled consumers had goes back. Returns whether this is the first time at the end
    /// of all.
    pub(super) fn gives_back(&mut self, closing: bool) -> bool {
        self.plan.gives_back(closing)
    }
}
