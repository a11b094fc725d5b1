//! The consumers, and how many messages are asked for. Which of those the pool gets, and when, is
//! decided in `intake.rs`.

use std::task::{Context, Poll};

use lapin::message::Delivery;
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::broker::rabbitmq::consumers::{ConsumerNews, Consumers};
use crate::broker::rabbitmq::error::RabbitMqError;
use crate::budget::Share;
use crate::rules::rabbitmq::demand;
use crate::rules::rabbitmq::demand::{Demand, Step};

/// The consumers and what is planned for them.
#[derive(Debug)]
pub(super) struct Inbox {
    consumers: Consumers,
    /// The size of a body, as an average of the recent ones, in bytes.
    body_bytes: usize,
    /// When the consumers change, if the pool has not changed its mind.
    change_at: Option<Instant>,
    /// The pool could use less than its workers usually can when the steady consumer was cancelled.
    is_short: bool,
    /// A consumer is cancelled; what it has been sent is on its way. At the end all are, for good.
    is_cancelled: bool,
    /// At the end: what was not handed out has gone back.
    has_given_back: bool,
    /// The broker has sent all that it may, since the consumers last changed.
    is_full: bool,
}

/// What there is to be planned for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlook {
    /// How many messages the pool can use now,
    pub(super) useful: u16,
    /// and how many more are sent ahead for those that wait to be published.
    pub(super) ahead: u16,
    /// How many its workers use at any pace.
    pub(super) usual: usize,
    /// How many bytes there is room for.
    pub(super) most_bytes: usize,
    /// How many deliveries are not acknowledged.
    pub(super) unacknowledged: usize,
    /// Nothing more is wanted.
    pub(super) closing: bool,
    /// The queue is there, as far as we know.
    pub(super) consumable: bool,
}

/// What follows for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboxStep {
    Nothing,
    /// Consumers are cancelled just now.
    Cancelled,
    /// What those that are cancelled had, and the pool has no use for, may go back.
    Surplus,
}

impl Inbox {
    pub(super) fn new(consumers: Consumers) -> Self {
        Self {
            consumers,
            body_bytes: 0,
            change_at: None,
            is_short: false,
            is_cancelled: false,
            has_given_back: false,
            is_full: false,
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
        self.body_bytes = average(self.body_bytes, bytes);
    }

    /// How many messages the broker sends ahead.
    pub(super) fn prefetch(&self) -> u16 {
        self.consumers.prefetch()
    }

    pub(super) fn queue(&self) -> ShortString {
        self.consumers.queue()
    }

    /// When the consumers may change.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.change_at
    }

    /// Nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.is_cancelled && self.consumers.is_dry()
    }

    /// How many messages the pool could use with this credit, within what there is room for in
    /// memory. What the broker may send ahead takes that already: it comes without being asked for.
    pub(super) fn useful(&self, credit: usize, unacknowledged: usize, share: &Share) -> u16 {
        let ahead = usize::from(self.prefetch()).saturating_sub(unacknowledged);
        share.promise(ahead.saturating_mul(self.body_bytes));
        let wanted = demand::prefetch(credit, self.body_bytes, demand::BYTES_ASKED_MAX);
        let fitting = demand::prefetch(credit, self.body_bytes, share.most());
        if fitting < wanted {
            share.deny();
        }
        share.rest();
        fitting
    }

    /// Asks the broker for as many messages as the pool can use.
    pub(super) fn plan(&mut self, outlook: &Outlook, now: Instant) -> InboxStep {
        let change_at = self.change_at.take();
        if self.consumers.is_changing() {
            return InboxStep::Nothing;
        }
        if self.is_cancelled && (!outlook.closing || self.consumers.is_dry()) {
            return InboxStep::Surplus;
        }
        if outlook.closing {
            return self.cancel(Consumers::cancel_all);
        }
        if !outlook.consumable {
            return InboxStep::Nothing;
        }
        self.is_full |= outlook.unacknowledged >= usize::from(self.prefetch());
        let demand = self.demand(outlook);
        let flow = self.consumers.flow(self.is_full);
        let settled = change_at.is_some_and(|at| at <= now);
        match demand::step(flow, demand, settled) {
            Step::Stay => {}
            Step::Wait(patience) => self.change_at = change_at.or(Some(now + patience)),
            Step::Add(prefetch) => {
                self.is_full = false;
                self.consumers.add(prefetch);
            }
            Step::CancelNewest => {
                self.is_short |= flow.extra == 0;
                return self.cancel(Consumers::cancel_newest);
            }
            Step::CancelAll => return self.cancel(Consumers::cancel_all),
        }
        InboxStep::Nothing
    }

    /// How many messages are to be sent ahead where so many are useful now.
    fn demand(&mut self, outlook: &Outlook) -> Demand {
        let now = match outlook.useful {
            0 => 0,
            now => now.saturating_add(outlook.ahead),
        };
        let usual = demand::prefetch(outlook.usual, self.body_bytes, outlook.most_bytes);
        self.is_short &= 0 < now && now < usual;
        Demand {
            now,
            usual: if self.is_short { now } else { usual },
        }
    }

    fn cancel(&mut self, which: fn(&mut Consumers)) -> InboxStep {
        self.is_cancelled = true;
        self.is_full = false;
        which(&mut self.consumers);
        InboxStep::Cancelled
    }

    /// What the cancelled consumers had goes back. At the end of all they stay cancelled: nothing
    /// more is consumed. Returns whether this is the first time there.
    pub(super) fn gives_back(&mut self, closing: bool) -> bool {
        let first = closing && !self.has_given_back;
        self.has_given_back |= closing;
        self.is_cancelled = closing;
        first
    }
}

/// A moving average that believes a growth at once.
fn average(old: usize, new: usize) -> usize {
    if new >= old {
        new
    } else {
        old - (old - new) / 64
    }
}
