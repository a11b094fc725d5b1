//! States of schedules, and of the occurrences of their slots.

use crate::words::words;

/// State of a schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScheduleState {
    /// Its slots are dispatched.
    #[default]
    Active,
    /// An operator has paused it.
    Paused,
    /// Its runs kept failing.
    Disabled,
    /// Its definition, its next slot or its message can't be worked out.
    Broken,
    /// It has no further slot.
    Ended,
}

words!(
    ScheduleState, "state":
    "active" => Active,
    "paused" => Paused,
    "disabled" => Disabled,
    "broken" => Broken,
    "ended" => Ended,
);

/// State of an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OccurrenceState {
    /// Its message waits in the queue.
    Queued,
    /// A worker has it.
    Running,
    /// It is done.
    Completed,
    /// It has failed for good: its message is a dead letter.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its last attempt took too long.
    TimedOut,
    /// Its daemon was lost; it goes on to another state.
    Unknown,
    /// Its slot did not run.
    Skipped,
    /// It waits for another attempt.
    Waiting,
}

words!(
    OccurrenceState, "state":
    "queued" => Queued,
    "running" => Running,
    "completed" => Completed,
    "failed" => Failed,
    "cancelled" => Cancelled,
    "timed_out" => TimedOut,
    "unknown" => Unknown,
    "skipped" => Skipped,
    "waiting" => Waiting,
);

impl OccurrenceState {
    /// All states, each at its code.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Unknown,
        Self::Skipped,
        Self::Waiting,
    ];

    /// States in which an occurrence stays.
    pub const ENDS: [Self; 5] = [
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// Returns the number by which it is stored.
    pub fn code(self) -> i64 {
        let at = Self::ALL.iter().position(|state| *state == self);
        at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)
    }

    /// Returns the state of a number.
    pub fn of_code(code: i64) -> Option<Self> {
        let at = usize::try_from(code).ok()?;
        Self::ALL.get(at).copied()
    }

    /// Returns true if nothing follows by itself.
    pub fn is_end(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut | Self::Skipped => {
                true
            }
            Self::Queued | Self::Running | Self::Unknown | Self::Waiting => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_code_and_a_word() {
        for (code, word) in (0_i64..).zip(OccurrenceState::WORDS) {
            let state = OccurrenceState::of_code(code).unwrap();
            assert_eq!(state.as_str(), *word);
            assert_eq!(state.code(), code);
            assert_eq!(word.parse(), Ok(state));
            assert_eq!(state.is_end(), OccurrenceState::ENDS.contains(&state));
        }
        assert_eq!(OccurrenceState::of_code(9), None);
        assert_eq!(OccurrenceState::of_code(-1), None);
    }
}
