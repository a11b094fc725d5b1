//! The phases of a stop and their durations. The lane carries a phase out; the daemon requests it.

use std::time::Duration;

/// Phase of a worker's stop. It only ever advances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The worker takes messages.
    #[default]
    Running,
    /// The worker gets no more messages and finishes those it has.
    Draining,
    /// The worker is asked to give its messages up: `__context_switch__`, `__cancel__`.
    Yielding,
    /// The worker is asked to leave: `__quit__` and the end of its pipe.
    Quitting,
    /// The worker's process group was sent SIGTERM.
    Terminating,
    /// The worker's process group was sent SIGKILL.
    Killing,
}

impl Phase {
    /// Returns the phase after this one.
    pub fn next(self) -> Self {
        match self {
            Self::Running => Self::Draining,
            Self::Draining => Self::Yielding,
            Self::Yielding => Self::Quitting,
            Self::Quitting => Self::Terminating,
            Self::Terminating | Self::Killing => Self::Killing,
        }
    }

    /// Returns the time until the next phase begins. `None` where only an event ends the phase:
    /// draining ends with the last message or the daemon's `drain_timeout`, killing with the
    /// process.
    pub fn lasts(self, stop_timeout: Duration) -> Option<Duration> {
        match self {
            Self::Running | Self::Draining | Self::Killing => None,
            Self::Yielding | Self::Quitting | Self::Terminating => Some(stop_timeout),
        }
    }

    /// Returns the name for status and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Yielding => "asked to yield",
            Self::Quitting => "asked to quit",
            Self::Terminating => "sent SIGTERM",
            Self::Killing => "sent SIGKILL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_leads_to_killing_in_order() {
        let mut phase = Phase::Running;
        let mut steps = 0;
        while phase != Phase::Killing {
            assert!(phase.next() > phase);
            phase = phase.next();
            steps += 1;
        }
        assert_eq!(steps, 5);
        assert_eq!(phase.next(), Phase::Killing);
    }
}
