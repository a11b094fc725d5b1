//! Outcome of a message, and the reason that an attempt failed.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use ganger_core::message::Outgoing;
use ganger_schedule::occurrence::OccurrenceState;

/// Outcome of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The work is done: acknowledge the message.
    Done,
    /// The work is done: publish this, and once that is confirmed acknowledge the message.
    Reply(Box<Outgoing>),
    /// The worker asked for it to come again. Not charged as an attempt; counted, so that the delay can
    /// grow.
    Requeue {
        /// Delay before it comes again.
        after: Duration,
    },
    /// Not begun, or stopped by us: goes back at once as if it had never been handed out.
    Return {
        /// It was in the hands of a worker that died with several messages begun: next time it runs
        /// alone.
        suspect: bool,
    },
    /// Stopped by us, and its worker asked for a pause: goes back as if it had never been handed out, but
    /// after a delay.
    ReturnAfter {
        /// Delay before it comes again.
        delay: Duration,
    },
    /// The attempt failed and is charged; the message is redelivered.
    RetryAfter {
        /// Delay before it is redelivered.
        delay: Duration,
        /// Reason of the failure.
        failure: Box<Failure>,
    },
    /// The attempt failed and was the last.
    DeadLetter(Box<Failure>),
}

impl Outcome {
    /// Returns whether it ended a worker's work. A message that was not begun, or was given back, runs
    /// once, wherever it runs in the end.
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

    /// Returns whether the worker did what it was asked to, so that it is not to be done again.
    pub fn is_finish(&self) -> bool {
        match self {
            Self::Done | Self::Reply(_) => true,
            Self::Requeue { .. }
            | Self::Return { .. }
            | Self::ReturnAfter { .. }
            | Self::RetryAfter { .. }
            | Self::DeadLetter(_) => false,
        }
    }

    /// Returns the failure, if the attempt failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::RetryAfter { failure, .. } | Self::DeadLetter(failure) => Some(failure),
            Self::Done
            | Self::Reply(_)
            | Self::Requeue { .. }
            | Self::Return { .. }
            | Self::ReturnAfter { .. } => None,
        }
    }

    /// Returns the state in which it ends the occurrence of a message of that queue, if it does. A reply to the
    /// queue is the next step of a long task.
    pub fn end(&self, queue: &str) -> Option<OccurrenceState> {
        match self {
            Self::Reply(reply) if reply.queue == queue => None,
            Self::Done | Self::Reply(_) => Some(OccurrenceState::Completed),
            Self::DeadLetter(failure) => Some(failure.reason.end()),
            Self::Requeue { .. }
            | Self::Return { .. }
            | Self::ReturnAfter { .. }
            | Self::RetryAfter { .. } => None,
        }
    }

    /// Returns whether the worker did what it was asked to, or asked to do it later.
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

/// Reason that an attempt failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    /// The kind of failure, one of a small set, for grouping and labels.
    pub reason: Reason,
    /// Description of the failure, in a sentence.
    pub error: String,
    /// Exit of the worker, if it ended.
    pub exit: Option<Exit>,
    /// The last lines that the worker wrote to stderr, if it died.
    pub stderr: Vec<String>,
    /// A reply that could not be delivered: the work is done, and this is its result.
    pub reply: Option<Box<Outgoing>>,
}

impl Failure {
    /// Makes a failure without further details.
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
    /// The worker answered that it will never succeed.
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
    /// The reply has no destination.
    UnroutableReply,
    /// An operator cancelled it.
    Cancelled,
}

impl Reason {
    /// All reasons, in the order of their numbers.
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

    /// Returns the name in dead letters, logs and metrics.
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

    /// Returns the state in which an occurrence ends whose message is a dead letter for it.
    pub fn end(self) -> OccurrenceState {
        match self {
            Self::Cancelled => OccurrenceState::Cancelled,
            Self::TimedOut => OccurrenceState::TimedOut,
            Self::Failed
            | Self::Rejected
            | Self::Crashed
            | Self::Stalled
            | Self::ProtocolError
            | Self::Undeliverable
            | Self::UnroutableReply => OccurrenceState::Failed,
        }
    }

    /// Returns whether it counts against `crashes_max`: the message took its worker down.
    pub fn is_crash(self) -> bool {
        self == Self::Crashed
    }
}

/// Error of a message that an operator cancelled.
pub const CANCELLED: &str = "cancelled on request";

/// Exit of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The signal's number, if one ended it.
    pub signal: Option<i32>,
    /// The kernel killed it for lack of memory.
    pub oom: bool,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.oom, self.code, self.signal) {
            (true, _, _) => f.write_str("killed by the kernel: out of memory"),
            (_, Some(code), _) => write!(f, "exited with code {code}"),
            (_, _, Some(signal)) => write!(f, "killed by signal {}", SignalName(signal)),
            (_, None, None) => f.write_str("ended with an unknown exit status"),
        }
    }
}

/// A signal's number, with its name where it has one.
struct SignalName(i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Signal::try_from(self.0) {
            Ok(signal) => write!(f, "{} ({signal})", self.0),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_says_what_happened() {
        let exit = |code, signal, oom| Exit { code, signal, oom };
        let cases = [
            (exit(Some(3), None, false), "exited with code 3"),
            (exit(None, Some(9), false), "killed by signal 9 (SIGKILL)"),
            (exit(None, Some(11), false), "killed by signal 11 (SIGSEGV)"),
            (exit(None, Some(40), false), "killed by signal 40"),
            (
                exit(None, Some(9), true),
                "killed by the kernel: out of memory",
            ),
            (Exit::default(), "ended with an unknown exit status"),
        ];
        for (exit, text) in cases {
            assert_eq!(exit.to_string(), text);
        }
    }
}
