//! What operators ask of a pool beside its configuration: another number of workers, a pause, an
//! end of work for a while. It holds until it is taken back, over reloads too.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use ganger_config::model::{PoolConfig as Policy, WORKERS_MAX};

/// What an operator may ask of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steer {
    /// Keep so many workers; none for the configured number.
    Scale(Option<usize>),
    /// Take nothing in.
    Pause,
    /// Take nothing in, and let the workers leave when they have done what they have.
    Drain,
    /// An end to either.
    Resume,
    /// Replace the workers one by one.
    Roll,
    /// Kill the worker in that slot.
    Kill(usize),
}

/// What holds for now. A pool that takes another's place begins with what held there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steering {
    /// So many workers instead of the configured number.
    scaled: Option<usize>,
    /// What is taken in.
    intake: Taps,
    /// Its queue is paused for all daemons: nothing is taken in.
    for_all: bool,
    /// Time since which nothing is taken in.
    closed_since: Option<SystemTime>,
}

/// What holds on over a restart of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastingPause {
    /// The pool takes nothing in.
    Paused,
    /// Likewise, and its workers leave.
    Drained,
}

/// What a pool takes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Taps {
    /// What its workers can use.
    #[default]
    Open,
    /// Nothing; the workers stay.
    Paused,
    /// Nothing; the workers leave.
    Drained,
}

/// Why a pool did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More workers than a pool may have.
    #[error("the number of workers must be within 0..={WORKERS_MAX}: `{0}`")]
    TooMany(usize),
    /// There is no worker in that slot.
    #[error("pool `{pool}` has no worker in slot {slot} that runs")]
    NoWorker {
        /// The pool.
        pool: String,
        /// The slot.
        slot: usize,
    },
    /// It ends anyway.
    #[error("pool `{0}` is stopping")]
    Stopping(String),
}

impl Steering {
    /// What a pool begins with of which this holds.
    pub fn held(held: Option<LastingPause>) -> Self {
        let intake = match held {
            None => Taps::Open,
            Some(LastingPause::Paused) => Taps::Paused,
            Some(LastingPause::Drained) => Taps::Drained,
        };
        Self {
            intake,
            ..Self::default()
        }
    }

    /// What another pool in its place begins with: whether that one's queue is paused for all, its own
    /// source tells.
    pub fn of_successor(self) -> Self {
        Self {
            for_all: false,
            ..self
        }
    }

    /// For tests of others: so many workers, and a pause.
    pub fn of(scaled: Option<usize>, is_paused: bool) -> Self {
        let intake = match is_paused {
            true => Taps::Paused,
            false => Taps::Open,
        };
        Self {
            scaled,
            intake,
            for_all: false,
            closed_since: None,
        }
    }

    /// How many workers there should be, where so many are configured.
    pub(super) fn target(self, configured: usize) -> usize {
        match self.intake {
            Taps::Drained => 0,
            Taps::Open | Taps::Paused => self.scaled.unwrap_or(configured),
        }
    }

    /// So many workers instead of the configured number; none for that.
    pub(super) fn scale(&mut self, workers: Option<usize>) -> Result<(), Refusal> {
        if let Some(workers) = workers.filter(|workers| *workers > WORKERS_MAX) {
            return Err(Refusal::TooMany(workers));
        }
        self.scaled = workers;
        Ok(())
    }

    /// What is taken in from now on.
    pub(super) fn turn(&mut self, intake: Taps) {
        self.intake = intake;
    }

    /// So many workers instead of the configured number.
    pub(super) fn scaled(self) -> Option<usize> {
        self.scaled
    }

    /// An end to a pause, a drain, and to no workers at all.
    pub(super) fn resume(&mut self) {
        self.intake = Taps::Open;
        self.scaled = self.scaled.filter(|workers| *workers > 0);
    }

    /// Its queue is paused for all daemons, or no longer. Returns whether that is news.
    pub(super) fn set_for_all(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.for_all, paused) != paused
    }

    /// Its queue is paused for all daemons.
    pub(super) fn is_for_all(self) -> bool {
        self.for_all
    }

    /// Nothing is taken in.
    pub(super) fn takes_nothing(self) -> bool {
        self.for_all || self.intake != Taps::Open || self.drains()
    }

    /// Notes since when nothing is taken in, where that is so now.
    pub(super) fn note_closure(&mut self, now: SystemTime) {
        let since = self.closed_since.unwrap_or(now);
        self.closed_since = self.takes_nothing().then_some(since);
    }

    /// Time since which nothing is taken in; none if something is.
    pub(super) fn closed_since(self) -> Option<SystemTime> {
        self.closed_since
    }

    /// The workers are to leave, all of them.
    pub(super) fn drains(self) -> bool {
        self.intake == Taps::Drained || self.scaled == Some(0)
    }

    /// The rules have changed: another configured number takes the place of what was asked.
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
        for (second, intake) in [(2, Taps::Paused), (3, Taps::Drained)] {
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
            intake: Taps::Drained,
            ..Steering::default()
        };
        assert_eq!(steering.target(2), 0);
        assert!(steering.takes_nothing() && steering.drains());
        steering.intake = Taps::Paused;
        assert_eq!(steering.target(2), 7);
        assert!(steering.takes_nothing() && !steering.drains());
    }
}
