//! Cause of a worker's end, and which of its messages is to blame for it. Pure.

use std::time::Duration;

use ganger_protocol::output::Output;
use ganger_queue::delivery::{Exit, Reason};

/// Maximum number of messages that a worker may take at once, whatever its HELLO says.
const CONCURRENCY_MAX: usize = 1024;

/// Protocol version that the worker speaks. Unknown until its first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// No frame yet. It may be given one message.
    Unknown,
    /// One message at a time, answers in order.
    One,
    /// Up to `concurrency` messages at once, answers in any order.
    Two {
        /// Value from its HELLO.
        concurrency: usize,
    },
}

impl Version {
    /// Returns the version of a worker whose first frame is `output`.
    pub(super) fn of_first_frame(output: &Output) -> Self {
        match output.concurrency() {
            None => Self::One,
            Some(concurrency) => Self::Two {
                concurrency: concurrency.clamp(1, CONCURRENCY_MAX),
            },
        }
    }
}

/// Messages over which a worker was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// That message, which was alone in the worker: it is charged.
    Only(u64),
    /// That message, while the worker continued with others: it runs alone next.
    Among(u64),
    /// Any message that the worker had begun, since it was silent: each of them runs alone next.
    Any,
}

/// Cause of the end of a worker's time with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// It exited by itself, or another process killed it.
    Died,
    /// It was stopped by the daemon, for a reason unrelated to its messages.
    Stopped,
    /// It was killed because a message's time limit expired.
    TimedOut(Late),
    /// It was killed over a message that an operator has cancelled.
    Cancelled(u64),
    /// It was killed because it was silent.
    Stalled(Late),
    /// It was made to exit because it closed its pipe and kept running.
    PipeClosed,
    /// It was killed because it broke the protocol.
    ProtocolError(String),
}

impl Cause {
    /// Returns the failure reason of an attempt that failed for this cause.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Died | Self::Stopped => Reason::Crashed,
            Self::TimedOut(_) => Reason::TimedOut,
            Self::Cancelled(_) => Reason::Cancelled,
            Self::Stalled(_) => Reason::Stalled,
            Self::PipeClosed | Self::ProtocolError(_) => Reason::ProtocolError,
        }
    }

    /// Describes the cause in words, for the worker.
    pub(super) fn describe(&self, exit: Exit) -> String {
        match self {
            Self::Died => format!("the worker ended: {exit}"),
            Self::Stopped => format!("the worker was stopped: {exit}"),
            Self::TimedOut(_) => "timed out: the worker was killed".into(),
            Self::Cancelled(_) => {
                "the worker did not give up a message that an operator cancelled, and was killed"
                    .into()
            }
            Self::Stalled(_) => {
                "stalled: the worker was silent for too long, and was killed".into()
            }
            Self::PipeClosed => {
                "protocol error: the worker closed its pipe and is still running".into()
            }
            Self::ProtocolError(error) => format!("protocol error: {error}"),
        }
    }

    /// Describes the cause in words, for a message with the time limit `soft` and the grace
    /// `grace`.
    pub(super) fn error(&self, exit: Exit, soft: Option<Duration>, grace: Duration) -> String {
        let Self::TimedOut(_) = self else {
            return self.describe(exit);
        };
        let soft = soft.unwrap_or_default();
        format!("timed out: no answer within {soft:?} and {grace:?} of grace")
    }
}

/// Consequence of a worker's end for one of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The attempt failed, for the reason that the worker ended for.
    Charged,
    /// Returned unharmed.
    Returned,
    /// Returned uncharged, to run alone: it is one of several that were begun together.
    Suspect,
}

impl Blame {
    /// Excuses a message in a rolling restart: the death of a new worker that has shown nothing yet
    /// is its build's own fault, unless the message has killed others before.
    #[must_use]
    pub(super) fn on_trial(self, on_trial: bool, cause: &Cause, crashes: u32) -> Self {
        let excused = on_trial && *cause == Cause::Died && crashes == 0;
        if excused { Self::Returned } else { self }
    }
}

/// Evidence of how far a worker has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// Number of bytes handed to the kernel for it.
    pub(super) sent: u64,
    /// True if it ended with some of them unread.
    pub(super) left_unread: bool,
    /// True if it exited with code 0, as a worker does that exits between two messages.
    pub(super) left_well: bool,
}

impl Read {
    /// Returns whether a message is begun: a byte of its frame has left. A worker that dies over
    /// the sheer size of a message has died over it.
    pub(super) fn has_begun(self, starts_at: u64) -> bool {
        self.sent > starts_at
    }
}

/// State of a message among the others of its worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldState {
    /// True if it is the first message without an answer.
    pub(super) head: bool,
    pub(super) begun: bool,
    /// True if the worker died with bytes unread, possibly those of this message.
    pub(super) left_unread: bool,
    /// True if the worker exited with code 0.
    pub(super) left_well: bool,
    /// True if it ran with no other message in the worker.
    pub(super) alone: bool,
    pub(super) begun_in_all: usize,
}

/// Decides the consequence of the worker's end for message `id`.
pub(super) fn blame(cause: &Cause, version: Version, id: u64, place: HeldState) -> Blame {
    match cause {
        Cause::Stopped => Blame::Returned,
        // During an autopsy this message may have been answered, and others begun.
        Cause::Cancelled(blamed)
        | Cause::TimedOut(Late::Only(blamed))
        | Cause::Stalled(Late::Only(blamed))
            if *blamed == id =>
        {
            Blame::Charged
        }
        Cause::TimedOut(Late::Among(late)) | Cause::Stalled(Late::Among(late)) if *late == id => {
            Blame::Suspect
        }
        Cause::Died
        | Cause::PipeClosed
        | Cause::TimedOut(Late::Any)
        | Cause::Stalled(Late::Any)
        | Cause::ProtocolError(_) => of_the_begun(cause, version, place),
        Cause::Cancelled(_) | Cause::TimedOut(_) | Cause::Stalled(_) => Blame::Returned,
    }
}

/// Decides for a worker that ended over an unknown one of the begun messages.
fn of_the_begun(cause: &Cause, version: Version, place: HeldState) -> Blame {
    match version {
        _ if !place.begun => Blame::Returned,
        Version::Two { .. } if place.begun_in_all > 1 => Blame::Suspect,
        Version::One | Version::Unknown if !place.head => Blame::Returned,
        // The others may have been answered since.
        _ if matches!(cause, Cause::TimedOut(_) | Cause::Stalled(_)) => Blame::Suspect,
        // A message not read in full was not begun.
        _ if place.left_well && place.left_unread => Blame::Returned,
        // The worker may have read ahead and exited between two messages. Running alone shows which.
        _ if place.left_well && place.begun_in_all > 1 => Blame::Suspect,
        _ if place.left_unread && !place.alone => Blame::Suspect,
        _ => Blame::Charged,
    }
}

#[cfg(test)]
mod tests;
