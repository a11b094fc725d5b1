//! Runs of a schedule beside others of it that have not ended: slots, triggers, and runs that waited.

use crate::words::words;

/// Rule for a run while an occurrence of the schedule is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It runs beside the open ones.
    Allow,
    /// It is skipped.
    #[default]
    Skip,
    /// It waits until they have ended.
    Queue {
        /// Number of those that may wait; a further one is skipped.
        max: u32,
    },
    /// The open ones are cancelled, then it runs.
    Replace,
}

words!(
    Overlap, "overlap":
    "allow" => Allow,
    "skip" => Skip,
    "queue" => Queue { max: Self::QUEUE_DEFAULT },
    "replace" => Replace,
);

/// Occurrences of a schedule that have not ended, those that wait for a retry included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Number of all of them.
    pub occurrences: u32,
    /// Number of those among them that wait for others to end; none that waits for a retry.
    pub waiting: u32,
}

/// Decision about a run beside the open ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It runs.
    Run,
    /// It waits until the open ones have ended.
    Wait,
    /// The open ones are cancelled, then it runs.
    Replace,
    /// It is skipped.
    Skip,
}

impl Overlap {
    /// Number of runs that may wait, if none is given.
    pub const QUEUE_DEFAULT: u32 = 100;
    /// Bound of the number of runs that may wait.
    pub const QUEUE_MAX: u32 = 1000;

    /// Returns whether runs may wait for others.
    pub fn queues(self) -> bool {
        matches!(self, Self::Queue { .. } | Self::Replace)
    }

    /// Decides about a run; one that is forced runs beside any.
    pub fn admit(self, open: Open, is_forced: bool) -> Admission {
        if open.occurrences == 0 || is_forced {
            return Admission::Run;
        }
        match self {
            Self::Allow => Admission::Run,
            Self::Queue { max } if open.waiting < max => Admission::Wait,
            Self::Skip | Self::Queue { .. } => Admission::Skip,
            Self::Replace => Admission::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_admitted_by_the_rule() {
        let busy = |waiting| Open {
            occurrences: waiting + 1,
            waiting,
        };
        let queue = Overlap::Queue { max: 2 };
        for (overlap, open, expected) in [
            (Overlap::Allow, busy(0), Admission::Run),
            (Overlap::Skip, busy(0), Admission::Skip),
            (Overlap::Replace, busy(0), Admission::Replace),
            (queue, busy(1), Admission::Wait),
            (queue, busy(2), Admission::Skip),
        ] {
            assert_eq!(overlap.admit(open, false), expected, "{overlap:?} {open:?}");
            assert_eq!(overlap.admit(open, true), Admission::Run);
            assert_eq!(overlap.admit(Open::default(), false), Admission::Run);
        }
    }
}
