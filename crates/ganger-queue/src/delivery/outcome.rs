//! What becomes of a message, and why an attempt failed.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use ganger_core::message::Outgoing;

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

    /// The worker did what it was asked to: it is not to be done again.
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

    /// The failure, if the attempt failed.
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

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.oom, self.code, self.signal) {
            (true, _, _) => f.write_str("killed by the kernel for want of memory"),
            (_, Some(code), _) => write!(f, "exited with code {code}"),
            (_, _, Some(signal)) => write!(f, "killed by signal {}", SignalName(signal)),
            (_, None, None) => f.write_str("ended in a way that could not be learnt"),
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
                "killed by the kernel for want of memory",
            ),
            (Exit::default(), "ended in a way that could not be learnt"),
        ];
        for (exit, text) in cases {
            assert_eq!(exit.to_string(), text);
        }
    }
}
