//! A delivery in our hands: its data and its state. The transitions are in `deliveries.rs`.

use std::time::Duration;

use bytes::Bytes;
use lapin::types::ShortString;
use tokio::time::Instant;

use super::publication::Publication;
use crate::broker::republish::Original;
use crate::rules;
use crate::rules::Arrival;
use ganger_core::budget::Hold;
use ganger_queue::dead_letter::Counters;
use ganger_queue::delivery::{Failure, LogName};

/// A delivery in our hands.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) original: Original,
    pub(super) arrival: Arrival,
    pub(super) body: Bytes,
    /// Memory of the daemon that it takes.
    #[expect(dead_code, reason = "it is there to be dropped with the body")]
    hold: Hold,
    /// Time at which it came.
    pub(super) since: Instant,
    state: HeldState,
    /// Number of warnings that the broker's timeout is close.
    warnings: u8,
    /// Counted among those that the broker delivers again.
    is_counted: bool,
}

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldState {
    /// Waiting for the pool's credit.
    Ready,
    /// A suspect, waiting for its turn, or in its turn for the pool to have room.
    Waiting,
    /// Held by the pool.
    Out,
    /// Being published for, to be acknowledged after that.
    Publishing,
    /// Settled, but the broker refuses the publication for it.
    Aside,
    /// Waiting for nothing any more, and about to go back.
    Leaving,
}

/// Next step of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeliveryStep {
    /// Nothing now.
    Rest,
    /// Publish this, and wait for its confirm before the acknowledgement.
    Publish(Publication),
    /// Publish its dead letter likewise, with these counters, and report it.
    Bury(Counters, Box<Failure>),
    /// Return the delivery to its queue as it is.
    Return,
}

impl Held {
    /// Creates a delivery that has just come, and waits for the pool's credit.
    pub(super) fn new(
        original: Original,
        arrival: Arrival,
        body: Bytes,
        hold: Hold,
        since: Instant,
    ) -> Self {
        Self {
            original,
            arrival,
            body,
            hold,
            since,
            state: HeldState::Ready,
            warnings: 0,
            is_counted: false,
        }
    }

    pub(super) fn state(&self) -> HeldState {
        self.state
    }

    /// Name for log records.
    pub(super) fn log_name(&self) -> LogName {
        let properties = &self.original.properties;
        let text = |text: &Option<ShortString>| {
            let text = text.as_ref().map(ToString::to_string);
            text.unwrap_or_default()
        };
        LogName::or(&text(properties.correlation_id()), || {
            text(properties.message_id())
        })
    }

    /// Time that it has been in our hands.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Marks it as waiting for the pool's credit.
    pub(super) fn is_ready(&mut self) {
        self.state = HeldState::Ready;
    }

    /// Marks it as waiting for its turn.
    pub(super) fn waits(&mut self) {
        self.state = HeldState::Waiting;
    }

    /// Marks it as held by the pool.
    pub(super) fn goes_out(&mut self) {
        self.state = HeldState::Out;
    }

    /// Publishes for it.
    pub(super) fn publish(&mut self, aim: Publication) -> DeliveryStep {
        self.state = HeldState::Publishing;
        DeliveryStep::Publish(aim)
    }

    /// Makes it a dead letter.
    pub(super) fn bury(&mut self, counters: Counters, failure: Failure) -> DeliveryStep {
        self.state = HeldState::Publishing;
        DeliveryStep::Bury(counters, Box::new(failure))
    }

    /// Marks it as settled although nothing can be published for it.
    pub(super) fn put_aside(&mut self) {
        self.state = HeldState::Aside;
    }

    /// Marks it as waiting for nothing any more.
    pub(super) fn leave(&mut self) {
        self.state = HeldState::Leaving;
    }

    /// Returns it to its queue as it is, whatever the broker makes of that.
    pub(super) fn go(&mut self) -> DeliveryStep {
        self.leave();
        DeliveryStep::Return
    }

    /// Returns it to its queue, as a copy if the broker would count that once too often.
    pub(super) fn go_back(&mut self) -> DeliveryStep {
        if rules::returns_as_copy(self.arrival) {
            self.publish(Publication::Back)
        } else {
            self.go()
        }
    }

    /// Returns whether a warning of its age is due, which has reached one limit or the `late` one.
    pub(super) fn is_to_be_warned_of(&mut self, late: bool) -> bool {
        let due = 1 + u8::from(late);
        let is_new = self.warnings < due;
        self.warnings = self.warnings.max(due);
        is_new
    }

    /// Returns whether it is not counted yet among those that the broker delivers again, and counts it.
    pub(super) fn is_to_be_counted(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }
}
