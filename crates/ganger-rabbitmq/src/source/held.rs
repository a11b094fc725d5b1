//! A delivery in our hands: what is known of it, and where it is on its way. Who moves it, and when,
//! is in `deliveries.rs`.

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
    /// What it takes of the daemon's memory.
    #[expect(dead_code, reason = "it is there to be dropped with the body")]
    hold: Hold,
    /// When it came.
    pub(super) since: Instant,
    state: HeldState,
    /// How often it was warned that the broker will not wait much longer.
    warnings: u8,
    /// Whether it is counted among those that the broker hands out again.
    is_counted: bool,
}

/// Where a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldState {
    /// It waits for the pool's credit.
    Ready,
    /// It is a suspect: it waits for its turn, or in it for the pool to have room.
    Waiting,
    /// The pool has it.
    Out,
    /// Something is being published for it, and it is acknowledged after that.
    Publishing,
    /// It is settled, but the broker refuses what there is to publish for it.
    Aside,
    /// It waits for nothing any more, and is about to go back.
    Leaving,
}

/// What is to be done about a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeliveryStep {
    /// Nothing now.
    Rest,
    /// This is to be published, and confirmed before it is acknowledged.
    Publish(Publication),
    /// It is dead: likewise its letter, with these counters. That is to be told.
    Bury(Counters, Box<Failure>),
    /// It goes back to its queue as it is.
    Return,
}

impl Held {
    /// One that has come just now, and waits for the pool's credit.
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

    /// What log records call it.
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

    /// How long it is in our hands.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// It waits for the pool's credit.
    pub(super) fn is_ready(&mut self) {
        self.state = HeldState::Ready;
    }

    /// It waits for its turn.
    pub(super) fn waits(&mut self) {
        self.state = HeldState::Waiting;
    }

    /// The pool has it.
    pub(super) fn goes_out(&mut self) {
        self.state = HeldState::Out;
    }

    /// This is published for it.
    pub(super) fn publish(&mut self, aim: Publication) -> DeliveryStep {
        self.state = HeldState::Publishing;
        DeliveryStep::Publish(aim)
    }

    /// It becomes a dead letter.
    pub(super) fn bury(&mut self, counters: Counters, failure: Failure) -> DeliveryStep {
        self.state = HeldState::Publishing;
        DeliveryStep::Bury(counters, Box::new(failure))
    }

    /// Nothing can be published for it although it is settled.
    pub(super) fn put_aside(&mut self) {
        self.state = HeldState::Aside;
    }

    /// It waits for nothing any more.
    pub(super) fn leave(&mut self) {
        self.state = HeldState::Leaving;
    }

    /// It goes back to its queue as it is, whatever the broker makes of it.
    pub(super) fn go(&mut self) -> DeliveryStep {
        self.leave();
        DeliveryStep::Return
    }

    /// It goes back to its queue, as a copy where the broker would count that once too often.
    pub(super) fn go_back(&mut self) -> DeliveryStep {
        if rules::returns_as_copy(self.arrival) {
            self.publish(Publication::Back)
        } else {
            self.go()
        }
    }

    /// Whether someone is to be warned of its age, which has come to one limit or to the `late` one.
    pub(super) fn is_to_be_warned_of(&mut self, late: bool) -> bool {
        let due = 1 + u8::from(late);
        let is_new = self.warnings < due;
        self.warnings = self.warnings.max(due);
        is_new
    }

    /// Whether it was not counted yet among those that the broker hands out again.
    pub(super) fn is_to_be_counted(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }
}
