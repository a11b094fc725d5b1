//! Why a pool has as many workers as it has: a closed set, with a word and a sentence for each.

use std::fmt;
use std::time::Duration;

/// Why a pool keeps its number for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Its workers fail one after the other.
    Degraded,
    /// What its workers depend on seems to be away.
    BreakerOpen,
    /// It was told to take nothing in.
    Paused,
    /// Its source can't be used.
    SourceDown,
    /// Its workers are being replaced.
    Rolling,
}

/// Why a pool has as many workers as it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Nothing was looked at yet.
    Started,
    /// Someone has set it by hand.
    Pinned,
    /// What the range allows.
    Bounds,
    /// This is no time for a change.
    Held(Held),
    /// Those that were added have yet to come up.
    Coming(usize),
    /// The last change is too recent.
    CoolingDown,
    /// So many messages wait, at so many seconds each.
    Backlog {
        /// How many wait.
        waiting: u64,
        /// How long one takes a worker, in seconds.
        seconds_each: f64,
    },
    /// Messages have waited for so long.
    Waited(Duration),
    /// Messages wait although workers have nothing to do: for another message, as of one key.
    IdleWorkers(usize),
    /// More would be needed than there may be.
    AtMax,
    /// More would be needed, but the machine has no memory for them.
    Memory,
    /// More would be needed, but the machine's processors are busy.
    Cpu,
    /// Fewer were enough for long.
    Spare(usize),
    /// It is enough, and fewer might not be.
    Enough,
}

impl Reason {
    /// Whether it is the same but for its figures.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The word for it, one of a small set.
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
            Self::Enough => "enough",
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Degraded => "its workers fail one after the other",
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
            Self::Bounds => f.write_str("min and max allow no other"),
            Self::Held(why) => why.fmt(f),
            Self::Coming(workers) => write!(f, "workers still to come up: {workers}"),
            Self::CoolingDown => f.write_str("the last change is too recent"),
            Self::Backlog {
                waiting,
                seconds_each,
            } => {
                let each = Duration::from_secs_f64(seconds_each.clamp(0.0, 1e9));
                write!(f, "{waiting} messages wait, each of {each:.3?} of work")
            }
            Self::Waited(time) => write!(f, "messages have waited for a worker for {time:.0?}"),
            Self::IdleWorkers(workers) => {
                write!(f, "messages wait, but not for a worker: {workers} idle")
            }
            Self::AtMax => f.write_str("more are needed than there may be"),
            Self::Memory => f.write_str("more are needed, but memory is short"),
            Self::Cpu => f.write_str("more are needed, but the processors are busy"),
            Self::Spare(workers) => write!(f, "no more than {workers} were needed lately"),
            Self::Enough => f.write_str("it is enough, and fewer might not be"),
        }
    }
}
