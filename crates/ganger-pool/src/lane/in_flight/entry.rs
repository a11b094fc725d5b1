//! One message in flight at a worker.

use std::time::Duration;

use tokio::time::Instant;

use crate::lane::blame::Late;
use crate::verdict::Event;
use crate::worker::subject::Subject;
use ganger_config::model::PoolConfig;
use ganger_protocol::output::Output;
use ganger_queue::delivery::{CANCELLED, Delivery, Failure, Reason};

/// Progress of a message through the worker.
#[derive(Debug)]
pub(super) enum MessageState {
    /// Put into the pipe, behind others.
    Piped,
    /// Begun: its time in the worker runs since then, for version 1 since it became the head.
    Begun(Instant),
    /// Answered; confirmations of its emits are missing.
    Answered { begun: Instant, answer: Output },
}

/// Request to the worker about a message that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing.
    Nothing,
    /// To stop: its time has run out.
    Stop,
    /// To give it up for the daemon's sake, while it still had time.
    Yield,
    /// To give it up, after which its time ran out as well.
    YieldThenStop,
}

/// A message in flight at the worker.
#[derive(Debug)]
pub(super) struct Entry {
    /// Number that the worker knows it by.
    pub(super) id: u64,
    pub(super) delivery: Delivery,
    /// Offset of its frame in the stream of bytes to the worker.
    pub(super) starts_at: u64,
    /// Offset of the frame's end.
    pub(super) ends_at: u64,
    /// Time at which it was put into the pipe.
    pub(super) piped_at: Instant,
    pub(super) way: MessageState,
    pub(super) asked: Asked,
    /// Time that the worker may take before it is asked to stop.
    pub(super) soft: Option<Duration>,
    /// True if others were begun in the worker during its time.
    pub(super) had_company: bool,
    /// True if an operator has cancelled it.
    pub(super) cancelled: bool,
    /// Number of emits so far.
    pub(super) emitted: u32,
    /// Number of emits that the broker has not confirmed yet.
    pub(super) unconfirmed: u32,
    /// Error of the first emit that failed.
    pub(super) emit_failure: Option<String>,
}

impl Entry {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.way, MessageState::Answered { .. })
    }

    pub(super) fn begun(&self) -> Option<Instant> {
        match self.way {
            MessageState::Piped => None,
            MessageState::Begun(begun) | MessageState::Answered { begun, .. } => Some(begun),
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        !self.is_open() && self.unconfirmed == 0
    }

    /// Records the worker's part, if the attempt is recorded.
    pub(super) fn note(&mut self, begun: Option<Instant>, answered: Option<Instant>) {
        if let Some(recording) = &mut self.delivery.recording {
            (recording.begun, recording.answered) = (begun, answered);
        }
    }

    /// Returns the message as the subject of what its worker tells.
    pub(super) fn subject(&self) -> Subject<'_> {
        let recording = self.delivery.recording.as_ref();
        Subject {
            message: &self.delivery.message,
            span: recording.map(|noted| noted.worker),
            run: self.delivery.run(),
        }
    }

    pub(super) fn was_told_to_stop(&self) -> bool {
        matches!(self.asked, Asked::Stop | Asked::YieldThenStop)
    }

    pub(super) fn soft_deadline(&self) -> Option<Instant> {
        match self.was_told_to_stop() {
            true => None,
            false => Some(self.begun()? + self.soft?),
        }
    }

    /// Returns the time at which the worker is killed for it: not before `fresh_until`, unless an operator
    /// has cancelled it.
    pub(super) fn hard_deadline(
        &self,
        policy: &PoolConfig,
        fresh_until: Option<Instant>,
    ) -> Option<Instant> {
        let deadline = self.begun()? + self.soft? + policy.timeout_grace;
        let fresh_until = fresh_until.filter(|_| !self.cancelled);
        Some(deadline.max(fresh_until.unwrap_or(deadline)))
    }

    /// Returns the message over which a worker, last heard from at `last_frame`, is late, now that the time
    /// of this message has run out. A message that blocks an event loop lets its neighbours' time run out, so
    /// only a message that was alone in the worker can be charged. If no frame has come since this message
    /// had to stop, any of them may be the cause.
    pub(super) fn late(&self, last_frame: Instant) -> Late {
        let stop_at = self
            .begun()
            .zip(self.soft)
            .map(|(begun, soft)| begun + soft);
        match stop_at {
            _ if !self.had_company => Late::Only(self.id),
            Some(stop_at) if last_frame > stop_at => Late::Among(self.id),
            _ => Late::Any,
        }
    }

    /// Returns the delivery and its event, once it is answered.
    pub(super) fn settled(self) -> Option<Settled> {
        let MessageState::Answered { answer, .. } = self.way else {
            return None;
        };
        let yielded = matches!(self.asked, Asked::Yield | Asked::YieldThenStop);
        let event = match self.emit_failure {
            None if self.cancelled => Event::Cancelled(answer),
            Some(error) if self.cancelled => Event::Failed(cancelled(&error)),
            None if yielded => Event::Yielded(answer),
            None if self.asked == Asked::Stop => Event::TimedOut {
                answer,
                limit: self.soft.unwrap_or_default(),
            },
            None => Event::Answered(answer),
            Some(_) if yielded => Event::Stopped { suspect: false },
            Some(error) => Event::Failed(Failure {
                error,
                ..Failure::default()
            }),
        };
        Some((self.delivery, event))
    }
}

/// A message that the worker has answered, and its event.
pub(crate) type Settled = (Delivery, Event);

/// Returns the failure of a message that an operator has cancelled, with its other error.
pub(crate) fn cancelled(error: &str) -> Failure {
    let error = format!("{}: {error}", CANCELLED);
    Failure::new(Reason::Cancelled, error)
}
