//! How a stop proceeds: its phases and how long each may take. What a phase does to a worker is
//! the lane's affair; who asks for it is the daemon's.

use std::time::Duration;

/// How far the stop of a worker has come. It only ever advances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It takes work.
    #[default]
    Running,
    /// It gets no more work and finishes what it has.
    Draining,
    /// It is asked to give up what it has: `__context_switch__`, `__cancel__`.
    Yielding,
    /// It is asked to leave: `__quit__` and the end of its pipe.
    Quitting,
    /// Its process group has SIGTERM.
    Terminating,
    /// Its process group has SIGKILL.
    Killing,
}

impl Phase {
    /// The phase after this one.
    pub fn next(self) -> Self {
        match self {
            Self::Running => Self::Draining,
            Self::Draining => Self::Yielding,
            Self::Yielding => Self::Quitting,
            Self::Quitting => Self::Terminating,
            Self::Terminating | Self::Killing => Self::Killing,
        }
    }

    /// How long it lasts before the next begins. None where only an event ends it: draining ends
    /// with the last message or the daemon's `drain_timeout`, killing with the process.
    pub fn lasts(self, stop_timeout: Duration) -> Option<Duration> {
        match self {
            Self::Running | Self::Draining | Self::Killing => None,
            Self::Yielding | Self::Quitting | Self::Terminating => Some(stop_timeout),
        }
    }

    /// What status and logs call it.
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
