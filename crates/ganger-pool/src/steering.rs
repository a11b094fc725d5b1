//! Operators' requests to a pool in addition to its configuration: another number of workers, a pause, a
//! drain. A request holds until it is withdrawn, also across reloads.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use ganger_config::model::{PoolConfig as Policy, WORKERS_MAX};

/// A request of an operator to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Keep this number of workers; `None` for the configured number.
    Scale(Option<usize>),
    /// Stop intake.
    Pause,
    /// Stop intake and let the workers leave once they have finished their messages.
    Drain,
    /// End a pause or a drain.
    Resume,
    /// Replace the workers one by one.
    Roll,
    /// Kill the worker in that slot.
    Kill(usize),
}

/// Requests that hold now. A pool that replaces another begins with the requests of that one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steering {
    /// Number of workers to keep instead of the configured number.
    scaled: Option<usize>,
    /// Messages that the pool takes in.
    intake: IntakeState,
    /// True if the pool's queue is paused for all daemons: nothing is taken in.
    for_all: bool,
    /// Time since which nothing is taken in.
    closed_since: Option<SystemTime>,
}

/// A pause that outlasts a restart of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastingPause {
    /// The pool takes nothing in.
    Paused,
    /// The pool takes nothing in, and its workers leave.
    Drained,
}

/// Intake of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum IntakeState {
    /// As much as the workers can use.
    #[default]
    Open,
    /// Nothing; the workers stay.
    Paused,
    /// Nothing; the workers leave.
    Drained,
}

/// Reason for which a pool refused a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More workers than a pool may have.
    #[error("the number of workers must be within 0..={WORKERS_MAX}: `{0}`")]
    TooMany(usize),
    /// There is no worker in that slot.
    #[error("pool `{pool}` has no running worker in slot {slot}")]
    NoWorker {
        /// The pool.
        pool: String,
        /// The slot.
        slot: usize,
    },
    /// The pool is stopping.
    #[error("pool `{0}` is stopping")]
    Stopping(String),
}

impl Steering {
    /// Returns the state with which a pool begins under this pause.
    pub fn held(held: Option<LastingPause>) -> Self {
        let intake = match held {
            None => IntakeState::Open,
            Some(LastingPause::Paused) => IntakeState::Paused,
            Some(LastingPause::Drained) => IntakeState::Drained,
        };
        Self {
            intake,
            ..Self::default()
        }
    }

    /// Returns the state with which the successor of this pool begins. Its own source reports whether its
    /// queue is paused for all daemons.
    pub fn of_successor(self) -> Self {
        Self {
            for_all: false,
            ..self
        }
    }

    /// Creates a state for the tests of other modules, with a number of workers and a pause.
    pub fn of(scaled: Option<usize>, is_paused: bool) -> Self {
        let intake = match is_paused {
            true => IntakeState::Paused,
            false => IntakeState::Open,
        };
        Self {
            scaled,
            intake,
            for_all: false,
            closed_since: None,
        }
    }

    /// Returns the target number of workers, given the configured number.
    pub(super) fn target(self, configured: usize) -> usize {
        match self.intake {
            IntakeState::Drained => 0,
            IntakeState::Open | IntakeState::Paused => self.scaled.unwrap_or(configured),
        }
    }

    /// Sets the number of workers to keep instead of the configured number; `None` for the latter.
    pub(super) fn scale(&mut self, workers: Option<usize>) -> Result<(), Refusal> {
        if let Some(workers) = workers.filter(|workers| *workers > WORKERS_MAX) {
            return Err(Refusal::TooMany(workers));
        }
        self.scaled = workers;
        Ok(())
    }

    /// Sets the intake.
    pub(super) fn turn(&mut self, intake: IntakeState) {
        self.intake = intake;
    }

    /// Returns the number of workers to keep instead of the configured number.
    pub(super) fn scaled(self) -> Option<usize> {
        self.scaled
    }

    /// Ends a pause, a drain and a scale to no workers at all.
    pub(super) fn resume(&mut self) {
        self.intake = IntakeState::Open;
        self.scaled = self.scaled.filter(|workers| *workers > 0);
    }

    /// Records whether the queue is paused for all daemons. Returns whether this changes.
    pub(super) fn set_for_all(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.for_all, paused) != paused
    }

    /// Returns whether the queue is paused for all daemons.
    pub(super) fn is_for_all(self) -> bool {
        self.for_all
    }

    /// Returns whether nothing is taken in.
    pub(super) fn takes_nothing(self) -> bool {
        self.for_all || self.intake != IntakeState::Open || self.drains()
    }

    /// Records the time since which nothing is taken in, if that is so now.
    pub(super) fn note_closure(&mut self, now: SystemTime) {
        let since = self.closed_since.unwrap_or(now);
        self.closed_since = self.takes_nothing().then_some(since);
    }

    /// Returns the time since which nothing is taken in; `None` if something is.
    pub(super) fn closed_since(self) -> Option<SystemTime> {
        self.closed_since
    }

    /// Returns whether all workers are to leave.
    pub(super) fn drains(self) -> bool {
        self.intake == IntakeState::Drained || self.scaled == Some(0)
    }

    /// Follows new rules: a changed configured number of workers replaces the requested one.
    pub fn reloaded(&mut self, old: &Policy, new: &Policy) {
        if old.workers != new.workers {
            self.scaled = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ganger_config::model::Workers;
    use ganger_config::sample::policy;

    #[test]
    fn what_was_asked_holds_until_the_configured_number_is_another() {
        let configured = |workers| Policy {
            workers: Workers::Fixed(workers),
            ..policy()
        };
        let mut steering = Steering {
            scaled: Some(7),
            ..Steering::default()
        };
        steering.reloaded(&configured(2), &configured(2));
        assert_eq!(steering.target(2), 7);
        steering.reloaded(&configured(2), &configured(3));
        assert_eq!(steering.target(3), 3);
    }

    #[test]
    fn the_time_without_intake_goes_on_from_a_pause_to_a_drain() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut steering = Steering::default();
        steering.note_closure(at(1));
        assert_eq!(steering.closed_since(), None);
        for (second, intake) in [(2, IntakeState::Paused), (3, IntakeState::Drained)] {
            steering.turn(intake);
            steering.note_closure(at(second));
            assert_eq!(steering.closed_since(), Some(at(2)));
        }
        steering.resume();
        steering.note_closure(at(4));
        assert_eq!(steering.closed_since(), None);
    }

    #[test]
    fn a_drain_wants_no_workers_and_remembers_how_many() {
        let mut steering = Steering {
            scaled: Some(7),
            intake: IntakeState::Drained,
            ..Steering::default()
        };
        assert_eq!(steering.target(2), 0);
        assert!(steering.takes_nothing() && steering.drains());
        steering.intake = IntakeState::Paused;
        assert_eq!(steering.target(2), 7);
        assert!(steering.takes_nothing() && !steering.drains());
    }
}
