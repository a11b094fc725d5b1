//! Why a worker's time is over, and which of its messages is to blame for that. Pure.

use std::time::Duration;

use ganger_protocol::output::Output;
use ganger_queue::delivery::{Exit, Reason};

/// The most messages that a worker may take at once, whatever its HELLO says.
const CONCURRENCY_MAX: usize = 1024;

/// What the worker speaks. Unknown until its first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// No frame yet. It may be given one message.
    Unknown,
    /// One message at a time, answers in order.
    One,
    /// So many messages at once, answers in any order.
    Two {
        /// As its HELLO says.
        concurrency: usize,
    },
}

impl Version {
    /// What a worker speaks that sends this first.
    pub(super) fn said_by(output: &Output) -> Self {
        match output.concurrency() {
            None => Self::One,
            Some(concurrency) => Self::Two {
                concurrency: concurrency.clamp(1, CONCURRENCY_MAX),
            },
        }
    }
}

/// Over which of its messages a worker was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// That one, which had the worker to itself: it is charged.
    Only(u64),
    /// That one, beside others with which the worker went on meanwhile: it runs alone next.
    Among(u64),
    /// Any of those that the worker had begun, for it was silent: each of them runs alone next.
    Any,
}

/// Why a worker's time with its messages is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// It ended by itself, or someone else killed it.
    Died,
    /// It was stopped by us, for a reason that has nothing to do with its messages.
    Stopped,
    /// It was killed because a message's time was over.
    TimedOut(Late),
    /// It was killed over one message that an operator has cancelled.
    Cancelled(u64),
    /// It was killed because it was silent.
    Stalled(Late),
    /// It was made to leave because it closed its pipe and lived on.
    PipeClosed,
    /// It was killed because it broke the protocol.
    ProtocolError(String),
}

impl Cause {
    /// What an attempt that failed for it is said to have failed for.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Died | Self::Stopped => Reason::Crashed,
            Self::TimedOut(_) => Reason::TimedOut,
            Self::Cancelled(_) => Reason::Cancelled,
            Self::Stalled(_) => Reason::Stalled,
            Self::PipeClosed | Self::ProtocolError(_) => Reason::ProtocolError,
        }
    }

    /// The same in words, for the worker.
    pub(super) fn describe(&self, exit: Exit) -> String {
        match self {
            Self::Died => format!("the worker ended: {exit}"),
            Self::Stopped => format!("the worker was stopped: {exit}"),
            Self::TimedOut(_) => "timed out: the worker was killed".into(),
            Self::Cancelled(_) => {
                "a message was cancelled by an operator and not given up: the worker was killed"
                    .into()
            }
            Self::Stalled(_) => "stalled: the worker was silent for too long and was killed".into(),
            Self::PipeClosed => "protocol error: the worker closed its pipe and lives on".into(),
            Self::ProtocolError(error) => format!("protocol error: {error}"),
        }
    }

    /// The same in words, for a message that was given so much time and so much grace.
    pub(super) fn error(&self, exit: Exit, soft: Option<Duration>, grace: Duration) -> String {
        let Self::TimedOut(_) = self else {
            return self.describe(exit);
        };
        let soft = soft.unwrap_or_default();
        format!("timed out: no answer within {soft:?} and {grace:?} of grace")
    }
}

/// What a worker's end means for one of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The attempt failed, for the reason that the worker ended for.
    Charged,
    /// Back unharmed.
    Returned,
    /// Back uncharged, to run alone: it is one of several that were begun together.
    Suspect,
}

impl Blame {
    /// In a rolling restart the death of a new worker that has shown nothing yet is its build's own
    /// fault, unless the message has killed others before.
    #[must_use]
    pub(super) fn on_trial(self, on_trial: bool, cause: &Cause, crashes: u32) -> Self {
        let excused = on_trial && *cause == Cause::Died && crashes == 0;
        if excused { Self::Returned } else { self }
    }
}

/// What is known of how far a worker has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// Bytes that were handed to the kernel for it.
    pub(super) sent: u64,
    /// It ended with some of them unread.
    pub(super) left_unread: bool,
    /// It exited with code 0, as one does that leaves between two messages.
    pub(super) left_well: bool,
}

impl Read {
    /// A message is begun once a byte of its frame has left: a worker that dies over the sheer size
    /// of a message has died over it.
    pub(super) fn has_begun(self, starts_at: u64) -> bool {
        self.sent > starts_at
    }
}

/// Where a message stands among the others of its worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldState {
    /// It is the first without an answer.
    pub(super) head: bool,
    pub(super) begun: bool,
    /// The worker died with something unread, which may have been this.
    pub(super) left_unread: bool,
    /// It exited with code 0.
    pub(super) left_well: bool,
    /// It ran with nothing else in the worker.
    pub(super) alone: bool,
    pub(super) begun_in_all: usize,
}

/// What the worker's end means for the message with that number.
pub(super) fn blame(cause: &Cause, version: Version, id: u64, place: HeldState) -> Blame {
    match cause {
        Cause::Stopped => Blame::Returned,
        // That one may be answered since, and others be begun, as long as the worker is looked at.
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

/// Likewise where it is not known over which of them the worker has ended.
fn of_the_begun(cause: &Cause, version: Version, place: HeldState) -> Blame {
    match version {
        _ if !place.begun => Blame::Returned,
        Version::Two { .. } if place.begun_in_all > 1 => Blame::Suspect,
        Version::One | Version::Unknown if !place.head => Blame::Returned,
        // The others may have been answered since.
        _ if matches!(cause, Cause::TimedOut(_) | Cause::Stalled(_)) => Blame::Suspect,
        // What it had not read whole it had not begun.
        _ if place.left_well && place.left_unread => Blame::Returned,
        // It may have read ahead and left between two messages. Running alone tells.
        _ if place.left_well && place.begun_in_all > 1 => Blame::Suspect,
        _ if place.left_unread && !place.alone => Blame::Suspect,
        _ => Blame::Charged,
    }
}

#[cfg(test)]
mod tests;
