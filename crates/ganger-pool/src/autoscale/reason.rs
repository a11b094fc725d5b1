//! Reasons for a pool's number of workers: a closed set, with a word and a sentence for each.

use std::fmt;
use std::time::Duration;

/// Reason for which a pool keeps its number for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The workers fail one after another.
    Degraded,
    /// A dependency of the workers seems to be down.
    BreakerOpen,
    /// The pool was ordered to stop its intake.
    Paused,
    /// The source can't be used.
    SourceDown,
    /// The workers are being replaced.
    Rolling,
}

/// Reason for a pool's number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Nothing was measured yet.
    Started,
    /// The number was set by hand.
    Pinned,
    /// The limits of the range.
    Bounds,
    /// The number must not change now.
    Held(Held),
    /// Number of added workers that have yet to connect.
    Coming(usize),
    /// The last change is too recent.
    CoolingDown,
    /// Messages wait, each of which takes some time.
    Backlog {
        /// Number of waiting messages.
        waiting: u64,
        /// Time that a message takes a worker, in seconds.
        seconds_each: f64,
    },
    /// Time that messages have waited.
    Waited(Duration),
    /// Messages wait although workers are idle: for another message, such as one of the same key.
    IdleWorkers(usize),
    /// More workers than the maximum would be needed.
    AtMax,
    /// More workers would be needed, but the machine has no memory for them.
    Memory,
    /// More workers would be needed, but the machine's processors are busy.
    Cpu,
    /// Fewer workers were enough for long.
    Spare(usize),
    /// There is nothing to do, and the range begins with none.
    Nothing,
    /// The first message has come since there was nothing to do.
    Woken,
    /// The number is enough, and a lower one might not be.
    Enough,
}

impl Reason {
    /// Returns whether both are the same except for their figures.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns the word for the reason, one of a small set.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Pinned => "pinned",
            Self::Bounds => "bounds",
            Self::Held(_) => "held",
            Self::Coming(_) => "coming",
            Self::CoolingDown => "cooling_down",
            Self::Backlog { .. } => "backlog",
            Self::Waited(_) => "waited",
            Self::IdleWorkers(_) => "idle_workers",
            Self::AtMax => "at_max",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Spare(_) => "spare",
            Self::Nothing => "nothing",
            Self::Woken => "woken",
            Self::Enough => "enough",
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Degraded => "its workers keep failing",
            Self::BreakerOpen => "its breaker is open",
            Self::Paused => "it is paused",
            Self::SourceDown => "its source is down",
            Self::Rolling => "its workers are being replaced",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("it has just started"),
            Self::Pinned => f.write_str("set by hand"),
            Self::Bounds => f.write_str("min and max allow no other number"),
            Self::Held(why) => why.fmt(f),
            Self::Coming(workers) => write!(f, "workers still starting: {workers}"),
            Self::CoolingDown => f.write_str("the last change is too recent"),
            Self::Backlog {
                waiting,
                seconds_each,
            } => {
                let each = Duration::from_secs_f64(seconds_each.clamp(0.0, 1e9));
                write!(f, "{waiting} messages wait, each with {each:.3?} of work")
            }
            Self::Waited(time) => write!(f, "messages have waited for a worker for {time:.0?}"),
            Self::IdleWorkers(workers) => {
                write!(f, "messages wait, but {workers} worker(s) are idle")
            }
            Self::AtMax => f.write_str("more are needed than max allows"),
            Self::Memory => f.write_str("more are needed, but memory is short"),
            Self::Cpu => f.write_str("more are needed, but the processors are busy"),
            Self::Spare(workers) => write!(f, "no more than {workers} were needed recently"),
            Self::Nothing => {
                f.write_str("there is nothing to do; the first message starts a worker")
            }
            Self::Woken => f.write_str("a message has come"),
            Self::Enough => f.write_str("the number suffices, and fewer might not"),
        }
    }
}
